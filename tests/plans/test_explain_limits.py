"""Which limits bind, on problems where the answer is known."""

from __future__ import annotations

import msgspec
import pytest
from tests.certify.base_plans import latency_plan, sequential_plan, throughput_plan

from weftline.ask import make_plan
from weftline.errors import InfeasibleError
from weftline.plans import Binding, Plan, binding_limits
from weftline.problem import Problem
from weftline.testing import random_problem
from weftline.testing.generate import Feed, Objective, problem_of


def _kinds(problem: Problem, solver: str = "auto") -> dict[tuple[str, str], Binding]:
    return {
        (limit.kind, limit.what): limit for limit in binding_limits(make_plan(problem, solver=solver, work_limit=50))
    }


def test_parts_of_a_chain() -> None:
    """Tests that compute and transfers of the chain add up to the value, and that busy resources are named."""
    plan = msgspec.convert(latency_plan(), Plan, strict=True)
    limits = binding_limits(plan)
    shares = [limit.share or 0 for limit in limits if limit.kind in ("compute", "transfer")]
    assert sum(shares) == pytest.approx(1)
    waits = {limit.what for limit in limits if limit.kind == "wait"}
    assert waits == {"the send port of d0", "device d1"}
    one_clock = binding_limits(msgspec.convert(sequential_plan(), Plan, strict=True))
    assert {limit.what for limit in one_clock if limit.kind == "wait"} <= {"what runs before it"}


def test_memory() -> None:
    """Tests that a full device is named with what a move to it would bring."""
    found = _kinds(problem_of([[10, 2], [10, 2]], weights=[8, 8], capacity=[100, 10]))
    limit = found["memory", "d1"]
    assert limit.says.startswith(
        "memory of d1 (8 B of 10 B in use) keeps 1 of the 1 dearest ops of the chain from a better"
    )


def test_together() -> None:
    """Tests that a set that stays together binds where one of its ops alone would be better elsewhere."""
    found = _kinds(problem_of([[10, 10], [10, 10]], together=((0, 1),)))
    assert found["together", ""].says.endswith("from a better place: op0 on d1 would give 10 ns")


def test_one_device() -> None:
    """Tests that ops with one possible device are counted."""
    found = _kinds(problem_of([[10, -1], [10, -1]], [Feed(0, (1,), 1)]))
    assert found["one-device", ""].share == 1.0
    assert found["search", ""].says == (
        "none of the 2 dearest ops of the chain has a better place on another device, whatever memory and sets say"
    )


def test_stages() -> None:
    """Tests that the number of stages binds where one more device would help."""
    wires = [Feed(0, (1,), 1), Feed(1, (2,), 1)]
    found = _kinds(problem_of([[9, 9, 9]] * 3, wires, objective="throughput", stages=2), "greedy")
    assert found["stages", ""].says.startswith("the number of stages (2) keeps")
    assert (
        found["balance", ""].says
        == "1 of 2 stages are full (load within 1% of the period); 1 of 3 devices have no stage"
    )


def test_a_better_move() -> None:
    """Tests that a plan that is no local optimum says so."""
    found = _kinds(problem_of([[5, 9], [5, 9], [5, 9]]), "single-device")
    assert found["search", ""].says == (
        "3 of the 3 dearest ops of the chain have a better place that no limit forbids: op0 on d1 would give 10 ns"
    )


def test_parts_of_the_slowest_stage() -> None:
    """Tests that the parts of a stage add up to the period when they are added."""
    limits = binding_limits(msgspec.convert(throughput_plan(), Plan, strict=True))
    assert sum(limit.share or 0 for limit in limits if limit.kind in ("compute", "transfer")) == pytest.approx(1)
    assert [limit.says for limit in limits][:3] == [
        "d1: computes for 73% of the period",
        "d1: receives for 13% of the period",
        "d1: sends for 13% of the period",
    ]


def test_any_plan() -> None:
    """Tests that random plans of all kinds can be asked, instant ops and empty chains among them."""
    asked = 0
    for seed in range(80):
        kind: Objective = "throughput" if seed % 2 else "latency"
        try:
            plan = make_plan(random_problem(seed, kind, max_ops=9), solver="single-device", work_limit=10)
        except InfeasibleError:
            continue
        limits = binding_limits(plan)
        assert limits
        assert all(limit.says and (limit.share is None or 0 <= limit.share <= 1) for limit in limits)
        asked += 1
    assert asked > 30
    assert [limit.kind for limit in binding_limits(make_plan(problem_of([[0]])))] == ["one-device", "search"]
