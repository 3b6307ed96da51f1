"""The stage sweep: a pipeline for each number of stages, which number is best, and what one more device would bring.

In: the problems of several numbers of stages. Out: a `Sweep` with one row for each, and the plan of the best.
A pipeline may leave stages unused, so a value for k is a value for k + 1, and a bound for k + 1 is a bound for k: each
search begins with the plan of the one before, and bounds are handed down. Simplified: time and work are shared out
evenly, and what one search leaves over goes to those after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import monotonic
from types import MappingProxyType

import msgspec
import numpy as np

from weftline.ask.planning import SELF_CHECKED, checked_bounds, make_plan, stop_rules
from weftline.ask.questions import lower_bounds
from weftline.ask.stage_counts import StageProblems, same_placement
from weftline.certify import check
from weftline.errors import InfeasibleError, InputError
from weftline.graph.arrays import Indices
from weftline.interrupts import Interruption
from weftline.plans.plan import BoundEntry, Plan, Proof
from weftline.problem import Problem
from weftline.problem.model import problem_to_file
from weftline.search import Event, Termination

__all__ = ["GOOD_ENOUGH", "OneMore", "Sweep", "SweepRow", "sweep_stages"]

GOOD_ENOUGH = 0.01
"""The best number of stages is the smallest whose value is within this share of the best value of all."""


@dataclass(frozen=True)
class SweepRow:
    """What is known about one number of stages."""

    stages: int
    value_ns: int | None
    """None if no plan was found."""
    bound_ns: int
    gap: float | None
    proof: Proof
    bound_by: str
    seconds: float | None
    """None under a work limit, so that the bytes repeat."""
    stopped_by: str
    """As in a plan; `infeasible` (proved) or `nothing found` where there is no value."""


@dataclass(frozen=True)
class OneMore:
    """What is known about one device more than the best number of stages uses."""

    stages: int
    value_ns: int | None
    """Of the plan found with it; None if the sweep did not try it."""
    bound_ns: int
    proof: Proof
    bound_by: str


@dataclass(frozen=True, eq=False)
class Sweep:
    """One answer for several numbers of stages."""

    rows: tuple[SweepRow, ...]
    """By number of stages."""
    best_stages: int
    plan: Plan
    """Of the best number of stages."""
    one_more: OneMore | None
    """None if there is no further device."""

    @property
    def base(self) -> SweepRow:
        """What the others are compared with: the fewest stages that have a plan."""
        return next(row for row in self.rows if row.value_ns is not None)

    def speed_up(self, value_ns: int | None) -> float | None:
        """How many times the throughput of `base` a period means; None if that cannot be said."""
        base = self.base.value_ns
        return base / value_ns if base and value_ns else None

    def efficiency(self, row: SweepRow) -> float | None:
        """Speed-up for each stage paid for: 1 where twice the stages mean twice the throughput."""
        faster = self.speed_up(row.value_ns)
        return None if faster is None else faster * self.base.stages / row.stages

    def to_json(self) -> bytes:
        """One object: `sweep`, `best_stages`, `one_more`, `plan`."""
        rows = [asdict(row) for row in self.rows]
        more = None if self.one_more is None else asdict(self.one_more)
        answer = {"sweep": rows, "best_stages": self.best_stages, "one_more": more, "plan": self.plan}
        return msgspec.json.encode(answer) + b"\n"


def sweep_stages(
    problems: StageProblems,
    *,
    solver: str = "auto",
    gap: float | None = None,
    time_limit: float | None = None,
    work_limit: int | None = None,
    seed: int = 0,
    inputs: Mapping[str, str] = MappingProxyType({}),
    argv: Sequence[str] = (),
    begun: float | None = None,
    on_event: Callable[[Event], None] | None = None,
) -> Sweep:
    """Plan every number of stages; the limits are for all of them together. Ctrl-C keeps what there is."""
    gap, time_limit = stop_rules(gap, time_limit, work_limit)
    clock = _Clock(time_limit, work_limit, len(problems.counts), begun)
    found = _Found()
    failure: InfeasibleError | None = None
    for left, stages in zip(range(len(problems.counts), 0, -1), problems.counts, strict=True):
        if found.last is not None and (why := found.interrupted or clock.over):
            found.skip(stages, why)
            continue
        try:
            with Interruption() as stop:
                problem = problems.at(stages)
                plan = make_plan(
                    problem,
                    solver=solver,
                    gap=gap,
                    time_limit=clock.share(left),
                    work_limit=clock.work,
                    seed=seed,
                    start=found.start(problem),
                    inputs=inputs,
                    argv=argv,
                    on_event=None if on_event is None else _about(on_event, stages, clock),
                )
        except InfeasibleError as error:
            failure = error
            found.miss(stages, Termination.INFEASIBLE if error.proved else Termination.NOTHING_FOUND)
            continue
        if not stop.ended:
            found.add(stages, problem, plan)
        elif found.last is None:
            raise KeyboardInterrupt
        else:
            found.skip(stages, Termination.INTERRUPTED)
    if found.last is None:
        raise failure or InfeasibleError("no number of stages was tried")
    return _conclude(problems, found)


class _Clock:
    """The limits of the whole sweep."""

    def __init__(self, time_limit: float | None, work_limit: int | None, searches: int, begun: float | None) -> None:
        self._begun, self._limit = monotonic() if begun is None else begun, time_limit
        self.work = None if work_limit is None else max(1, work_limit // searches)

    @property
    def seconds(self) -> float:
        return monotonic() - self._begun

    @property
    def over(self) -> Termination:
        late = self._limit is not None and self.seconds >= self._limit
        return Termination.TIME if late else Termination.NONE

    def share(self, left: int) -> float | None:
        """An even part of what is left, for the next of `left` searches."""
        return None if self._limit is None else round(max(0.0, self._limit - self.seconds) / left, 3)


class _Found:
    """Rows and bounds so far, and the plans that may still turn out to be the best."""

    def __init__(self) -> None:
        self.rows: list[SweepRow] = []
        self.bounds: dict[int, BoundEntry] = {}
        self.plans: dict[int, Plan] = {}
        self.last: tuple[Problem, Indices] | None = None
        self.interrupted = Termination.NONE

    def start(self, problem: Problem) -> Indices | None:
        """The last plan's placement for the next problem."""
        return None if self.last is None else same_placement(self.last[1], self.last[0], problem)

    def add(self, stages: int, problem: Problem, plan: Plan) -> None:
        """A plan was made."""
        self.last = problem, np.array([problem.device_index[plan.placement[op.name]] for op in problem.graph.ops])
        self.bounds[stages] = plan.bounds[0]
        self.rows.append(
            SweepRow(
                stages,
                plan.value_ns,
                plan.bound_ns,
                plan.gap,
                plan.proof,
                plan.bound_by,
                plan.seconds,
                plan.stopped_by,
            )
        )
        # Values never grow with the number of stages, so only plans near the latest one can be the best.
        self.plans = {k: p for k, p in self.plans.items() if _near(p.value_ns, plan.value_ns)} | {stages: plan}
        if plan.stopped_by == Termination.INTERRUPTED:
            self.interrupted = Termination.INTERRUPTED

    def miss(self, stages: int, why: Termination) -> None:
        """There is no plan."""
        self.rows.append(SweepRow(stages, None, 0, None, "none", "", None, why))

    def skip(self, stages: int, why: Termination) -> None:
        """Not searched: what holds for fewer stages holds here too."""
        if why == Termination.INTERRUPTED:
            self.interrupted = why
        value = next(row.value_ns for row in reversed(self.rows) if row.value_ns is not None)
        self.rows.append(SweepRow(stages, value, 0, 1.0 if value else 0.0, "none", "", None, why))


def _near(value: int, best: int) -> bool:
    return value <= best * (1 + GOOD_ENOUGH)


def _about(on_event: Callable[[Event], None], stages: int, clock: _Clock) -> Callable[[Event], None]:
    """Events that say for how many stages, and count the seconds of the whole sweep."""

    def tell(event: Event) -> None:
        on_event(replace(event, seconds=clock.seconds, message=f"{stages} stages {event.message}".rstrip()))

    return tell


def _conclude(problems: StageProblems, found: _Found) -> Sweep:
    rows = _hand_down(problems, found)
    least = min(row.value_ns for row in rows if row.value_ns is not None)
    best = next(row for row in rows if row.value_ns is not None and _near(row.value_ns, least))
    return Sweep(rows, best.stages, found.plans[best.stages], _one_more(problems, found, rows, best.stages + 1))


def _one_more(problems: StageProblems, found: _Found, rows: tuple[SweepRow, ...], stages: int) -> OneMore | None:
    """From its own row; where there is none, from a quick bound and the rows above."""
    if stages > problems.most:
        return None
    above = [row for row in rows if row.stages >= stages]
    value = above[0].value_ns if above and above[0].stages == stages else None
    known = [OneMore(stages, value, row.bound_ns, row.proof, row.bound_by) for row in above]
    known.append(OneMore(stages, value, 0, "none", ""))
    if not found.interrupted and (value is None or known[0].bound_ns == 0):
        quick = _quick_bound(problems, stages)
        if quick is not None:
            known.append(OneMore(stages, value, quick.value_ns, quick.proof, quick.by))
    return max(known, key=lambda entry: entry.bound_ns)


def _hand_down(problems: StageProblems, found: _Found) -> tuple[SweepRow, ...]:
    """Give every number of stages the best bound of those above it, its plan too."""
    rows = found.rows[:]
    above: BoundEntry | None = None
    for i in range(len(rows) - 1, -1, -1):
        row, own = rows[i], found.bounds.get(rows[i].stages)
        if above is not None and above.value_ns > row.bound_ns and row.stopped_by != Termination.INFEASIBLE:
            above = _restated(problems.at(row.stages), above)
            rows[i] = replace(
                row,
                bound_ns=above.value_ns,
                gap=_gap(row.value_ns, above.value_ns),
                proof=above.proof,
                bound_by=above.by,
            )
            if row.stages in found.plans:
                found.plans[row.stages] = _with_bound(found.plans[row.stages], above)
        elif own is not None and own.value_ns:
            above = own
    return tuple(rows)


def _restated(problem: Problem, bound: BoundEntry) -> BoundEntry:
    """A bound of more stages as one of this problem: still proved if the checker proves it here from its witness."""
    if bound.proof == "proved" and bound.witness is not None:
        try:
            if (
                check.bound_of(check.PlanProblem(msgspec.to_builtins(problem_to_file(problem))), bound.witness)
                >= bound.value_ns
            ):
                return bound
        except check.Refusal:
            pass
    return BoundEntry(bound.by, bound.value_ns, "claimed", None)


def _with_bound(plan: Plan, bound: BoundEntry) -> Plan:
    gap = _gap(plan.value_ns, bound.value_ns) or 0.0
    return msgspec.structs.replace(
        plan, bounds=(bound, *plan.bounds), bound_ns=bound.value_ns, bound_by=bound.by, proof=bound.proof, gap=gap
    )


def _gap(value: int | None, bound: int) -> float | None:
    return None if value is None else (value - bound) / value if value else 0.0


def _quick_bound(problems: StageProblems, stages: int) -> BoundEntry | None:
    """The best of the bounds that need no search, for a number of stages that was not tried."""
    if len(problems.top.graph.ops) > SELF_CHECKED:
        return None
    try:
        problem = problems.at(stages)
    except InputError:  # a table of times that large cannot be made
        return None
    best = checked_bounds(problem_to_file(problem), lower_bounds(problem))[0]
    return best if best.value_ns else None
