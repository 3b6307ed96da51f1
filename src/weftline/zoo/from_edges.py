"""Arrays -> Graph: the last step of every synthetic family.

In: op names, kinds and drawn sizes, and edges (source, target) with source < target, so there is no cycle. Out: a Graph
in which an op makes one tensor that all its successors read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.arrays import Ints
from weftline.graph.ir import INPUT
from weftline.importers.regal import FLOPS_PER_UNIT

__all__ = ["Draft", "graph_of_network", "graph_of_units", "rows_of"]


@dataclass(frozen=True, eq=False)
class Draft:
    """A network before it is a graph: ops by index, in topological order, and its edges."""

    names: Sequence[str]
    kinds: Sequence[str]
    blocks: Sequence[str]
    source: Ints
    target: Ints


def rows_of(count: int, source: Ints, target: Ints) -> list[tuple[int, ...]]:
    """Successors of every op: ascending, each once."""
    edges = np.unique(source.astype(np.int64) * count + target)
    ends = np.cumsum(np.bincount(edges // count, minlength=count)).tolist()
    successors = (edges % count).tolist()
    return [tuple(successors[start:end]) for start, end in zip([0, *ends[:-1]], ends, strict=True)]


def graph_of_units(name: str, cost: Ints, size: Ints, source: Ints, target: Ints) -> Graph:
    """A graph in the units of REGAL: 10^6 FLOP per unit of cost, a byte per unit of size, no kinds, no weights."""
    names = [f"random/op.{i}" for i in range(len(cost))]
    ops = [Op(op, flops=units * FLOPS_PER_UNIT) for op, units in zip(names, cost.tolist(), strict=True)]
    consumers = rows_of(len(cost), source, target)
    tensors = [
        Tensor(f"{op}:0", i, readers, bytes=units)
        for i, (op, readers, units) in enumerate(zip(names, consumers, size.tolist(), strict=True))
        if readers
    ]
    return assemble(name, ops, tensors)


def graph_of_network(name: str, draft: Draft, *, flops: Ints, weights: Ints, size: Ints, input_bytes: int) -> Graph:
    """A graph as a framework would give it: an input for ops without predecessors, outputs where nothing reads on."""
    count = len(draft.names)
    consumers = rows_of(count, draft.source, draft.target)
    first = np.flatnonzero(np.bincount(draft.target, minlength=count) == 0)
    traffic = size + weights
    pairs = np.unique(draft.source.astype(np.int64) * count + draft.target)
    np.add.at(traffic, pairs % count, size[pairs // count])
    traffic[first] += input_bytes
    ops = [
        Op(op, kind, flops=work, weight_bytes=weight, traffic_bytes=moved, block=block)
        for op, kind, work, weight, moved, block in zip(
            draft.names, draft.kinds, flops.tolist(), weights.tolist(), traffic.tolist(), draft.blocks, strict=True
        )
    ]
    tensors = [Tensor("input", INPUT, tuple(first.tolist()), bytes=input_bytes, dtype="float32")]
    tensors += [
        Tensor(f"{op}:0", i, readers, bytes=made, dtype="float32", output=not readers)
        for i, (op, readers, made) in enumerate(zip(draft.names, consumers, size.tolist(), strict=True))
    ]
    return assemble(name, ops, tensors)
