"""Tests profiling: every op in one kernel, sums to the nanosecond, the cache, broken devices, plans made from it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import get_args

import msgspec
import onnx
import psutil
import pytest

import weftline as wl
from weftline import zoo
from weftline.cluster import Cluster, Device, Link
from weftline.cost import Profile
from weftline.cost.profile_file import LayoutChange, profile_to_json
from weftline.errors import InputError, UsageError, WeftlineError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.importers import read_file
from weftline.measure import cache as profile_cache
from weftline.measure import links as profile_links
from weftline.measure import profiling
from weftline.measure.kernels import RunNode, kernel_groups, layout_changes
from weftline.measure.links import Channel, measure_gloo, measure_links
from weftline.measure.processes import Prepare, Workers
from weftline.measure.profiling import profile_model
from weftline.reduce.fusion.oracle import OracleError
from weftline.run.devices import ort_devices
from weftline.run.local.channel import ChannelTimes

CPU = "ort:CPUExecutionProvider"
LIGHT = Path(onnx.__file__).parent / "backend" / "test" / "data" / "light"
ONE = Cluster("one", (Device("a", "cpu", None, runtime=CPU),))
TWO = Cluster(
    "two",
    (Device("a", "cpu", None, runtime=CPU), Device("b", "cpu", None, runtime=CPU, speed=0.5)),
    (Link("a", "b", 10**9, 1000), Link("b", "a", 10**9, 1000)),
)


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few runs, a cache of the test's own, links as the cluster has them."""
    monkeypatch.setattr(profiling, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(profiling, "measure_links", lambda cluster, devices, channel: ())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def _model(name: str, folder: Path) -> Path:
    if name.startswith("light_"):
        return LIGHT / f"{name}.onnx"
    path = folder / f"{name}.onnx"
    zoo.save(zoo.build(name, size="small"), path)
    return path


def covers(graph: Graph, profile: Profile) -> None:
    """Every op once, and sums that are sums."""
    for device in profile.devices:
        names = [op for kernel in device.kernels for op in kernel.ops]
        assert sorted(names) == sorted(op.name for op in graph.ops)
        assert sum(kernel.alone_ns for kernel in device.kernels) == device.alone_ns > 0
        assert sum(kernel.busy_ns for kernel in device.kernels) == device.busy_ns > 0


@pytest.mark.parametrize("name", ["resnet50", "bert", "mobilenet-v3", "light_squeezenet"])
def test_every_op_once(name: str, tmp_path: Path) -> None:
    """Tests that the kernels of the level that runs are found again, and cover every op once."""
    model = _model(name, tmp_path)
    profile = profile_model(model, ONE, repeats=3, cache=False)
    covers(read_file(model).graph, profile)
    assert [device.kernels_from for device in profile.devices] == ["ALL"]
    assert len(profile.devices[0].kernels) < len(read_file(model).graph.ops)


def test_a_disturbed_profile_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that what other programs spoilt is measured again the next time."""
    monkeypatch.setattr(profile_cache, "MOST_SPREAD", -1.0)
    said: list[str] = []
    profile_model(_model("bert", tmp_path), TWO, repeats=3, tell=said.append)
    assert "is not kept" in said[-1]
    assert not list((tmp_path / "cache").rglob("*.json"))


def test_two_devices_and_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests alone and busy times, that half the speed is twice the time, and that the cache gives the same bytes."""
    monkeypatch.setattr(profile_cache, "MOST_SPREAD", 1e9)  # a busy machine measures itself here
    monkeypatch.setattr(profile_cache, "MOST_STOLEN", 1.0)
    model = _model("bert", tmp_path)
    said: list[str] = []
    first = profile_model(model, TWO, repeats=3, tell=said.append)
    covers(read_file(model).graph, first)
    a, b = first.devices
    assert b.alone_ns == pytest.approx(2 * a.alone_ns, abs=2 * len(a.kernels))
    assert profile_to_json(profile_model(model, TWO, repeats=3, tell=said.append)) == profile_to_json(first)
    assert "measured before" in said[-1]
    for file in (tmp_path / "cache").rglob("*.json"):
        file.write_bytes(file.read_bytes()[:100])  # damaged: measured again
    again = profile_model(model, TWO, repeats=3, tell=said.append)
    assert "measured before" not in said[-1]
    graph = wl.load(model)
    assert isinstance(graph, Graph)
    plan = wl.plan(graph, TWO, costs=again, objective="throughput", solver="greedy", work_limit=50)
    assert "profiled: onnxruntime" in plan.load_problem().cost.source
    wl.verify(plan)


def test_fall_back_to_other_kernels(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Tests that kernels of a lower level are scaled to the whole run where those that run are not found again."""
    real, calls = kernel_groups, []

    def fails(graph: Graph, extended: list[RunNode], running: list[RunNode]) -> object:
        calls.append(len(running))
        if len(calls) < 3:
            raise OracleError("lost")
        return real(graph, extended, running)

    monkeypatch.setattr(profiling, "kernel_groups", fails)
    model = _model("resnet50", tmp_path)
    profile = profile_model(model, ONE, repeats=3, cache=False)
    covers(read_file(model).graph, profile)
    assert profile.devices[0].kernels_from == "NONE"
    assert "lost" in profile.devices[0].note


def _row(*kinds: str) -> Graph:
    ops = [Op(f"n{i}", kind) for i, kind in enumerate(kinds)]
    tensors = [Tensor("x", -1, (0,), 8)]
    tensors += [
        Tensor(f"t{i}", i, () if i + 1 == len(kinds) else (i + 1,), 8, output=i + 1 == len(kinds))
        for i in range(len(kinds))
    ]
    return assemble("row", ops, tensors)


def test_blocked_kernels_take_ops_along() -> None:
    """Tests a convolution in blocked layout that took the activation after it, between two changes of layout."""
    graph = _row("Conv", "BatchNormalization", "Relu", "Softmax")
    extended = [
        RunNode("Conv", "n0", ("x",), ("t1",)),
        RunNode("Relu", "n2", ("t1",), ("t2",)),
        RunNode("Softmax", "n3", ("t2",), ("t3",)),
    ]
    running = [
        RunNode("ReorderInput", "ReorderInput", ("x",), ("token_0",)),
        RunNode("Conv", "t1_nchwc", ("token_0",), ("token_1",)),
        RunNode("ReorderOutput", "ReorderOutput", ("token_1",), ("t2",)),
        RunNode("Softmax", "n3", ("t2",), ("t3",)),
    ]
    found = kernel_groups(graph, extended, running)
    assert len(set(found.group.tolist()[:3])) <= 2
    assert set(found.of_node.tolist()) <= set(found.group.tolist())
    without = [*running[:2], RunNode("Softmax", "n3", ("token_1",), ("t3",))]
    assert len(set(kernel_groups(graph, extended, without).group.tolist()[:3])) == 1


def test_cuts_between_blocked_kernels_change_layouts() -> None:
    """Tests that a tensor is changed back and again where its kernels exchange it blocked, once where it is plain."""
    graph = _row("Conv", "Conv", "Softmax", "Conv")
    extended = [RunNode(op.kind, op.name, (f"t{i - 1}" if i else "x",), (f"t{i}",)) for i, op in enumerate(graph.ops)]
    running = [
        RunNode("ReorderInput", "ReorderInput", ("x",), ("token_0",)),
        RunNode("Conv", "t0_nchwc", ("token_0",), ("token_1",)),
        RunNode("Conv", "t1_nchwc", ("token_1",), ("token_2",)),
        RunNode("ReorderOutput", "ReorderOutput", ("token_2",), ("t1",)),
        RunNode("Softmax", "n2", ("t1",), ("t2",)),
        RunNode("Conv", "n3", ("t2",), ("t3",)),
    ]
    groups = kernel_groups(graph, extended, running)
    ns = [16, 100, 100, 40, 10, 100]  # every tensor has 8 bytes: 2 ns a byte to enter, 5 to leave
    assert layout_changes(graph, groups, running, ns, 0.5) == (LayoutChange("t0", 80, 32),)
    assert layout_changes(graph, groups, extended, ns[:4], 1.0) == ()


def test_lost_ops_are_an_error() -> None:
    """Tests that neither an op without a kernel nor a node without an op passes."""
    graph = _row("Conv", "Tanh")
    extended = [RunNode("Conv", "n0", ("x",), ("t0",)), RunNode("Tanh", "n1", ("t0",), ("t1",))]
    fused = [RunNode("Fused", "f", ("x",), ("t1",))]
    assert kernel_groups(graph, extended, fused).group.tolist() == [1, 1]
    tensors = [msgspec.structs.replace(tensor, output=tensor.name != "x") for tensor in graph.tensors]
    with pytest.raises(OracleError, match="'n0' has no kernel"):  # the caller reads what it makes
        kernel_groups(assemble("row", list(graph.ops), tensors), extended, fused)
    with pytest.raises(OracleError, match="stands for no op"):
        kernel_groups(graph, extended, [*extended, RunNode("Strange", "s", ("x",), ("nowhere",))])


def test_devices_that_cannot_be_measured(tmp_path: Path) -> None:
    """Tests runtimes that are missing, wrong, of OpenVINO, of another machine, and files that are no ONNX model."""
    model = _model("bert", tmp_path)

    def asked(runtime: str) -> Profile:
        return profile_model(model, ONE, runtimes={"a": runtime}, cache=False, repeats=3)

    with pytest.raises(InputError, match="it has no runtime"):
        profile_model(model, Cluster("c", (Device("a", "cpu", None),)), cache=False)
    with pytest.raises(InputError, match="cannot be run by ONNX Runtime"):
        asked("ort:Whatever")
    with pytest.raises(InputError, match="core 4000 is not there"):
        asked(f"{CPU}:4000")
    with pytest.raises(InputError, match="names no cores"):
        asked(f"{CPU}:3-1")
    with pytest.raises(InputError, match="has no CUDAExecutionProvider here"):
        asked("ort:CUDAExecutionProvider:0")
    with pytest.raises(UsageError, match="a runtime is given for 'z'"):
        profile_model(model, ONE, runtimes={"z": CPU})
    (tmp_path / "g.json").write_bytes(b'{"format": "weftline-graph"}')
    with pytest.raises(InputError):
        profile_model(tmp_path / "g.json", ONE)


def test_cores_are_shared_fairly() -> None:
    """Tests that named cores are those that are named, and that others get one each."""
    here = sorted(os.sched_getaffinity(0))
    devices = [Device(id, "cpu", None, runtime=CPU) for id in "abc"]
    found = ort_devices(devices, {"b": f"{CPU}:{here[0]}"})
    assert found["b"].cores == (here[0],)
    assert all(len(device.cores) == device.threads == 1 for device in found.values())
    if len(here) > 1:
        assert found["a"].cores != (here[0],)


def test_a_model_that_cannot_run(tmp_path: Path) -> None:
    """Tests that a refusal of ONNX Runtime is one error that names the device, and that no process is left."""
    path = tmp_path / "model.onnx"
    zoo.save(zoo.build("bert", size="small", weights=False), path)  # its weights are nowhere
    with pytest.raises(WeftlineError, match="device 'a'"):
        profile_model(path, ONE, cache=False)


def test_a_process_that_dies(tmp_path: Path) -> None:
    """Tests that the death of a process is noticed, and that the others end with the `with`."""
    model = _model("bert", tmp_path)
    with Workers(model, {}, ort_devices(TWO.devices)) as workers:
        processes = [worker.child for worker in workers._workers.values()]
        processes[0].kill()
        with pytest.raises(WeftlineError, match=r"device 'a' crashed \(signal 9\)"):
            workers.prepare("a", Prepare("ALL", kernels=False))
    assert all(process.code is not None for process in processes)


def test_by_the_command_line(tmp_path: Path) -> None:
    """Tests profile, plan --costs and verify from end to end, links measured."""
    _model("bert", tmp_path)
    (tmp_path / "two.toml").write_text(TWO.to_toml(), encoding="utf-8")

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        call = [sys.executable, "-m", "weftline", *words]
        return subprocess.run(call, cwd=tmp_path, capture_output=True, text=True, check=False)

    made = run("profile", "bert.onnx", "-c", "two.toml", "-o", "costs.json", "--repeats", "3", "--no-cache", "--json")
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout) == json.loads((tmp_path / "costs.json").read_text(encoding="utf-8"))
    assert {(link["source"], link["target"]) for link in json.loads(made.stdout)["links"]} == {("a", "b"), ("b", "a")}
    for objective in ("latency", "throughput"):
        call = ["plan", "bert.onnx", "-c", "two.toml", "--costs", "costs.json", "--objective", objective]
        done = run(*call, "--solver", "greedy", "--work", "50", "-o", "plan.json", "--json")
        assert done.returncode == 0, done.stderr
        plan = json.loads(done.stdout)
        assert set(plan["provenance"]["inputs"]) == {"model", "cluster", "costs"}
        assert run("verify", "plan.json").returncode == 0
    assert run("plan", "bert.onnx", "-c", "two.toml", "--costs", "two.toml").returncode == 3
    assert run("plan", "bert.onnx", "-c", "two.toml", "--costs", "costs.json", "--coarsen", "gcof").returncode == 2


def test_links_over_gloo(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that links are measured over gloo where that is asked, and only there."""
    asked: list[tuple[int, ...]] = []

    def gloo_of(cores: tuple[tuple[int, ...], tuple[int, ...]]) -> ChannelTimes:
        asked.append(cores[0])
        return measure_gloo((1024, 2**16), cores=cores, rounds=3)

    monkeypatch.setattr(profile_links, "measure_gloo", gloo_of)
    devices = ort_devices(TWO.devices)
    memory, gloo = (measure_links(TWO, devices, channel) for channel in get_args(Channel))
    assert len(asked) == 1  # both directions are alike
    for found in (memory, gloo):
        assert [(link.source, link.target) for link in found] == [("a", "b"), ("b", "a")]
    assert gloo[0].latency_ns + 2**16 / gloo[0].bandwidth * 1e9 > 1000
    monkeypatch.setattr(profile_links, "measure_hop", lambda *_: 7_000_000)
    assert {link.latency_ns for link in measure_links(TWO, devices)} == {7_000_000}


def test_nothing_is_left_when_the_caller_is_killed(tmp_path: Path) -> None:
    """Tests that processes and their folder end with a caller that had no time to clean up."""
    model = _model("bert", tmp_path)
    code = (
        "import sys, time\n"
        "from weftline.cluster import Device\n"
        "from weftline.run.devices import ort_devices\n"
        "from weftline.measure.processes import Workers\n"
        f"workers = Workers({str(model)!r}, {{}}, ort_devices([Device('a', 'cpu', None, runtime={CPU!r})]))\n"
        "print(workers._workers['a'].child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    folder = tmp_path / "work"
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment) as caller:
        assert caller.stdout is not None
        worker = int(caller.stdout.readline())
        assert any(folder.glob("weftline-*"))
        caller.kill()
    for _ in range(600):
        if not psutil.pid_exists(worker) and not any(folder.glob("weftline-*")):
            return
        time.sleep(0.05)
    pytest.fail("a process or its folder is left")
