"""The verbs that look at an answer, or at a placement of somebody else's: simulate, verify, explain, diff.

In: a plan, fleet plan or schedule, as an object or a file; or a model and a placement. Out: what the simulator
or the independent checker says of it. Simplified: nothing is searched here.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

import weftline.simulate  # noqa: F401  # a room with a verb's name: see verbs.py
from weftline.arguments import a_path, a_text
from weftline.errors import UsageError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from weftline.ask.fit_story import FitStory
    from weftline.certify.run import AnyVerdict
    from weftline.cluster import Cluster
    from weftline.graph import Graph
    from weftline.plans import Binding, Difference, OpStory, Plan, SlowestStage
    from weftline.plans.explain import Reason
    from weftline.plans.fit import FitPlan
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.fleet_diff import FleetDifference
    from weftline.plans.fleet_result import FleetResult
    from weftline.plans.fleet_story import FleetStory
    from weftline.plans.schedule import Schedule
    from weftline.plans.schedule_story import ScheduleDifference, ScheduleStory
    from weftline.plans.score import Score
    from weftline.problem import Problem
    from weftline.simulate import Loads, Timeline, Timetable

__all__ = ["Explanation", "diff", "explain", "read_answer", "read_fit", "simulate", "verify"]


def simulate(
    what: Plan | Schedule | AnyFleet | Problem | Graph | Path | str,
    placement: Mapping[str, str] | Plan | Path | str | Sequence[int] | NDArray[Any] | None = None,
    cluster: Cluster | Path | str | None = None,
    *,
    order: Sequence[str] | None = None,
    **question: Any,
) -> Timeline | Loads | Timetable | FleetResult | Score:
    """Run the decisions of a plan or schedule through the simulator again; or score a placement of your own.

    Of a fleet plan that is a `FleetResult`: rate, devices, lanes with their shares and what one input takes on each.

    With a `placement` (op -> device id, a plan, a JSON file of either, or for each op in the order of the graph the
    number of its device), `what` is a Problem, a Graph or a file of a
    model, and the answer is a `Score`: value, busy time and memory of every device, stages or timeline.
    `InfeasibleError` says which limits it breaks. `cluster` and `question` (objective, runtime, shapes, costs, ...) are
    as in `wl.plan`; to score many placements, make the Problem once (`wl.load_problem`). `order` (latency) names all
    ops in the order in which they are booked. Without it the order of a plan is followed; where it cannot be (other
    rules, another graph), `note` of the Score says why, and ops go by descending upward rank, as without a plan.
    """
    from weftline.plans import Plan, plan_result
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.fleet_result import simulate_fleet
    from weftline.plans.score import numbered_placement, read_placement, score_placement

    if placement is None:
        if cluster is not None or order is not None or question:
            raise UsageError("cluster, order and rules are for a model with a placement; a plan has its own")
        answer = read_answer(what)  # type: ignore[arg-type]
        if isinstance(answer, AnyFleet):
            return simulate_fleet(answer)
        return plan_result(answer)[1] if isinstance(answer, Plan) else answer.timetable()
    if isinstance(placement, Path | str):
        placement, said = read_placement(a_path(placement, "placement"))
        order = said if order is None else order
    elif not isinstance(placement, Plan | Mapping):
        problem = _problem(what, cluster, question)
        return score_placement(problem, numbered_placement(problem, placement), order)
    return score_placement(_problem(what, cluster, question), placement, order)


def _problem(what: Any, cluster: Cluster | Path | str | None, question: dict[str, Any]) -> Problem:
    from weftline.ask.answer import resolve
    from weftline.ask.request import PlanRequest

    try:
        request = PlanRequest(model=what, cluster=cluster, **question)
    except TypeError as error:  # a name that no request has
        raise UsageError(f"simulate: {str(error).partition('() ')[2] or error}") from error
    return resolve(request).problem


def verify(plan: Plan | Schedule | AnyFleet | FitPlan | Path | str) -> AnyVerdict:
    """Check a plan or schedule (or its file) with the independent checker; `VerificationError` if it does not hold."""
    from weftline.certify import verify_file
    from weftline.certify.run import verify_bytes
    from weftline.plans import Plan
    from weftline.plans.fit import FitPlan, fit_plan_to_json
    from weftline.plans.fleet import AnyFleet, fleet_to_json
    from weftline.plans.plan import plan_to_json
    from weftline.plans.schedule import Schedule, schedule_to_json

    if isinstance(plan, Schedule):
        return verify_bytes(schedule_to_json(plan))
    if isinstance(plan, AnyFleet):
        return verify_bytes(fleet_to_json(plan))
    if isinstance(plan, FitPlan):
        return verify_bytes(fit_plan_to_json(plan))
    return verify_bytes(plan_to_json(plan)) if isinstance(plan, Plan) else verify_file(a_path(plan, "plan"))


@dataclass(frozen=True)
class Explanation:
    """What decides the value of a plan."""

    chain: tuple[Reason, ...]
    """Ops and transfers that end last, in order of time."""
    slowest_stage: SlowestStage | None
    """Throughput: the stage that takes longest."""
    binding: tuple[Binding, ...]
    """Limits that bind."""


@overload
def explain(plan: Plan, op: str | None = None) -> Explanation | OpStory: ...


@overload
def explain(plan: Schedule) -> ScheduleStory: ...


@overload
def explain(plan: AnyFleet) -> FleetStory: ...


@overload
def explain(plan: FitPlan) -> FitStory: ...


@overload
def explain(
    plan: Path | str, op: str | None = None
) -> Explanation | OpStory | ScheduleStory | FleetStory | FitStory: ...


def explain(
    plan: Plan | Schedule | AnyFleet | FitPlan | Path | str, op: str | None = None
) -> Explanation | OpStory | ScheduleStory | FleetStory | FitStory:
    """What decides the value of a plan or schedule, or the rate of a fleet plan, or of their file.

    With `op` (of a plan) why that op stands where it does, and what each other device would cost.
    """
    from weftline.ask.fit_story import explain_fit
    from weftline.plans import Plan, binding_limits, explain_op, explain_plan, explain_stage
    from weftline.plans.fleet_story import explain_fleet
    from weftline.plans.schedule import Schedule
    from weftline.plans.schedule_story import explain_schedule

    if (fitted := read_fit(plan)) is not None:
        if op is not None:
            raise UsageError("op is for plans; this is a plan of a language model")
        return explain_fit(fitted)
    answer = read_answer(plan, "plan")  # type: ignore[arg-type]
    if not isinstance(answer, Plan):
        kind = "schedule" if isinstance(answer, Schedule) else "fleet plan"
        if op is not None:
            raise UsageError(f"op is for plans; this is a {kind}")
        return explain_schedule(answer) if isinstance(answer, Schedule) else explain_fleet(answer)
    if op is not None:
        return explain_op(answer, a_text(op, "op"))
    return Explanation(tuple(explain_plan(answer)), explain_stage(answer), tuple(binding_limits(answer)))


@overload
def diff(a: Plan, b: Plan | Path | str) -> Difference: ...


@overload
def diff(a: Schedule, b: Schedule | Path | str) -> ScheduleDifference: ...


@overload
def diff(a: Plan, b: AnyFleet) -> FleetDifference: ...


@overload
def diff(a: AnyFleet, b: AnyFleet | Plan | Path | str) -> FleetDifference: ...


@overload
def diff(
    a: Path | str, b: Plan | Schedule | AnyFleet | Path | str
) -> Difference | ScheduleDifference | FleetDifference: ...


def diff(
    a: Plan | Schedule | AnyFleet | Path | str, b: Plan | Schedule | AnyFleet | Path | str
) -> Difference | ScheduleDifference | FleetDifference:
    """What differs between two plans, two schedules, two fleet plans, a fleet plan and a plan for throughput."""
    from weftline.plans import Plan, diff_plans
    from weftline.plans.fleet_diff import diff_fleets
    from weftline.plans.schedule import Schedule
    from weftline.plans.schedule_story import diff_schedules

    first, second = read_answer(a, "a"), read_answer(b, "b")
    if isinstance(first, Plan) and isinstance(second, Plan):
        return diff_plans(first, second)
    if isinstance(first, Schedule) and isinstance(second, Schedule):
        return diff_schedules(first, second)
    if isinstance(first, Schedule) or isinstance(second, Schedule):
        raise UsageError("a plan and a schedule cannot be compared: give two plans or two schedules")
    return diff_fleets(first, second)


def read_fit(answer: object) -> FitPlan | None:
    """A plan of a language model on cards, or the one in a file; None for anything else."""
    from weftline.certify.run import is_fit
    from weftline.plans.fit import FitPlan, load_fit_plan

    if isinstance(answer, FitPlan):
        return answer
    path = Path(answer) if isinstance(answer, str | os.PathLike) else None
    return load_fit_plan(path) if path is not None and is_fit(path) else None


def read_answer(answer: Plan | Schedule | AnyFleet | Path | str, name: str = "answer") -> Plan | Schedule | AnyFleet:
    """A plan, fleet plan or schedule, or the one in a file."""
    from weftline.certify.run import is_fleet, is_schedule
    from weftline.graph import Graph
    from weftline.plans import Plan, load_plan
    from weftline.plans.fleet import AnyFleet, load_fleet
    from weftline.plans.schedule import Schedule, load_schedule
    from weftline.problem import Problem

    if isinstance(answer, Plan | Schedule | AnyFleet):
        return answer
    if isinstance(answer, Graph | Problem):
        raise UsageError("a model has no decisions to look at: give a placement, {op: device}, or plan it first")
    if read_fit(answer) is not None:
        raise UsageError("a plan of a language model is for verify, explain and report; its command is in it")
    path = a_path(answer, name)
    return load_schedule(path) if is_schedule(path) else load_fleet(path) if is_fleet(path) else load_plan(path)
