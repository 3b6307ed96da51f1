"""Models that need no download.

In: the name of an architecture, a size and a seed. Out: an ONNX model that runs (or, without weights, can be planned),
example inputs for it, its file, its Graph; and seeded synthetic graphs. Simplified: weights are random, so a model
computes nothing of use, but in the shapes, ops and names of the real one.
"""

from weftline.zoo.registry import ZOO, Architecture, architectures, build, build_named, example_inputs, save, zoo_graph
from weftline.zoo.synthetic import FAMILIES, Family, regal_costs, synthetic, to_cost_graph_text

__all__ = [
    "FAMILIES",
    "ZOO",
    "Architecture",
    "Family",
    "architectures",
    "build",
    "build_named",
    "example_inputs",
    "regal_costs",
    "save",
    "synthetic",
    "to_cost_graph_text",
    "zoo_graph",
]
