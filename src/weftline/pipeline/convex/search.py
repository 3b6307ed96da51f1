"""Branch and bound: is there a convex set S with f(S) < target and pi(S) >= least?

Relaxation: the least of f(S) - mu * (pi(S) - least) is a minimum cut for every mu >= 0, given what is in and out.
Convexity is exact there for everything before or after a piece that is in, and propagated for the rest. Children
continue the flow of their parent. In: `ConvexGraph`, weights, target. Out: sets found, or that there is none.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import FINE_UNITS, Bits, ConvexGraph, cost_of, has
from weftline.pipeline.convex.state import (
    PLANE_IN,
    PLANE_OUT,
    ConvexState,
    copy_row,
    fresh,
    is_convex,
    propagate,
    put,
    reached,
    shift,
)
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["SearchQuery", "find_conflicts", "search"]

BOX_TARGET, BOX_LEAST, BOX_NODES, BOX_FOUND, BOX_LIMIT, BOX_MINIMISE, BOX_MORE, BOX_MULTIPLIER = 0, 1, 2, 3, 4, 5, 6, 7
"""Entries of `box`: target, least pi, nodes so far, sets found so far, limit of nodes, 1 = lower the target to what is
found and go on, nodes to spend after the first set was found, first multiplier (later: the one used at the root)."""
NODE_DONE, LOOK_AGAIN = -1, -2
"""In place of a piece to branch on."""
TUNING_STEPS = np.array([25, 4])
"""Multipliers tried at the root and later."""
SIDE_PLANES = np.array([PLANE_IN, PLANE_OUT])
"""From an array they are numbers like any other; as literals each would have parts compiled for it."""
RETUNE_AFTER = 3
"""Decisions after which the multiplier is chosen anew."""


class SearchQuery(NamedTuple):
    """What is asked, and what is learned."""

    pi: Ints
    """Weight of each piece."""
    conflict: Bits
    """(n, words): pairs of pieces that no set holds."""
    box: Ints
    found: Bits
    """Space for sets."""
    gain: NDArray[np.float64]
    """How much deciding a piece has raised the bound, as a share of what was left; kept from search to search."""


@part
def _tune(graph: ConvexGraph, query: SearchQuery, state: ConvexState, row: int, steps: int, members: Bits) -> bool:
    """Better multipliers: the bound is concave in them, each cut gives one line of it. False = pruned."""
    pi, box, found, spare = query.pi, query.box, query.found, len(state.value) - 1
    gap = np.zeros(len(members), np.uint64)
    least = box[BOX_LEAST]
    low, high = -1, -1
    low_cost = low_pi = high_cost = high_pi = 0
    multiplier = state.multiplier[row]
    best = state.value[row] + multiplier * least
    for step in range(steps):
        if step == 0:
            copy_row(state, row, spare)
        elif not shift(graph, pi, state, spare, multiplier):
            return False
        bound = state.value[spare] + multiplier * least
        inside = reached(state, spare, members, pi)
        if inside >= least:
            _record(graph, members, gap, box, found)
        if bound > best:
            best = bound
            copy_row(state, spare, row)
        if best > FINE_UNITS * (box[BOX_TARGET] - 1):
            return False
        cost = state.value[spare] + multiplier * inside
        if inside < least:
            low, low_cost, low_pi = multiplier, cost, inside
        else:
            high, high_cost, high_pi = multiplier, cost, inside
        if low < 0:
            multiplier = high // 2
            if high <= 1:
                break
        elif high < 0:
            multiplier = low * 2
            if multiplier * max(1, abs(least)) > 2**46:
                break
        else:
            multiplier = int((high_cost - low_cost) / max(1, high_pi - low_pi))
            if multiplier <= min(low, high) or multiplier >= max(low, high):
                break
    return True


@part
def _record(graph: ConvexGraph, members: Bits, gap: Bits, box: Ints, found: Bits) -> bool:
    """Keep a set of enough weight if it is convex and cheap enough."""
    if not is_convex(graph.before, graph.after, members, gap):
        return False
    cost = cost_of(graph, members)
    if cost >= box[BOX_TARGET]:
        return False
    if box[BOX_MINIMISE]:
        box[BOX_TARGET] = cost
        _keep(found, box[BOX_FOUND] - box[BOX_FOUND], members)
        box[BOX_FOUND] = 1
        return True
    if box[BOX_FOUND] < len(found):
        _keep(found, box[BOX_FOUND], members)
        box[BOX_FOUND] += 1
    return True


@part
def _keep(found: Bits, place: int, members: Bits) -> None:
    for i in range(len(members)):
        found[place, i] = members[i]


@part
def _candidates(
    graph: ConvexGraph,
    pi: Ints,
    box: Ints,
    decided: Bits,
    members: Bits,
    gap: Bits,
    chosen: Ints,
    gain: NDArray[np.float64],
) -> int:
    """The most promising pieces to decide -> how many."""
    count, n = 0, len(pi)
    work, near_ptr, near_of, out, yes = graph.work, graph.near_ptr, graph.near_of, decided[PLANE_OUT], decided[PLANE_IN]
    score = np.zeros(len(chosen), np.float64)
    for piece in range(n):
        if has(out, piece) or has(yes, piece):
            continue
        mine = 0.02 + work[piece] / max(1.0, box[BOX_TARGET]) + abs(pi[piece]) / max(1.0, box[BOX_LEAST])
        if has(members, piece) or has(gap, piece):
            mine *= 2.0
        for r in range(near_ptr[piece], near_ptr[piece + 1]):
            if has(yes, near_of[r]):
                mine *= 1.5
                break
        mine *= 0.1 + gain[piece]
        place = count
        while place > 0 and score[place - 1] < mine:
            place -= 1
        if place >= len(chosen):
            continue
        count = min(count + 1, len(chosen))
        for q in range(count - 1, place, -1):
            score[q] = score[q - 1]
            chosen[q] = chosen[q - 1]
        score[place] = mine
        chosen[place] = piece
    return count


@part
def _examine(graph: ConvexGraph, query: SearchQuery, state: ConvexState, row: int, since: Ints) -> int:
    """Bound a node, decide what can be decided -> the piece to branch on, NODE_DONE if there is none."""
    pi, box, found = query.pi, query.box, query.found
    words = graph.before.shape[1]
    members, gap = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    box[BOX_NODES] += 1
    chosen = np.zeros(12 if row > 6 else 8, np.int64)
    while True:
        if since[row] >= RETUNE_AFTER and box[BOX_LEAST] > 0:
            since[row] = 0
            if not _tune(graph, query, state, row, TUNING_STEPS[1], members):
                return NODE_DONE
        limit = FINE_UNITS * (box[BOX_TARGET] - 1) - state.multiplier[row] * box[BOX_LEAST]
        if state.value[row] > limit:
            return NODE_DONE
        inside = reached(state, row, members, pi)
        if inside >= box[BOX_LEAST] and _record(graph, members, gap, box, found):
            if box[BOX_MINIMISE]:
                continue
            return NODE_DONE
        is_convex(graph.before, graph.after, members, gap)
        count = _candidates(graph, pi, box, state.bits[row], members, gap, chosen, query.gain)
        if count == 0:
            for i in range(words):
                members[i] = state.bits[row, PLANE_IN, i]
            inside = 0
            for piece in range(len(pi)):
                if has(members, piece):
                    inside += pi[piece]
            if inside >= box[BOX_LEAST]:
                _record(graph, members, gap, box, found)
            return NODE_DONE
        piece = _strongest(graph, query, state, row, chosen, count, limit)
        if piece != LOOK_AGAIN:
            return piece


@part
def _strongest(
    graph: ConvexGraph, query: SearchQuery, state: ConvexState, row: int, chosen: Ints, count: int, limit: int
) -> int:
    """Try both sides of each candidate: one that has one side left is decided -> the piece whose sides cost most.

    NODE_DONE if nothing is left, LOOK_AGAIN if that piece has been decided meanwhile.
    """
    conflict, gain, spare = query.conflict, query.gain, len(state.value) - 1
    best, best_piece = -1.0, LOOK_AGAIN
    here = state.value[row]
    room = max(1.0, float(limit - here))
    for c in range(count):
        piece = chosen[c]
        if has(state.bits[row, PLANE_IN], piece) or has(state.bits[row, PLANE_OUT], piece):
            continue
        product, alive = 1.0, True
        for side in range(2):
            copy_row(state, row, spare)
            alive = put(graph, conflict, state, spare, piece, side, limit)
            more = (state.value[spare] - here) / room if alive else 1.0
            if side == PLANE_IN:
                gain[piece] = 0.7 * gain[piece] + 0.3 * more
            product *= max(more, 1e-3)
            if not alive:
                if not put(graph, conflict, state, row, piece, 1 - side, limit):
                    return NODE_DONE
                here = state.value[row]
                room = max(1.0, float(limit - here))
                break
        if alive and product > best:
            best, best_piece = product, piece
    if best_piece < 0 or has(state.bits[row, PLANE_IN], best_piece) or has(state.bits[row, PLANE_OUT], best_piece):
        return LOOK_AGAIN
    return best_piece


@kernel
def search(graph: ConvexGraph, query: SearchQuery, forced: Bits, state: ConvexState, stop: Ints) -> int:
    """-> 0: all was searched, 1: the limit of nodes or `stop` came first, or rows ran out.

    Depth first: a row of `state` holds the decisions and the flow of a node on the path to the one that is looked at.
    All sets that are left lie below the nodes of the path. Tests compare with the enumeration of all convex sets.
    """
    pi, conflict, box, found = query.pi, query.conflict, query.box, query.found
    rows = len(state.value) - 1
    row = rows - rows  # not a literal: one version of each part is enough
    since = np.zeros(rows, np.int64)
    branch = np.zeros(rows, np.int64)
    words = graph.before.shape[1]
    state.bits[0] = np.uint64(0)
    for i in range(words):
        state.bits[0, PLANE_IN, i] = forced[i]
    for piece in range(len(pi)):
        if has(conflict[piece], piece):
            state.bits[0, PLANE_OUT, piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
    start = max(1, box[BOX_MULTIPLIER]) if box[BOX_LEAST] > 0 else row
    if not propagate(graph.before, graph.after, conflict, state.bits[0]) or not fresh(graph, pi, state, row, start):
        return 0
    if box[BOX_LEAST] > 0 and not _tune(graph, query, state, row, TUNING_STEPS[0], np.zeros(words, np.uint64)):
        return 0
    box[BOX_MULTIPLIER] = state.multiplier[0]
    piece = _examine(graph, query, state, row, since)
    first = -1
    while row >= 0:
        if first < 0 and box[BOX_FOUND] > 0:
            first = box[BOX_NODES]
        enough = box[BOX_NODES] > 2 * first + box[BOX_MORE] or box[BOX_FOUND] >= len(found)
        if first >= 0 and not box[BOX_MINIMISE] and enough:
            return 1
        if box[BOX_NODES] >= box[BOX_LIMIT] or stop[0] != 0 or row + 1 >= rows:
            return 1
        if piece < 0:
            row -= 1
            if row < 0:
                break
            piece = _other(graph, query, state, row, branch[row], since)
            continue
        branch[row] = piece
        copy_row(state, row, row + 1)
        limit = FINE_UNITS * (box[BOX_TARGET] - 1) - state.multiplier[row] * box[BOX_LEAST]
        if put(graph, conflict, state, row + 1, piece, SIDE_PLANES[PLANE_IN], limit):
            row += 1
            since[row] = since[row - 1] + 1
            piece = _examine(graph, query, state, row, since)
        else:
            piece = _other(graph, query, state, row, piece, since)
    return 0


@part
def _other(graph: ConvexGraph, query: SearchQuery, state: ConvexState, row: int, piece: int, since: Ints) -> int:
    """The piece of a node's branch goes out, in the same row: all sets with it have been searched."""
    since[row] += 1
    limit = FINE_UNITS * (query.box[BOX_TARGET] - 1) - state.multiplier[row] * query.box[BOX_LEAST]
    if not put(graph, query.conflict, state, row, piece, SIDE_PLANES[PLANE_OUT], limit):
        return NODE_DONE
    return _examine(graph, query, state, row, since)


@kernel
def find_conflicts(graph: ConvexGraph, target: int, state: ConvexState, conflict: Bits, stop: Ints) -> bool:
    """Mark pairs that no convex set cheaper than the target holds; a piece with itself if it is in none.

    False = stopped; what has been marked holds all the same.
    """
    n = len(graph.work)
    row = n - n
    nothing = np.zeros(n, np.int64)
    limit = FINE_UNITS * (target - 1)
    for u in range(n):
        if stop[0] != 0:
            return False
        state.bits[0] = np.uint64(0)
        state.bits[0, PLANE_IN, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        alive = propagate(graph.before, graph.after, conflict, state.bits[0]) and fresh(graph, nothing, state, row, row)
        if not alive or state.value[0] > limit:
            conflict[u, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
            continue
        for v in range(u + 1, n):
            if has(state.bits[0, PLANE_IN], v) or has(conflict[u], v):
                continue
            out = has(state.bits[0, PLANE_OUT], v)
            if not out:
                copy_row(state, row, row + 1)
                out = not put(graph, conflict, state, row + 1, v, SIDE_PLANES[PLANE_IN], limit)
            if out:
                conflict[u, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
                conflict[v, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
    return True
