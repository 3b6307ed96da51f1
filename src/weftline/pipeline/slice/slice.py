"""`slice`: several topological orders, each cut into stages by the exact program of Archer et al. (Algorithm 1).

The best cut is sliced again along orders that follow its own stages, until that brings nothing. Where activations
overflow a device (only the simulator knows them), the cut is repeated with that much less room. Graphs beyond a few
thousand pieces are first cut at the few best places, which gives the value that prunes the full program.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces, make_pieces, reduce_exactly
from weftline.pipeline.pieces.arrays import merge_freely
from weftline.pipeline.simple import overflow_of
from weftline.pipeline.slice.kernel import NEVER
from weftline.pipeline.slice.orders import following_order, several_orders
from weftline.pipeline.slice.slicer import RUNNING, SMALL, Slicer
from weftline.search import Search, Solver, alarm

__all__ = ["SOLVER", "slice_again", "slice_order", "slice_starts"]

RANDOM = 8
ATTEMPTS = 6
AGAIN = 4
WINDOWS = 512
FULL = 1_000_000_000
"""Pairs of places that the full program may look at for one order of a big graph."""


def slice_order(
    pieces: Pieces, order: Indices, *, upper: int | None = None, room: Ints | None = None, stop: Ints = RUNNING
) -> Indices | None:
    """The best cut of one order with all stages below `upper`: device of each piece. None if there is none."""
    found = _cut(Slicer(pieces, room), order, NEVER if upper is None else upper, stop)
    return None if found is None else found[0]


def slice_again(slicer: Slicer, device: Indices, value: int, seed: int, stop: Ints = RUNNING) -> tuple[Indices, int]:
    """Slice along orders that follow the stages of a partition while that makes it better."""
    tries = 0
    while tries < AGAIN and not stop[0]:
        order = following_order(slicer.board, device, seed + tries)
        if order is None:
            break
        found = _cut(slicer, order, value, stop)
        tries += 1
        if found is not None and found[1] < value:  # a busy host may keep the value where it was
            (device, value), tries = found, 0
    return device, value


def slice_starts(slicer: Slicer, seed: int, random: int, stop: Ints = RUNNING) -> list[tuple[int, Indices]]:
    """(value, device per piece) of several orders, the best first; values are the program's own."""
    found = []
    big = len(slicer.pieces.time) > SMALL
    for order in several_orders(slicer.board, seed, 0 if big else random):
        if stop[0]:
            break
        cut = slicer.cut(order, windows=WINDOWS if big else 0, stop=stop)
        if cut is not None:
            found.append((cut[1], cut[0]))
    return sorted(found, key=lambda pair: pair[0])


def _cut(slicer: Slicer, order: Indices, upper: int, stop: Ints) -> tuple[Indices, int] | None:
    """The full program, or for big graphs first a coarse one whose value prunes it."""
    count = len(order)
    if count <= SMALL:
        return slicer.cut(order, upper, stop=stop)
    best = slicer.cut(order, upper, windows=WINDOWS, stop=stop)
    known = min(upper, NEVER if best is None else best[1])
    pairs = count * count * min(1.0, known / slicer.total)
    found = slicer.cut(order, known, windows=0 if pairs <= FULL else 8 * WINDOWS, stop=stop)
    return best if found is None else found


def _solve(search: Search) -> None:
    pieces = reduce_exactly(make_pieces(search.problem))
    coarse = merge_freely(pieces)
    with alarm(search) as stop:
        for level in (pieces, coarse):
            room = search.problem.capacity.copy()
            for _ in range(ATTEMPTS):
                overflow = None if level is None else _slice_all(search, level, room, stop)
                if overflow is None or not overflow.any() or search.is_over:
                    break
                room = room - overflow
            if search.is_over:
                return


def _slice_all(search: Search, pieces: Pieces, room: Ints, stop: Ints) -> Ints | None:
    """Offer the cuts of all orders -> None if one was accepted, else the bytes that the last one lacked."""
    slicer = Slicer(pieces, room)
    overflow: Ints | None = np.zeros(len(room), np.int64)
    big = len(pieces.time) > SMALL
    upper = NEVER
    best: tuple[Indices, int] | None = None
    for order in several_orders(slicer.board, search.seed, 1 if big else RANDOM):
        found = slicer.cut(order, upper, windows=WINDOWS if big else 0, stop=stop)
        if search.is_over:
            return overflow
        if found is None:
            continue
        if search.offer(pieces.lift(found[0])) is None:
            overflow = overflow_of(search.problem, pieces.lift(found[0])) if overflow is not None else None
        else:
            overflow, best, upper = None, found, found[1]
        if best is found and not big and not search.is_over:
            upper = _improve(search, slicer, found, stop)
        if search.is_over:
            return overflow
    if big and best is not None:
        _improve(search, slicer, best, stop)
    return overflow


def _improve(search: Search, slicer: Slicer, found: tuple[Indices, int], stop: Ints) -> int:
    """Slice again and offer -> the program's value of the better one."""
    device, value = slice_again(slicer, *found, 0, stop)
    if value < found[1] and not search.is_over and search.offer(slicer.pieces.lift(device)) is not None:
        return value
    return found[1]


SOLVER = Solver("slice", "exact cuts of several topological orders (Archer et al., Algorithm 1)", _solve)
