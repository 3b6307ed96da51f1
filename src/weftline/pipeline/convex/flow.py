"""Minimum cuts that continue: a flow is kept, capacities are raised, and the flow goes on from where it was.

In: the arcs of a network, what room they have left, and for each node what it can still take from the source and give
to the sink. Out: the flow that was added. The source's side of the cut is the block. Dinic's method.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import part

__all__ = ["more_flow"]


@part
def more_flow(
    arc_ptr: Indices,
    arc_to: Indices,
    arc_back: Indices,
    left: Ints,
    source: Ints,
    sink: Ints,
    near: NDArray[np.uint8],
    starts: int,
    need: int,
    level: Ints,
    arc: Ints,
    queue: Ints,
    path: Ints,
) -> int:
    """Augment until nothing more fits or `need` is reached -> flow added.

    `near` marks nodes that sources reach and from where nothing leads on; if it ends below `need`, this holds again.
    The first `starts` entries of the queue are sources outside of it; -1 = forget `near`, start at all sources.
    """
    if starts < 0:
        starts = 0
        for node in range(len(source)):
            near[node] = 0
            if source[node] > 0:
                queue[starts] = node
                starts += 1
    total = 0
    for node in range(len(source)):
        level[node] = -1
    while True:
        tail, met = _levels(arc_ptr, arc_to, left, sink, near, starts, level, arc, queue)
        if not met:
            for q in range(tail):
                near[queue[q]] = 1
            return total
        for s in range(starts):
            total += _push(arc_ptr, arc_to, arc_back, left, source, sink, queue[s], need - total, level, arc, path)
            if total >= need:
                return total
        for q in range(tail):
            level[queue[q]] = -1
        keep = 0
        for s in range(starts):
            if source[queue[s]] > 0:
                queue[keep] = queue[s]
                keep += 1
        starts = keep


@part
def _levels(
    arc_ptr: Indices,
    arc_to: Indices,
    left: Ints,
    sink: Ints,
    near: NDArray[np.uint8],
    starts: int,
    level: Ints,
    arc: Ints,
    queue: Ints,
) -> tuple[int, bool]:
    """Distances from the starts -> number of nodes seen (in the queue), and whether the sink was met."""
    for q in range(starts):
        level[queue[q]] = 0
        arc[queue[q]] = arc_ptr[queue[q]]
    head, tail = 0, starts
    while head < tail:
        node = queue[head]
        head += 1
        if sink[node] > 0:
            return tail, True
        for a in range(arc_ptr[node], arc_ptr[node + 1]):
            to = arc_to[a]
            if level[to] == -1 and left[a] > 0 and not near[to]:
                level[to] = level[node] + 1
                arc[to] = arc_ptr[to]
                queue[tail] = to
                tail += 1
    return tail, False


@part
def _push(
    arc_ptr: Indices,
    arc_to: Indices,
    arc_back: Indices,
    left: Ints,
    source: Ints,
    sink: Ints,
    start: int,
    need: int,
    level: Ints,
    arc: Ints,
    path: Ints,
) -> int:
    """All that still flows from one start node along the levels, up to `need`."""
    total, depth, node = 0, 0, start
    while source[start] > 0 and total < need:
        if sink[node] > 0:
            amount = min(source[start], sink[node])
            for p in range(depth):
                amount = min(amount, left[path[p]])
            source[start] -= amount
            sink[node] -= amount
            for p in range(depth):
                left[path[p]] -= amount
                left[arc_back[path[p]]] += amount
            total += amount
            keep = depth
            for p in range(depth):
                if left[path[p]] == 0:
                    keep = p
                    break
            if keep < depth:
                depth = keep
                node = arc_to[arc_back[path[depth]]]
            continue
        moved = False
        while arc[node] < arc_ptr[node + 1]:
            a = arc[node]
            to = arc_to[a]
            if left[a] > 0 and level[to] == level[node] + 1:
                path[depth] = a
                depth += 1
                node = to
                moved = True
                break
            arc[node] += 1
        if not moved:
            level[node] = -2
            if depth == 0:
                break
            depth -= 1
            node = arc_to[arc_back[path[depth]]]
            arc[node] += 1
    return total
