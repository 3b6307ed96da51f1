"""Tests of watching a run: when a new plan is asked for, and that no request is lost when it comes."""

from __future__ import annotations

from pathlib import Path

import pytest
from msgspec.structs import replace
from tests.run.local_samples import small_model

import weftline as wl
from weftline.cluster.detect import worker_cluster
from weftline.errors import ExecutionMismatch, UsageError
from weftline.plans import Plan
from weftline.run.local import watch as local_watch
from weftline.run.local.watch import PATIENCE_ROUNDS, Watcher, run_watched


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> tuple[Plan, Path]:
    """A pipeline of two equal stages, by a profile that takes the workers as equal and their link as fast: on
    a busy machine both are measured so differently that one stage is the best plan."""
    path = small_model(tmp_path_factory.mktemp("watch") / "small.onnx", layers=24, width=512)
    cluster = worker_cluster((1.0, 1.0))
    measured = wl.profile(path, cluster, cache=False, repeats=10)
    devices = tuple(replace(measured.devices[0], id=device.id) for device in measured.devices)
    links = tuple(replace(link, latency_ns=20_000) for link in measured.links)
    costs = replace(measured, devices=devices, links=links)
    graph = wl.load(path)
    return wl.plan(graph, cluster, objective="throughput", copies=1, costs=costs, time_limit=5), path


def test_a_device_must_be_late_for_some_rounds() -> None:
    """Tests patience, and that one slow round is forgiven by the median."""
    watcher = Watcher()
    assert not watcher.see({"a": 1.0, "b": 1.0})
    assert not watcher.see({"a": 1.0, "b": 3.0})
    assert not watcher.see({"a": 1.0, "b": 1.0})
    rounds = 0
    while not (late := watcher.see({"a": 1.0, "b": 2.0})):
        rounds += 1
        assert rounds < 10
    assert rounds >= PATIENCE_ROUNDS - 1
    assert late["b"] == pytest.approx(2.0)


def test_a_slow_machine_is_no_slow_device() -> None:
    """Tests that nothing is asked for where all devices are off by the same factor, or by less than the threshold."""
    watcher = Watcher()
    assert not any(watcher.see({"a": 4.0, "b": 4.4}) for _ in range(10))
    watcher.forget()
    assert not watcher.see({"a": 1.0, "b": 9.0})


def test_a_slow_device_brings_a_new_plan(planned: tuple[Plan, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests with workers that run and times that say one is slow: its stage becomes smaller, no request is lost."""
    plan, path = planned
    monkeypatch.setattr(
        local_watch._Watched, "_slower", lambda self, *_: {"w0": 1.0, "w1": 1.0 if self.switches else 3.0}
    )
    found = run_watched(plan, model=path, requests=200)
    found.check(1e-4)
    assert found.answered == found.requests == sum(entry.requests for entry in found.rounds) == 200
    (switch,) = found.switches
    assert switch.devices == {"w0": 1.0, "w1": 3.0}
    assert switch.new_ns < switch.kept_ns
    assert switch.pause_ns > 0
    assert isinstance(found.plan, Plan)
    mine = [sum(device == "w1" for device in which.placement.values()) for which in (plan, found.plan)]
    assert mine[1] < mine[0]
    assert "new plan" in found.summary()
    assert found.to_json()["answered"] == 200


def test_measured_times_are_compared_with_planned_ones(planned: tuple[Plan, Path]) -> None:
    """Tests that the factors of a round are positive and of the order of one: the plan is made from a profile."""
    plan, path = planned
    slower = run_watched(plan, model=path, requests=20).rounds[0].slower
    assert set(slower) == {"w0", "w1"}
    assert all(0.05 < factor < 50 for factor in slower.values())


def test_few_requests_and_what_is_refused(planned: tuple[Plan, Path]) -> None:
    """Tests a run that is shorter than a round, and a result that does not hold."""
    plan, path = planned
    found = run_watched(plan, model=path, requests=3)
    assert (found.answered, len(found.rounds), found.switches) == (3, 1, ())
    with pytest.raises(ExecutionMismatch):
        found.check(-1.0)
    with pytest.raises(UsageError):
        run_watched(plan, model=path, requests=0)
    with pytest.raises(UsageError):
        run_watched(plan, model=path, runtimes={"nobody": "ort:CPUExecutionProvider"})
