"""Op, Tensor, Tied and Graph: what every other room means by a model."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weftline.lazy import notebook_html

if TYPE_CHECKING:
    from weftline.graph.arrays import GraphArrays

__all__ = ["MODEL_INPUT", "Graph", "Op", "Tensor", "Tied"]

MODEL_INPUT = -1
"""The `producer` of a tensor that the caller of the model provides."""


class Op(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One operator. Work and memory are totals for one inference (one micro-batch)."""

    name: str
    """Unique in the graph; the name in the model file where it has one."""
    kind: str = ""
    """Operator type, `Conv`, `MatMul` ..., as the source format spells it."""
    flops: int = 0
    """Floating-point operations; one multiply-add counts as two."""
    weight_bytes: int = 0
    """Parameters used by this op alone (shared ones are in `Graph.tied`)."""
    workspace_bytes: int = 0
    """Scratch memory held while the op runs."""
    traffic_bytes: int = 0
    """Bytes the op reads and writes in its device's memory: inputs, outputs, the weights it touches."""
    block: str = ""
    """Layer or block it belongs to (`encoder/layer.3`), kept for reports and for exports by layer."""
    backward: bool = False
    """True for a gradient op of a training graph."""
    guessed: bool = False
    """True where `flops` and `traffic_bytes` rest on sizes that could not be computed and have no known limit."""


class Tensor(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, omit_defaults=True):
    """One activation: made by one op (or given as an input), read by any number of ops."""

    name: str
    """Unique in the graph."""
    producer: int
    """Index of the op that makes it, or `MODEL_INPUT`."""
    consumers: tuple[int, ...] = ()
    """Indices of the ops that read it: ascending, each once."""
    bytes: int = 0
    """Size when it is moved or held: that of `shape`."""
    shape: tuple[int, ...] = ()
    """Sizes; on a `dynamic` axis the largest possible one where that is known, else a stand-in (then `guessed`)."""
    dtype: str = ""
    """Element type as numpy spells it, empty where the source does not say."""
    output: bool = False
    """True if the caller of the model receives it: it is held to the end."""
    dynamic: tuple[int, ...] = ()
    """Axes of `shape` whose real size is known only when the model runs: ascending, each once."""
    guessed: bool = False
    """True where some size in `shape` is a mere guess, not even an upper bound."""


class Tied(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True):
    """One weight that several ops use: every device that runs at least one of them holds it once."""

    name: str
    bytes: int
    ops: tuple[int, ...]


class Graph(msgspec.Struct, frozen=True, dict=True, forbid_unknown_fields=True, omit_defaults=True):
    """A model: ops in topological order, the tensors between them, and the weights they share.

    Build one with `assemble` (any order, sorted and checked) rather than directly.
    """

    name: str
    ops: tuple[Op, ...]
    tensors: tuple[Tensor, ...]
    tied: tuple[Tied, ...] = ()

    @cached_property
    def arrays(self) -> GraphArrays:
        """The same graph as flat arrays, for kernels."""
        from weftline.graph.arrays import GraphArrays

        return GraphArrays.of(self)

    @cached_property
    def index(self) -> dict[str, int]:
        """Op name -> op index."""
        return {op.name: i for i, op in enumerate(self.ops)}

    @cached_property
    def guessed(self) -> tuple[Op, ...]:
        """The ops whose costs rest on a guess."""
        return tuple(op for op in self.ops if op.guessed)

    def save(self, path: Path | str) -> None:
        """Write it as JSON, which `wl.load` reads back: a module of PyTorch needs to be traced only once."""
        from weftline.files import write_atomically
        from weftline.graph.build import graph_to_json

        write_atomically(path, graph_to_json(self))

    def _repr_html_(self) -> str:
        """What a notebook shows."""
        return notebook_html(self)

    def __repr__(self) -> str:
        return f"Graph({self.name!r}, {len(self.ops)} ops, {len(self.tensors)} tensors)"
