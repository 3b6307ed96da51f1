"""ort: the exported files place a model in one session, and the loader fails loudly."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import onnx
import onnxruntime
import pytest

from weftline import zoo
from weftline.ask import make_plan
from weftline.cluster import Cluster
from weftline.errors import InputError, UsageError
from weftline.export import plan_exporters
from weftline.export.exporter import ExportOptions
from weftline.export.load_ort import PlacementError, annotate, load
from weftline.export.onnx import ort_placement
from weftline.plans import Plan
from weftline.problem import load_problem

CPU, CUDA = "CPUExecutionProvider", "CUDAExecutionProvider"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small GPT with weights beside it."""
    path = tmp_path_factory.mktemp("ort") / "gpt.onnx"
    zoo.save(zoo.build("gpt2", size="small"), path, inside=0)
    return path


@pytest.fixture(scope="module")
def plan(model: Path) -> Plan:
    """Everything on one device."""
    problem, _ = load_problem(model, cluster=Cluster.preset("two-gpus"))
    return make_plan(problem, solver="single-device", work_limit=1)


def options(model: Path, **runtimes: str) -> ExportOptions:
    return ExportOptions(model, {id: f"ort:{name}" for id, name in runtimes.items()})


def test_one_provider(model: Path, plan: Plan, tmp_path: Path) -> None:
    """Tests that the files run without weftline, with external weights, and that all nodes are where they should be."""
    device = next(iter(plan.placement.values()))
    files = plan_exporters()["ort"].write(plan, tmp_path, options(model, **{device: CPU}))
    assert [path.name for path in files] == ["placement.json", "providers.json", "load_ort.py"]
    placement = json.loads(files[0].read_text())
    assert set(placement.values()) == {CPU}
    assert len(placement) == len(plan.placement)
    assert json.loads(files[1].read_text()) == {CPU: {}}
    command = [sys.executable, "-P", files[2].name, str(model), *(path.name for path in files[:2])]
    said = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (said.returncode, said.stdout) == (0, "every node is where the plan has it\n"), said.stderr
    assert "weftline." not in files[2].read_text()


def test_two_providers(model: Path, plan: Plan) -> None:
    """Tests the annotations of a plan on two providers, and that one that is not there is an error, no fallback."""
    half = len(plan.placement) // 2
    two = msgspec.structs.replace(
        plan, placement={name: "gpu0" if n < half else "cpu0" for n, name in enumerate(plan.placement)}
    )
    placement = ort_placement(two, options(model, gpu0=f"{CUDA}:1", cpu0=CPU))
    assert list(placement.values()).count(CUDA) == half
    proto = onnx.load(str(model), load_external_data=False)
    assert annotate(proto, placement) == f"{CPU}(weftline-0000); {CUDA}(weftline-0001)"
    labels = {node.output[0]: [entry.value for entry in node.metadata_props] for node in proto.graph.node}
    for output, provider in placement.items():
        assert labels[output] == ["weftline-0000" if provider == CPU else "weftline-0001"]
    with pytest.raises(PlacementError, match=f"has no {CUDA}"):
        load(model, placement)


def test_node_put_elsewhere(model: Path, plan: Plan) -> None:
    """Tests that nodes which a provider cannot take, and which go to the CPU without a word, are an error."""
    idle = "AzureExecutionProvider"  # takes no ordinary node
    if idle not in onnxruntime.get_available_providers():
        pytest.skip(f"this ONNX Runtime has no {idle}")
    device = next(iter(plan.placement.values()))
    placement = ort_placement(plan, options(model, **{device: CPU}))
    moved = list(placement)[-1]
    with pytest.raises(PlacementError, match=f"was put on {CPU}, planned is {idle}"):
        load(model, {**placement, moved: idle})


def test_refused(model: Path, plan: Plan, tmp_path: Path) -> None:
    """Tests devices without a runtime, one provider for two devices, a missing or another model, a pipeline."""
    names = list(plan.placement)
    two = msgspec.structs.replace(plan, placement={name: f"gpu{n % 2}" for n, name in enumerate(names)})
    with pytest.raises(UsageError, match=f"has {CUDA} once, and the plan uses it for gpu0, gpu1"):
        ort_placement(two, options(model, gpu0=f"{CUDA}:0", gpu1=f"{CUDA}:1"))
    with pytest.raises(InputError, match="'gpu1' cannot be run by ONNX Runtime: its runtime is 'openvino:GPU'"):
        ort_placement(two, ExportOptions(model, {"gpu0": f"ort:{CPU}", "gpu1": "openvino:GPU"}))
    with pytest.raises(UsageError, match="--model"):
        ort_placement(plan, ExportOptions())
    with pytest.raises(UsageError, match="for throughput"):
        ort_placement(msgspec.structs.replace(plan, objective="throughput"), options(model))
    zoo.save(zoo.build("unet", size="small"), tmp_path / "other.onnx")
    one = {plan.placement[names[0]]: CPU}
    with pytest.raises(InputError, match="not the model that the plan was made for"):
        ort_placement(plan, options(tmp_path / "other.onnx", **one))
    placement = ort_placement(plan, options(model, **one))
    with pytest.raises(PlacementError, match=r"no node makes 'ghost' \(1 unknown"):
        load(model, {**placement, "ghost": CPU})
