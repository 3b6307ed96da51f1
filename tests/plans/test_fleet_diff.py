"""Two fleet plans compared, and a fleet plan with a pipeline."""

from __future__ import annotations

import msgspec
import pytest
from tests.export.fleet_plans import fleet_of, small_fleet, small_problem

import weftline as wl
from weftline.ask import make_fleet, make_plan
from weftline.errors import UsageError
from weftline.plans.fleet_diff import FleetDifference
from weftline.testing import random_problem


def test_the_same() -> None:
    """Tests that a plan does not differ from itself, whoever found it."""
    found = wl.diff(small_fleet(), msgspec.structs.replace(small_fleet(), solver="other"))
    assert isinstance(found, FleetDifference)
    assert found.identical


def test_lanes_devices_and_rate() -> None:
    """Tests what came, what went, what devices hold, and the words for it."""
    found = wl.diff(small_fleet("replicas"), small_fleet())
    assert not found.identical
    assert found.same_problem
    assert found.rate == (small_fleet("replicas").rate, small_fleet().rate)
    assert found.holds == {"d0": (("op0",), ()), "d1": (("op1",), ())}
    assert {change.way for change in found.lanes if change.share[1] is None} == {
        "a whole copy on d0", "a whole copy on d1"
    }  # fmt: skip
    assert sum(change.share[0] or 0 for change in found.lanes) == pytest.approx(1)
    text = str(found)
    assert "rate of the fleet 1,088,235 inputs/s -> of the fleet 1,463,415 inputs/s (+34.48%)" in text
    assert "d0 no longer holds op0" in text
    assert "absent -> 66.7% of the inputs: d1 (1 op) > d0 (2 ops)" in text


def test_another_share_alone() -> None:
    """Tests that the same lanes with other shares are told as such, and that rounding is no change."""
    ways = [lambda _: "d0", lambda _: "d1"]
    a, b, c = (
        fleet_of(small_problem(), ways, rates) for rates in ([10**9, 10**9], [15 * 10**8, 10**9], [10**9 + 1, 10**9])
    )
    found = wl.diff(a, b)
    assert [(change.way, change.share) for change in found.lanes] == [
        ("a whole copy on d0", (0.5, 0.6)), ("a whole copy on d1", (0.5, 0.4))
    ]  # fmt: skip
    assert not found.holds
    assert not wl.diff(a, c).lanes


def test_a_fleet_beside_a_pipeline() -> None:
    """Tests rates and periods of both, in both orders, and that the words do not mix their bounds up."""
    pipeline = make_plan(small_problem(), work_limit=50)
    found = wl.diff(pipeline, small_fleet())
    assert isinstance(found, FleetDifference)
    assert found.value_ns == (pipeline.value_ns, small_fleet().value_ns)
    assert found.kinds == ("pipeline", "fleet")
    assert "the bound of a pipeline holds for pipelines alone" in str(found)
    assert wl.diff(small_fleet(), pipeline).rate == found.rate[::-1]


def test_other_problems_are_named() -> None:
    """Tests that plans of different problems are compared by names, and that it is said first."""
    other = make_fleet(random_problem(3, "throughput", max_ops=6, max_devices=3, stages=0, limits=False), work_limit=20)
    found = wl.diff(small_fleet(), other)
    assert not found.same_problem
    assert str(found).startswith("the plans answer different problems")


def test_what_cannot_be_compared() -> None:
    """Tests schedules and plans for latency."""
    schedule = wl.schedule(wl.shape("vshape", 2), micro_batches=2, solver="1f1b", work_limit=1)
    with pytest.raises(UsageError, match="cannot be compared"):
        wl.diff(schedule, small_fleet())  # type: ignore[call-overload]
    latency = wl.plan(small_problem(), objective="latency", work_limit=5)
    with pytest.raises(UsageError, match="no rate"):
        wl.diff(small_fleet(), latency)
