"""Dominator trees of a graph of ops, as ranges: what only reaches the sources (or the sinks) through one op.

In: for every op the ops before it (compressed rows), numbered so that every op stands after those it reads from. Out:
the ops in depth-first order of the tree, in which every subtree is one contiguous range. All sources hang on a root
that is no op. For post-dominators see `post_dominator_ranges`.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices
from weftline.simulate.jit import kernel, part

__all__ = ["dominator_ranges", "dominators", "post_dominator_ranges"]

Ranges = tuple[Indices, Indices, Indices]
"""(n,) ops in depth-first order, (n,) place of each op in it, (n,) size of its subtree."""


@part
def _meet(parent: Indices, jump: Indices, depth: Indices, a: int, b: int) -> int:
    """The lowest common ancestor of two nodes in the tree so far, in logarithmic time (-1 is the root)."""
    while a != b:
        if a < 0 or b < 0:
            return -1
        if depth[a] < depth[b]:
            a, b = b, a
        if depth[a] > depth[b]:
            over = jump[a]
            a = over if over >= 0 and depth[over] >= depth[b] else parent[a]
        elif jump[a] != jump[b]:
            a, b = jump[a], jump[b]
        else:
            a, b = parent[a], parent[b]
    return a


@kernel
def dominators(before_ptr: Indices, before_of: Indices) -> Indices:
    """(n,): the immediate dominator of every op, -1 where it is the root."""
    n = len(before_ptr) - 1
    parent, jump, depth = np.full(n, -1, np.int32), np.full(n, -1, np.int32), np.zeros(n, np.int32)
    for op in range(n):
        begin, stop = before_ptr[op], before_ptr[op + 1]
        if begin == stop:
            continue
        above = int(before_of[begin])
        for e in range(begin + 1, stop):
            if above < 0:
                break
            above = _meet(parent, jump, depth, above, int(before_of[e]))
        parent[op] = above
        if above < 0:
            continue
        depth[op] = depth[above] + 1
        far = jump[above]  # a jump of twice the length where the two below it are equally long (Myers)
        if far >= 0 and depth[above] - depth[far] == depth[far] - (depth[jump[far]] if jump[far] >= 0 else -1):
            jump[op] = jump[far]
        else:
            jump[op] = above
    return parent


@kernel
def dominator_ranges(before_ptr: Indices, before_of: Indices) -> Ranges:
    """Subtrees of the dominator tree as ranges."""
    parent = dominators(before_ptr, before_of)
    n = len(parent)
    size = np.ones(n, np.int32)
    for op in range(n - 1, -1, -1):  # a dominator has a smaller number
        if parent[op] >= 0:
            size[parent[op]] += size[op]
    place, ops = np.zeros(n, np.int32), np.zeros(n, np.int32)
    free = np.zeros(n + 1, np.int32)  # where the next child of a node begins; the last entry is the root's
    for op in range(n):
        above = parent[op]  # -1 is the last entry
        place[op] = free[above]
        free[above] += size[op]
        free[op] = place[op] + 1
        ops[place[op]] = op
    return ops, place, size


def post_dominator_ranges(after_ptr: Indices, after_of: Indices) -> Ranges:
    """The same from the end, given for every op the ops after it."""
    n = len(after_ptr) - 1
    pointer = np.zeros(n + 1, np.int32)
    np.cumsum(np.diff(after_ptr)[::-1], out=pointer[1:])
    ops, place, size = dominator_ranges(pointer, np.ascontiguousarray((n - 1 - after_of)[::-1].astype(np.int32)))
    return (n - 1 - ops).astype(np.int32), np.ascontiguousarray(place[::-1]), np.ascontiguousarray(size[::-1])
