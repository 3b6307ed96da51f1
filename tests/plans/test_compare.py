"""Differences between two plans."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest
from tests.certify.base_plans import latency_plan, make_plan_with, sequential_plan, throughput_plan

from weftline.ask import make_plan
from weftline.errors import InputError
from weftline.plans import Plan, diff_plans
from weftline.problem import Problem
from weftline.search import Search
from weftline.testing.generate import Feed, problem_of

LATENCY, SEQUENTIAL, THROUGHPUT = (
    msgspec.json.decode(json.dumps(base()).encode(), type=Plan)
    for base in (latency_plan, sequential_plan, throughput_plan)
)


def _placed(problem: Problem, placement: list[int]) -> Plan:
    """A plan with this placement."""

    def solve(search: Search) -> None:
        search.offer(np.array(placement, np.int32))

    plan = make_plan_with(problem, solve)
    assert isinstance(plan, Plan)
    return plan


def test_a_plan_and_itself() -> None:
    """Tests that nothing differs."""
    difference = diff_plans(LATENCY, LATENCY)
    assert difference.identical
    assert (difference.moved, difference.load_ns, difference.only_a, difference.only_b) == ({}, {}, (), ())
    assert "0 ops moved" in str(difference)
    assert "(+0.00%)" in str(difference)


def test_a_moved_op() -> None:
    """Tests that moved ops, values, bounds and loads are told."""
    devices = {**LATENCY.devices, "d1": msgspec.structs.replace(LATENCY.devices["d1"], load_ns=22)}
    placement = {**LATENCY.placement, "c": "d2"}
    other = msgspec.structs.replace(LATENCY, placement=placement, value_ns=52, bound_ns=50, devices=devices, solver="x")
    difference = diff_plans(LATENCY, other)
    assert not difference.identical
    assert difference.same_problem
    assert difference.moved == {"c": ("d1", "d2")}
    assert difference.load_ns == {"d1": (33, 22)}
    assert difference.solver == ("for-a-test", "x")
    text = str(difference)
    assert "value 65 ns -> 52 ns (-20.00%)" in text
    assert "bound 64 ns -> 50 ns" in text
    assert "load of d1: 33 ns -> 22 ns" in text
    assert "1 ops moved\nd1 -> d2: 1 ops\n  c: compute 11 ns -> 12 ns" in text
    assert "the second plan is 1.25x as fast" in text
    assert difference.groups[0].ops == ("c",)


def test_the_same_placement_with_another_value() -> None:
    """Tests that another order of the same placement is a difference."""
    assert not diff_plans(LATENCY, msgspec.structs.replace(LATENCY, value_ns=66)).identical


def test_different_problems() -> None:
    """Tests that ops and devices that only one plan has are listed."""
    difference = diff_plans(LATENCY, SEQUENTIAL)
    assert not difference.same_problem
    assert not difference.identical
    assert difference.only_a == ("b1", "b2", "b3", "z")
    assert difference.only_b == ("b", "d")
    text = str(difference)
    assert "the plans answer different problems" in text
    assert "4 ops only in the first: b1, b2, b3, z" in text
    fewer = msgspec.structs.replace(THROUGHPUT, devices={"d9": THROUGHPUT.devices["d0"]})
    assert "load of d9: absent -> 24 ns" in str(diff_plans(LATENCY, fewer))


def test_neighbours_move_as_a_group() -> None:
    """Tests that ops that hang together and went the same way are one group, others are not."""
    wires = [Feed(i, (i + 1,), 1) for i in range(5)]
    problem = problem_of([[5, 5, 5]] * 6, wires)
    plans = [_placed(problem, where) for where in ([0, 0, 0, 0, 0, 0], [1, 1, 0, 1, 2, 2])]
    difference = diff_plans(*plans)
    assert [(group.source, group.target, group.ops) for group in difference.groups] == [
        ("d0", "d1", ("op0", "op1")),
        ("d0", "d2", ("op4", "op5")),
        ("d0", "d1", ("op3",)),
    ]
    assert "transfers: none -> 3 (0 B, 3 ns)" in str(difference)
    assert (difference.transfers[1].count, difference.transfers[1].time_ns) == (3, 3)
    assert "d0 -> d1: 3 ops\n  2 ops, op0 .. op1: compute 10 ns -> 10 ns" in str(difference)
    back = diff_plans(*plans[::-1])
    assert "the second plan is" in str(back)


def test_pipelines() -> None:
    """Tests that stages and what enters them are compared."""
    wires = [Feed(i, (i + 1,), 1, bytes=8) for i in range(3)]
    problem = problem_of([[5, 5]] * 4, wires, objective="throughput")
    difference = diff_plans(_placed(problem, [0, 0, 0, 1]), _placed(problem, [0, 0, 1, 1]))
    assert [len(stages) for stages in difference.stages] == [2, 2]
    assert "stages before: d0 3 ops 16 ns | d1 1 ops 6 ns" in str(difference)
    assert difference.transfers[0] == difference.transfers[1]
    assert (difference.transfers[0].count, difference.transfers[0].bytes) == (1, 8)
    assert difference.value_ns == (16, 11)


def test_problems_that_differ() -> None:
    """Tests that the changes are named, and each placement is simulated on the other problem."""
    wires = [Feed(0, (1,), 2)]
    one, other = problem_of([[5, 9], [5, 9]], wires), problem_of([[9, 5], [9, 5]], wires, runtime="sequential")
    difference = diff_plans(make_plan(one), make_plan(other))
    assert difference.problem_changes == (
        "runtime: parallel and sequential",
        "2 of 2 ops have other times or may run elsewhere (costs: by hand)",
    )
    assert difference.crossed_ns == (18, 18)
    assert "the first placement on the second problem: 18 ns (+80.00% against its own plan)" in str(difference)
    larger = diff_plans(make_plan(one), make_plan(problem_of([[5, 9, 9]] * 3, together=((0, 1),))))
    assert larger.crossed_ns == (None, None)
    assert larger.problem_changes[:2] == (
        "another model: by hand of 2 ops, by hand of 3 ops",
        "other devices: 'd0', 'd1' and 'd0', 'd1', 'd2'",
    )
    assert larger.problem_changes[-1] == "sets of ops that stay together: 0 and 1"
    slower = diff_plans(make_plan(one), make_plan(problem_of([[5, 9], [5, 9]], [Feed(0, (1,), 3)])))
    assert slower.problem_changes == ("1 of 1 tensors have other transfer times",)
    fuller = diff_plans(make_plan(one), make_plan(problem_of([[5, 9], [5, 9]], wires, weights=[4, 4], capacity=[1, 9])))
    assert fuller.crossed_ns == (None, 18)
    assert "the devices have other kinds, memories or runtimes" in fuller.problem_changes


def test_no_device_in_common() -> None:
    """Tests that two clusters without a common device are not compared op by op."""
    here = make_plan(problem_of([[5], [5]], objective="throughput"))
    there = msgspec.structs.replace(
        here,
        devices={"x": here.devices["d0"]},
        placement=dict.fromkeys(here.placement, "x"),
        problem=msgspec.structs.replace(
            here.problem, devices=(msgspec.structs.replace(here.problem.devices[0], id="x"),)
        ),
        provenance=msgspec.structs.replace(here.provenance, problem_sha256="0"),
    )
    text = str(diff_plans(here, there))
    assert "the plans have no device in common, so all 2 ops that both have stand elsewhere" in text


def test_broken_plans() -> None:
    """Tests that files that do not fit together are refused with one error."""
    assert LATENCY.timeline
    timeline = msgspec.structs.replace(LATENCY.timeline, transfers=((99, 0, 1, -1, 0, 1),))
    with pytest.raises(InputError, match="a tensor that does not exist"):
        diff_plans(LATENCY, msgspec.structs.replace(LATENCY, timeline=timeline))
    with pytest.raises(InputError, match="placement does not fit"):
        diff_plans(THROUGHPUT, msgspec.structs.replace(THROUGHPUT, placement={**THROUGHPUT.placement, "a": "moon"}))
    broken = msgspec.structs.replace(LATENCY.problem, time_row=(99,) * len(LATENCY.problem.time_row))
    with pytest.raises(InputError, match="a row that does not exist"):
        diff_plans(LATENCY, msgspec.structs.replace(LATENCY, problem=broken))


def test_a_value_of_nothing() -> None:
    """Tests that a plan of no time divides nothing by zero."""
    nothing = msgspec.structs.replace(LATENCY, value_ns=0)
    assert str(diff_plans(nothing, LATENCY)).startswith("value 0 -> 65")
