"""Fleet plans simulated again: what tables and stories say is what the checker says, and prices mean what they say."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.export.fleet_plans import fleet_of, small_fleet, small_problem

import weftline as wl
from weftline.ask import make_fleet, make_plan
from weftline.certify.check_fleet import check_fleet
from weftline.errors import InputError, UsageError
from weftline.fleet.rates import best_rates
from weftline.plans.fleet import FleetLane, FleetPlan, fleet_to_json
from weftline.plans.fleet_result import (
    held_words,
    same_fleet,
    simulate_fleet,
    way_words,
)
from weftline.plans.fleet_story import explain_fleet, fleet_guarantee
from weftline.plans.records import FLEET_TABLES
from weftline.simulate import simulate_latency
from weftline.simulate.fleet import lane_loads
from weftline.testing import random_problem


@pytest.mark.parametrize("seed", range(12))
def test_the_result_is_what_the_plan_says(seed: int) -> None:
    """Tests rate, devices, lanes and latencies of random fleets, and that the checker agrees."""
    problem = random_problem(seed, "throughput", max_ops=6, max_devices=3, stages=0, limits=False)
    plan = make_fleet(problem, work_limit=30)
    found = simulate_fleet(plan)
    verdict = check_fleet(json.loads(fleet_to_json(plan)))
    assert (found.value, found.rate) == (verdict.value_ns, verdict.rate)
    assert same_fleet(plan, found)
    assert found.depth == plan.depth
    assert sum(lane.share for lane in found.lanes) == pytest.approx(1.0)
    alone = problem.with_rules(msgspec.structs.replace(problem.rules, objective="latency"))
    for lane in found.lanes:
        placement = np.zeros(len(problem.graph.ops), np.int32)
        for device, first, last in lane.hops:
            placement[first:last] = device
        assert lane.latency_ns == simulate_latency(alone, placement).value
        busiest = max(lane_loads(problem, placement).limited.max(initial=0), 1)
        assert busiest <= (lane.latency_ns or 0) + 1 or problem.rules.transfers == "per-edge"
    held = {use.id: use.parts for use in found.devices if use.parts}
    assert held == {one.device: one.ops for one in plan.instances}


def test_prices_say_what_a_second_is_worth() -> None:
    """Tests that a fleet with one more device like d0 (or d1) gives no more than its price says."""
    plan = small_fleet()
    story, problem = explain_fleet(plan), small_problem()
    assert [use.id for use in story.saturated] == ["d0", "d1"]
    assert plan.rate_bound is not None
    assert sum(use.worth or 0 for use in story.result.devices) == pytest.approx(plan.rate_bound)
    for d, use in enumerate(story.result.devices):
        lanes = [lane_loads(problem, np.array(p, np.int32)) for p in np.ndindex(2, 2, 2)]
        weights = np.array([[1 if other == d else 2 for other in range(2)]])
        slower = [replace(lane, limited=lane.limited * weights) for lane in lanes]  # all but d at half the speed
        assert use.worth is not None
        assert 2 * best_rates(slower).total <= (plan.rate_bound + use.worth) * (1 + 1e-9)


def test_words() -> None:
    """Tests the sentences of explain: what binds, what is idle, what is full, how a bound is known."""
    plan = small_fleet()
    lines = explain_fleet(plan).lines()
    assert lines[0] == "d0, d1: busy all the time, so more inputs need less work there, or another way"
    assert lines[1].startswith("d0: one more second of it in every second raises the bound by ")
    assert "proved (prices: with a price for a second of each device" in fleet_guarantee(plan)
    found = simulate_fleet(plan)
    assert [way_words(found, lane) for lane in found.lanes] == [
        "d1 (1 op) > d0 (2 ops)", "d1 (1 op) > d0 (1 op) > d1 (1 op)"
    ]  # fmt: skip
    ways = [line.split(": ", 1)[1] for line in plan.summary().splitlines() if "of the inputs" in line]
    assert sorted(ways) == ["in 3 steps over 2 devices: d1, d0", "over 2 devices in a row: d1, d0"]
    assert held_words(found, found.devices[1]) == "2 ops: op0 .. op0 and 1 more run"
    alone = fleet_of(small_problem(), [lambda _: "d0"], [10**6])
    story = explain_fleet(alone)
    assert "no device is busy all the time" in story.lines()[0]
    assert "d1: does nothing in this plan" in story.lines()
    assert story.guarantee == "Nothing is known about how much faster another deployment could be."
    assert held_words(story.result, story.result.devices[0]) == "the whole model (3 ops)"
    assert way_words(story.result, story.result.lanes[0]) == "a whole copy on d0"


def test_baselines_have_gains() -> None:
    """Tests how much more the fleet gives than each simple plan."""
    told = explain_fleet(small_fleet()).to_json()
    assert set(told["baselines"]) == set(small_fleet().baselines)
    for one in told["baselines"].values():
        assert one["gain"] == pytest.approx(told["rate"] / one["rate"] - 1)


def test_a_pipeline_is_a_fleet_of_one_lane() -> None:
    """Tests that its period is the plan's, and that plans for latency are refused."""
    pipeline = make_plan(small_problem(), work_limit=50)
    found = simulate_fleet(pipeline)
    assert (found.value, len(found.lanes)) == (pipeline.value_ns, 1)
    assert Fraction(found.rate_units, 10**6) <= Fraction(10**9, pipeline.value_ns)
    latency = wl.plan(small_problem(), objective="latency", work_limit=5)
    with pytest.raises(UsageError, match="a plan for latency has no rate"):
        simulate_fleet(latency)


@pytest.mark.parametrize(
    "hops", [[(0, 0, 2)], [(0, 1, 3)], [(7, 0, 3)], [(0, 0, 1), (1, 2, 3)], [(0, 0, 4)], [(-1, 0, 3)], []]
)
def test_broken_lanes_are_refused(hops: list[tuple[int, int, int]]) -> None:
    """Tests holes, unknown devices and ends that do not fit."""
    plan = small_fleet()
    with pytest.raises(InputError, match="lane"):
        simulate_fleet(msgspec.structs.replace(plan, lanes=(FleetLane(1, 1, tuple(hops)),)))


@pytest.mark.parametrize("witness", [None, {"kind": "prices"}, {"kind": "prices", "compute": [1]}, {"kind": 7}])
def test_strange_witnesses_give_no_prices(witness: dict[str, object] | None) -> None:
    """Tests that what is no price of every device is left out."""
    plan = small_fleet()
    bounds = tuple(msgspec.structs.replace(bound, witness=witness) for bound in plan.bounds)
    found = simulate_fleet(msgspec.structs.replace(plan, bounds=bounds))
    assert all(use.worth is None for use in found.devices)


def test_a_file_says_the_same(tmp_path: Path) -> None:
    """Tests the verbs on a file, and the way back from it."""
    plan = small_fleet()
    plan.save(tmp_path / "fleet.json")
    assert FleetPlan.load(tmp_path / "fleet.json") == plan
    assert wl.simulate(tmp_path / "fleet.json").to_json() == simulate_fleet(plan).to_json()  # type: ignore[union-attr]
    assert str(wl.explain(tmp_path / "fleet.json")) == str(explain_fleet(plan))
    with pytest.raises(UsageError, match="this is a fleet plan"):
        wl.explain(tmp_path / "fleet.json", op="op0")


def test_tables() -> None:
    """Tests that every table has rows of the same keys, and that they say what the plan says."""
    plan = small_fleet()
    for name in FLEET_TABLES:
        rows = plan.table(name)
        assert len({tuple(row) for row in rows}) == 1
    assert sum(row["rate"] for row in plan.table("lanes")) == pytest.approx(plan.rate)
    assert {row["name"]: row["rate"] for row in plan.table("baselines")} == {"plan": plan.rate, **plan.baselines}
    assert [row["lane"] for row in plan.table("hops")] == [0, 0, 1, 1, 1]
    with pytest.raises(UsageError, match="a table is one of"):
        plan.table("timeline")
