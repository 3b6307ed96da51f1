"""Tests of proofs after a search: what is claimed becomes proved, and plans stay what they were."""

from __future__ import annotations

import msgspec
import pytest
from tests.certify.tiny_pipelines import tiny_form

from weftline.ask import make_plan
from weftline.ask.proofs import MOST_PROOF_SECONDS, ProofTask, proof_seconds, prove_more
from weftline.certify import check_plan
from weftline.certify.problem import PlanProblem
from weftline.errors import InfeasibleError
from weftline.plans.plan import plan_to_json
from weftline.problem import Problem
from weftline.problem.model import ProblemFile, problem_from_file
from weftline.search import Event


def _problem(seed: int) -> Problem:
    return problem_from_file(msgspec.convert(tiny_form(seed), ProblemFile))


def test_pipelines_of_equal_devices_are_proved() -> None:
    """Tests that every optimal pipeline is proved optimal, that the checker repeats it, and that 0 switches it off."""
    closed = 0
    for seed in range(12):
        problem = _problem(seed)
        try:
            plan, bare = (make_plan(problem, solver="ideals", work_limit=500, proof=proof) for proof in (30.0, 0.0))
        except InfeasibleError:
            continue
        assert (plan.value_ns, plan.placement) == (bare.value_ns, bare.placement)
        assert not [bound for bound in bare.bounds if bound.by == "pipelines"]
        assert plan.bound_ns >= bare.bound_ns
        closed += plan.gap == 0
        assert plan.proof == "proved" or plan.value_ns == 0
        assert check_plan(msgspec.to_builtins(plan)).proved_bound_ns == plan.bound_ns
    assert closed > 5


def test_the_same_bytes_under_a_work_limit() -> None:
    """Tests that no proof depends on the clock where the search does not."""
    problem = _problem(4)
    first, second = (plan_to_json(make_plan(problem, work_limit=300, seed=3)) for _ in range(2))
    assert first == second


def test_progress_says_what_is_proved() -> None:
    """Tests that somebody who waits for a proof knows of which number."""
    heard: list[Event] = []
    for seed in range(6, 12):
        make_plan(_problem(seed), solver="single-device", time_limit=5, on_event=heard.append)
    assert [event for event in heard if event.solver == "proof" and event.message.startswith("proving")]


@pytest.mark.parametrize(
    ("asked", "time", "work", "seconds"),
    [(None, 60.0, None, MOST_PROOF_SECONDS), (None, 2.0, None, 2.0), (None, None, 100, 0.0), (3.0, 60.0, 100, 3.0)],
)
def test_the_time_of_proofs(asked: float | None, time: float | None, work: int | None, seconds: float) -> None:
    """Tests the default, and that what is asked for holds."""
    assert proof_seconds(asked, time, work) == seconds


def test_the_best_number_is_found_by_bisection() -> None:
    """Tests that a plan that is not optimal gets the largest number that can be refuted."""
    form = tiny_form(8)
    for op in range(len(form["time_rows"])):
        form["time_rows"][op] = [100 * (op + 1)] * len(form["devices"])
    problem = problem_from_file(msgspec.convert(form, ProblemFile))
    best = make_plan(problem, solver="ideals", work_limit=500, proof=0).value_ns
    task = ProofTask(problem, PlanProblem(form), best + 500, best - 50, 0, 60.0, lambda text: None)
    (found,) = prove_more(task)
    assert best - max(1, best // 1000) <= found.value <= best
