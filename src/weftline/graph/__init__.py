"""The neutral graph of one model.

In: ops and tensors from an importer, the zoo or our own JSON. Out: an immutable `Graph` whose ops are in topological
order, checked by `check_graph`, with its canonical JSON form and array views for kernels.
Simplified: shapes are static, control edges are tensors of 0 bytes, a weight is a number of bytes, never its values.
"""

from weftline.graph.arrays import GraphArrays
from weftline.graph.build import assemble, check_graph, graph_from_json, graph_to_json
from weftline.graph.ir import Graph, Op, Tensor, Tied
from weftline.graph.repeats import repeated_layers

__all__ = [
    "Graph",
    "GraphArrays",
    "Op",
    "Tensor",
    "Tied",
    "assemble",
    "check_graph",
    "graph_from_json",
    "graph_to_json",
    "repeated_layers",
]
