"""`anneal`: slices of several orders, then annealing with restarts until a stop rule fires.

Without a time limit it does a number of steps that depends on the size of the graph alone, so that the answer does not
depend on the machine.
"""

from __future__ import annotations

from weftline.coarsen import make_pieces, reduce_exactly
from weftline.graph.arrays import Ints
from weftline.partition.annealer import Annealer
from weftline.partition.overflow import overflow_of
from weftline.search import Search, Solver, alarm

__all__ = ["SOLVER"]

PORTION = 250_000
MOST = 4_000_000
PER_PAIR = 50
"""Steps without a time limit: so many per pair of pieces, up to MOST."""
PORTIONS = 16


def _solve(search: Search) -> None:
    pieces = reduce_exactly(make_pieces(search.problem))
    floor = 0 if search.bound is None else search.bound.value
    with alarm(search) as stop:
        annealer = Annealer(pieces, seed=search.seed, floor=floor, stop=stop)
        left = min(MOST, PER_PAIR * len(pieces.time) ** 2 + 20_000)
        portion = PORTION if search.time_limit is not None else min(PORTION, left // PORTIONS)
        shown = _show(search, annealer, None)
        while not search.is_over and not stop[0] and (search.time_limit is not None or left > 0):
            if shown is not None and shown <= floor:
                return
            annealer.run(portion, stop)
            left -= portion
            shown = _show(search, annealer, shown)
            if annealer.best is None and not annealer.alive:
                return


def _show(search: Search, annealer: Annealer, shown: int | None) -> int | None:
    """Offer the annealer's best if it is new -> its value; where activations overflow, the annealer leaves room."""
    best = annealer.best
    if best is None or (shown is not None and best[1] >= shown) or search.is_over:
        return shown
    placement = annealer.pieces.lift(best[0])
    if search.offer(placement) is None:
        overflow: Ints = overflow_of(search.problem, placement)
        annealer.shrink(overflow)
        return shown
    return best[1]


SOLVER = Solver("anneal", "annealing on moves between stages, from slices of several orders", _solve)
