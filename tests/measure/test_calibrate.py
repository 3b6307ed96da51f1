"""Tests calibration: times corrected by measured stages, the best measured plan kept, stages that really run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from weftline import zoo
from weftline.ask import make_plan
from weftline.ask.fleets import make_fleet
from weftline.cluster import Cluster, Device, Link
from weftline.cost import Profile
from weftline.cost.profile_file import DeviceProfile, Kernel
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.arrays import Indices
from weftline.importers import read_file
from weftline.measure import calibration
from weftline.measure.calibration import (
    MOST_ROUNDS,
    FleetPlanner,
    calibrated_fleet,
    calibrated_plan,
    corrected,
    measure_stages,
    measured_period,
)
from weftline.plans import FleetPlan, Plan
from weftline.problem import Rules, build_problem
from weftline.run.local.run import run_local

CPU = "ort:CPUExecutionProvider"
PAIR = (Device("a", "cpu", None, runtime=CPU), Device("b", "cpu", None, runtime=CPU, speed=0.5))
TWO = Cluster("two", PAIR, (Link("a", "b", 10**9, 10), Link("b", "a", 10**9, 10)))


def _row(count: int) -> Graph:
    ops = [Op(f"n{i}", "Conv", flops=100, traffic_bytes=100) for i in range(count)]
    tensors = [Tensor("x", -1, (0,), 8)]
    tensors += [Tensor(f"t{i}", i, () if i + 1 == count else (i + 1,), 8, output=i + 1 == count) for i in range(count)]
    return assemble("row", ops, tensors)


def _profile(graph: Graph, time: int) -> Profile:
    """Every op a kernel of `time` ns, on both devices."""
    kernels = tuple(Kernel((op.name,), time, time) for op in graph.ops)
    total = time * len(kernels)
    devices = tuple(DeviceProfile(d.id, CPU, d.speed, 1, total, total, 0.0, 0.0, "ALL", "", kernels) for d in PAIR)
    about: dict[str, Any] = {"model": "row", "model_sha256": "0" * 64, "inputs": {}, "machine": "m", "made": "now"}
    how: dict[str, Any] = {"backend": "onnxruntime", "backend_version": "1", "level": "ALL", "repeats": 3}
    return Profile("weftline-costs", 1, **about, **how, devices=devices)


class _Planner:
    """Plans a graph on two devices, and counts."""

    def __init__(self, graph: Graph, objective: str = "throughput") -> None:
        self._graph, self._rules = graph, Rules(objective=objective)  # type: ignore[arg-type]
        self.calls = 0

    def __call__(self, profile: Profile, start: Indices | None, keep: bool) -> Plan:
        self.calls += 1
        problem = build_problem(self._graph, TWO, rules=self._rules, costs=profile)
        limits = {"time_limit": 0.0} if keep else {"work_limit": 300}
        return make_plan(problem, start=start, **limits)


def test_kernels_are_corrected_by_their_stage() -> None:
    """Tests that the kernels of each stage then add up to what was measured, and that others stay."""
    graph = _row(8)
    profile, planner = _profile(graph, 1000), _Planner(graph)
    plan = planner(profile, None, False)
    measured = {stage.device: stage.compute_ns * factor for stage, factor in zip(plan.stages, (2, 3), strict=True)}
    right = planner(corrected(profile, plan, measured), None, False)
    for device, factor in zip(corrected(profile, plan, measured).devices, (2, 3), strict=True):
        mine = [k for k in device.kernels if plan.placement[k.ops[0]] == device.id]
        stage = next(stage for stage in plan.stages if stage.device == device.id)
        assert sum(kernel.busy_ns for kernel in mine) == measured[device.id]
        assert all(k.busy_ns == 1000 for k in device.kernels if k not in mine)
        assert stage.ops == len(mine)
        assert factor in (2, 3)
    assert right.value_ns >= plan.value_ns


def test_the_best_measured_plan_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests with a machine on which the profile is wrong: device b is five times slower than it was profiled."""
    graph = _row(12)
    said: list[str] = []
    values: list[int] = []

    def machine(plan: Plan, model: Path | str, profile: Profile) -> dict[str, int]:
        real = {"a": 1000, "b": 5000}
        times = {stage.device: stage.ops * real[stage.device] for stage in plan.stages}
        values.append(measured_period(plan, times))
        return times

    monkeypatch.setattr(calibration, "measure_stages", machine)
    planner = _Planner(graph)
    plan = calibrated_plan("model.onnx", _profile(graph, 1000), planner, tell=said.append)
    final = {stage.device: stage.ops for stage in plan.stages}
    assert max(final.get("a", 0) * 1000, final.get("b", 0) * 5000) <= min(values) < values[0]
    assert 2 <= len(said) <= MOST_ROUNDS
    assert "calibrated by the measured parts" in plan.load_problem().cost.source
    assert plan.value_ns == pytest.approx(min(values), rel=0.01)


def test_latency_plans_are_calibrated_by_their_segments(tmp_path: Path) -> None:
    """Tests with kernels that are profiled far too short: the calibrated prediction is nearer to a real run."""
    model = tmp_path / "bert.onnx"
    zoo.save(zoo.build("bert", size="small"), model)
    graph = read_file(model).graph
    profile, planner = _profile(graph, 100), _Planner(graph, "latency")
    said: list[str] = []
    plan = calibrated_plan(model, profile, planner, tell=said.append)
    real = run_local(plan, model=model, requests=20, baselines=False).measured_ns
    first = planner(profile, None, False).value_ns
    assert first < plan.value_ns < 3 * real
    assert abs(np.log(plan.value_ns / real)) < abs(np.log(first / real))
    assert "calibrated by the measured parts" in plan.load_problem().cost.source
    assert 1 <= len(said) <= MOST_ROUNDS


def _fleet_planner(graph: Graph, lane: FleetPlan | None = None) -> FleetPlanner:
    """Real plans of copies; of other lanes too, or always the one that is given."""

    def made(profile: Profile, copies: bool) -> FleetPlan:
        if lane is not None and not copies:
            return lane
        problem = build_problem(graph, TWO, rules=Rules(objective="throughput"), costs=profile)
        return make_fleet(problem, solver="replicas" if copies else "auto", work_limit=30)

    return made


def test_shares_of_a_fleet_follow_what_was_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests with a machine on which device b is five times slower than it was profiled."""
    graph = _row(12)
    seen: list[FleetPlan] = []

    def machine(plan: FleetPlan, model: Path | str, profile: Profile) -> tuple[int, dict[tuple[str, str], float]]:
        seen.append(plan)
        return plan.value_ns * 3, {("b", op.name): 5.0 if len(seen) == 1 else 1.0 for op in graph.ops}

    monkeypatch.setattr(calibration, "measure_lanes", machine)
    plan = calibrated_fleet("model.onnx", _profile(graph, 1000), _fleet_planner(graph))
    assert 1 <= len(seen) <= MOST_ROUNDS
    assert plan.rate == pytest.approx(seen[0].rate * 0.6, rel=0.05)  # 1 + 1 / 5 instead of 2
    assert "calibrated by measured lanes" in plan.load_problem().cost.source


@pytest.mark.parametrize("better", [False, True])
def test_lanes_must_be_seen_to_be_better(monkeypatch: pytest.MonkeyPatch, better: bool) -> None:
    """Tests that lanes which promise more than copies are taken only if they were measured to give more."""
    graph = _row(12)
    copies = _fleet_planner(graph)(_profile(graph, 1000), True)
    lane = msgspec.structs.replace(copies.lanes[0], hops=((0, 0, 6), (1, 6, 12)))
    promising = msgspec.structs.replace(copies, lanes=(lane,), value_ns=1)

    def machine(plan: FleetPlan, model: Path | str, profile: Profile) -> tuple[int, dict[tuple[str, str], float]]:
        return (9 if better else 11) if plan is promising else 10, {}

    monkeypatch.setattr(calibration, "measure_lanes", machine)
    plan = calibrated_fleet("model.onnx", _profile(graph, 1000), _fleet_planner(graph, promising))
    assert (plan is promising) == better


def test_lanes_are_calibrated_by_their_segments(tmp_path: Path) -> None:
    """Tests with kernels that are profiled far too short: the calibrated prediction is nearer to a real run."""
    model = tmp_path / "bert.onnx"
    zoo.save(zoo.build("bert", size="small"), model)
    graph = read_file(model).graph
    profile, planner = _profile(graph, 100), _fleet_planner(graph)
    plan = calibrated_fleet(model, profile, planner, rounds=2)
    real = run_local(plan, model=model, requests=60, baselines=False).measured_ns
    first = planner(profile, False).value_ns
    assert abs(np.log(plan.value_ns / real)) < abs(np.log(first / real))


def test_real_stages(tmp_path: Path) -> None:
    """Tests that the stages of a real model are cut, run and timed, each on its device."""
    model = tmp_path / "bert.onnx"
    zoo.save(zoo.build("bert", size="small"), model)
    graph = read_file(model).graph
    profile = _profile(graph, 1000)
    plan = _Planner(graph)(profile, None, False)
    measured = measure_stages(plan, model, profile)
    assert set(measured) == {stage.device for stage in plan.stages} == {"a", "b"}
    assert all(time > 0 for time in measured.values())
