"""The story of a plan: a chain without holes, the slowest stage, one op."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.certify.base_plans import latency_plan, sequential_plan, throughput_plan

from weftline.ask import make_plan
from weftline.cluster import Device
from weftline.cost import NO_TIME, CostTable
from weftline.errors import InfeasibleError, InputError
from weftline.graph import Op, Tensor, assemble
from weftline.plans import Plan, explain_op, explain_plan
from weftline.problem import Problem
from weftline.testing import random_problem


def _plan(form: object) -> Plan:
    return msgspec.convert(form, Plan, strict=True)


def _check_chain(plan: Plan) -> None:
    chain = explain_plan(plan)
    assert chain[0].start_ns == 0
    assert chain[-1].end_ns == plan.value_ns
    assert all(before.end_ns == after.start_ns for before, after in pairwise(chain))
    assert chain[0].because == "first"
    assert all("waits" in reason.because or reason.start_ns == 0 for reason in chain[1:])


@pytest.mark.parametrize("rules", [{"runtime": "parallel"}, {"runtime": "sequential"}])
@pytest.mark.parametrize("transfers", ["per-tensor", "per-edge"])
def test_the_chain_has_no_holes(rules: dict[str, Any], transfers: str) -> None:
    """Tests that from 0 to the value each link starts where the one before it ends, buses and ports included."""
    explained = 0
    for seed in range(120):
        problem = random_problem(seed, "latency", max_ops=9, transfers=transfers, **rules)
        try:
            plan = make_plan(problem, work_limit=10)
        except InfeasibleError:
            continue
        _check_chain(plan)
        explained += 1
    assert explained > 60


@pytest.mark.parametrize("solver", ["round-robin", "even-split"])
def test_the_chain_of_plans_with_many_transfers(solver: str) -> None:
    """Tests the same where ops are spread without care, so that ports and buses are contended."""
    explained = 0
    for seed in range(120):
        problem = random_problem(seed, "latency", max_ops=12, runtime="parallel")
        try:
            plan = make_plan(problem, solver=solver, work_limit=10)
        except InfeasibleError:
            continue
        _check_chain(plan)
        explained += 1
    assert explained > 20


def test_waiting_for_a_bus() -> None:
    """Tests that a transfer that waits for a bus alone is explained by the transfer before it."""
    ops = [Op("a"), Op("b"), Op("c"), Op("d")]
    tensors = [Tensor("ta", 0, (2,), 8), Tensor("tb", 1, (3,), 8)]
    time = np.full((4, 4), NO_TIME, np.int64)
    time[range(4), range(4)] = 10
    transfer = np.full((1, 4, 4), 7, np.int64)
    transfer[:, range(4), range(4)] = 0
    problem = Problem(
        assemble("two", ops, tensors),
        tuple(Device(f"d{i}", "gpu", None) for i in range(4)),
        CostTable(time, transfer, np.zeros(2, np.int32)),
        buses=((0, 2, "pcie"), (1, 3, "pcie")),
    )
    plan = make_plan(problem)
    assert plan.value_ns == 34
    _check_chain(plan)
    assert [reason.because for reason in explain_plan(plan)] == [
        "first",
        "waits for its input",
        "waits for bus pcie",
        "waits for its input",
    ]


def test_a_known_chain() -> None:
    """Tests that the chain of a small plan is the one a reader finds with a pencil."""
    chain = explain_plan(_plan(latency_plan()))
    assert [(r.what.split(" (")[0], r.where) for r in chain] == [
        ("a", "d0"),
        ("send ta", "d0->d2"),
        ("send ta", "d0->d1"),
        ("b1", "d1"),
        ("b2", "d1"),
        ("c", "d1"),
        ("send tc", "d1->d0"),
        ("z", "d0"),
    ]
    assert str(chain[1]).split() == ["10", "ns", "..", "14", "ns", *str(chain[1]).split()[5:]]
    assert explain_plan(_plan(sequential_plan()))[-1].what == "d"


def test_the_slowest_stage() -> None:
    """Tests that for throughput the parts of the slowest stage add up to the period."""
    parts = explain_plan(_plan(throughput_plan()))
    assert {part.where for part in parts} == {"d1"}
    assert [(p.what, p.end_ns - p.start_ns) for p in parts] == [
        ("tensors that enter", 4),
        ("compute", 22),
        ("tensors that leave", 4),
    ]
    assert (parts[0].start_ns, parts[-1].end_ns) == (0, 30)


def test_overlapped_parts_begin_together() -> None:
    """Tests that with double buffering the longest part is the period."""
    for seed in range(10):
        problem = random_problem(seed, "throughput", communication="overlapped")
        try:
            plan = make_plan(problem, work_limit=5)
        except InfeasibleError:
            continue
        parts = explain_plan(plan)
        assert max(part.end_ns for part in parts) == plan.value_ns
        assert all(part.start_ns == 0 for part in parts)


def test_one_op() -> None:
    """Tests that an op's story has its device, its times elsewhere, its inputs and what moving it would change."""
    story = explain_op(_plan(latency_plan()), "c")
    lines = story.lines()
    text = "\n".join(lines)
    assert lines[0].startswith("c (op, 0 FLOP, weights 10 B) on d1")
    assert "runs 40 ns .. 51 ns" in text
    assert "reads tb3 (8 B) of b3: from d2, 4 ns" in text
    assert [(move.device, move.here, move.time_ns) for move in story.moves] == [
        ("d0", False, 10),
        ("d1", True, 11),
        ("d2", False, 12),
    ]
    assert story.together == ()
    first = explain_op(_plan(latency_plan()), "a")
    assert first.moves[2].time_ns is None
    assert "reads in: input of the model, present everywhere" in "\n".join(first.lines())
    both = explain_op(_plan(latency_plan()), "b1")
    assert both.together == ("b2",)
    assert "shares its device with 1 more: 'b2'" in "\n".join(both.lines())


def test_one_op_of_a_pipeline() -> None:
    """Tests that a pipeline's op has no times of day."""
    story = explain_op(_plan(throughput_plan()), "d")
    text = "\n".join(story.lines())
    assert story.span_ns is None
    assert "runs" not in text
    assert "reads t2 (8 B) of c: on the same device" in text


def test_an_op_that_does_not_exist() -> None:
    """Tests that names like it are offered."""
    with pytest.raises(InputError, match=r"there is no op 'B'.*did you mean 'b1', 'b2', 'b3'\?"):
        explain_op(_plan(latency_plan()), "B")
    with pytest.raises(InputError, match=r"explain PLAN --placement lists them"):
        explain_op(_plan(latency_plan()), "nothing like it")
