"""A plan from measurements: what may be asked for, which placement is the answer, and what the file says about it.

In: the `Measurements` of a search. Out: the best measured placement as the simulator sees it (its value is the
simulator's, like that of every plan), and the record of what was measured.
"""

from __future__ import annotations

from weftline.errors import LimitReached, UsageError, WeftlineError
from weftline.graph.arrays import Indices
from weftline.latency.measured.measurements import Measurements
from weftline.plans.plan import MeasuredFile
from weftline.problem import Problem
from weftline.search import Search, Termination
from weftline.simulate import Loads, Timeline

__all__ = ["best_measured", "check_measurable", "measured_file"]


def check_measurable(
    problem: Problem, *, gap: float | None, work_limit: int | None, coarsen: Indices | None, start: Indices | None
) -> None:
    """`UsageError` for what has no meaning where placements are measured."""
    if problem.rules.objective != "latency":
        raise UsageError("measured rewards are for the objective latency")
    if gap is not None or work_limit is not None:
        raise UsageError(
            "a gap and a work limit are for searches on the simulator; measured ones end by their number of "
            "measurements or by time"
        )
    if coarsen is not None or start is not None:
        raise UsageError("measured rewards know neither a coarse search nor a given start; leave them out")


def best_measured(measured: Measurements, *, interrupted: bool) -> Timeline | Loads | None:
    """The placement with the least ratio, simulated; `WeftlineError` where nothing ran."""
    best = measured.best
    if best is None:
        if interrupted:
            return None
        if measured.failures:
            raise WeftlineError(
                f"none of {len(measured.taken)} measured placements ran on {measured.backend.name}: "
                f"{measured.failures[-1]}"
            )
        if measured.stopped_by == Termination.TIME:
            raise LimitReached("the time was over before a placement was measured. Try a larger time limit")
        return None
    again = Search(measured.search.problem)
    again.offer(best.placement)
    return again.best


def measured_file(measured: Measurements) -> MeasuredFile | None:
    """What the plan says about it."""
    best = measured.best
    if best is None:
        return None
    reading = best.reading
    return MeasuredFile(
        backend=measured.backend.name,
        count=len(measured.taken),
        failures=len(measured.failures),
        reference=measured.backend.reference,
        ratio=round(reading.ratio, 6),
        spread=round(reading.spread, 6),
        rounds=reading.rounds,
        seconds=reading.seconds,
        reference_seconds=reading.reference_seconds,
    )
