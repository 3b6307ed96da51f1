"""`anneal`: annealing of devices and order from the best simple starts, until a stop rule fires.

Offers each new best as it comes; a new best is also booked with gaps filled, where its transfers may go earlier.
Without a time limit it makes a number of steps that depends on the size of the graph alone, so that the answer does not
depend on the machine.
"""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from weftline.errors import InfeasibleError
from weftline.place.annealer import Annealer, Start
from weftline.place.backfill import backfill
from weftline.place.heft import heft
from weftline.search import Search, Solver, alarm
from weftline.simulate import Timeline
from weftline.simulate.tables import tables

__all__ = ["SOLVER", "anneal_starts"]

PER_PAIR, PER_OP, MOST = 40, 200, 1_000_000
"""Steps without a time limit: per pair of ops and per op, up to MOST; fewer in large graphs, where they cost more."""
PORTIONS = 20
PATIENCE = 4
"""Portions without any answer before others are asked."""
HELPERS = ("greedy", "even-split", "round-robin", "pack")


def _solve(search: Search) -> None:
    problem, table = search.problem, tables(search.problem)
    with alarm(search) as stop:
        starts = anneal_starts(search)
        annealer = Annealer(table, capacity=problem.capacity, group=problem.group, seed=search.seed, start=starts)
        n = len(problem.group)
        left = min(MOST, PER_PAIR * n * n + PER_OP * n, MOST * 500 // n)
        portion = max(1, left // PORTIONS if search.time_limit is None else min(20_000, 4_000_000 // n))
        shown, portions = _show(search, annealer, 2**62), 0
        while not search.is_over and not stop[0] and (search.time_limit is not None or left > 0):
            annealer.run(portion, stop)
            left, portions = left - portion, portions + 1
            shown = _show(search, annealer, shown)
            if portions == PATIENCE and search.best is None:
                _seek_help(search, annealer)
            if len(problem.devices) == 1:
                break
    if search.best is None:
        raise InfeasibleError("annealing found no plan within the limits", conflicts=search.refused)


def _seek_help(search: Search, annealer: Annealer) -> None:
    """Where memory is so tight that no move mends it: begin at what another heuristic or an exact packing finds."""
    from weftline.place import solvers

    for name in HELPERS:
        if search.best is None and not search.is_over:
            try:
                solvers()[name].solve(search)
            except InfeasibleError as error:
                if error.proved:
                    raise
    if isinstance(search.best, Timeline):
        annealer.give(search.best.placement, search.best.order)


def anneal_starts(search: Search, *, best: bool = True) -> list[Start]:
    """Single devices, HEFT, and (with `best`) the best so far with its order."""
    time = tables(search.problem).time
    starts: list[Start] = [
        (np.full(len(time), d, np.int32), None) for d in range(time.shape[1]) if (time[:, d] >= 0).all()
    ]
    timelines = [search.best] if best and isinstance(search.best, Timeline) else []
    with suppress(InfeasibleError):
        timelines.append(heft(search))
    for timeline in timelines:
        starts.append((timeline.placement, timeline.order))
        starts.append((timeline.placement, None))
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


SOLVER = Solver("anneal", "annealing of devices and order, from single devices and HEFT", _solve)
