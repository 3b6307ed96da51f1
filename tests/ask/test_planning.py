"""`make_plan`: what a plan holds, when it stops, and that it can be repeated."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib import import_module
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.certify.base_plans import latency_plan, make_plan_with, throughput_plan

from weftline import __version__
from weftline.ask import make_plan
from weftline.ask.planning import DEFAULT_GAP, DEFAULT_SECONDS, solvers_for
from weftline.bounds import Bound
from weftline.certify import check_plan
from weftline.errors import InfeasibleError, LimitReached, UsageError, VerificationError
from weftline.plans import Plan, plan_result
from weftline.plans.plan import plan_to_json
from weftline.problem import Problem, problem_hash
from weftline.problem.model import problem_to_file
from weftline.schedule import schedulers
from weftline.schedule.make_blocks import make_shape
from weftline.search import Event, Search, Solver
from weftline.testing import random_problem
from weftline.testing.generate import Objective


def _problem(objective: str = "latency") -> Problem:
    """A problem in which heuristics do not reach the bound."""
    form = latency_plan() if objective == "latency" else throughput_plan()
    return msgspec.convert(form, Plan).load_problem()


def _check(plan: object) -> Plan:
    assert isinstance(plan, Plan)
    return plan


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_fields(objective: Objective) -> None:
    """Tests that a plan says what was asked, by whom it was answered and how good it is."""
    problem = _problem(objective)
    plan = make_plan(problem, seed=5, gap=0.25, inputs={"model": "ab"}, argv=("plan", "x"))
    assert plan.objective == objective
    assert plan.gap == (plan.value_ns - plan.bound_ns) / plan.value_ns
    assert plan.bound_ns == plan.bounds[0].value_ns == max(bound.value_ns for bound in plan.bounds)
    assert (plan.proof, plan.bound_by) == (plan.bounds[0].proof, plan.bounds[0].by)
    assert plan.solver == "auto"
    assert plan.seconds is not None
    assert plan.provenance.problem_sha256 == problem_hash(problem_to_file(problem))
    assert (plan.provenance.version, plan.provenance.seed, plan.provenance.gap) == (__version__, 5, 0.25)
    assert (plan.provenance.inputs, plan.provenance.argv) == ({"model": "ab"}, ("plan", "x"))
    assert set(plan.placement) == {op.name for op in problem.graph.ops}
    assert list(plan.devices) == [device.id for device in problem.devices]
    assert (plan.timeline is None, bool(plan.stages)) == ((True, True) if objective == "throughput" else (False, False))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_the_simulator_agrees(objective: Objective) -> None:
    """Tests that a plan's decisions, simulated again, have the value and loads that it says."""
    compared = 0
    for seed in range(60):
        problem = random_problem(seed, objective)
        try:
            plan = make_plan(problem, work_limit=20)
        except InfeasibleError:
            continue
        _, result = plan_result(plan)
        assert result.value == plan.value_ns
        assert result.peak.tolist() == [use.memory_bytes for use in plan.devices.values()]
        compared += 1
    assert compared > 30


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_work_limit_repeats_every_byte(objective: Objective) -> None:
    """Tests that the same question with a work limit gives the same file."""
    plans = [plan_to_json(make_plan(_problem(objective), work_limit=5, seed=3)) for _ in range(2)]
    assert plans[0] == plans[1]
    assert b'"seconds":null' in plans[0]


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_baselines_are_beside_the_answer(objective: Objective) -> None:
    """Tests that every simple solver of the family is reported, and that the answer of `auto` is no worse."""
    plan = make_plan(_problem(objective))
    expected = {solver.name for solver in solvers_for(objective).values() if solver.baseline}
    assert set(plan.baselines) - {"replicas"} == expected
    assert ("replicas" in plan.baselines) == (objective == "throughput")
    assert min(v for k, v in plan.baselines.items() if v is not None and k != "replicas") >= plan.value_ns


def test_stop_rules() -> None:
    """Tests that the rule that fired is recorded."""
    problem = _problem()
    assert make_plan(problem, gap=1.0).stopped_by == "gap"
    assert make_plan(problem, work_limit=1).stopped_by == "work"
    assert make_plan(problem, time_limit=0).stopped_by == "time"
    assert make_plan(problem, solver="single-device").stopped_by == "done"

    def optimal(search: Search) -> None:
        search.offer(_first_placement(search))
        search.offer_bound(Bound(search.best.value, "oracle"))  # type: ignore[union-attr]

    plan = _check(make_plan_with(problem, optimal))
    assert (plan.stopped_by, plan.gap, plan.proof) == ("optimal", 0.0, "claimed")


def _first_placement(search: Search) -> np.ndarray:
    """A placement that works: what the default finds."""
    plan = make_plan(search.problem)
    return np.array([search.problem.device_index[device] for device in plan.placement.values()], np.int32)


def test_interrupted_by_the_listener() -> None:
    """Tests that Ctrl-C while an event is shown returns the best so far."""
    seen: list[Event] = []

    def stop(event: Event) -> None:
        seen.append(event)
        if event.value is not None:
            raise KeyboardInterrupt

    plan = make_plan(_problem(), on_event=stop)
    assert plan.stopped_by == "interrupted"
    assert plan.value_ns == seen[-1].value
    assert plan.baselines == {}
    check_plan_of(plan)


def check_plan_of(plan: Plan) -> None:
    """The checker accepts it."""
    assert check_plan(json.loads(plan_to_json(plan))).value_ns == plan.value_ns


def test_interrupted_inside_a_solver() -> None:
    """Tests that Ctrl-C inside a solver keeps what was offered before, the bound too."""

    def solve(search: Search) -> None:
        search.offer(_first_placement(search))
        raise KeyboardInterrupt

    plan = _check(make_plan_with(_problem(), solve))
    assert plan.stopped_by == "interrupted"
    assert plan.bound_ns > 0


def test_interrupted_before_anything_was_found() -> None:
    """Tests that Ctrl-C without any answer stays Ctrl-C."""

    def solve(search: Search) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        make_plan_with(_problem(), solve)


def test_nothing_found() -> None:
    """Tests that a solver without an answer is infeasible, with the reason of the last refusal."""

    def solve(search: Search) -> None:
        search.refused = ("memory",)

    with pytest.raises(InfeasibleError) as error:
        make_plan_with(_problem(), solve)
    assert error.value.conflicts == ("memory",)
    assert not error.value.proved


def test_a_solver_that_lies_is_found_out() -> None:
    """Tests that a claimed bound above the value never becomes a plan."""

    def solve(search: Search) -> None:
        value = search.offer(_first_placement(search))
        search.offer_bound(Bound((value or 0) + 1, "liar 1.0"))

    with pytest.raises(VerificationError, match="solver for-a-test does not hold: bound-too-high: "):
        make_plan_with(_problem(), solve)


def test_a_bad_witness_is_only_a_claim() -> None:
    """Tests that a bound whose witness proves less is kept as a claim."""

    def solve(search: Search) -> None:
        value = search.offer(_first_placement(search))
        search.offer_bound(Bound(value or 0, "hopeful", {"kind": "group", "ops": [0]}))

    plan = _check(make_plan_with(_problem(), solve))
    assert (plan.bounds[0].by, plan.bounds[0].proof, plan.proof) == ("hopeful", "claimed", "claimed")
    assert plan.proved_bound_ns < plan.value_ns


@pytest.mark.parametrize(
    ("witness", "why"),
    [
        ({"kind": "oracle"}, "Refusal: witness-kind: unknown kind of witness 'oracle'"),
        ({"kind": "group", "ops": [99]}, "Refusal: range: op of the witness = 99"),
        ({"kind": "load"}, "KeyError: 'weights'"),
        ({}, "KeyError: 'kind'"),
    ],
)
def test_a_witness_that_the_checker_refuses_is_a_warning(witness: dict[str, object], why: str) -> None:
    """Tests that a plan with such a bound is made all the same, as the guide promises to plug-ins."""

    def solve(search: Search) -> None:
        value = search.offer(_first_placement(search))
        search.offer_bound(Bound(value or 0, "hopeful", witness))

    with pytest.warns(RuntimeWarning, match=f"bound 'hopeful' is only claimed, not proved: {why}"):
        plan = _check(make_plan_with(_problem(), solve))
    assert (plan.bounds[0].by, plan.bounds[0].proof, plan.proof) == ("hopeful", "claimed", "claimed")


@pytest.mark.parametrize(
    "options",
    [{"time_limit": -1.0}, {"time_limit": float("nan")}, {"work_limit": 0}, {"gap": -0.1}, {"gap": 2.0}, {"seed": -1}],
)
def test_options_that_make_no_sense(options: dict[str, float]) -> None:
    """Tests that impossible options are usage errors."""
    with pytest.raises(UsageError, match=r"at least|between"):
        make_plan(_problem(), **options)  # type: ignore[arg-type]


def test_default_stop_rules() -> None:
    """Tests that a search without limits has a time limit and a gap, recorded."""
    used = make_plan(_problem("throughput"), solver="greedy").provenance
    assert (used.time_limit, used.work_limit, used.gap) == (DEFAULT_SECONDS, None, DEFAULT_GAP)
    used = make_plan(_problem("throughput"), solver="greedy", work_limit=5, gap=0.0).provenance
    assert (used.time_limit, used.work_limit, used.gap) == (None, 5, 0.0)
    used = make_plan(_problem("throughput"), solver="greedy", time_limit=7).provenance
    assert (used.time_limit, used.gap) == (7, DEFAULT_GAP)
    used = make_plan(_problem()).provenance
    assert (used.time_limit, used.work_limit, used.gap) == (DEFAULT_SECONDS, None, DEFAULT_GAP)


def test_a_start_is_offered_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that the plan is no worse than the start, and that a start that breaks a limit is no harm."""
    problem = _problem("throughput")
    good = make_plan(problem, solver="greedy")
    placement = np.array([problem.device_index[device] for device in good.placement.values()], np.int32)

    def nothing(search: Search) -> None:
        raise InfeasibleError("nothing found")

    monkeypatch.setitem(solvers_for("throughput"), "idle", Solver("idle", "finds nothing", nothing))
    plan = make_plan(problem, solver="idle", work_limit=100, start=placement)
    assert (plan.value_ns, plan.placement) == (good.value_ns, good.placement)
    torn = np.array([0, 1, 2, 0, 1, 2], np.int32)
    assert make_plan(problem, solver="greedy", start=torn).value_ns == good.value_ns


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_auto_is_never_worse_than_its_baselines(objective: Objective) -> None:
    """Tests that a search that was too short to look for itself takes what its baselines find; other solvers do not."""
    better = 0
    for seed in range(40):
        problem = random_problem(seed, objective=objective)
        try:
            plan = make_plan(problem, work_limit=1)
        except InfeasibleError:
            continue
        found = {name: value for name, value in plan.baselines.items() if value is not None and name != "replicas"}
        if not found:
            continue
        assert plan.value_ns <= min(found.values())
        assert plan.stopped_by == "optimal" or plan.value_ns > plan.bound_ns
        worst = max(found, key=found.__getitem__)
        better += make_plan(problem, solver=worst, work_limit=1).value_ns > min(found.values())
    assert better > 3


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_start_without_time_is_kept(objective: Objective) -> None:
    """Tests that a given placement comes back where there is no time for another, though baselines are better."""
    worse = 0
    for seed in range(40):
        problem = random_problem(seed, objective=objective, limits=False)
        start = make_plan(problem, solver="even-split", work_limit=1)
        placement = np.array([problem.device_index[device] for device in start.placement.values()], np.int32)
        plan = make_plan(problem, start=placement, time_limit=0.0)
        assert plan.placement == start.placement
        worse += any(value is not None and value < plan.value_ns for value in plan.baselines.values())
    assert worse > 3


def test_an_interrupt_inside_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what numba makes of Ctrl-C keeps the best plan; another such error is a defect and stays one."""

    def stopped(search: Search) -> None:
        solvers_for("latency")["greedy"].solve(search)
        raise SystemError("returned a result with an exception set") from cause

    monkeypatch.setitem(solvers_for("latency"), "stopped", Solver("stopped", "is interrupted", stopped))
    cause: BaseException | None = KeyboardInterrupt()
    assert make_plan(_problem(), solver="stopped", work_limit=100).stopped_by == "interrupted"
    cause = None
    with pytest.raises(SystemError):
        make_plan(_problem(), solver="stopped", work_limit=100)


def test_a_schedule_interrupted_inside_compiled_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests the same for schedules."""
    room = import_module("weftline.ask.scheduling")

    def stopped(search: Any) -> None:
        found.solve(search)
        raise SystemError("returned a result with an exception set") from KeyboardInterrupt()

    found = schedulers()["list"]
    monkeypatch.setattr(room, "find_scheduler", lambda name: replace(found, solve=stopped))
    made = room.make_schedule(make_shape("vshape", 2), 3, work_limit=20)
    assert made.stopped_by == "interrupted"


def test_an_unknown_solver() -> None:
    """Tests that the message lists the solvers there are."""
    with pytest.raises(UsageError, match=r"unknown solver 'magic' \(there are: .*auto"):
        make_plan(_problem(), solver="magic")


def test_events_improve() -> None:
    """Tests that reported values fall, bounds rise, and seconds pass."""
    events: list[Event] = []
    plan = make_plan(_problem(), on_event=events.append)
    values = [event.value for event in events if event.value is not None]
    assert values == sorted(values, reverse=True)
    assert values[-1] == plan.value_ns
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)


def test_settings_that_a_solver_does_not_take_are_refused() -> None:
    """Tests that a setting reaches only a solver that knows it."""
    problem = random_problem(1, "latency", max_ops=4, limits=False)
    with pytest.raises(UsageError, match="'heft' has no setting 'preset'"):
        make_plan(problem, solver="heft", settings={"preset": "paper"})


def test_no_time_is_not_infeasible(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a solver stopped before its first offer says so, and one that had time does not."""
    problem = random_problem(1, "latency", max_ops=4, limits=False)

    def nothing(search: Search) -> None:
        raise InfeasibleError("found nothing")

    monkeypatch.setitem(solvers_for("latency"), "idle", Solver("idle", "finds nothing", nothing))
    with pytest.raises(LimitReached, match="larger time limit"):
        make_plan(problem, solver="idle", time_limit=0)
    with pytest.raises(InfeasibleError, match="found nothing"):
        make_plan(problem, solver="idle", time_limit=60)
