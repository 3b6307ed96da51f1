"""Tests profiling by OpenVINO: its fused nodes mapped back to ops, and what is refused."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from tests.measure.test_profile import covers
from tests.run.openvino_samples import model_files

import weftline as wl
from weftline.cluster import Cluster, Device, Link
from weftline.errors import UsageError
from weftline.importers import read_file
from weftline.measure import openvino as profile_openvino
from weftline.measure import profiling
from weftline.measure.profiling import profile_model
from weftline.reduce.fusion.oracle import OracleError

OPENVINO = Cluster(
    name="two plugins",
    devices=(
        Device("a", "cpu", None, runtime="openvino:CPU"),
        Device("b", "cpu", None, runtime="openvino:CPU2,INFERENCE_NUM_THREADS=1"),
    ),
    links=tuple(Link(s, t, bandwidth=10**9, latency=10_000, origin="guess") for s, t in (("a", "b"), ("b", "a"))),
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few runs."""
    monkeypatch.setattr(profiling, "LEAST_SECONDS", 0.0)


@pytest.mark.parametrize("name", ["resnet50", "unet", "bert"])
def test_openvino(name: str, tmp_path: Path) -> None:
    """Tests that OpenVINO's nodes cover every op once, in ONNX and IR, and that a plan with their times verifies."""
    xml, onnx = model_files(name, tmp_path)
    for model in (onnx, xml):
        profile = profile_model(model, OPENVINO, repeats=3, cache=False)
        graph = read_file(model).graph
        covers(graph, profile)
        assert (profile.backend, profile.links) == ("openvino", ())
        assert profile.devices[1].threads == 1
        for device in profile.devices:
            assert (device.kernels_from, device.note) == ("nodes", "")
            assert len(device.kernels) < len(graph.ops)
    plan = wl.plan(graph, OPENVINO, costs=profile, runtime="sequential", solver="min-cut", work_limit=50)
    assert "profiled: openvino" in plan.load_problem().cost.source
    wl.verify(plan)


def test_nodes_of_openvino_that_are_lost(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that every op has a share of the whole run where the nodes are not found again, and that this is told."""

    def lost(*_: object) -> object:
        raise OracleError("lost")

    monkeypatch.setattr(profile_openvino, "kernel_groups", lost)
    _, onnx = model_files("resnet50", tmp_path)
    profile = profile_model(onnx, OPENVINO, repeats=3, cache=False)
    graph = read_file(onnx).graph
    covers(graph, profile)
    assert all(len(device.kernels) == len(graph.ops) for device in profile.devices)
    assert "lost" in profile.devices[0].note


def test_one_backend_for_all(tmp_path: Path) -> None:
    """Tests that devices of two backends, and slowed devices of OpenVINO, are refused."""
    _, model = model_files("bert", tmp_path)
    with pytest.raises(UsageError, match="links of OpenVINO's devices are not measured"):
        profile_model(model, OPENVINO, repeats=3, cache=False, channel="gloo")
    with pytest.raises(UsageError, match="by one backend for all devices"):
        profile_model(model, OPENVINO, runtimes={"a": "ort:CPUExecutionProvider"}, repeats=3, cache=False)
    slow = tuple(msgspec.structs.replace(device, speed=0.5) for device in OPENVINO.devices)
    with pytest.raises(UsageError, match="slows no device down"):
        profile_model(model, msgspec.structs.replace(OPENVINO, devices=slow), repeats=3, cache=False)
