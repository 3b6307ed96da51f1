"""Problems with scarce memory against a model that was written from the docs alone; and that this model can object."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from reliability.memory import instance, judge, recompute
from reliability.memory_check import Broken, Question, append, pipeline
from reliability.memory_latency import least_latency
from reliability.memory_pipeline import least_period

from reliability import memory
from weftline.ask.questions import lower_bounds
from weftline.bounds import Bound
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import simulate_latency
from weftline.testing import brute_force_latency, brute_force_throughput, random_problem
from weftline.testing.generate import Feed, problem_of

WORK = 2.0


@pytest.mark.parametrize("number", [1, 3, 4, 7, 12])
def test_nobody_contradicts_the_model(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a problem of every kind; thousands of them: `python -m reliability --only memory`."""
    monkeypatch.setattr(memory, "MOST_SECONDS", 1.0)
    row = judge(instance(number), number, WORK)
    assert row["broken"] == []
    assert row["model"] == "optimal"
    assert row["values"] > 0


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_the_model_finds_the_optimum_of_tiny_problems(seed: int) -> None:
    """Tests it against brute force, with every rule of memory, transfers, runtime and communication."""
    for objective, least, force in (
        ("latency", least_latency, brute_force_latency),
        ("throughput", least_period, brute_force_throughput),
    ):
        problem = random_problem(seed, objective, max_ops=5, max_devices=2)  # type: ignore[arg-type]
        known, found = force(problem), least(Question.of(problem), WORK)
        assert found.value == known
        assert found.bound == known


def test_a_wrong_bound_and_a_wrong_plan_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that bounds that are too high, and plans that need more room than there is, become violations."""
    problem = instance(1)

    def wrong(problem: Problem) -> list[Bound]:
        return [replace(bound, value=3 * bound.value) for bound in lower_bounds(problem)]

    monkeypatch.setattr(memory, "lower_bounds", wrong)
    monkeypatch.setattr(memory, "SOLVERS", {("latency", "parallel"): ("greedy",)})
    assert any("> plan" in text for text in judge(problem, 1, WORK)["broken"])
    loose = problem_of([[1, 1], [1, 1]], [Feed(0, (1,), 5, 10)], weights=[4, 4], capacity=[None, None])
    tight = problem_of([[1, 1], [1, 1]], [Feed(0, (1,), 5, 10)], weights=[4, 4], capacity=[17, 17])
    found = simulate_latency(loose, np.zeros(2, np.int32))
    assert recompute(loose, Question.of(loose), found) == 2
    with pytest.raises(Broken, match="device 0 holds 18, may hold 17"):
        recompute(tight, Question.of(tight), found)
    with pytest.raises(Broken, match="before its input"):
        append(Question.of(loose), [0, 0], [1, 0])
    with pytest.raises(Broken, match="holds 18"):
        pipeline(Question.of(tight), [0, 0])


def test_nothing_waits_on_purpose() -> None:
    """Tests that a plan that would fit only with a pause does not count."""
    wires = [Feed(0, (2,), [[0, 1], [1, 0]], 6), Feed(1, (2,), [[0, 1], [1, 0]], 6)]
    time = [[4, -1], [9, -1], [-1, 3]]
    for capacity in (12, 11):
        problem = problem_of(time, wires, capacity=[12, capacity])
        assert least_latency(Question.of(problem), WORK).value == brute_force_latency(problem)


@pytest.mark.parametrize("solver", ["exact", "auto"])
def test_a_limit_of_work_does_not_hide_the_end_of_the_time(solver: str) -> None:
    """Tests a problem whose pipelines only the simulator refuses: without a plan it was searched for ever."""
    search = Search(instance(14), work_limit=40, time_limit=0.5, seed=14, solver=solver)
    search.offered = 40
    assert not search.is_over
    search.time_limit = 0.0
    assert search.is_over
