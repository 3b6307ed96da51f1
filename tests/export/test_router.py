"""Router files, and exports that start a process for each lane: shares are kept exactly, shared devices refused."""

from __future__ import annotations

import json
import os
import runpy
import shlex
import subprocess
import sys
from collections.abc import Callable
from fractions import Fraction
from math import gcd
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.export.fleet_plans import HOSTILE, fleet_of, hostile_fleet, layered_fleet, small_fleet
from tests.export.layer_plans import by_layer, placed
from tests.run.split_samples import check_equal, run_segments, run_whole

import weftline as wl
from weftline import zoo
from weftline.certify.check_fleet import check_fleet
from weftline.errors import InputError, UsageError, VerificationError
from weftline.export import fleet_exporters, plan_exporters
from weftline.export.router import Router, router_of
from weftline.graph import Op
from weftline.plans.fleet import fleet_to_json
from weftline.problem import load_problem
from weftline.run.split.manifest import read_manifest

EXAMPLE = Path(__file__).parents[2] / "examples" / "route.py"


def test_shares_are_those_of_the_plan(tmp_path: Path) -> None:
    """Tests that weights are the rates in lowest terms, and that instances and hops are those of the plan."""
    plan = small_fleet()
    (path,) = wl.export(plan, "router", tmp_path)
    router = msgspec.json.decode(path.read_bytes(), type=Router)
    total = sum(lane.rate for lane in plan.lanes)
    assert [Fraction(lane.weight, router.total_weight) for lane in router.lanes] == [
        Fraction(lane.rate, total) for lane in plan.lanes
    ]
    assert gcd(*(lane.weight for lane in router.lanes)) == 1
    assert router.rate == plan.rate
    ids = [device.id for device in plan.problem.devices]
    for lane, planned in zip(router.lanes, plan.lanes, strict=True):
        assert [(router.instances[i].device, a, b) for i, a, b in lane.hops] == [
            (ids[d], a, b) for d, a, b in planned.hops
        ]
        for i, a, b in lane.hops:
            assert any(first <= a and b <= last for first, last in router.instances[i].holds)


@pytest.mark.parametrize("weights", [[5, 1, 1], [3, 2], [1], [7, 7, 7, 1]])
def test_the_dispatcher_keeps_shares_exactly(weights: list[int]) -> None:
    """Tests every prefix: no lane is a whole request ahead, and after a round each lane has had its weight."""
    choose = runpy.run_path(str(EXAMPLE))["next_lane"]
    waiting, counts, total = [0] * len(weights), [0] * len(weights), sum(weights)
    for request in range(1, 2 * total + 1):
        counts[choose(weights, waiting)] += 1
        for count, weight in zip(counts, weights, strict=True):
            assert count - Fraction(request * weight, total) < 1
        if request % total == 0:
            assert counts == [weight * request // total for weight in weights]


def test_the_example_runs(tmp_path: Path) -> None:
    """Tests the program on a file that was exported, that it needs nothing of weftline, and what it refuses."""
    (path,) = wl.export(small_fleet(), "router", tmp_path)
    code = f"import sys, runpy; sys.argv[0] = {str(EXAMPLE)!r}; runpy.run_path(sys.argv[0], None, '__main__')"
    code += "; assert not {'weftline', 'numpy'} & set(sys.modules)"
    call = [sys.executable, "-W", "error", "-c", code, str(path), "3000"]
    done = subprocess.run(call, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 0, done.stderr
    *_, first, second = done.stdout.splitlines()
    assert (first, second) == ("lane-0: 2000 of 3000 requests", "lane-1: 1000 of 3000 requests")
    path.write_text(json.dumps({"format": "weftline-router", "lanes": [{"weight": 0.5}]}))
    done = subprocess.run(call, capture_output=True, encoding="utf-8", check=False)
    assert done.returncode == 1
    assert "is no router file" in done.stderr


def test_a_plan_that_lies_is_refused(tmp_path: Path) -> None:
    """Tests a plan with another rate than its lanes have."""
    plan = small_fleet()
    with pytest.raises(VerificationError, match="not what the plan says"):
        wl.export(msgspec.structs.replace(plan, rate=plan.rate * 2), "router", tmp_path / "out")
    with pytest.raises(UsageError, match="takes no --model"):
        wl.export(plan, "router", tmp_path / "out", runtimes={"d0": "torch:cuda:0"})
    assert list(tmp_path.iterdir()) == []


def test_targets_know_their_kinds(tmp_path: Path) -> None:
    """Tests that a router is for fleet plans alone, and that other targets refuse them with a sentence."""
    assert set(fleet_exporters()) == {"onnx-stages", "vllm", "megatron", "llamacpp", "router", "svg", "png"}
    assert "router" not in plan_exporters()
    small_fleet().save(tmp_path / "fleet.json")
    with pytest.raises(UsageError, match=r"'accelerate' is not for a fleet plan .*plan with --copies 1"):
        wl.export(tmp_path / "fleet.json", "accelerate", tmp_path / "out")
    with pytest.raises(UsageError, match="'router' is not for a plan"):
        wl.export(placed("gpt2", by_layer(["gpu0", "gpu1"])), "router", tmp_path / "out")


def _launched(folder: Path, program: str, *words: str) -> list[list[str]]:
    """What each process of the script gets, in any order."""
    fake = folder / program
    fake.write_text('#!/bin/sh\necho "${CUDA_VISIBLE_DEVICES:-none}" "$@"\n')
    fake.chmod(0o755)
    path = f"{folder}{os.pathsep}{os.environ['PATH']}"
    call = ["sh", str(folder / "launch.sh"), *words]
    done = subprocess.run(call, env={**os.environ, "PATH": path}, capture_output=True, text=True, check=False)
    return sorted(line.split() for line in (done.stdout if done.returncode == 0 else done.stderr).splitlines())


def test_one_server_for_each_lane(tmp_path: Path) -> None:
    """Tests launch lines, addresses and weights of lanes on devices of their own, for every engine."""
    plan = layered_fleet(by_layer(["gpu0"] * 4), by_layer(["gpu1"] * 4))
    assert check_fleet(json.loads(fleet_to_json(plan))).value_ns == plan.value_ns
    files = wl.export(plan, "vllm", tmp_path / "vllm")
    assert [path.name for path in files] == ["launch.sh", "router.json"]
    router = msgspec.json.decode(files[1].read_bytes(), type=Router)
    assert [lane.address for lane in router.lanes] == ["http://127.0.0.1:8000", "http://127.0.0.1:8001"]
    assert [Fraction(lane.weight, router.total_weight) for lane in router.lanes] == [
        Fraction(lane.rate, sum(one.rate for one in plan.lanes)) for lane in plan.lanes
    ]
    assert _launched(tmp_path / "vllm", "vllm", "a model") == [
        ["0", "serve", "a", "model", "--pipeline-parallel-size", "1", "--port", "8000"],
        ["1", "serve", "a", "model", "--pipeline-parallel-size", "1", "--port", "8001"],
    ]
    assert "MODEL" in " ".join(_launched(tmp_path / "vllm", "vllm")[0])
    wl.export(plan, "megatron", tmp_path / "megatron", runtimes={"gpu1": "torch:cuda:5"})
    words = _launched(tmp_path / "megatron", "torchrun", "pretrain_gpt.py")
    assert [row[:5] for row in words] == [
        ["0", "--nproc-per-node", "1", "--master-port", "8000"],
        ["5", "--nproc-per-node", "1", "--master-port", "8001"],
    ]
    assert words[1][-1] == "Et*4L"
    assert "address" not in (tmp_path / "megatron" / "router.json").read_text()
    wl.export(plan, "llamacpp", tmp_path / "llamacpp")
    words = _launched(tmp_path / "llamacpp", "llama-server", "-m", "x.gguf")
    assert [row[-2:] for row in words] == [["--port", "8000"], ["--port", "8001"]]
    assert words[1][words[1].index("--device") :][:2] == ["--device", "CUDA1"]


def test_lanes_over_several_devices(tmp_path: Path) -> None:
    """Tests a pipeline beside a whole copy."""
    plan = layered_fleet(by_layer(["fast0", "fast0", "fast0", "fast1"]), by_layer(["slow"] * 4), cluster="four-unequal")
    wl.export(plan, "vllm", tmp_path)
    text = (tmp_path / "launch.sh").read_text()
    assert "VLLM_PP_LAYER_PARTITION=3,1 vllm serve" in text
    assert "VLLM_PP_LAYER_PARTITION=4 vllm serve" in text
    assert "# rank 1 is fast1, GPU" in text


@pytest.mark.parametrize("target", ["vllm", "megatron", "llamacpp"])
def test_shared_devices_are_refused(target: str, tmp_path: Path) -> None:
    """Tests lanes that share a device, a lane that the engine cannot run, and two lanes on one GPU by runtimes."""
    shared = layered_fleet(by_layer(["gpu0", "gpu0", "gpu1", "gpu1"]), by_layer(["gpu1"] * 4))
    with pytest.raises(UsageError, match=f"{target} runs each lane as a process .* lanes 0 and 1 share gpu1: use --to"):
        wl.export(shared, target, tmp_path / "out")
    cut = layered_fleet(lambda op: "gpu1" if op.block.endswith("h.1") and op.kind == "MatMul" else "gpu0")
    with pytest.raises(UsageError, match=f"lane 0: {target} cannot cut inside"):
        wl.export(cut, target, tmp_path / "out")
    copies = layered_fleet(by_layer(["gpu0"] * 4), by_layer(["gpu1"] * 4))
    again = {"vllm": "torch:cuda:0", "megatron": "torch:cuda:0", "llamacpp": "llamacpp:CUDA0"}[target]
    with pytest.raises(UsageError, match="same"):
        wl.export(copies, target, tmp_path / "out", runtimes={"gpu1": again})
    assert list(tmp_path.iterdir()) == []


def test_hostile_names_stay_in_their_place(tmp_path: Path) -> None:
    """Tests that names of the file are data of router.json, and that no device can bring a command into launch.sh."""
    plan = hostile_fleet()
    router = json.loads(wl.export(plan, "router", tmp_path)[0].read_bytes())
    assert router["model"] == f"model {HOSTILE}"
    good = layered_fleet(by_layer(["gpu0"] * 4), by_layer(["gpu1"] * 4))
    devices = [msgspec.structs.replace(device, id="$(touch x)") for device in good.problem.devices[:1]]
    evil = msgspec.structs.replace(good.problem, devices=(*devices, *good.problem.devices[1:]))
    with pytest.raises(InputError, match=r"device id|touch x"):
        wl.export(msgspec.structs.replace(good, problem=evil), "vllm", tmp_path / "evil")
    wl.export(good, "vllm", tmp_path / "good")
    for line in (tmp_path / "good" / "launch.sh").read_text().splitlines():
        assert line.startswith("#") or shlex.split(line)


def test_onnx_segments_of_all_lanes(tmp_path: Path) -> None:
    """Tests that no lane cuts a segment, that they compute the model together, and what router.json says of them."""
    model = tmp_path / "bert.onnx"
    zoo.save(zoo.build("bert", size="small"), model)
    problem, digest = load_problem(model, cluster=wl.Cluster.preset("two-gpus"), rules={"objective": "throughput"})
    half = {op.name for op in problem.graph.ops[: len(problem.graph.ops) // 2]}
    third = {op.name for op in problem.graph.ops[: len(problem.graph.ops) // 3]}
    lanes: list[Callable[[Op], str]] = [
        lambda op: "gpu0" if op.name in half else "gpu1",
        lambda op: "gpu1" if op.name in third else "cpu0",
        lambda op: "gpu0",
    ]
    plan = fleet_of(problem, lanes)
    source = msgspec.structs.replace(plan.provenance, inputs={"model": digest})
    plan = msgspec.structs.replace(plan, provenance=source)
    files = wl.export(plan, "onnx-stages", tmp_path / "out", model=model)
    assert sorted(files) == sorted((tmp_path / "out").iterdir())
    segments = read_manifest(tmp_path / "out").segments
    router = msgspec.json.decode((tmp_path / "out" / "router.json").read_bytes(), type=Router)
    ops = {op.name: op for op in problem.graph.ops}
    for lane, choose in zip(router.lanes, lanes, strict=True):
        for segment, device in zip(segments, lane.segments, strict=True):
            assert {choose(ops[name]) for name in segment.ops} == {device}
    inputs = zoo.example_inputs(zoo.build("bert", size="small"))
    check_equal(run_segments(tmp_path / "out", inputs), run_whole(model, inputs))
    with pytest.raises(UsageError, match="--model"):
        wl.export(plan, "onnx-stages", tmp_path / "none")


def test_addresses_follow_the_lanes() -> None:
    """Tests that a router names no address where no process is started."""
    assert not any(lane.address for lane in router_of(small_fleet()).lanes)
    assert np.isclose(sum(lane.rate for lane in router_of(small_fleet()).lanes), small_fleet().rate)
