"""Sweeps over numbers of devices for the rate of the whole cluster."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from weftline.ask import sweep_devices
from weftline.certify.check_fleet import check_fleet
from weftline.errors import InfeasibleError, UsageError
from weftline.plans.fleet import fleet_to_json
from weftline.problem import Problem
from weftline.problem.feasible import some_devices
from weftline.report.sweep import device_sweep_table, device_sweep_words
from weftline.testing.generate import Feed, problem_of


def _problem(speeds: tuple[int, ...], memory: tuple[int | None, ...] = ()) -> Problem:
    """A chain of four ops; device d needs 100 * speeds[d] ns for each of them."""
    times = [[100 * speed for speed in speeds] for _ in range(4)]
    problem = problem_of(times, [Feed(i, (i + 1,), 3) for i in range(3)])
    if memory:
        ops = tuple(msgspec.structs.replace(op, weight_bytes=100) for op in problem.graph.ops)
        pairs = zip(problem.devices, memory, strict=True)
        devices = tuple(msgspec.structs.replace(device, memory=size) for device, size in pairs)
        problem = replace(problem, graph=msgspec.structs.replace(problem.graph, ops=ops), devices=devices)
    return replace(problem, rules=msgspec.structs.replace(problem.rules, objective="throughput"))


def test_devices_leave_in_the_order_of_what_they_are_worth() -> None:
    """Tests rates of equal ops, where copies on the fastest devices are the best for every number."""
    found = sweep_devices(_problem((1, 4, 2)), work_limit=60)
    assert [row.names for row in found.rows] == [("d0",), ("d0", "d2"), ("d0", "d1", "d2")]
    whole = 1e9 / 400
    for row, rate in zip(found.rows, (1, 1.5, 1.75), strict=True):
        assert row.rate is not None
        assert row.rate_bound is not None
        assert row.rate == pytest.approx(whole * rate, rel=2e-3)
        assert row.proof == "proved"
        assert row.rate <= row.rate_bound
    assert found.best_devices == 3
    assert found.one_more is None
    assert "There is no further device to add." in device_sweep_words(found)
    check_fleet(msgspec.json.decode(fleet_to_json(found.plan)))


def test_a_device_that_brings_nothing_is_said_to() -> None:
    """Tests that two devices are enough where a third is a thousand times slower, and what it brings at most."""
    found = sweep_devices(_problem((1, 1, 1000)), work_limit=60)
    assert found.best_devices == 2
    assert found.one_more is not None
    assert found.one_more.names == ("d0", "d1", "d2")
    words = " ".join(device_sweep_words(found))
    assert "2 devices are best here (d0, d1)" in words
    assert "A 3rd device brings 0." in words
    assert device_sweep_table(found).row_count == 3
    told = msgspec.json.decode(found.to_json())
    assert told["best_devices"] == 2
    assert [row["devices"] for row in told["sweep"]] == [1, 2, 3]
    assert told["plan"]["format"] == "weftline-fleet"


def test_numbers_without_a_plan_have_a_row() -> None:
    """Tests that memory which two devices have together, and none alone, keeps both."""
    found = sweep_devices(_problem((1, 1), (290, 290)), work_limit=60)
    assert [(row.devices, row.rate is None) for row in found.rows] == [(1, True), (2, False)]
    assert found.rows[0].stopped_by == "infeasible"
    assert found.best_devices == 2
    with pytest.raises(InfeasibleError):
        sweep_devices(_problem((1, 1), (90, 90)), work_limit=60)


def test_numbers_that_are_asked_for() -> None:
    """Tests lists, ranges, and what no cluster has."""
    problem = _problem((1, 2, 3, 4))
    assert [row.devices for row in sweep_devices(problem, "1,3", work_limit=60).rows] == [1, 3, 4]
    assert [row.devices for row in sweep_devices(problem, (2,), work_limit=60).rows] == [2, 4]
    with pytest.raises(UsageError, match="there are 4 devices, not 5"):
        sweep_devices(problem, "1..5", work_limit=60)


def test_some_devices_keep_their_times_and_buses() -> None:
    """Tests the question for a part of the cluster."""
    problem = replace(_problem((1, 2, 3)), buses=((0, 2, "a"), (1, 2, "b")))
    part = some_devices(problem, [0, 2])
    assert [device.id for device in part.devices] == ["d0", "d2"]
    assert part.buses == ((0, 1, "a"),)
    assert np.array_equal(part.cost.time, problem.cost.time[:, [0, 2]])
    assert np.array_equal(part.cost.transfer[:, 0, 1], problem.cost.transfer[:, 0, 2])
