"""What a branch and bound over convex sets knows at one node, and how it follows what a decision means.

A row holds pieces that are in, out, after a piece that is in, before one; and the flow of the minimum cut under these
decisions. In: a decision. Out: everything it implies, the raised capacities, and the new value of the cut.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import FINE_UNITS, INFINITE_CAPACITY, Bits, ConvexGraph, FlowRow, lowest, more_flow
from weftline.simulate.kernels.jit import part

__all__ = [
    "PLANE_IN",
    "PLANE_OUT",
    "ConvexState",
    "copy_row",
    "fresh",
    "is_convex",
    "make_state",
    "propagate",
    "put",
    "reached",
    "shift",
]

PLANE_IN, PLANE_OUT, PLANE_BELOW, PLANE_ABOVE, PLANE_DONE_BELOW, PLANE_DONE_ABOVE = 0, 1, 2, 3, 4, 5
"""Planes of `bits`: decided; after or before a piece that is in; pieces out whose order has been followed."""
FIRST_KNOWN = 6
"""Four more planes: what of PLANE_IN, PLANE_OUT, PLANE_BELOW, PLANE_ABOVE the network has been told."""
ALL_PLANES = 10
ALL_SOURCES = np.array([-1])


class ConvexState(NamedTuple):
    """Rows of decisions and flows, and scratch for one flow."""

    bits: Bits
    """(rows, ALL_PLANES, words)"""
    left: Ints
    source: Ints
    sink: Ints
    near: NDArray[np.uint8]
    """(rows, nodes): 1 where sources still reach: the smallest best set, after a flow that went to its end."""
    value: Ints
    """(rows,): least of FINE_UNITS * f - multiplier * pi under the decisions, or a number that was enough to prune."""
    multiplier: Ints
    level: Ints
    arc: Ints
    queue: Ints
    path: Ints


def make_state(graph: ConvexGraph, rows: int) -> ConvexState:
    """Empty rows."""
    words, nodes, arcs = graph.before.shape[1], len(graph.arc_ptr) - 1, len(graph.arc_to)
    scratch = [np.zeros(nodes + 1, np.int64) for _ in range(4)]
    return ConvexState(
        np.zeros((rows, ALL_PLANES, words), np.uint64),
        np.zeros((rows, arcs), np.int64),
        np.zeros((rows, nodes), np.int64),
        np.zeros((rows, nodes), np.int64),
        np.zeros((rows, nodes), np.uint8),
        np.zeros(rows, np.int64),
        np.zeros(rows, np.int64),
        *scratch,
    )


@part
def copy_row(state: ConvexState, source: int, target: int) -> None:
    """All that one row knows, into another."""
    bits, left, more = state.bits, state.left, state.source
    sink, near = state.sink, state.near
    for plane in range(ALL_PLANES):
        for i in range(bits.shape[2]):
            bits[target, plane, i] = bits[source, plane, i]
    for a in range(left.shape[1]):
        left[target, a] = left[source, a]
    for node in range(more.shape[1]):
        more[target, node] = more[source, node]
        sink[target, node] = sink[source, node]
        near[target, node] = near[source, node]
    state.value[target] = state.value[source]
    state.multiplier[target] = state.multiplier[source]


@part
def propagate(before: Bits, after: Bits, conflict: Bits, bits: Bits) -> bool:
    """Follow order and conflicts to a fixpoint; `told` pieces are those already followed. False = contradiction."""
    words = before.shape[1]
    told = np.zeros(words, np.uint64)
    changed = True
    while changed:
        changed = False
        for i in range(words):
            bits[PLANE_IN, i] |= bits[PLANE_BELOW, i] & bits[PLANE_ABOVE, i]
            rest = bits[PLANE_IN, i] & ~told[i] & ~bits[FIRST_KNOWN + PLANE_IN, i]
            told[i] |= rest
            while rest != np.uint64(0):
                piece = i * 64 + lowest(rest)
                rest &= rest - np.uint64(1)
                changed = True
                for j in range(words):
                    bits[PLANE_BELOW, j] |= after[piece, j]
                    bits[PLANE_ABOVE, j] |= before[piece, j]
                    bits[PLANE_OUT, j] |= conflict[piece, j]
        for i in range(words):
            rest = bits[PLANE_OUT, i] & bits[PLANE_BELOW, i] & ~bits[PLANE_DONE_BELOW, i]
            bits[PLANE_DONE_BELOW, i] |= rest
            while rest != np.uint64(0):
                piece = i * 64 + lowest(rest)
                rest &= rest - np.uint64(1)
                changed = True
                for j in range(words):
                    bits[PLANE_OUT, j] |= after[piece, j]
            rest = bits[PLANE_OUT, i] & bits[PLANE_ABOVE, i] & ~bits[PLANE_DONE_ABOVE, i]
            bits[PLANE_DONE_ABOVE, i] |= rest
            while rest != np.uint64(0):
                piece = i * 64 + lowest(rest)
                rest &= rest - np.uint64(1)
                changed = True
                for j in range(words):
                    bits[PLANE_OUT, j] |= before[piece, j]
        for i in range(words):
            if bits[PLANE_IN, i] & bits[PLANE_OUT, i] != np.uint64(0):
                return False
    return True


@part
def _tell(graph: ConvexGraph, state: ConvexState, row: int) -> int:
    """Raise the capacities that new decisions stand for -> number of new starts (in `queue`), -1 = all sources.

    A piece x after a piece of the set: whoever follows x and is in the set needs x in it too. Likewise before.
    The nodes that sources reach have no arc with room left that leads elsewhere. As long as this stays so, only
    flow from pieces that are new in the set can reach the sink.
    """
    bits, near, queue = state.bits[row], state.near[row], state.queue
    source, sink, left = state.source[row], state.sink[row], state.left[row]
    arc_from, arc_to = graph.arc_from, graph.arc_to
    starts = 0
    for plane in range(4):
        ptr, arcs = (graph.next_ptr, graph.next_arc) if plane == PLANE_BELOW else (graph.last_ptr, graph.last_arc)
        for i in range(bits.shape[1]):
            rest = bits[plane, i] & ~bits[FIRST_KNOWN + plane, i]
            bits[FIRST_KNOWN + plane, i] = bits[plane, i]
            while rest != np.uint64(0):
                piece = i * 64 + lowest(rest)
                rest &= rest - np.uint64(1)
                if plane == PLANE_IN:
                    source[piece] += INFINITE_CAPACITY
                    if not near[piece] and starts >= 0:
                        queue[starts] = piece
                        starts += 1
                elif plane == PLANE_OUT:
                    sink[piece] += INFINITE_CAPACITY
                    if near[piece]:
                        starts = -1
                else:
                    for a in range(ptr[piece], ptr[piece + 1]):
                        left[arcs[a]] += INFINITE_CAPACITY
                        if near[arc_from[arcs[a]]] and not near[arc_to[arcs[a]]]:
                            starts = -1
    return starts


@part
def _go_on(graph: ConvexGraph, state: ConvexState, row: int, starts: int, limit: int) -> bool:
    """Let the flow of a row go on -> False if its value has come above the limit."""
    need = limit + 1 - state.value[row]
    if need <= 0:
        return False
    if starts == 0:
        return True
    flow = FlowRow(
        graph.arc_ptr,
        graph.arc_to,
        graph.arc_back,
        state.left[row],
        state.source[row],
        state.sink[row],
        state.near[row],
        state.level,
        state.arc,
        state.queue,
        state.path,
    )
    added = more_flow(flow, starts, need)
    state.value[row] += added
    return bool(added < need)


@part
def put(graph: ConvexGraph, conflict: Bits, state: ConvexState, row: int, piece: int, plane: int, limit: int) -> bool:
    """Decide a piece (PLANE_IN or PLANE_OUT) -> False if nothing with a value up to the limit is left."""
    state.bits[row, plane, piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
    if not propagate(graph.before, graph.after, conflict, state.bits[row]):
        return False
    return _go_on(graph, state, row, _tell(graph, state, row), limit)


@part
def fresh(graph: ConvexGraph, pi: Ints, state: ConvexState, row: int, multiplier: int) -> bool:
    """The flow of a row from nothing, for a multiplier -> False if its decisions contradict each other."""
    left, source, sink, bits = state.left[row], state.source[row], state.sink[row], state.bits[row]
    capacity, work = graph.capacity, graph.work
    for a in range(len(capacity)):
        left[a] = capacity[a]
    for node in range(len(source)):
        source[node] = 0
        sink[node] = 0
    base = 0
    for piece in range(len(work)):
        price = FINE_UNITS * work[piece] - multiplier * pi[piece]
        if price < 0:
            base += price
            source[piece] = -price
        else:
            sink[piece] = price
    for plane in range(FIRST_KNOWN, ALL_PLANES):
        for i in range(bits.shape[1]):
            bits[plane, i] = np.uint64(0)
    state.multiplier[row] = multiplier
    state.value[row] = base
    _tell(graph, state, row)
    return _go_on(graph, state, row, ALL_SOURCES[0], base + INFINITE_CAPACITY - 1)


@part
def shift(graph: ConvexGraph, pi: Ints, state: ConvexState, row: int, multiplier: int) -> bool:
    """The flow of a row for another multiplier, from where it is.

    A price that falls below what already flows from the piece to the sink becomes a new source; one that rises uses up
    what the source still offers. Both are the same cut up to a constant.
    """
    step = multiplier - state.multiplier[row]
    source, sink = state.source[row], state.sink[row]
    value = state.value[row]
    for piece in range(len(graph.work)):
        change = -step * pi[piece]
        if change < 0:
            room = min(-change, sink[piece])
            sink[piece] -= room
            source[piece] -= change + room
            value += change + room
        else:
            room = min(change, source[piece])
            source[piece] -= room
            sink[piece] += change - room
            value += room
    state.multiplier[row] = multiplier
    state.value[row] = value
    return _go_on(graph, state, row, ALL_SOURCES[0], value + INFINITE_CAPACITY - 1)


@part
def reached(state: ConvexState, row: int, members: Bits, pi: Ints) -> int:
    """The best set of a row whose flow went to its end -> its weight."""
    near, weight = state.near[row], 0
    for i in range(len(members)):
        members[i] = np.uint64(0)
    for piece in range(len(pi)):
        if near[piece]:
            weight += pi[piece]
            members[piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
    return weight


@part
def is_convex(before: Bits, after: Bits, members: Bits, gap: Bits) -> bool:
    """Also fills `gap`: pieces between members that are not members."""
    words = len(members)
    below, above = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    for i in range(words):
        rest = members[i]
        while rest != np.uint64(0):
            piece = i * 64 + lowest(rest)
            rest &= rest - np.uint64(1)
            for j in range(words):
                below[j] |= after[piece, j]
                above[j] |= before[piece, j]
    convex = True
    for i in range(words):
        gap[i] = below[i] & above[i] & ~members[i]
        if gap[i] != np.uint64(0):
            convex = False
    return convex
