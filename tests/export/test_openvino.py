"""affinity.json and its loader: round trip through a process that knows nothing of weftline."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from tests.run.openvino_samples import RUNTIMES, model_files, openvino, split_plan

from weftline.errors import InputError, UsageError
from weftline.export.exporter import ExportOptions
from weftline.export.openvino import EXPORTERS, openvino_affinity, read_affinity
from weftline.run.openvino.load_affinity import AffinityError, compile_with_affinity, placed_operations, set_affinity

SCRIPT = """
import sys; sys.modules["openvino_telemetry"] = None
sys.path.insert(0, {folder!r})
import load_affinity
core = load_affinity.open_core(["CPU", "CPU2"])
model = core.read_model({model!r})
config = {{"INFERENCE_PRECISION_HINT": "f32"}}  # the default is bf16 where a CPU says it has it
compiled = load_affinity.compile_with_affinity(model, {folder!r} + "/affinity.json", config, core)
compiled.create_infer_request().infer()
assert not any(name.startswith("weftline") for name in sys.modules)
import json
print(json.dumps([[op.get_friendly_name(), op.get_rt_info()["affinity"].value] for op in model.get_ops()]))
print(json.dumps(sorted(compiled.get_property("EXECUTION_DEVICES"))))
"""


@pytest.mark.parametrize("kind", [".xml", ".onnx"])
def test_round_trip(kind: str, tmp_path: Path) -> None:
    """Tests that the loader, alone in a process, gives every operation a device, and the placed ones the plan's."""
    model = next(path for path in model_files("bert", tmp_path) if path.suffix == kind)
    plan = split_plan(model)
    files = EXPORTERS[0].write(plan, tmp_path, ExportOptions(model, RUNTIMES))
    assert [path.name for path in files] == ["affinity.json", "load_affinity.py"]
    affinity = read_affinity(files[0])
    assert set(affinity.values()) == {"CPU", "CPU2"}
    script = SCRIPT.format(folder=str(tmp_path), model=str(model))
    said = subprocess.run([sys.executable, "-P", "-c", script], capture_output=True, text=True, check=False)
    assert said.returncode == 0, said.stderr
    every, devices = map(json.loads, said.stdout.splitlines()[-2:])
    assert devices == ["CPU", "CPU2"]
    assert {device for _, device in every} == {"CPU", "CPU2"}
    assert affinity.items() <= dict(every).items()
    runtime = {id: RUNTIMES[id].removeprefix("openvino:") for id in RUNTIMES}
    same = [name for name in plan.placement if name in affinity]
    assert len(same) >= len(plan.placement) - 2  # in ONNX the last ops are called after their tensors
    assert all(affinity[name] == runtime[plan.placement[name]] for name in same)


def test_names_without_the_model(tmp_path: Path) -> None:
    """Tests that the names of an IR need no model, and are the same with it."""
    xml, _ = model_files("resnet50", tmp_path)
    plan = split_plan(xml)
    alone = openvino_affinity(plan, ExportOptions(runtimes=RUNTIMES))
    assert alone == openvino_affinity(plan, ExportOptions(xml, RUNTIMES))
    assert list(alone) == list(plan.placement)


def test_loader_fails_loudly(tmp_path: Path) -> None:
    """Tests unknown names, missing names, and a model with one name for two operations."""
    xml, _ = model_files("resnet50", tmp_path)
    model = openvino().Core().read_model(str(xml))
    names = [node.get_friendly_name() for node in placed_operations(model)]
    whole = dict.fromkeys(names, "CPU")
    assert set_affinity(model, whole) == ["CPU"]
    with pytest.raises(AffinityError, match=r"no operation 'ghost' \(1 unknown names"):
        set_affinity(model, {**whole, "ghost": "CPU"})
    with pytest.raises(AffinityError, match=f"no device is given for operation {names[5]!r}"):
        set_affinity(model, {name: "CPU" for name in names if name != names[5]})
    with pytest.raises(AffinityError, match=r"not \{name: device\}"):
        set_affinity(model, {})
    twins = [node for node in placed_operations(model) if node.get_friendly_name() in names[:2]]
    twins[1].set_friendly_name(names[0])
    with pytest.raises(AffinityError, match="2 operations are called"):
        set_affinity(model, {name: "CPU" for name in names if name != names[1]})


def test_loader_as_a_program(tmp_path: Path) -> None:
    """Tests that the file itself says in one line what is wrong."""
    xml, _ = model_files("bert", tmp_path)
    files = EXPORTERS[0].write(split_plan(xml), tmp_path, ExportOptions(None, RUNTIMES))
    broken = read_affinity(files[0])
    files[0].write_text(json.dumps({**broken, "ghost": "CPU"}))
    call = [sys.executable, str(files[1]), str(xml), str(files[0])]
    said = subprocess.run(call, capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert said.stderr.strip() == "error: the model has no operation 'ghost' (1 unknown names in all)"


@pytest.mark.parametrize("data", [b"{", b"\xff", b"[" * 100_000, b"[]", b"1", b'{"a": []}', b'{"a": 1}'])
def test_loader_of_no_affinities(data: bytes, tmp_path: Path) -> None:
    """Tests that a file that is not JSON, or not names and devices, is one error that names it."""
    path = tmp_path / "affinity.json"
    path.write_bytes(data)
    with pytest.raises(AffinityError, match=r"affinity\.json is not (JSON|\{name: device\})") as caught:
        compile_with_affinity("model.xml", path)
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_affinities_from_a_pipe(tmp_path: Path) -> None:
    """Tests that a pipe is an error instead of a long wait."""
    os.mkfifo(tmp_path / "affinity.json")
    with pytest.raises(InputError, match=r"affinity\.json: is not a regular file"):
        read_affinity(tmp_path / "affinity.json")


def test_plans_that_cannot_be_exported(tmp_path: Path) -> None:
    """Tests plans for other models, without runtimes, or for throughput, and files that are no affinities."""
    xml, onnx = model_files("resnet50", tmp_path)
    plan = split_plan(xml)
    with pytest.raises(InputError, match="cannot be run by OpenVINO"):
        openvino_affinity(plan)
    with pytest.raises(InputError, match="ops of the plan are not in it"):
        openvino_affinity(plan, ExportOptions(onnx, RUNTIMES))
    with pytest.raises(UsageError, match="throughput"):
        openvino_affinity(msgspec.structs.replace(plan, objective="throughput"), ExportOptions(None, RUNTIMES))
    wrong = tmp_path / "affinity.json"
    for text in ("[]", "{", '{"a": 1}'):
        wrong.write_text(text)
        with pytest.raises(InputError, match=r"affinity\.json"):
            read_affinity(wrong)
