"""An architecture straight to its Graph: built without weights, read by the ONNX importer, never written to disk."""

from __future__ import annotations

from weftline.graph import Graph
from weftline.importers import ImportOptions
from weftline.zoo.registry import build

__all__ = ["zoo_graph"]


def zoo_graph(name: str, *, size: str = "full", **parameters: int) -> Graph:
    """The graph of an architecture, for planning."""
    from weftline.importers.onnx_model import graph_of_model

    return graph_of_model(build(name, size=size, weights=False, **parameters), ImportOptions(), name)
