"""A plan in words."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from tests.certify.base_plans import latency_plan, throughput_plan

from weftline.ask import make_plan
from weftline.cluster import Device
from weftline.cost import CostTable
from weftline.graph import Op, Tensor, assemble
from weftline.plans import Plan
from weftline.plans.summary import guarantee, scattered_hosts
from weftline.problem import Problem, Rules
from weftline.testing.generate import Feed, problem_of

LATENCY = msgspec.json.decode(json.dumps(latency_plan()).encode(), type=Plan)
THROUGHPUT = msgspec.json.decode(json.dumps(throughput_plan()).encode(), type=Plan)


def _with(**fields: object) -> Plan:
    return msgspec.structs.replace(LATENCY, **fields)


@pytest.mark.parametrize(
    ("plan", "sentence"),
    [
        (
            LATENCY,
            "No plan can be more than 1.54% faster: claimed by weftline's own search, not checked independently "
            "(oracle 1.0); proved is that none can be more than 38.46% faster.",
        ),
        (
            _with(bound_ns=40, proof="proved", bound_by="path"),
            "No plan can be more than 38.46% faster: proved (path: the longest chain of ops that wait for each other, "
            "each on the device that suits the chain best).",
        ),
        (
            _with(bounds=LATENCY.bounds[:1]),
            "No plan can be more than 1.54% faster: claimed by weftline's own search, not checked independently "
            "(oracle 1.0).",
        ),
        (
            _with(bound_ns=65, bounds=()),
            "This plan is the best possible: claimed by weftline's own search, not checked independently (oracle 1.0).",
        ),
        (
            _with(bound_ns=65, proof="proved", bound_by="group"),
            "This plan is the best possible: proved (group: the longest op (or ops that must stay together) on the "
            "device that is fastest for it).",
        ),
        (
            _with(bound_ns=0, proof="none"),
            "Nothing is known about how far this plan is from the best possible one.",
        ),
        (_with(value_ns=0, bound_ns=0, proof="none"), "This plan takes no time at all, so none is better."),
    ],
)
def test_guarantee(plan: Plan, sentence: str) -> None:
    """Tests the sentence a manager understands, for each kind of proof."""
    assert guarantee(plan) == sentence


def test_summary_of_latency() -> None:
    """Tests that value, bound, guarantee, solver and every baseline are lines."""
    advice, *lines = LATENCY.summary().splitlines()
    assert advice == "Use d0 alone: this split is not faster."
    assert lines[0] == "hand-made: 6 ops on 3 devices, latency 65 ns"
    assert lines.pop(1) == "inputs: in; weights: 65 B"
    assert lines[1].startswith("bound 64 ns, gap 1.54%. No plan can be more than 1.54% faster")
    assert lines[2] == "solver for-a-test, stopped by done"
    assert [line.split()[0] for line in lines[3 : 3 + len(LATENCY.baselines)]] == list(LATENCY.baselines)


def test_summary_says_when_a_baseline_is_better() -> None:
    """Tests that a plan that loses says so, and to whom."""
    assert not LATENCY.wins
    best = min(LATENCY.baselines, key=lambda name: LATENCY.baselines[name] or 0)
    last = LATENCY.summary().splitlines()[-1]
    assert last == f"A simple plan is better than this one: {best}, {LATENCY.baselines[best]} ns."
    winner = _with(baselines={"heft": 130, "greedy": None})
    assert winner.wins
    assert "better than this one" not in winner.summary()
    assert "the plan is 2.00x as fast" in winner.summary()
    assert "greedy         breaks a limit" in winner.summary()
    loser = _with(baselines={"heft": 13})
    assert "it is 5.00x as fast as the plan" in loser.summary()


def test_replicas_win_over_a_pipeline() -> None:
    """Tests that a pipeline that loses to whole copies of the model must say so."""
    ops = [Op("a"), Op("b")]
    transfer = np.array([[[0, 50], [50, 0]]], np.int64)
    problem = Problem(
        assemble("pair", ops, [Tensor("t", 0, (1,), 8)]),
        (Device("d0", "gpu", None), Device("d1", "gpu", None)),
        CostTable(np.full((2, 2), 10, np.int64), transfer, np.zeros(1, np.int32)),
        Rules(objective="throughput"),
    )
    plan = make_plan(problem)
    assert plan.value_ns == 20
    assert plan.baselines["replicas"] == 10
    first, second, *_, last = plan.summary().splitlines()
    assert first == (
        "Run a whole copy of the model on each device instead: 10 ns per input, 2.00x as fast as this pipeline (20 ns)."
    )
    assert second == "pair: 2 ops on 2 devices, period 20 ns"
    assert last == (
        "Whole copies would give more, an input every 10 ns (a whole copy of the model on each device): "
        "see --copies auto."
    )


def test_replicas_of_unequal_devices() -> None:
    """Tests that the rates of copies add up, rounded against us, and only where a copy fits."""
    problem = Problem(
        assemble("one", [Op("a", weight_bytes=10)], []),
        (Device("d0", "gpu", None), Device("d1", "gpu", None), Device("d2", "gpu", 5)),
        CostTable(np.array([[10, 25, 1]], np.int64), np.zeros((0, 3, 3), np.int64), np.zeros(0, np.int32)),
        Rules(objective="throughput"),
    )
    assert make_plan(problem).baselines["replicas"] == 8  # 1 / (1/10 + 1/25) = 7.14
    assert make_plan(problem.with_rules(Rules(objective="throughput", stages=1))).baselines["replicas"] == 10


def test_seconds_are_told() -> None:
    """Tests that a time-limited plan says how long it took."""
    assert "stopped by done after 1.5 s" in _with(seconds=1.5).summary()
    assert repr(LATENCY) == "Plan(latency, 65 ns, gap 1.54% claimed, by for-a-test)"


def test_scattered_hosts_are_named() -> None:
    """Tests that a host which holds both ends of a chain but not its middle is named, and that a stage never is."""
    wires = [Feed(0, (1,), 0), Feed(1, (2,), 0)]
    problem = problem_of([[1, 9], [9, 1], [1, 9]], wires, objective="throughput", hosts=[0])
    found = make_plan(problem, work_limit=100)
    assert list(found.placement.values()) == ["d0", "d1", "d0"]
    assert scattered_hosts(found) == "Not contiguous: the ops on d0, as host devices may hold them."
    assert scattered_hosts(make_plan(problem_of([[1, 9]] * 3, wires, objective="throughput"), work_limit=100)) == ""
