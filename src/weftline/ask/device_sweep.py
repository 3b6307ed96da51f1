"""The sweep of devices: the rate of the cluster with fewer of them, how many are enough, what one more brings.

In: a problem for throughput and numbers of devices. Out: a `DeviceSweep` with one row for each, and the plan of the
best. First all devices are planned; then those leave that are worth least in the plan before, and the rest is planned
again. A plan for fewer devices is one for more, and a bound for more is one for fewer: both are handed on. Simplified:
no other choice of as many devices is tried, and a transfer takes as long as in the whole cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from math import inf
from time import monotonic
from typing import Any

import msgspec
import numpy as np

from weftline.ask.fleets import make_fleet
from weftline.ask.planning import stop_rules
from weftline.ask.stage_counts import AUTO, check_counts, parse_counts, sensible_counts
from weftline.ask.stages import GOOD_ENOUGH
from weftline.errors import InfeasibleError, UsageError
from weftline.plans.fleet import FleetPlan
from weftline.problem import Problem, check_feasible
from weftline.problem.feasible import some_devices
from weftline.search import Event, Termination

__all__ = ["DeviceCount", "DeviceSweep", "sweep_devices"]


@dataclass(frozen=True)
class DeviceCount:
    """What is known about so many devices."""

    devices: int
    names: tuple[str, ...]
    """Those that are left."""
    rate: float | None
    """Inputs per second; None if no plan was found."""
    rate_bound: float | None
    """No deployment on these devices gives more."""
    proof: str
    seconds: float | None
    stopped_by: str


@dataclass(frozen=True, eq=False)
class DeviceSweep:
    """One answer for several numbers of devices."""

    rows: tuple[DeviceCount, ...]
    """By number of devices."""
    plan: FleetPlan
    """Of the best number: the fewest devices whose rate is within 1 % of the highest."""

    @property
    def best_devices(self) -> int:
        """How many the plan has."""
        return len(self.plan.problem.devices)

    @property
    def one_more(self) -> DeviceCount | None:
        """The row after the best one."""
        return next((row for row in self.rows if row.devices > self.best_devices), None)

    def to_json(self) -> bytes:
        """One object: `sweep`, `best_devices`, `plan`."""
        rows = [asdict(row) for row in self.rows]
        answer = {"sweep": rows, "best_devices": self.best_devices, "plan": self.plan}
        return msgspec.json.encode(answer) + b"\n"


def sweep_devices(
    problem: Problem,
    counts: str | Sequence[int] = AUTO,
    *,
    time_limit: float | None = None,
    work_limit: int | None = None,
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
    **limits: Any,
) -> DeviceSweep:
    """Plan every number of devices; the limits are for all of them together. Ctrl-C keeps what there is.

    `limits` are what `make_fleet` takes beside.
    """
    numbers = _numbers(len(problem.devices), counts)
    _, time_limit = stop_rules(None, time_limit, work_limit)
    started, found = monotonic() if begun is None else begun, list[tuple[DeviceCount, FleetPlan | None]]()
    work = None if work_limit is None else max(1, work_limit // len(numbers))

    def tell(event: Event) -> None:
        if on_event is not None:
            message = f"{len(problem.devices)} devices {event.message}".rstrip()
            on_event(replace(event, seconds=monotonic() - started, message=message))

    plan: FleetPlan | None = None
    for left, count in zip(range(len(numbers), 0, -1), reversed(numbers), strict=True):
        over = time_limit is not None and plan is not None and monotonic() - started >= time_limit
        smaller = problem if count == len(problem.devices) else _fewer(problem, plan, count)
        if over or smaller is None:
            why = Termination.TIME if over else Termination.INFEASIBLE
            found.append((DeviceCount(count, (), None, None, "none", None, str(why)), None))
            continue
        problem, share = smaller, None if time_limit is None else max(0.1, time_limit - monotonic() + started) / left
        try:
            plan = make_fleet(problem, time_limit=share, work_limit=work, on_event=tell, **limits)
        except InfeasibleError:
            if plan is None:
                raise
            row = DeviceCount(count, _names(problem), None, None, "none", None, str(Termination.NOTHING_FOUND))
            found.append((row, None))
            continue
        found.append((_row(plan), plan))
        if plan.stopped_by == Termination.INTERRUPTED:
            break
    return _concluded(found)


def _numbers(most: int, counts: str | Sequence[int]) -> tuple[int, ...]:
    """Ascending; the last is all devices, from which the others follow."""
    if counts == AUTO:
        return sensible_counts(most)
    asked = parse_counts(counts) if isinstance(counts, str) else check_counts(counts)
    if asked[-1] > most:
        raise UsageError(f"there are {most} devices, not {asked[-1]}")
    return asked if asked[-1] == most else (*asked, most)


def _names(problem: Problem) -> tuple[str, ...]:
    return tuple(device.id for device in problem.devices)


def _row(plan: FleetPlan) -> DeviceCount:
    names = tuple(device.id for device in plan.problem.devices)
    return DeviceCount(len(names), names, plan.rate, plan.rate_bound, plan.proof, plan.seconds, plan.stopped_by)


def _fewer(problem: Problem, plan: FleetPlan | None, count: int) -> Problem | None:
    """So many devices of a problem that can hold the model: those that are worth most in its plan stay."""
    kept, worth = list(range(len(problem.devices))), _worth(problem, plan)
    while len(kept) > count:
        able = ([other for other in kept if other != device] for device in sorted(kept, key=lambda d: (worth[d], -d)))
        rest = next((rest for rest in able if _is_feasible(some_devices(problem, rest))), None)
        if rest is None:
            return None
        kept = rest
    return some_devices(problem, kept)


def _worth(problem: Problem, plan: FleetPlan | None) -> list[float]:
    """The work of each device in a plan, by the least time of every op on any device; without one, how fast it is."""
    time = problem.cost.time
    least = np.where(time < 0, np.iinfo(np.int64).max, time).min(axis=1).astype(float)
    if plan is None or len(plan.problem.devices) != len(problem.devices):
        return [float(-np.where(column < 0, 1e18, column).sum()) for column in time.T]
    worth = [0.0] * len(problem.devices)
    for lane in plan.lanes:
        for device, first, last in lane.hops:
            worth[device] += lane.rate * float(least[first:last].sum())
    return worth


def _is_feasible(problem: Problem) -> bool:
    try:
        check_feasible(problem)
    except InfeasibleError:
        return False
    return True


def _concluded(found: list[tuple[DeviceCount, FleetPlan | None]]) -> DeviceSweep:
    """Rows by number of devices, rates and bounds handed on."""
    rows = list(_handed_down(row for row, _ in found))[::-1]
    best = 0.0
    for number, row in enumerate(rows):
        if row.rate is not None and row.rate < best:
            rows[number] = replace(row, rate=best)
        best = max(best, row.rate or 0.0)
    plans = sorted((plan for _, plan in found if plan is not None), key=lambda plan: len(plan.problem.devices))
    enough = next(plan for plan in plans if plan.rate >= best * (1 - GOOD_ENOUGH))
    return DeviceSweep(tuple(rows), enough)


def _handed_down(rows: Iterator[DeviceCount]) -> Iterator[DeviceCount]:
    """From the most devices down: what more devices cannot give, fewer cannot."""
    least, proof = inf, "none"
    for row in rows:
        if row.rate_bound is not None and row.rate_bound <= least:
            least, proof = row.rate_bound, row.proof
        yield row if least == inf else replace(row, rate_bound=least, proof=proof)
