"""Algorithms on the op graph: levels, longest paths, reachability. Ops are in topological order, so one pass is enough.

In: `GraphArrays`. Out: numpy arrays by op index. Reachability is a bit matrix: n^2 / 8 bytes, so ask for it up to
some 50,000 ops.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.errors import UsageError
from weftline.graph.arrays import GraphArrays, Indices, Ints

__all__ = ["adjacency", "descendants", "levels", "longest_path_from", "longest_path_to"]

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


def longest_path_from(graph: GraphArrays, weight: Ints) -> Ints:
    """For every op the largest total weight of a path that starts with it (itself included)."""
    pointer, successors = adjacency(graph)
    best = weight.astype(np.int64).copy()
    for op in range(len(weight) - 1, -1, -1):
        reached = successors[pointer[op] : pointer[op + 1]]
        if len(reached):
            best[op] += best[reached].max()
    return best


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
