"""Tests of the turns in which the lanes of a fleet get their inputs, and of the segments of a lane."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.run.fleet_samples import fleet_plan
from tests.run.local_samples import small_model

from weftline.errors import InputError
from weftline.importers.registry import read_file
from weftline.plans.fleet import FleetLane, FleetPlan
from weftline.run.planned import lane_shares, placements_of, planned_compute
from weftline.run.split.manifest import read_manifest
from weftline.run.split.segments import lanes_of_plan, parts_by_lane
from weftline.run.split.split import split_lanes
from weftline.run.turns import lane_turns

COPY, OTHER, CUT, BACK = [0] * 14, [1] * 14, [0] * 6 + [1] * 8, [0] * 3 + [1] * 4 + [0] * 4 + [1] * 3
"""Devices of the small model's ops."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return small_model(tmp_path / "small.onnx")


@given(st.lists(st.integers(1, 10**7), min_size=1, max_size=7), st.integers(0, 120))
def test_no_lane_is_an_input_from_its_share(rates: list[int], count: int) -> None:
    """Tests after every number of inputs that each lane has had its share, less or more than one."""
    turns, total = lane_turns(rates, count), sum(rates)
    assert len(turns) == count
    had = [0] * len(rates)
    for number, lane in enumerate(turns, 1):
        had[lane] += 1
        assert all(abs(had[at] * total - number * rate) < total for at, rate in enumerate(rates))


def test_turns_repeat_and_are_smooth() -> None:
    """Tests a whole cycle, twice; one lane, and no rates at all."""
    assert lane_turns([3, 1], 8) == lane_turns([3, 1], 4) * 2
    assert lane_turns([5, 3, 2], 10) * 2 == lane_turns([5, 3, 2], 20)
    assert [lane_turns([5, 3, 2], 10).count(lane) for lane in range(3)] == [5, 3, 2]
    assert lane_turns([7], 3) == lane_turns([], 3) == [0, 0, 0]


def test_segments_of_a_lane(model: Path) -> None:
    """Tests that a device has one segment unless it waits for what others made of its own; then one for each visit."""
    graph = read_file(model).graph
    counts = [len(parts_by_lane(graph, np.array(lane, np.int32)).device) for lane in (COPY, CUT, BACK)]
    assert counts == [1, 2, 4]


def test_equal_segments_have_one_file(model: Path, tmp_path: Path) -> None:
    """Tests that a stage which two lanes share is written once, and that the manifest holds all lanes."""
    graph = read_file(model).graph
    (tmp_path / "split").mkdir()
    shared = [0] * 6 + [2] * 8
    parts = [parts_by_lane(graph, np.array(lane, np.int32)) for lane in (CUT, shared, COPY)]
    manifest = split_lanes(model, graph, parts, ["a", "b", "c"], tmp_path / "split", rates=(2, 1, 1))
    assert read_manifest(tmp_path / "split") == manifest
    assert [(segment.lane, segment.device) for segment in manifest.segments] == [
        *((0, "a"), (0, "b")),
        *((1, "a"), (1, "c"), (2, "a")),
    ]
    files = [segment.file for segment in manifest.segments]
    assert files[0] == files[2]
    assert files[1] == files[3]
    assert len(set(files)) == 3 == len(list((tmp_path / "split").glob("*.onnx")))
    assert len(manifest.of_lane(0)) == len(manifest.of_lane(1)) == len(manifest.of_lane(2)) + 1


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"rates": (2, 0)}, "no share"),
        ({"rates": (1,)}, "a lane that does not exist"),
        ({"rates": (1, 1, 1)}, "an input of the model is not among its tensors"),
    ],
)
def test_a_manifest_of_lanes_that_does_not_fit(
    model: Path, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    """Tests that rates and lanes of a manifest are checked when it is read."""
    graph = read_file(model).graph
    parts = [parts_by_lane(graph, np.array(lane, np.int32)) for lane in (COPY, CUT)]
    manifest = split_lanes(model, graph, parts, ["a", "b"], tmp_path, rates=(2, 1))
    wrong = msgspec.structs.replace(manifest, **change)
    (tmp_path / "manifest.json").write_bytes(msgspec.json.encode(wrong))
    with pytest.raises(InputError, match=says):
        read_manifest(tmp_path)


def test_what_a_fleet_plans_of_an_input(model: Path) -> None:
    """Tests shares, placements and mean computing times of lanes against the plan's own problem."""
    plan = fleet_plan(model, [COPY, CUT], [3, 1])
    problem = plan.load_problem()
    assert lane_shares(plan) == (0.75, 0.25)
    assert [list(placement.values()).count("d1") for placement in placements_of(plan)] == [0, 8]
    time = problem.cost.time
    computes = planned_compute(plan, problem)
    assert computes["d1"] == round(0.25 * int(time[6:, 1].sum()))
    assert computes["d0"] == round(0.75 * int(time[:, 0].sum()) + 0.25 * int(time[:6, 0].sum()))
    parts, rates = lanes_of_plan(plan)
    assert [len(part.device) for part in parts] == [1, 2]
    assert rates == tuple(lane.rate for lane in plan.lanes)


@pytest.mark.parametrize(
    "lane",
    [
        FleetLane(1, 1, ((0, 0, 13),)),
        FleetLane(1, 1, ((0, 0, 7), (1, 8, 14))),
        FleetLane(1, 1, ((0, 0, 14), (1, 14, 14))),
        FleetLane(1, 1, ((5, 0, 14),)),
        FleetLane(1, 1, ((-1, 0, 14),)),
        FleetLane(0, 1, ((0, 0, 14),)),
        FleetLane(1, 1, ()),
    ],
)
def test_lanes_that_are_none(model: Path, lane: FleetLane) -> None:
    """Tests that a lane with holes, unknown devices or no rate is refused before anything runs."""
    plan: FleetPlan = msgspec.structs.replace(fleet_plan(model, [COPY], [1]), lanes=(lane,))
    with pytest.raises(InputError, match="lane 0 does not run each op once"):
        plan.placements()


def test_a_fleet_without_lanes_or_devices(model: Path) -> None:
    """Tests that there is something to run, and that every device of the problem is in the plan."""
    plan: FleetPlan = msgspec.structs.replace(fleet_plan(model, [COPY], [1]), lanes=())
    with pytest.raises(InputError, match="without a lane"):
        plan.placements()
    other: FleetPlan = msgspec.structs.replace(fleet_plan(model, [COPY], [1]), devices={})
    with pytest.raises(InputError, match="how busy device 'd0' is"):
        other.placements()
