"""Tests of running plans on this machine: equal outputs, the plan's assignment, measured beside predicted."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from tests.run.local_samples import RUNTIME, expected, feeds, small_model

from weftline.ask import make_plan
from weftline.cluster import Cluster, Device, Link, Rate
from weftline.errors import ExecutionMismatch, InputError, UsageError, WeftlineError
from weftline.plans import Plan
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.run.local import start as local_start
from weftline.run.local.run import LocalResult, run_local
from weftline.run.local.start import misplaced
from weftline.run.split.segments import parts_of_plan
from weftline.run.split.split import split_model

RATE = Rate(fp32=10**10, bandwidth=10**10, launch=1000, source="guess")


def make(
    model: Path,
    objective: Literal["latency", "throughput"],
    solver: str,
    speeds: tuple[float, ...] = (1, 1),
    runtime: str = RUNTIME,
) -> Plan:
    """A plan by a simple solver, on as many equal devices as there are speeds."""
    devices = tuple(
        Device(f"d{i}", "cpu", None, rate=RATE, runtime=runtime, speed=speed) for i, speed in enumerate(speeds)
    )
    links = tuple(Link(a.id, b.id, 10**9, 10_000) for a in devices for b in devices if a is not b)
    graph = read_model(model)
    assert not isinstance(graph, Problem)
    problem = build_problem(graph, Cluster("here", devices, links), rules=Rules(objective=objective))
    return make_plan(problem, solver=solver, work_limit=1)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_model(tmp_path_factory.mktemp("local") / "small.onnx")


@pytest.fixture(scope="module")
def ran(model: Path) -> LocalResult:
    """One run that several tests look at."""
    return run_local(make(model, "throughput", "even-split"), model=model, requests=20)


def test_a_pipeline(ran: LocalResult) -> None:
    """Tests a two-stage plan: equal outputs, all ops where they belong, every number there, baselines beside it."""
    ran.check()
    assert [(run.device, run.segments) for run in ran.devices] == [("d0", 1), ("d1", 1)]
    assert sum(run.ops for run in ran.devices) == 14
    assert set(ran.baselines) == {"2 whole-model replicas", next(iter(ran.baselines))}
    assert min(ran.measured_ns, ran.latency_ns, *ran.baselines.values()) > 0
    assert all(run.compute_ns > 0 and run.predicted_compute_ns > 0 and run.peak_rss > 0 for run in ran.devices)
    assert all(0 < run.utilisation <= 1 for run in ran.devices)
    assert ran.predicted_ns > 0
    assert "whole-model replicas" in ran.summary()
    assert msgspec.json.encode(ran)


def test_a_scattered_latency_plan_at_unequal_speeds(model: Path) -> None:
    """Tests a placement that changes device after every op, on three devices of which two are slowed."""
    plan = make(model, "latency", "round-robin", (1, 0.5, 0.5))
    result = run_local(plan, model=model, requests=5, baselines=False)
    result.check()
    assert len(result.segments) > 5
    assert [run.speed for run in result.devices] == [1, 0.5, 0.5]
    assert result.baselines == {}


def test_given_inputs(model: Path) -> None:
    """Tests that outputs are those of the given inputs, through devices that only `runtimes` names."""
    plan = make(model, "throughput", "even-split", runtime="")
    with pytest.raises(InputError, match="--runtime d0=ort:CPUExecutionProvider"):
        run_local(plan, model=model)
    runtimes = {"d0": RUNTIME, "d1": f"{RUNTIME}:{min(os.sched_getaffinity(0))}"}
    result = run_local(plan, model=model, inputs=feeds(1)[0], runtimes=runtimes, requests=3, baselines=False)
    result.check(1e-5)
    assert set(expected(model, feeds(1)[0])) == {"y", "t3"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda feed: feed.pop("shift"), "input 'shift': no values are given"),
        (lambda feed: feed.update(z=feed["x"]), "'z', which is not an input"),
        (lambda feed: feed.update(x=feed["x"][:1]), r"shape \(1, 16\) are given, the plan was made for \(2, 16\)"),
        (lambda feed: feed.update(x=feed["x"].astype(np.float64)), "type float64 are given, the model has float32"),
        (lambda feed: feed.update(x=[[1.0], [1.0, 2.0]]), "input 'x': the values are no array"),
    ],
)
def test_wrong_inputs(model: Path, change: Any, says: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that inputs are refused before any worker starts."""
    monkeypatch.setattr(local_start, "Engine", None)
    feed = feeds(1)[0]
    change(feed)
    with pytest.raises(InputError, match=says):
        run_local(make(model, "throughput", "even-split"), model=model, inputs=feed)


def test_what_differs_is_an_error(ran: LocalResult) -> None:
    """Tests that other outputs, outputs that are no numbers, and ops elsewhere do not pass."""
    for worse in (replace(ran, max_output_difference=0.1), replace(ran, max_output_difference=float("nan"))):
        with pytest.raises(ExecutionMismatch, match="outputs differ"):
            worse.check()
    with pytest.raises(ExecutionMismatch, match="is not the plan: op 'a' is elsewhere"):
        replace(ran, misplaced=("op 'a' is elsewhere",)).check()


def test_misplaced_ops_are_found(model: Path, tmp_path: Path) -> None:
    """Tests that files and lists of segments are compared with the plan, op by op."""
    plan = make(model, "throughput", "even-split")
    problem = plan.load_problem()
    manifest = split_model(model, problem.graph, parts_of_plan(plan), ["d0", "d1"], tmp_path)
    assert misplaced(plan, problem, manifest, tmp_path) == ()
    other = dict.fromkeys(plan.placement, "d0")
    assert len(misplaced(msgspec.structs.replace(plan, placement=other), problem, manifest, tmp_path)) >= 2 * 7
    swapped = [msgspec.structs.replace(s, file=manifest.segments[1 - s.number].file) for s in manifest.segments]
    wrong = misplaced(plan, problem, msgspec.structs.replace(manifest, segments=tuple(swapped)), tmp_path)
    assert any("is in the file of 'd1'" in text for text in wrong)


def test_another_model(model: Path, tmp_path: Path) -> None:
    """Tests that a model of another shape is refused, and so are a run of nothing and a missing file."""
    plan = make(model, "throughput", "even-split")
    with pytest.raises(InputError, match="not the model that the plan was made for"):
        run_local(plan, model=small_model(tmp_path / "other.onnx", layers=3))
    with pytest.raises(InputError, match="no such file"):
        run_local(plan, model=tmp_path / "none.onnx")
    with pytest.raises(UsageError, match="at least one request"):
        run_local(plan, model=model, requests=0)


def test_no_silent_fallback(model: Path) -> None:
    """Tests that a provider that runs no op here is an error, not a run on the CPU under its name."""
    onnxruntime = pytest.importorskip("onnxruntime")
    if "AzureExecutionProvider" not in onnxruntime.get_available_providers():
        pytest.skip("this onnxruntime has no provider that runs nothing")
    plan = make(model, "throughput", "even-split")
    with pytest.raises(WeftlineError, match="d1"):
        run_local(plan, model=model, runtimes={"d1": "ort:AzureExecutionProvider"}, requests=1)


def test_many_lengths(tmp_path: Path) -> None:
    """Tests a long list that ONNX Runtime must read when it makes a session."""
    count = 200
    names = [f"part{i}" for i in range(count)]
    lengths = numpy_helper.from_array(np.ones(count, np.int64), "lengths")
    nodes = [
        helper.make_node("Tanh", ["x"], ["t"], name="tanh"),
        helper.make_node("Split", ["t", "lengths"], names, name="split", axis=0),
        helper.make_node("Concat", names[::-1], ["y"], name="concat", axis=0),
    ]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [count]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "lengths", values[:1], values[1:], [lengths])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    found = run_local(make(tmp_path / "m.onnx", "throughput", "even-split"), model=tmp_path / "m.onnx", requests=3)
    found.check(1e-6)


def test_a_linked_model_has_its_weights_beside_the_link(model: Path, tmp_path: Path) -> None:
    """Tests that all parts of a run look for weights in the same folder."""
    (tmp_path / "real").mkdir()
    onnx.save(
        onnx.load(model), tmp_path / "real" / "m.onnx", save_as_external_data=True, location="w", size_threshold=0
    )
    (tmp_path / "link").mkdir()
    (tmp_path / "link" / "m.onnx").symlink_to(tmp_path / "real" / "m.onnx")
    (tmp_path / "real" / "w").rename(tmp_path / "link" / "w")
    path = tmp_path / "link" / "m.onnx"
    run_local(make(path, "throughput", "even-split"), model=path, requests=3).check(1e-5)
