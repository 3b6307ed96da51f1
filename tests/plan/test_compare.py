"""Differences between two plans."""

from __future__ import annotations

import json

import msgspec

from certify.base_plans import latency_plan, sequential_plan, throughput_plan
from weftline.plan import Plan, diff_plans

LATENCY, SEQUENTIAL, THROUGHPUT = (
    msgspec.json.decode(json.dumps(base()).encode(), type=Plan)
    for base in (latency_plan, sequential_plan, throughput_plan)
)


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
    assert "1 ops moved\n  c: d1 -> d2" in text


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


def test_a_value_of_nothing() -> None:
    """Tests that a plan of no time divides nothing by zero."""
    nothing = msgspec.structs.replace(LATENCY, value_ns=0)
    assert str(diff_plans(nothing, LATENCY)).startswith("value 0 -> 65")
