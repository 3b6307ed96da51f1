"""Graph <-> canonical JSON: fixed field order, defaults left out, no spaces; equal graphs give equal bytes.

A hand-written file may list ops in any order; indices refer to the order of its own `ops` list.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from weftline.errors import InputError
from weftline.graph.build import assemble
from weftline.graph.ir import Graph, Op, Tensor, Tied

__all__ = ["GRAPH_FORMAT", "graph_from_json", "graph_to_json"]

GRAPH_FORMAT = "weftline-graph"


class _GraphFile(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    format: Literal["weftline-graph"]
    version: Literal[1]
    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    tied: tuple[Tied, ...] = ()


def graph_to_json(graph: Graph) -> bytes:
    """The canonical bytes of a graph."""
    return msgspec.json.encode(
        {"format": GRAPH_FORMAT, "version": 1, **{name: getattr(graph, name) for name in graph.__struct_fields__}}
    )


def graph_from_json(data: bytes) -> Graph:
    """Read, sort and check a graph; a broken file gives an `InputError` with the path inside it."""
    try:
        file = msgspec.json.decode(data, type=_GraphFile)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(f"not a weftline graph: {error}") from error
    return assemble(file.name, file.ops, file.tensors, file.tied)
