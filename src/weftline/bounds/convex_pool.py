"""Heuristic pricing: annealing over convex sets for sets of much weight that cost less than the target.

In: `Graph`, weights, target, sets to start from. Out: distinct sets with f < target and pi >= wanted.
"""

from __future__ import annotations

import numpy as np

from weftline.bounds.convex_graph import Bits, Graph, has, lowest
from weftline.graph.arrays import Ints
from weftline.simulate.jit import kernel, part

__all__ = ["draw_sets"]

MOST = 8
"""Pieces that change sides at once."""
PENALTY = 6.0
"""Of a cost above the target, in units of the wanted weight."""


@part
def _change(graph: Graph, block: Bits, inside: Ints, piece: int) -> int:
    """How f changes when the piece changes sides; `inside` counts the readers of each tensor that are in."""
    touch_ptr, touch_of, maker, reader_ptr = graph.touch_ptr, graph.touch_of, graph.maker, graph.reader_ptr
    enter, leave = graph.enter, graph.leave
    sign = -1 if has(block, piece) else 1
    total = sign * graph.work[piece]
    for t in range(touch_ptr[piece], touch_ptr[piece + 1]):
        tensor = touch_of[t]
        readers = reader_ptr[tensor + 1] - reader_ptr[tensor]
        made = has(block, maker[tensor])
        count = inside[tensor]
        for now in range(2):
            price = 0
            if made:
                price = leave[tensor] if count < readers else 0
            elif count > 0:
                price = enter[tensor]
            total += price if now else -price
            if maker[tensor] == piece:
                made = not made
            else:
                count += sign
    return int(total)


@part
def _toggle(graph: Graph, block: Bits, inside: Ints, piece: int) -> None:
    """Change sides."""
    touch_ptr, touch_of, maker = graph.touch_ptr, graph.touch_of, graph.maker
    change = -1 if has(block, piece) else 1
    block[piece >> 6] ^= np.uint64(1) << np.uint64(piece & 63)
    for t in range(touch_ptr[piece], touch_ptr[piece + 1]):
        tensor = touch_of[t]
        if maker[tensor] != piece:
            inside[tensor] += change


@part
def _around(graph: Graph, block: Bits, below: Bits, above: Bits) -> None:
    """What lies after and before members."""
    before, after, words = graph.before, graph.after, len(block)
    for j in range(words):
        below[j] = np.uint64(0)
        above[j] = np.uint64(0)
    for i in range(words):
        rest = block[i]
        while rest != np.uint64(0):
            member = i * 64 + lowest(rest)
            rest &= rest - np.uint64(1)
            for j in range(words):
                below[j] |= after[member, j]
                above[j] |= before[member, j]


@part
def _move(graph: Graph, block: Bits, below: Bits, above: Bits, piece: int, pieces: Ints) -> int:
    """Pieces that must change sides with this one so that the set stays convex -> how many, 0 = too many."""
    before, after, words = graph.before, graph.after, len(block)
    pieces[0] = piece
    count, joins = 1, not has(block, piece)
    late = joins or np.random.random() < 0.5
    if not joins:
        early_too, late_too = False, False
        for j in range(words):
            early_too |= (before[piece, j] & block[j]) != np.uint64(0)
            late_too |= (after[piece, j] & block[j]) != np.uint64(0)
        if not (early_too and late_too):
            return 1
    for j in range(words):
        if joins:
            rest = ((below[j] & before[piece, j]) | (above[j] & after[piece, j])) & ~block[j]
        elif late:
            rest = after[piece, j] & block[j]
        else:
            rest = before[piece, j] & block[j]
        while rest != np.uint64(0):
            if count >= len(pieces):
                return 0
            pieces[count] = j * 64 + lowest(rest)
            rest &= rest - np.uint64(1)
            count += 1
    return count


@part
def _proposal(graph: Graph, block: Bits) -> int:
    """A random piece; more often a neighbour of a member."""
    n = len(graph.work)
    piece = np.random.randint(n)
    if np.random.random() < 0.4:
        return piece
    for _ in range(20):
        if has(block, piece):
            break
        piece = np.random.randint(n)
    if not has(block, piece) or np.random.random() < 0.3 or graph.touch_ptr[piece] == graph.touch_ptr[piece + 1]:
        return piece
    tensor = graph.touch_of[np.random.randint(graph.touch_ptr[piece], graph.touch_ptr[piece + 1])]
    place = np.random.randint(graph.reader_ptr[tensor], graph.reader_ptr[tensor + 1] + 1)
    if place == graph.reader_ptr[tensor + 1]:
        return int(graph.maker[tensor])
    return int(graph.reader_of[place])


@kernel
def draw_sets(
    graph: Graph,
    pi: Ints,
    target: int,
    wanted: int,
    starts: Bits,
    restarts: int,
    length: int,
    seed: int,
    found: Bits,
    stop: Ints,
) -> int:
    """Anneal from the starts (and from single pieces) in turn -> number of sets found."""
    np.random.seed(seed)
    n, words, count = len(graph.work), len(found[0]), 0
    block, below, above = np.zeros(words, np.uint64), np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    begin, keep = np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    inside, pieces = np.zeros(len(graph.maker), np.int64), np.zeros(MOST, np.int64)
    for run in range(restarts):
        steps = length * (1 + run % 3)
        segment = max(1, steps // 3)
        if stop[0] != 0 or count >= len(found):
            break
        begin[:] = np.uint64(0)
        if len(starts) and run % 4 != 3:
            begin[:] = starts[np.random.randint(len(starts))]
        else:
            piece = np.random.randint(n)
            begin[piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
        block[:] = np.uint64(0)
        below[:] = np.uint64(0)
        above[:] = np.uint64(0)
        inside[:] = 0
        cost, weight = 0, 0
        for piece in range(n):
            if has(begin, piece):
                cost += _change(graph, block, inside, piece)
                weight += pi[piece]
                _toggle(graph, block, inside, piece)
        _around(graph, block, below, above)
        best = wanted - 1
        for step in range(steps):
            if best >= wanted and step % segment == 0:
                count += _new(found, count, keep)
                best = wanted - 1
                if count >= len(found):
                    break
            temperature = 0.12 * (1.0 - step / steps) + 0.002
            piece = _proposal(graph, block)
            size = _move(graph, block, below, above, piece, pieces)
            if size == 0:
                continue
            more, heavier = 0, 0
            for p in range(size):
                heavier += -pi[pieces[p]] if has(block, pieces[p]) else pi[pieces[p]]
                more += _change(graph, block, inside, pieces[p])
                _toggle(graph, block, inside, pieces[p])
            over = max(0.0, (cost + more) / target - 1.0) - max(0.0, cost / target - 1.0)
            worse = PENALTY * over - heavier / wanted
            if worse > 0 and np.random.random() >= np.exp(-worse / temperature):
                for p in range(size):
                    _toggle(graph, block, inside, pieces[p])
                continue
            _around(graph, block, below, above)
            cost += more
            weight += heavier
            if cost < target and weight > best:
                best = weight
                keep[:] = block
        if best >= wanted and count < len(found):
            count += _new(found, count, keep)
    return count


@part
def _new(found: Bits, count: int, keep: Bits) -> int:
    """Add a set unless it is there -> how many were added."""
    words = len(keep)
    for i in range(count):
        same = True
        for j in range(words):
            same = same and found[i, j] == keep[j]
        if same:
            return 0
    for j in range(words):
        found[count, j] = keep[j]
    return 1
