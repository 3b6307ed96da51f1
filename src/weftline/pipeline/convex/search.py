"""Branch and bound: is there a convex set S with f(S) < target and pi(S) >= least?

Relaxation: the least of f(S) - mu * (pi(S) - least) is a minimum cut for every mu >= 0, given what is in and out.
Convexity is exact there for everything before or after a piece that is in, and propagated for the rest. Children
continue the flow of their parent. In: `ConvexGraph`, weights, target. Out: sets found, or that there is none.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import FINE, Bits, ConvexGraph, cost_of, has
from weftline.pipeline.convex.state import (
    IN,
    OUT,
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

__all__ = ["NODES", "OPEN", "TARGET", "find_conflicts", "search"]

TARGET, LEAST, NODES, FOUND, LIMIT, MINIMISE, MORE, OPEN = 0, 1, 2, 3, 4, 5, 6, 7
"""Entries of `box`: see `search`."""
STEPS = np.array([25, 4])
"""Multipliers tried at the root and later."""
SIDES = np.array([IN, OUT])
"""From an array they are numbers like any other; as literals each would have parts compiled for it."""
RETUNE = 3
"""Decisions after which the multiplier is chosen anew."""


@part
def _tune(
    graph: ConvexGraph,
    pi: Ints,
    state: ConvexState,
    row: int,
    spare: int,
    steps: int,
    box: Ints,
    found: Bits,
    block: Bits,
) -> bool:
    """Better multipliers: the bound is concave in them, each cut gives one line of it. False = pruned."""
    gap = np.zeros(len(block), np.uint64)
    least = box[LEAST]
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
        inside = reached(state, spare, block, pi)
        if inside >= least:
            _record(graph, block, gap, box, found)
        if bound > best:
            best = bound
            copy_row(state, spare, row)
        if best > FINE * (box[TARGET] - 1):
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
def _record(graph: ConvexGraph, block: Bits, gap: Bits, box: Ints, found: Bits) -> bool:
    """Keep a set of enough weight if it is convex and cheap enough."""
    if not is_convex(graph.before, graph.after, block, gap):
        return False
    cost = cost_of(graph, block)
    if cost >= box[TARGET]:
        return False
    if box[MINIMISE]:
        box[TARGET] = cost
        _keep(found, box[FOUND] - box[FOUND], block)
        box[FOUND] = 1
        return True
    if box[FOUND] < len(found):
        _keep(found, box[FOUND], block)
        box[FOUND] += 1
    return True


@part
def _keep(found: Bits, place: int, block: Bits) -> None:
    for i in range(len(block)):
        found[place, i] = block[i]


@part
def _candidates(
    graph: ConvexGraph,
    pi: Ints,
    box: Ints,
    decided: Bits,
    block: Bits,
    gap: Bits,
    chosen: Ints,
    gain: NDArray[np.float64],
) -> int:
    """The most promising pieces to decide -> how many."""
    count, n = 0, len(pi)
    work, near_ptr, near_of, out, yes = graph.work, graph.near_ptr, graph.near_of, decided[OUT], decided[IN]
    score = np.zeros(len(chosen), np.float64)
    for piece in range(n):
        if has(out, piece) or has(yes, piece):
            continue
        mine = 0.02 + work[piece] / max(1.0, box[TARGET]) + abs(pi[piece]) / max(1.0, box[LEAST])
        if has(block, piece) or has(gap, piece):
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
def _examine(
    graph: ConvexGraph,
    pi: Ints,
    conflict: Bits,
    state: ConvexState,
    row: int,
    since: Ints,
    box: Ints,
    found: Bits,
    gain: NDArray[np.float64],
) -> int:
    """Bound a node, decide what can be decided -> the piece to branch on, -1 if the node is done."""
    spare = len(state.value) - 1
    words = graph.before.shape[1]
    block, gap = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    box[NODES] += 1
    chosen = np.zeros(12 if row > 6 else 8, np.int64)
    while True:
        if since[row] >= RETUNE and box[LEAST] > 0:
            since[row] = 0
            if not _tune(graph, pi, state, row, spare, STEPS[1], box, found, block):
                return -1
        limit = FINE * (box[TARGET] - 1) - state.multiplier[row] * box[LEAST]
        if state.value[row] > limit:
            return -1
        inside = reached(state, row, block, pi)
        if inside >= box[LEAST] and _record(graph, block, gap, box, found):
            if box[MINIMISE]:
                continue
            return -1
        is_convex(graph.before, graph.after, block, gap)
        count = _candidates(graph, pi, box, state.bits[row], block, gap, chosen, gain)
        if count == 0:
            for i in range(words):
                block[i] = state.bits[row, IN, i]
            inside = 0
            for piece in range(len(pi)):
                if has(block, piece):
                    inside += pi[piece]
            if inside >= box[LEAST]:
                _record(graph, block, gap, box, found)
            return -1
        best, best_piece = -1.0, -1
        here = state.value[row]
        span = max(1.0, float(limit - here))
        for c in range(count):
            piece = chosen[c]
            if has(state.bits[row, IN], piece) or has(state.bits[row, OUT], piece):
                continue
            product, alive = 1.0, True
            for side in range(2):
                copy_row(state, row, spare)
                alive = put(graph, conflict, state, spare, piece, side, limit)
                more = (state.value[spare] - here) / span if alive else 1.0
                if side == IN:
                    gain[piece] = 0.7 * gain[piece] + 0.3 * more
                product *= max(more, 1e-3)
                if not alive:
                    if not put(graph, conflict, state, row, piece, 1 - side, limit):
                        return -1
                    here = state.value[row]
                    span = max(1.0, float(limit - here))
                    break
            if alive and product > best:
                best, best_piece = product, piece
        undecided = best_piece >= 0 and not (
            has(state.bits[row, IN], best_piece) or has(state.bits[row, OUT], best_piece)
        )
        if undecided:
            return best_piece


@kernel
def search(
    graph: ConvexGraph,
    pi: Ints,
    conflict: Bits,
    forced: Bits,
    state: ConvexState,
    box: Ints,
    found: Bits,
    gain: NDArray[np.float64],
    stop: Ints,
) -> int:
    """-> 0: all was searched, 1: the limit of nodes or `stop` came first, or rows ran out.

    `box`: target, least pi, nodes so far, sets found so far, limit of nodes, 1 = lower the target to what is found and
    go on, nodes to spend after the first set was found, first multiplier (later: the one used at the root).
    """
    rows = len(state.value) - 1
    row = rows - rows  # not a literal: one version of each part is enough
    since = np.zeros(rows, np.int64)
    branch = np.zeros(rows, np.int64)
    words = graph.before.shape[1]
    state.bits[0] = np.uint64(0)
    for i in range(words):
        state.bits[0, IN, i] = forced[i]
    for piece in range(len(pi)):
        if has(conflict[piece], piece):
            state.bits[0, OUT, piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
    start = max(1, box[OPEN]) if box[LEAST] > 0 else row
    if not propagate(graph.before, graph.after, conflict, state.bits[0]) or not fresh(graph, pi, state, row, start):
        return 0
    if box[LEAST] > 0 and not _tune(graph, pi, state, row, rows, STEPS[0], box, found, np.zeros(words, np.uint64)):
        return 0
    box[OPEN] = state.multiplier[0]
    piece = _examine(graph, pi, conflict, state, row, since, box, found, gain)
    first = -1
    while row >= 0:
        if first < 0 and box[FOUND] > 0:
            first = box[NODES]
        if first >= 0 and not box[MINIMISE] and (box[NODES] > 2 * first + box[MORE] or box[FOUND] >= len(found)):
            return 1
        if box[NODES] >= box[LIMIT] or stop[0] != 0 or row + 1 >= rows:
            return 1
        if piece < 0:
            row -= 1
            if row < 0:
                break
            piece = _other(graph, pi, conflict, state, row, branch[row], since, box, found, gain)
            continue
        branch[row] = piece
        copy_row(state, row, row + 1)
        limit = FINE * (box[TARGET] - 1) - state.multiplier[row] * box[LEAST]
        if put(graph, conflict, state, row + 1, piece, SIDES[IN], limit):
            row += 1
            since[row] = since[row - 1] + 1
            piece = _examine(graph, pi, conflict, state, row, since, box, found, gain)
        else:
            piece = _other(graph, pi, conflict, state, row, piece, since, box, found, gain)
    return 0


@part
def _other(
    graph: ConvexGraph,
    pi: Ints,
    conflict: Bits,
    state: ConvexState,
    row: int,
    piece: int,
    since: Ints,
    box: Ints,
    found: Bits,
    gain: NDArray[np.float64],
) -> int:
    """The piece of a node's branch goes out, in the same row: all sets with it have been searched."""
    since[row] += 1
    limit = FINE * (box[TARGET] - 1) - state.multiplier[row] * box[LEAST]
    if not put(graph, conflict, state, row, piece, SIDES[OUT], limit):
        return -1
    return _examine(graph, pi, conflict, state, row, since, box, found, gain)


@kernel
def find_conflicts(graph: ConvexGraph, target: int, state: ConvexState, conflict: Bits, stop: Ints) -> bool:
    """Mark pairs that no convex set cheaper than the target holds; a piece with itself if it is in none.

    False = stopped; what has been marked holds all the same.
    """
    n = len(graph.work)
    row = n - n
    nothing = np.zeros(n, np.int64)
    limit = FINE * (target - 1)
    for u in range(n):
        if stop[0] != 0:
            return False
        state.bits[0] = np.uint64(0)
        state.bits[0, IN, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        alive = propagate(graph.before, graph.after, conflict, state.bits[0]) and fresh(graph, nothing, state, row, row)
        if not alive or state.value[0] > limit:
            conflict[u, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
            continue
        for v in range(u + 1, n):
            if has(state.bits[0, IN], v) or has(conflict[u], v):
                continue
            out = has(state.bits[0, OUT], v)
            if not out:
                copy_row(state, row, row + 1)
                out = not put(graph, conflict, state, row + 1, v, SIDES[IN], limit)
            if out:
                conflict[u, v >> 6] |= np.uint64(1) << np.uint64(v & 63)
                conflict[v, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
    return True
