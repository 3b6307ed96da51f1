"""The flat arrays of the convex-set bounds: scaled costs, order as bit rows, the network of minimum cuts and its flow.

In: Pieces of equal devices. Out: `ConvexGraph`, what every kernel here reads. A set S costs f(S) = work + `enter` of
each tensor made outside and read inside + `leave` of each made inside and read outside. Simplified: costs are divided
by `divisor` and rounded down, so a bound in these units times the divisor holds for the true costs.

`more_flow` (Dinic's method) continues: a flow is kept, capacities are raised, and the flow goes on from where it was.
The source's side of the cut is the set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.pipeline.pieces import Pieces, compressed_rows
from weftline.simulate.kernels.jit import part

__all__ = [
    "FINE_UNITS",
    "INFINITE_CAPACITY",
    "MOST_PIECES",
    "Bits",
    "ConvexGraph",
    "FlowRow",
    "cost_of",
    "has",
    "lowest",
    "make_graph",
    "more_flow",
    "pack",
]

Bits = NDArray[np.uint64]
"""A set of pieces, 64 to a word, in the last axis."""
FINE_UNITS = 4096
"""Costs in the network are multiplied by this, so that multipliers have fractions."""
INFINITE_CAPACITY = 2**54
"""Capacity of what must not be cut; all finite capacities together stay below."""
MOST_PIECES = 600
MOST_COST = 2**26
"""Of one piece or tensor after division: more than any target, so that cutting it off changes nothing."""
COST_PRECISION = 2**23
"""A set's cost is about this many units after division."""


class ConvexGraph(NamedTuple):
    """n pieces, m tensors. The network has n nodes for pieces and two for each tensor of more than two readers."""

    work: Ints
    enter: Ints
    leave: Ints
    maker: Indices
    reader_ptr: Indices
    reader_of: Indices
    touch_ptr: Indices
    touch_of: Indices
    """Piece -> tensors that it makes or reads."""
    near_ptr: Indices
    near_of: Indices
    """Piece -> pieces that share a tensor with it as maker and reader."""
    before: Bits
    after: Bits
    """(n, words): all pieces that must come before, after."""
    arc_ptr: Indices
    arc_to: Indices
    arc_back: Indices
    """The arcs of each node, and the position of the opposite arc."""
    capacity: Ints
    arc_from: Indices
    next_ptr: Indices
    next_arc: Indices
    """Piece -> arcs from its direct successors to it; closed where a piece of the set lies before it."""
    last_ptr: Indices
    last_arc: Indices
    """Piece -> arcs from its direct predecessors to it."""


def make_graph(pieces: Pieces, divisor: int) -> ConvexGraph:
    """Arrays of the pieces on one of their (equal) devices."""
    n, device = len(pieces.time), pieces.stage_devices[0]
    work = np.minimum(pieces.time[:, device] // divisor, MOST_COST)
    cost = np.minimum(pieces.transfer_time // divisor, MOST_COST)
    maker, ptr, readers = pieces.maker, pieces.reader_ptr, pieces.reader_of
    tensor = np.repeat(np.arange(len(maker)), np.diff(ptr))
    touch_ptr, touch_of = compressed_rows(
        np.concatenate([maker, readers]), np.concatenate([np.arange(len(maker)), tensor]), n
    )
    pairs = np.concatenate([maker[tensor].astype(np.int64) * n + readers, readers.astype(np.int64) * n + maker[tensor]])
    pairs = np.unique(pairs)
    near_ptr, near_of = compressed_rows(pairs // n, pairs % n, n)
    before, after = _order(pieces)
    arcs = _arcs(pieces, cost, tensor)
    return ConvexGraph(
        work, cost, cost, maker, ptr, readers, touch_ptr, touch_of, near_ptr, near_of, before, after, *arcs
    )


def _order(pieces: Pieces) -> tuple[Bits, Bits]:
    n = len(pieces.time)
    words = (n + 63) // 64
    before, after = np.zeros((n, words), np.uint64), np.zeros((n, words), np.uint64)
    one = pack(np.eye(n, dtype=np.bool_))
    for piece in range(n):
        for e in range(pieces.before[0][piece], pieces.before[0][piece + 1]):
            earlier = pieces.before[1][e]
            before[piece] |= before[earlier] | one[earlier]
    for piece in range(n - 1, -1, -1):
        for e in range(pieces.next_ptr[piece], pieces.next_ptr[piece + 1]):
            later = pieces.next_of[e]
            after[piece] |= after[later] | one[later]
    return before, after


def _arcs(
    pieces: Pieces, cost: Ints, tensor: Ints
) -> tuple[Indices, Indices, Indices, Ints, Indices, Indices, Indices, Indices, Indices]:
    """Pairs of opposite arcs, sorted by tail; an arc is cut when its tail is in the set and its head is not."""
    n = len(pieces.time)
    maker, readers = pieces.maker.astype(np.int64), pieces.reader_of.astype(np.int64)
    count = np.diff(pieces.reader_ptr)
    single, double, several = (np.flatnonzero(count == 1), np.flatnonzero(count == 2), np.flatnonzero(count > 2))
    reader = readers[pieces.reader_ptr[single]]
    # A tensor of two readers is cut where its three pieces are not together: half its cost between each two of them.
    one, two = readers[pieces.reader_ptr[double]], readers[pieces.reader_ptr[double] + 1]
    leaving, entering = np.zeros(len(maker), np.int64), np.zeros(len(maker), np.int64)
    leaving[several] = n + 2 * np.arange(len(several))
    entering[several] = leaving[several] + 1
    many = count[tensor] > 2
    endless = np.full(int(many.sum()), INFINITE_CAPACITY, np.int64)
    nothing = np.zeros(len(several), np.int64)
    source, target = (side.astype(np.int64) for side in pieces.edges)
    shut = np.zeros(len(source), np.int64)
    tail = np.concatenate([maker[single], maker[several], leaving[tensor[many]], entering[several], readers[many]])
    tail = np.concatenate([tail, maker[double], maker[double], one, source])
    head = np.concatenate([reader, leaving[several], readers[many], maker[several], entering[tensor[many]]])
    head = np.concatenate([head, one, two, two, target])
    fine = cost * FINE_UNITS
    there = np.concatenate(
        [fine[single], fine[several], endless, fine[several], endless, *[fine[double] // 2] * 3, shut]
    )
    back = np.concatenate([fine[single], nothing, 0 * endless, nothing, 0 * endless, *[fine[double] // 2] * 3, shut])
    pairs, nodes = len(tail), n + 2 * len(several)
    tails = np.concatenate([tail, head])
    order = np.argsort(tails, kind="stable")
    place = np.zeros(2 * pairs, np.int64)
    place[order] = np.arange(2 * pairs)
    opposite = np.concatenate([np.arange(pairs, 2 * pairs), np.arange(pairs)])
    ptr = row_pointer(tails, nodes)
    edge = np.arange(pairs - len(source), pairs)
    next_ptr, next_arc = compressed_rows(source, place[edge + pairs], n)
    last_ptr, last_arc = compressed_rows(target, place[edge], n)
    return (
        ptr,
        np.concatenate([head, tail])[order].astype(np.int32),
        place[opposite[order]].astype(np.int32),
        np.concatenate([there, back])[order],
        tails[order].astype(np.int32),
        next_ptr,
        next_arc,
        last_ptr,
        last_arc,
    )


def pack(member: NDArray[np.bool_]) -> Bits:
    """Rows of booleans -> rows of words."""
    n = member.shape[-1]
    words = (n + 63) // 64
    wide = np.zeros((*member.shape[:-1], words * 64), np.uint8)
    wide[..., :n] = member
    packed = np.packbits(wide, axis=-1, bitorder="little")
    return np.ascontiguousarray(packed).view("<u8").astype(np.uint64).reshape(*member.shape[:-1], words)


@part
def has(bits: Bits, piece: int) -> bool:
    """Is the piece in the set?"""
    return bool((bits[piece >> 6] >> np.uint64(piece & 63)) & np.uint64(1) != np.uint64(0))


@part
def lowest(word: np.uint64) -> int:
    """Number of the lowest bit of a word that is not zero."""
    number = 0
    for width in (32, 16, 8, 4, 2, 1):
        if word & ((np.uint64(1) << np.uint64(width)) - np.uint64(1)) == np.uint64(0):
            word = word >> np.uint64(width)
            number += width
    return number


@part
def cost_of(graph: ConvexGraph, members: Bits) -> int:
    """f of a set."""
    work, maker, reader_ptr, reader_of = graph.work, graph.maker, graph.reader_ptr, graph.reader_of
    total = 0
    for piece in range(len(work)):
        if has(members, piece):
            total += work[piece]
    for tensor in range(len(maker)):
        inside, outside = False, False
        for r in range(reader_ptr[tensor], reader_ptr[tensor + 1]):
            if has(members, reader_of[r]):
                inside = True
            else:
                outside = True
        if has(members, maker[tensor]):
            if outside:
                total += graph.leave[tensor]
        elif inside:
            total += graph.enter[tensor]
    return total


class FlowRow(NamedTuple):
    """The arcs of a network, one flow in it, and scratch."""

    arc_ptr: Indices
    arc_to: Indices
    arc_back: Indices
    left: Ints
    """Room of each arc."""
    source: Ints
    sink: Ints
    """What a node can still take from the source and give to the sink."""
    near: NDArray[np.uint8]
    level: Ints
    arc: Ints
    queue: Ints
    path: Ints


@part
def more_flow(row: FlowRow, starts: int, need: int) -> int:
    """Augment until nothing more fits or `need` is reached -> flow added.

    `near` marks nodes that sources reach and from where nothing leads on; if it ends below `need`, this holds again.
    The first `starts` entries of the queue are sources outside of it; -1 = forget `near`, start at all sources.
    """
    source, near, level, queue = row.source, row.near, row.level, row.queue
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
        tail, met = _levels(row, starts)
        if not met:
            for q in range(tail):
                near[queue[q]] = 1
            return total
        for s in range(starts):
            total += _push(row, queue[s], need - total)
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
def _levels(row: FlowRow, starts: int) -> tuple[int, bool]:
    """Distances from the starts -> number of nodes seen (in the queue), and whether the sink was met."""
    arc_ptr, arc_to, left, sink, near = row.arc_ptr, row.arc_to, row.left, row.sink, row.near
    level, arc, queue = row.level, row.arc, row.queue
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
def _push(row: FlowRow, start: int, need: int) -> int:
    """All that still flows from one start node along the levels, up to `need`."""
    arc_ptr, arc_to, arc_back, left = row.arc_ptr, row.arc_to, row.arc_back, row.left
    source, sink, level, arc, path = row.source, row.sink, row.level, row.arc, row.path
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
