"""The graph as flat numpy arrays (compressed rows), the form that kernels read, and algorithms on it: levels, longest
paths, reachability. Ops are in topological order, so one pass is enough.

In: a Graph. Out: `GraphArrays`, and numpy arrays by op index. Reachability is a bit matrix: n^2 / 8 bytes, so ask for
it up to some 50,000 ops.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError

if TYPE_CHECKING:
    from weftline.graph.ir import Graph

__all__ = [
    "GraphArrays",
    "Indices",
    "Ints",
    "adjacency",
    "descendants",
    "levels",
    "longest_path_to",
    "ready_first",
    "row_pointer",
]

MAX_REACHABILITY = 50_000


def adjacency(graph: GraphArrays) -> tuple[Indices, Indices]:
    """Compressed rows op -> successor ops (each once, ascending)."""
    n = len(graph.input_ptr) - 1
    source, target, _ = graph.edges()
    key = np.unique(source.astype(np.int64) * n + target)
    pointer = np.zeros(n + 1, np.int32)
    np.cumsum(np.bincount(key // n, minlength=n), out=pointer[1:])
    return pointer, (key % n).astype(np.int32)


def levels(graph: GraphArrays) -> Ints:
    """Number of ops on the longest path that ends just before each op."""
    return longest_path_to(graph, np.ones(len(graph.input_ptr) - 1, np.int64)) - 1


def longest_path_to(graph: GraphArrays, weight: Ints) -> Ints:
    """For every op the largest total weight of a path that ends with it (itself included)."""
    pointer, successors = adjacency(graph)
    best = weight.astype(np.int64).copy()
    for op in range(len(weight)):
        reached = successors[pointer[op] : pointer[op + 1]]
        if len(reached):
            np.maximum.at(best, reached, best[op] + weight[reached])
    return best


def ready_first(successors: Sequence[Sequence[int]], waiting: list[int]) -> list[int]:
    """A topological order, lowest number first among those that are ready; `waiting` counts predecessors.

    What waits for a cycle is left out, and its counts stay above 0.
    """
    ready = [op for op, count in enumerate(waiting) if count == 0]  # ascending, hence a heap
    order: list[int] = []
    while ready:
        order.append(heappop(ready))
        for later in successors[order[-1]]:
            waiting[later] -= 1
            if waiting[later] == 0:
                heappush(ready, later)
    return order


def descendants(graph: GraphArrays) -> NDArray[np.uint64]:
    """Bit matrix: bit j of row i is set if op j can be reached from op i (an op does not reach itself)."""
    n = len(graph.input_ptr) - 1
    if n > MAX_REACHABILITY:
        raise UsageError(f"reachability of {n} ops would need {n * n // 8} bytes; the limit is {MAX_REACHABILITY} ops")
    pointer, successors = adjacency(graph)
    rows = np.zeros((n, (n + 63) // 64), np.uint64)
    for op in range(n - 1, -1, -1):
        for successor in successors[pointer[op] : pointer[op + 1]]:
            rows[op] |= rows[successor]
            rows[op, successor >> 6] |= np.uint64(1 << (int(successor) & 63))
    return rows


Ints = NDArray[np.int64]
Indices = NDArray[np.int32]


@dataclass(frozen=True, eq=False)
class GraphArrays:
    """Row i of a `*_ptr` / `*_of` pair is `*_of[ptr[i]:ptr[i+1]]`."""

    producer: Indices
    """Tensor -> op, -1 for an input of the graph."""
    consumer_ptr: Indices
    consumer_of: Indices
    """Tensor -> ops that read it, ascending."""
    input_ptr: Indices
    input_of: Indices
    """Op -> tensors it reads, ascending, inputs of the graph included."""
    output_ptr: Indices
    output_of: Indices
    """Op -> tensors it makes, ascending."""
    tensor_bytes: Ints
    is_output: NDArray[np.bool_]
    weight_bytes: Ints
    workspace_bytes: Ints
    backward: NDArray[np.bool_]
    tied_ptr: Indices
    tied_of: Indices
    """Tied weight -> ops that use it."""
    tied_bytes: Ints

    @staticmethod
    def of(graph: Graph) -> GraphArrays:
        """Flatten a graph."""
        n, m = len(graph.ops), len(graph.tensors)
        producer = np.fromiter((t.producer for t in graph.tensors), np.int32, m)
        consumer_ptr, consumer_of = _rows([t.consumers for t in graph.tensors])
        reader = consumer_of
        read = np.repeat(np.arange(m, dtype=np.int32), np.diff(consumer_ptr))
        input_ptr, input_of = _transpose(reader, read, n)
        made = np.flatnonzero(producer >= 0).astype(np.int32)
        output_ptr, output_of = _transpose(producer[made], made, n)
        tied_ptr, tied_of = _rows([tied.ops for tied in graph.tied])
        return GraphArrays(
            producer=producer,
            consumer_ptr=consumer_ptr,
            consumer_of=consumer_of,
            input_ptr=input_ptr,
            input_of=input_of,
            output_ptr=output_ptr,
            output_of=output_of,
            tensor_bytes=np.fromiter((t.bytes for t in graph.tensors), np.int64, m),
            is_output=np.fromiter((t.output for t in graph.tensors), np.bool_, m),
            weight_bytes=np.fromiter((op.weight_bytes for op in graph.ops), np.int64, n),
            workspace_bytes=np.fromiter((op.workspace_bytes for op in graph.ops), np.int64, n),
            backward=np.fromiter((op.backward for op in graph.ops), np.bool_, n),
            tied_ptr=tied_ptr,
            tied_of=tied_of,
            tied_bytes=np.fromiter((tied.bytes for tied in graph.tied), np.int64, len(graph.tied)),
        )

    def edges(self) -> tuple[Indices, Indices, Indices]:
        """Every op -> op edge as (source op, target op, tensor), tensor by tensor."""
        tensor = np.repeat(np.arange(len(self.producer), dtype=np.int32), np.diff(self.consumer_ptr))
        source = self.producer[tensor]
        inner = source >= 0
        return source[inner], self.consumer_of[inner], tensor[inner]


def _rows(rows: list[tuple[int, ...]]) -> tuple[Indices, Indices]:
    pointer = np.zeros(len(rows) + 1, np.int32)
    np.cumsum([len(row) for row in rows], out=pointer[1:])
    return pointer, np.fromiter(chain.from_iterable(rows), np.int32, int(pointer[-1]))


def row_pointer(row: Indices | Ints, rows: int) -> Indices:
    """Where each of `rows` compressed rows begins, from the row of every entry in any order."""
    pointer = np.zeros(rows + 1, np.int32)
    np.cumsum(np.bincount(row, minlength=rows), out=pointer[1:])
    return pointer


def _transpose(key: Indices, value: Indices, rows: int) -> tuple[Indices, Indices]:
    return row_pointer(key, rows), value[np.argsort(key, kind="stable")]
