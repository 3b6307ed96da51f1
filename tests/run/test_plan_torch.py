"""Tests of plans over torch.distributed: outputs are those of the unsplit model, and a lost process ends all."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import psutil
import pytest
from onnx import TensorProto, helper

import weftline
import weftline as wl
from weftline import zoo
from weftline.errors import ExecutionMismatch, InputError, UsageError
from weftline.plans import Plan
from weftline.plans.plan import save_plan
from weftline.run.dist.messages import messages_of
from weftline.run.dist.run import run_plan_torch
from weftline.run.split.manifest import Manifest, ModelSegment, ModelWire

SOURCE = str(Path(weftline.__file__).parents[1])


def cluster(count: int, *, bandwidth: str = "2 GB/s", latency: str = "100 us", pins: str = "") -> wl.Cluster:
    """Equal devices, one core each."""
    names = "abc"[:count]
    cores = sorted(os.sched_getaffinity(0))
    text = "version = 1\n" + "".join(
        f'[[device]]\nid = "{id}"\nkind = "cpu"\nmemory = "8 GiB"\n'
        'rate = { fp32 = "20 GFLOP/s", bandwidth = "10 GB/s", launch = "5 us" }\n'
        f'runtime = "ort:CPUExecutionProvider:{cores[number % len(cores)]}"\n'
        for number, id in enumerate(names)
    )
    text += "".join(
        f'[[link]]\nbetween = ["{a}", "{b}"]\nbandwidth = "{bandwidth}"\nlatency = "{latency}"\n'
        for a in names
        for b in names
        if a < b
    )
    return wl.Cluster.parse(text + pins)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and plans."""
    made = tmp_path_factory.mktemp("plans")
    for name in ("resnet50", "bert"):
        zoo.save(zoo.build(name, size="small"), made / f"{name}.onnx")
    return made


def planned(folder: Path, name: str, count: int, *, latency: bool = False) -> Plan:
    """A pipeline, or ops that go round the devices."""
    graph = wl.load(folder / f"{name}.onnx")
    how: dict[str, Any] = {"objective": "latency", "solver": "round-robin"}
    if not latency:
        how = {"objective": "throughput", "solver": "even-split"}
    made: Plan = wl.plan(graph, cluster(count), copies=1, work_limit=50, **how)
    return made


def torchrun(count: int, *arguments: str) -> subprocess.Popen[str]:
    """`weftline run` in several processes; the starter leads a group of its own."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count)]
    command = [*command, "-m", "weftline", "run", *arguments, "--engine", "torch"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env={**os.environ, "PYTHONPATH": SOURCE})


@pytest.mark.parametrize(("name", "count", "latency"), [("resnet50", 2, False), ("bert", 3, False), ("bert", 2, True)])
def test_torchrun_gives_the_outputs_of_the_model(folder: Path, name: str, count: int, latency: bool) -> None:
    """Tests pipelines and a plan whose devices take turns, under torchrun."""
    plan = planned(folder, name, count, latency=latency)
    path = folder / f"{name}-{count}-{latency}.json"
    save_plan(plan, path)
    with torchrun(count, str(path), "--model", str(folder / f"{name}.onnx"), "--requests", "4", "--json") as process:
        said, errors = process.communicate(timeout=240)
    assert process.returncode == 0, errors[-3000:]
    found = json.loads(said)  # one object: only rank 0 speaks
    assert found["max_output_difference"] < 1e-3
    assert found["compared"] == 4 + 2 * count + 2
    assert [rank["device"] for rank in found["ranks"]] == list("abc"[:count])
    assert sum(rank["ops"] for rank in found["ranks"]) == len(plan.placement)
    assert found["predicted_seconds"] == plan.value_ns / 1e9
    if latency:
        assert min(rank["segments"] for rank in found["ranks"]) > 5


def test_without_torchrun(folder: Path) -> None:
    """Tests that local processes do the same, with given inputs."""
    plan = planned(folder, "resnet50", 2)
    graph = plan.load_problem().graph
    inputs = {t.name: np.ones(t.shape, t.dtype) for t in graph.tensors if t.producer < 0}
    result = run_plan_torch(plan, model=folder / "resnet50.onnx", inputs=inputs, requests=5)
    assert result is not None
    assert result.max_output_difference is not None
    assert result.max_output_difference < 1e-4
    result.check()
    with pytest.raises(ExecutionMismatch):
        result.check(-1.0)
    assert "period" in result.summary()


def test_shapes_that_depend_on_data(tmp_path: Path) -> None:
    """Tests that rows and lists whose number only shows when it runs go from rank to rank; each request its own."""
    node, info = helper.make_node, helper.make_tensor_value_info
    nodes = [
        node("Relu", ["x"], ["r"], name="first"),
        node("NonZero", ["r"], ["where"], name="find"),
        node("SequenceConstruct", ["r", "x"], ["list"], name="list"),
        node("Cast", ["where"], ["rows"], name="rows", to=TensorProto.FLOAT),
        node("ConcatFromSequence", ["list"], ["both"], name="join", axis=0),
        node("ReduceSum", ["both"], ["sum"], name="sum", keepdims=0),
        node("Add", ["rows", "sum"], ["y"], name="last"),
    ]
    inputs, outputs = [info("x", 1, ["batch", 4])], [info("y", 1, [2, "found"]), info("where", 7, [2, "found"])]
    made = helper.make_graph(nodes, "open", inputs, outputs)
    path = tmp_path / "m.onnx"
    onnx.save(helper.make_model(made, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    graph = wl.load(path, shapes={"x": (3, 4)})
    plan = wl.plan(graph, cluster(2), objective="throughput", copies=1, work_limit=50, solver="even-split")
    assert len(set(plan.placement.values())) == 2
    generator = np.random.default_rng(0)
    feeds = [{"x": generator.standard_normal((size, 4)).astype(np.float32)} for size in (3, 1, 5)]
    result = run_plan_torch(plan, model=path, inputs=feeds, requests=6)
    assert result is not None
    assert result.compared >= 6
    result.check(1e-5)


def test_what_is_refused(folder: Path) -> None:
    """Tests inputs, runtimes and models that do not fit."""
    plan = planned(folder, "resnet50", 2)
    model = folder / "resnet50.onnx"
    with pytest.raises(InputError, match="not an input of the model"):
        run_plan_torch(plan, model=model, inputs={"nonsense": np.zeros(1)})
    name = next(t.name for t in plan.load_problem().graph.tensors if t.producer < 0)
    with pytest.raises(InputError, match="shape"):
        run_plan_torch(plan, model=model, inputs={name: np.zeros((1, 2), np.float32)})
    with pytest.raises(InputError, match="is not the model"):
        run_plan_torch(plan, model=folder / "bert.onnx")
    with pytest.raises(InputError, match="cannot be run by ONNX Runtime"):
        run_plan_torch(plan, model=model, runtimes={"a": "openvino:CPU"})
    with pytest.raises(InputError, match="CUDAExecutionProvider is not part of"):
        run_plan_torch(plan, model=model, runtimes={"b": "ort:CUDAExecutionProvider:0"})
    with pytest.raises(UsageError, match="no device of the plan"):
        run_plan_torch(plan, model=model, runtimes={"z": "ort:CPUExecutionProvider"})


def test_other_number_of_processes(folder: Path) -> None:
    """Tests that torchrun must start as many processes as the plan uses devices."""
    path = folder / "three.json"
    save_plan(planned(folder, "resnet50", 3), path)
    with torchrun(2, str(path), "--model", str(folder / "resnet50.onnx")) as process:
        _, errors = process.communicate(timeout=120)
    assert process.returncode != 0
    assert "needs 3 processes; torchrun started 2" in errors


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_a_lost_process_ends_all(folder: Path, how: signal.Signals) -> None:
    """Tests that the others say which device is lost, and that no process is left."""
    plan = planned(folder, "resnet50", 2)
    path = folder / "lost.json"
    save_plan(plan, path)
    command = [sys.executable, "-m", "weftline", "run", str(path), "--model", str(folder / "resnet50.onnx")]
    command += ["--engine", "torch", "--requests", "1000000", "--timeout", "5"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment) as process:
        ranks = _ranks(process.pid, 2)
        os.kill(ranks[1].pid, how)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    if how == signal.SIGKILL:  # its parent and the other rank both see it; whoever is first says it
        assert "signal 9" in errors or "that process is gone" in errors
    else:
        assert "no answer for 5 s" in errors
    assert not [rank for rank in ranks if rank.is_running()]


def test_torchrun_ends_when_a_rank_is_killed(folder: Path) -> None:
    """Tests that the other rank does not wait on."""
    path = folder / "killed.json"
    save_plan(planned(folder, "resnet50", 2), path)
    arguments = (str(path), "--model", str(folder / "resnet50.onnx"), "--requests", "1000000", "--timeout", "20")
    with torchrun(2, *arguments) as process:
        ranks = _ranks(process.pid, 2, below=0)
        ranks[1].kill()
        process.communicate(timeout=120)
    assert process.returncode != 0
    assert not [rank for rank in ranks if rank.is_running()]


def _ranks(parent: int, count: int, below: int = 1) -> list[psutil.Process]:
    """The processes of a run, once they have computed for a moment."""
    end = time.monotonic() + 100
    while time.monotonic() < end:
        found = [psutil.Process(parent)]
        for _ in range(below + 1):
            found = [child for process in found for child in process.children()]
        if len(found) == count and all(_connected(process) for process in found):
            time.sleep(0.5)
            return sorted(found, key=lambda process: process.pid)
        time.sleep(0.1)
    raise AssertionError("the processes did not start")


def _connected(process: psutil.Process) -> bool:
    """gloo has joined it to others, and ONNX Runtime is loaded."""
    try:
        return any("onnxruntime" in entry.path for entry in process.memory_maps())
    except psutil.Error:
        return False


def test_messages_have_one_order() -> None:
    """Tests that a tensor goes once to every process that reads it, in the order of the segments that make them."""
    segments = tuple(
        ModelSegment(n, device, f"{n}.onnx", (f"op{n}",), (), ()) for n, device in enumerate(["a", "b", "a", "b", "b"])
    )
    wires = (
        ModelWire("late", "float32", (2, 3), 2, (3, 4), False),
        ModelWire("early", "int64", (), 0, (1, 2, 3), True),
        ModelWire("back", "bool", (4,), 1, (2,), False),
        ModelWire("x", "float32", (1,), -1, (0, 1), False),
    )
    manifest = Manifest("weftline-stages", 1, "m", "", ("x",), ("early",), segments, wires)
    found = messages_of(manifest, ["a", "b"])
    assert [(m.name, m.source, m.target, m.maker, m.reader, m.size) for m in found] == [
        ("early", 0, 1, 0, 1, 8),
        ("back", 1, 0, 1, 2, 4),
        ("late", 0, 1, 2, 3, 24),
    ]
    assert [m.number for m in found] == [0, 1, 2]
    wrong = msgspec_replace(manifest, tensors=(ModelWire("t", "bfloat16", (1,), 0, (1,), False),))
    with pytest.raises(InputError, match="cannot be sent"):
        messages_of(wrong, ["a", "b"])


def msgspec_replace(manifest: Manifest, **changes: Any) -> Manifest:
    import msgspec

    return msgspec.structs.replace(manifest, **changes)


def wide_model(path: Path) -> None:
    """A MiB goes from the first op to the second."""
    nodes = [
        helper.make_node("Relu", ["x"], ["wide"], name="first"),
        helper.make_node("ReduceMean", ["wide"], ["y"], name="second", axes=[2, 3], keepdims=0),
    ]
    shape = [1, 4, 256, 256]
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    results = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 4])]
    graph = helper.make_graph(nodes, "wide", values, results)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)


def command_of(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True, timeout=30)


@contextmanager
def two_hosts() -> Iterator[tuple[str, str]]:
    """Two network namespaces, joined by 200 Mbit/s each way: addresses 10.213.77.1 and .2, interface `join`."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        assert not os.environ.get("CI"), "needs the commands ip and tc: install iproute2"
        pytest.skip("needs the commands ip and tc: install iproute2")
    names = tuple(f"weft-{uuid.uuid4().hex[:8]}" for _ in range(2))
    with ExitStack() as stack:
        for name in names:
            made = subprocess.run(["ip", "netns", "add", name], check=False, capture_output=True, text=True, timeout=30)
            if made.returncode:
                pytest.skip(f"network namespaces are not permitted: {made.stderr.strip()}")
            stack.callback(command_of, "ip", "netns", "del", name)
        a, b = names
        command_of("ip", "link", "add", "join", "netns", a, "type", "veth", "peer", "name", "join", "netns", b)
        for number, name in enumerate(names, 1):
            command_of("ip", "-n", name, "addr", "add", f"10.213.77.{number}/24", "dev", "join")
            command_of("ip", "-n", name, "link", "set", "lo", "up")
            command_of("ip", "-n", name, "link", "set", "join", "up")
            shaped = ("tbf", "rate", "200mbit", "burst", "64kb", "latency", "100ms")
            command_of("tc", "-n", name, "qdisc", "add", "dev", "join", "root", *shaped)
        yield a, b


def test_two_hosts_over_a_slow_link(tmp_path: Path) -> None:
    """Tests that the period is the predicted one, within 10 %, where the link decides it."""
    model = tmp_path / "wide.onnx"
    wide_model(model)
    pins = '[limits]\npin = [{ op = "first", device = "a" }, { op = "second", device = "b" }]\n'
    devices = cluster(2, bandwidth="200 Mbit/s", latency="50 us", pins=pins)
    asked: dict[str, Any] = {"objective": "throughput", "communication": "overlapped", "work_limit": 50}
    plan = wl.plan(wl.load(model), devices, copies=1, **asked)
    stages = [(stage.compute_ns, stage.in_ns, stage.out_ns) for stage in plan.stages]
    assert plan.value_ns == stages[1][1] > 5 * max(stages[0][0], stages[1][0])  # the link decides
    save_plan(plan, tmp_path / "plan.json")
    run = [str(tmp_path / "plan.json"), "--model", str(model), "--engine", "torch", "--requests", "60", "--json"]
    found: dict[str, Any] = {}
    for _ in range(3):  # other programs can only make it slower
        found = on_two_hosts(run)
        assert found["max_output_difference"] < 1e-3
        if found["measured_seconds"] <= 1.1 * found["predicted_seconds"]:
            break
    assert found["measured_seconds"] == pytest.approx(found["predicted_seconds"], rel=0.10)


def on_two_hosts(run: list[str]) -> dict[str, Any]:
    """A run of one rank on each host -> what rank 0 says."""
    with two_hosts() as hosts, ExitStack() as stack:
        started = []
        for number, host in enumerate(hosts):
            command = ["ip", "netns", "exec", host, sys.executable, "-m", "torch.distributed.run", "--nnodes", "2"]
            command += ["--nproc-per-node", "1", "--node-rank", str(number), "--master-addr", "10.213.77.1"]
            command += ["--master-port", "29517", "-m", "weftline", "run", *run]
            environment = {**os.environ, "PYTHONPATH": SOURCE, "GLOO_SOCKET_IFNAME": "join"}
            pipe = subprocess.PIPE
            process = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environment)
            stack.callback(process.wait)
            stack.callback(process.terminate)
            started.append(process)
        answers = [process.communicate(timeout=240) for process in started]
    assert [process.returncode for process in started] == [0, 0], answers
    assert answers[1][0] == ""
    told: dict[str, Any] = json.loads(answers[0][0])
    return told


def test_hosts_with_different_files(folder: Path, tmp_path: Path) -> None:
    """Tests that ranks whose model files differ, even in weights alone, do not compute together."""
    plan = planned(folder, "resnet50", 2)
    save_plan(plan, tmp_path / "plan.json")
    other = onnx.load(folder / "resnet50.onnx")
    other.doc_string = "another file"
    onnx.save(other, tmp_path / "other.onnx")
    inner = f"weftline run {tmp_path}/plan.json --engine torch --requests 3 --timeout 60 --model"
    script = (
        f'[ "$RANK" = 0 ] && M={folder}/resnet50.onnx || M={tmp_path}/other.onnx; exec {sys.executable} -m {inner} $M'
    )
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "--no-python"]
    environment = {**os.environ, "PYTHONPATH": SOURCE}
    found = subprocess.run(
        [*command, "sh", "-c", script], check=False, capture_output=True, text=True, timeout=240, env=environment
    )
    assert found.returncode != 0
    assert "different plans, models, inputs or options" in found.stderr
