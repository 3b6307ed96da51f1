"""`anneal`: annealing of devices and order from the best simple starts, until a stop rule fires.

Offers each new best as it comes; a new best is also booked with gaps filled, where its transfers may go earlier.
Without a time limit it makes a number of steps that depends on the size of the graph alone, so that the answer does not
depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import numpy as np

from weftline.errors import InfeasibleError
from weftline.latency.anneal.annealer import LatencyAnnealParameters, PlacementAnnealer, Start, new_find
from weftline.latency.list.schedulers import heft
from weftline.search import Search, Solver, alarm
from weftline.simulate import Timeline
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import tables

__all__ = ["SOLVER", "anneal_from", "anneal_starts", "ask_helpers"]

HELPERS = ("greedy", "even-split", "m-topo", "round-robin", "pack")


def anneal_from(
    search: Search, starts: Sequence[Start], *, seconds: float | None = None, steps: int | None = None
) -> None:
    """Offer what annealing from these starts finds, until the search is over, or for `seconds`, or for `steps`.

    With neither `seconds` nor a time limit it makes a number of steps that depends on the size of the graph alone.
    `steps` are one cycle, which begins the colder the fewer they are: they mend the start.
    """
    problem, n, numbers = search.problem, len(search.problem.group), search.parameters(LatencyAnnealParameters)
    most = min(numbers.most_steps, numbers.steps_per_pair_of_ops * n * n + numbers.steps_per_op * n)
    until = None if seconds is None or search.work_limit is not None else search.seconds + seconds
    timed = steps is None and (until is not None or search.time_limit is not None)
    left = min(most, numbers.most_steps * 500 // n) if steps is None else steps
    portion = max(1, min(20_000, 4_000_000 // n) if timed else left // (numbers.portions if steps is None else 1))
    warmth = min(1.0, (steps or numbers.full_heat_steps) / numbers.full_heat_steps)
    with alarm(search) as stop:
        annealer = PlacementAnnealer(
            tables(problem),
            capacity=problem.capacity,
            group=problem.group,
            seed=search.seed,
            start=starts,
            first_temperature=numbers.first_temperature * warmth**0.5,
            cycle=steps,
            parameters=numbers,
        )
        shown, portions = _show(search, annealer, NEVER), 0
        while not search.is_over and not stop[0] and (timed or left > 0):
            if until is not None and search.seconds >= until:
                break
            annealer.run(portion, stop)
            left, portions = left - portion, portions + 1
            shown = _show(search, annealer, shown)
            if portions == numbers.patience_portions and search.best is None:
                ask_helpers(search)
                if isinstance(search.best, Timeline):
                    annealer.give(search.best.placement, search.best.order)
            if len(problem.devices) == 1:
                break


def ask_helpers(search: Search) -> None:
    """Where memory is so tight that no move mends it: what simple heuristics or an exact packing find.

    Those that have looked to their end already are not asked again.
    """
    from weftline.latency import solvers

    for name in HELPERS:
        if search.best is None and not search.is_over and name not in search.reached:
            try:
                if name in solvers():  # papers may be absent
                    search.run(solvers()[name])
            except InfeasibleError as error:
                if error.proved:
                    raise


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


def _show(search: Search, annealer: PlacementAnnealer, shown: int) -> int:
    """Offer the annealer's best if it is new -> its value."""
    find = None if search.is_over else new_find(annealer, tables(search.problem), shown)
    if find is None:
        return shown
    find.offer(search)
    return find.planned


def _solve(search: Search) -> None:
    anneal_from(search, anneal_starts(search))
    if search.best is None:
        raise InfeasibleError("annealing found no plan within the limits", conflicts=search.refused)


SOLVER = Solver(
    "anneal",
    "annealing of devices and order, from single devices and HEFT",
    _solve,
    parameters=LatencyAnnealParameters,
)
