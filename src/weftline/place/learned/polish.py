"""The polish: annealing of devices and order of single ops, from the best placements that a network has found.

Chains that were one node may come apart here: search op by op finds what search by chains cannot.
Without a time limit it makes a number of steps that depends on the size of the graph alone.
"""

from __future__ import annotations

from weftline.place.annealer import Annealer, Start
from weftline.place.backfill import backfill
from weftline.place.learned.trials import Trials
from weftline.search import Search, alarm
from weftline.simulate import Timeline
from weftline.simulate.tables import tables

__all__ = ["polish"]

PER_PAIR, PER_OP, MOST = 40, 200, 1_000_000
"""Steps without a time limit: per pair of ops and per op, up to MOST; fewer in large graphs, where they cost more."""
PORTIONS = 20
PATIENCE = 4
"""Portions without any answer before others are asked."""


def polish(search: Search, trials: Trials, seconds: float | None) -> None:
    """Anneal for so long, or until the search is over; with a work limit, always the same number of steps."""
    problem, n = search.problem, len(search.problem.group)
    until = None if seconds is None or search.work_limit is not None else search.seconds + seconds
    timed = until is not None or search.time_limit is not None
    left = min(MOST, PER_PAIR * n * n + PER_OP * n, MOST * 500 // n)
    portion = max(1, min(20_000, 4_000_000 // n) if timed else left // PORTIONS)
    search.tell(f"annealing from the best {len(trials.kept)} placements")
    with alarm(search) as stop:
        annealer = Annealer(
            tables(problem), capacity=problem.capacity, group=problem.group, seed=search.seed, start=_starts(trials)
        )
        shown, portions = _show(search, annealer, 2**62), 0
        while not search.is_over and not stop[0] and (timed or left > 0):
            if until is not None and search.seconds >= until:
                break
            annealer.run(portion, stop)
            left, portions = left - portion, portions + 1
            shown = _show(search, annealer, shown)
            if portions == PATIENCE and search.best is None:
                trials.ask_others()
                if isinstance(search.best, Timeline):
                    annealer.give(search.best.placement, search.best.order)


def _starts(trials: Trials) -> list[Start]:
    starts: list[Start] = [(trials.nodes.lift(devices)[0], None) for _, devices in trials.kept]
    best = trials.search.best
    if isinstance(best, Timeline):
        starts.append((best.placement, best.order))
    return starts


def _show(search: Search, annealer: Annealer, shown: int) -> int:
    """Offer the annealer's best if it is new -> its value."""
    best = annealer.best
    if best is None or best[2] >= shown or search.is_over:
        return shown
    placement, order, value = best
    filled = backfill(tables(search.problem), placement, order)
    if filled is not None and filled.value < value:
        search.offer(placement, actions=filled.actions(search.problem.graph.arrays.producer))
        annealer.give(placement, filled.order)
    if not search.is_over and (search.best is None or value < search.best.value):
        search.offer(placement, order=order)
    return value
