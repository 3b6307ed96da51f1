"""Tests of the best plan of a FitProblem: held to brute force, and to what must follow from simple changes."""

from __future__ import annotations

import os

import msgspec
import pytest

from weftline.errors import InfeasibleError
from weftline.fleet.fit import cost_segments, fit_violations, solve_fit, split_segments
from weftline.problem.fit import FitAnswer, FitProblem
from weftline.testing.fits import best_fit_value, random_fit_problem

PROBLEMS = int(os.environ.get("WEFTLINE_PROBLEMS", "60"))


def solved(problem: FitProblem) -> FitAnswer | None:
    """None where nothing fits."""
    try:
        return solve_fit(problem, seconds=10)
    except InfeasibleError:
        return None


def test_bound_optimum_and_value_are_in_order() -> None:
    """Tests that no bound lies above what trying everything finds, no value below, and that most are equal."""
    closed = feasible = 0
    for seed in range(PROBLEMS):
        problem = random_fit_problem(seed)
        best, answer = best_fit_value(problem), solved(problem)
        if best is None or answer is None:
            assert best is None, f"{seed}: a plan that exists was not found"
            assert answer is None, seed
            continue
        assert answer.bound_ns <= best <= answer.value_ns, seed
        assert not fit_violations(problem, answer.segments), seed
        assert cost_segments(problem, answer.segments).value_ns == answer.value_ns, seed
        feasible, closed = feasible + 1, closed + (answer.bound_ns == answer.value_ns)
    assert feasible > PROBLEMS // 4
    assert closed >= 0.9 * feasible


@pytest.mark.parametrize("seed", range(8))
def test_more_memory_is_never_worse(seed: int) -> None:
    """Tests that a plan that is proved best cannot lose by larger devices."""
    problem = random_fit_problem(seed)
    devices = tuple(msgspec.structs.replace(one, limit_bytes=2 * one.limit_bytes) for one in problem.devices)
    before, after = solved(problem), solved(msgspec.structs.replace(problem, devices=devices))
    if before is not None:
        assert after is not None
        assert after.bound_ns <= before.value_ns


@pytest.mark.parametrize("seed", range(8))
def test_a_constant_on_every_step_moves_value_and_bound(seed: int) -> None:
    """Tests that the time of every step is added to both, and nothing else changes."""
    problem = random_fit_problem(seed)
    before, after = solved(problem), solved(msgspec.structs.replace(problem, base_ns=1000))
    assert (before is None) == (after is None)
    if before is not None and after is not None:
        assert (after.value_ns, after.bound_ns) == (before.value_ns + 1000, before.bound_ns + 1000)


def test_no_plan_is_worse_than_a_baseline() -> None:
    """Tests that what simple splits give is a candidate too."""
    for seed in range(40):
        answer = solved(random_fit_problem(seed))
        for name, value in answer.baselines if answer is not None else ():
            assert answer is not None
            assert value is None or answer.value_ns <= value, (seed, name)


def test_a_split_with_and_without_the_output_layer_is_one_plan() -> None:
    """Tests that the output layer goes with the last block unless the counts add up to one more."""
    problem = next(p for p in map(random_fit_problem, range(100)) if sum(not d.host for d in p.devices) > 1)
    blocks = problem.blocks
    assert split_segments(problem, [1, blocks - 1]) == split_segments(problem, [1, blocks])
