"""The stage sweep: rows that are right for every number of stages, the best number, one more device."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import numpy as np
import pytest

import weftline
from weftline.ask import StageProblems, Sweep, stage_problems, sweep_stages
from weftline.ask import planning as make_module
from weftline.bounds import Bound
from weftline.certify import check_plan
from weftline.errors import InfeasibleError, UsageError
from weftline.plans.plan import plan_to_json
from weftline.problem import Problem, asked_rules
from weftline.search import Event, Search, Solver
from weftline.testing import brute_force_throughput, random_problem
from weftline.testing.generate import Feed, problem_of


def _problems(problem: Problem, counts: str | list[int] = "auto") -> StageProblems:
    return stage_problems(lambda k: problem.with_rules(asked_rules({"stages": k}, problem.rules)), counts)


def _chain(ops: int, devices: int, length: int = 1) -> Problem:
    """Equal ops in a row, equal devices."""
    wires = [Feed(i, (i + 1,), length) for i in range(ops - 1)]
    return problem_of([[100] * devices] * ops, wires, objective="throughput")


WithSolver = Callable[[Callable[[Search], None]], None]


@pytest.fixture
def with_solver(monkeypatch: pytest.MonkeyPatch) -> WithSolver:
    """Makes a function the solver `for-a-test`."""

    def use(solve: Callable[[Search], None]) -> None:
        registry = {"for-a-test": Solver("for-a-test", "", solve)}
        monkeypatch.setattr(make_module, "solvers_for", lambda objective: registry)

    return use


def test_rows_are_right_and_monotone() -> None:
    """Tests on random problems that bound <= optimum <= value for each number, and that more stages are never worse."""
    swept = 0
    for seed in range(40):
        problem = random_problem(seed, "throughput", max_ops=6, stages=0)
        problems = _problems(problem)
        try:
            sweep = sweep_stages(problems, solver="greedy", work_limit=60)
        except InfeasibleError:
            continue
        swept += 1
        values = [row.value_ns for row in sweep.rows if row.value_ns is not None]
        bounds = [row.bound_ns for row in sweep.rows if row.stopped_by != "infeasible"]
        assert values == sorted(values, reverse=True)
        assert bounds == sorted(bounds, reverse=True)
        for row in sweep.rows:
            best = brute_force_throughput(problems.at(row.stages))
            assert best is not None or row.value_ns is None
            if best is not None:
                assert row.bound_ns <= best <= (best if row.value_ns is None else row.value_ns)
                assert row.stopped_by != "infeasible"
    assert swept > 20


def test_best_is_the_fewest_stages_that_are_good_enough() -> None:
    """Tests that stages that bring less than one percent are not worth it, and that the plan is that of the best."""
    sweep = sweep_stages(_problems(_chain(4, 4)), solver="greedy", work_limit=400)
    assert sweep.best_stages == 4
    assert sweep.plan.value_ns == 102
    assert sweep.one_more is None
    sweep = sweep_stages(_problems(_chain(4, 4, length=1000)), solver="greedy", work_limit=400)
    assert sweep.best_stages == 1
    assert sweep.plan.value_ns == 400
    assert sweep.plan.provenance.gap == make_module.DEFAULT_GAP
    assert [row.value_ns for row in sweep.rows] == [400] * 4
    nearly = problem_of([[199, 199], [1, 1]], [Feed(0, (1,), 0)], objective="throughput")
    assert sweep_stages(_problems(nearly), solver="greedy", work_limit=100).best_stages == 1


def test_speed_up_and_efficiency() -> None:
    """Tests both against the fewest stages that were tried."""
    sweep = sweep_stages(_problems(_chain(4, 4, length=0)), solver="greedy", work_limit=400)
    assert [sweep.speed_up(row.value_ns) for row in sweep.rows] == [1.0, 2.0, 2.0, 4.0]
    assert sweep.efficiency(sweep.rows[2]) == pytest.approx(2 / 3)
    sweep = sweep_stages(_problems(_chain(4, 4, length=0), [2, 4]), solver="greedy", work_limit=400)
    assert sweep.base.stages == 2
    assert [sweep.speed_up(row.value_ns) for row in sweep.rows] == [1.0, 2.0]
    assert [sweep.efficiency(row) for row in sweep.rows] == [1.0, 1.0]


def test_one_more_device() -> None:
    """Tests its bound from its row, from a quick bound where it was not tried, and that there may be none."""
    problem = _chain(4, 4, length=1000)
    inside = sweep_stages(_problems(problem), solver="greedy", work_limit=400).one_more
    assert inside is not None
    assert (inside.stages, inside.value_ns, inside.bound_ns, inside.proof) == (2, 400, 400, "proved")
    outside = sweep_stages(_problems(problem, [1]), solver="greedy", work_limit=400).one_more
    assert outside is not None
    assert (outside.stages, outside.value_ns, outside.bound_ns) == (2, None, 400)
    between = sweep_stages(_problems(problem, [1, 4]), solver="greedy", work_limit=400).one_more
    assert between is not None
    assert (between.stages, between.value_ns, between.bound_ns) == (2, None, 400)


def test_what_does_not_fit_has_no_value() -> None:
    """Tests that too few stages for the weights are a row of their own, and the others go on."""
    problem = problem_of(
        [[10, 10, 10]] * 3, weights=[5, 5, 5], capacity=[8, 8, 8], objective="throughput", memory="static"
    )
    sweep = sweep_stages(_problems(problem), solver="greedy", work_limit=300)
    assert [row.value_ns for row in sweep.rows] == [None, None, 10]
    assert sweep.rows[0].stopped_by == "infeasible"
    assert (sweep.best_stages, sweep.base.stages) == (3, 3)
    with pytest.raises(InfeasibleError):
        sweep_stages(_problems(problem, [1, 2]), solver="greedy", work_limit=300)


def test_the_next_search_starts_from_the_last_plan(with_solver: WithSolver) -> None:
    """Tests that a solver that finds nothing more still has the plan with fewer stages."""

    def solve(search: Search) -> None:
        if search.problem.stage_limit > 1:
            raise InfeasibleError("tired")
        search.offer(np.zeros(len(search.problem.graph.ops), np.int32))

    with_solver(solve)
    sweep = sweep_stages(_problems(_chain(4, 3)), solver="for-a-test", work_limit=100)
    assert [row.value_ns for row in sweep.rows] == [400] * 3


def test_bounds_are_handed_down(with_solver: WithSolver) -> None:
    """Tests that a bound for more stages holds for fewer, in the row and in the plan, which still verifies."""

    def solve(search: Search) -> None:
        search.offer(np.zeros(len(search.problem.graph.ops), np.int32))
        if search.problem.stage_limit == 3:
            search.offer_bound(Bound(390, "oracle"))

    with_solver(solve)
    sweep = sweep_stages(_problems(_chain(4, 3, length=100)), solver="for-a-test", work_limit=100)
    assert [(row.bound_ns, row.proof, row.bound_by) for row in sweep.rows] == [
        (400, "proved", "load"),
        (390, "claimed", "oracle"),
        (390, "claimed", "oracle"),
    ]
    sweep = sweep_stages(_problems(_chain(4, 3, length=100), [2, 3]), solver="for-a-test", work_limit=100)
    assert sweep.best_stages == 2
    assert (sweep.plan.bound_ns, sweep.plan.proof, sweep.plan.gap) == (390, "claimed", 0.025)
    assert check_plan(json.loads(plan_to_json(sweep.plan))).value_ns == 400


def test_the_time_is_for_the_whole_sweep(with_solver: WithSolver) -> None:
    """Tests that shares are even, that what is left over is passed on, and that nothing begins when time is over."""
    limits: list[float] = []

    def solve(search: Search) -> None:
        assert search.time_limit is not None
        limits.append(search.time_limit)
        search.offer(np.zeros(len(search.problem.graph.ops), np.int32))

    with_solver(solve)
    sweep_stages(_problems(_chain(4, 4)), solver="for-a-test", time_limit=4000)
    assert limits[0] == pytest.approx(1000, abs=100)
    assert limits == sorted(limits)
    assert limits[-1] > 3000
    sweep = sweep_stages(_problems(_chain(4, 4)), solver="for-a-test", time_limit=0)
    assert [(row.value_ns, row.stopped_by) for row in sweep.rows[1:]] == [(400, "time")] * 3
    assert sweep.rows[-1].proof == "none"


def test_ctrl_c_keeps_what_there_is(with_solver: WithSolver) -> None:
    """Tests that an interrupt ends the sweep with the plans so far, and stays an interrupt if there are none."""

    def solve(search: Search) -> None:
        if search.problem.stage_limit == 2:
            raise KeyboardInterrupt
        search.offer(np.zeros(len(search.problem.graph.ops), np.int32))

    with_solver(solve)
    sweep = sweep_stages(_problems(_chain(4, 4)), solver="for-a-test", work_limit=100)
    assert [row.stopped_by for row in sweep.rows][1:] == ["interrupted"] * 3
    assert {row.value_ns for row in sweep.rows} == {400}
    with pytest.raises(KeyboardInterrupt):
        sweep_stages(_problems(_chain(4, 4), [2, 3]), solver="for-a-test", work_limit=100)


def test_a_work_limit_repeats_every_byte() -> None:
    """Tests that the same question gives the same JSON, with the promised fields."""
    answers = [
        sweep_stages(_problems(_chain(6, 3)), solver="greedy", work_limit=90, seed=2).to_json() for _ in range(2)
    ]
    assert answers[0] == answers[1]
    answer = json.loads(answers[0])
    assert list(answer) == ["sweep", "best_stages", "one_more", "plan"]
    fields = ["stages", "value_ns", "bound_ns", "gap", "proof", "bound_by", "seconds", "stopped_by"]
    assert list(answer["sweep"][0]) == fields
    assert answer["plan"]["value_ns"] == answer["sweep"][answer["best_stages"] - 1]["value_ns"]
    assert check_plan(answer["plan"]).value_ns == answer["plan"]["value_ns"]


def test_events_name_the_number_of_stages() -> None:
    """Tests that progress says for how many stages, in the seconds of the whole sweep."""
    events: list[Event] = []
    sweep_stages(_problems(_chain(4, 3)), solver="greedy", work_limit=90, on_event=events.append)
    assert {event.message.split()[0] for event in events} == {"1", "2", "3"}
    assert [event.seconds for event in events] == sorted(event.seconds for event in events)


def test_options_that_make_no_sense() -> None:
    """Tests that impossible limits are usage errors."""
    for options in ({"gap": 2.0}, {"time_limit": -1.0}, {"work_limit": 0}):
        with pytest.raises(UsageError):
            sweep_stages(_problems(_chain(2, 2)), **options)


def test_the_facade() -> None:
    """Tests `weftline.plan_stages` on a Problem and that its answer is the same."""
    problem = _chain(6, 3)
    sweep = weftline.plan_stages(problem, stages="1..3", solver="greedy", work_limit=90)
    assert isinstance(sweep, Sweep)
    again = sweep_stages(_problems(problem, "1..3"), solver="greedy", work_limit=90)
    assert msgspec.json.decode(sweep.to_json())["sweep"] == msgspec.json.decode(again.to_json())["sweep"]
