"""onnx-stages: plans by way of files, run by a program that knows nothing of weftline."""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
import pytest
from tests.export.fleet_plans import small_fleet
from tests.run.split_samples import check_equal, run_segments, run_whole

from weftline import zoo
from weftline.ask import make_plan
from weftline.cluster import Cluster
from weftline.errors import InputError, UsageError
from weftline.export import ExportOptions, plan_exporters
from weftline.export.router import router_of, write_router
from weftline.graph import Graph
from weftline.plans import Plan
from weftline.problem import Rules, build_problem, read_model
from weftline.run.split.manifest import read_manifest
from weftline.testing.generate import Objective

EXAMPLE = Path(__file__).parents[2] / "examples" / "run_stages.py"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "bert.onnx"
    zoo.save(zoo.build("bert", size="small"), path)
    return path


def plan_for(model: Path, objective: Objective) -> Plan:
    graph = read_model(model)
    assert isinstance(graph, Graph)
    problem = build_problem(graph, Cluster.preset("two-gpus"), rules=Rules(objective=objective))
    return make_plan(problem, solver="even-split", work_limit=100)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_an_exported_plan_runs(objective: Objective, model: Path, tmp_path: Path) -> None:
    """Tests files, devices and results."""
    plan = plan_for(model, objective)
    files = plan_exporters()["onnx-stages"].write(plan, tmp_path, ExportOptions(model=model))
    assert sorted(files) == sorted(tmp_path.iterdir())
    manifest = read_manifest(tmp_path)
    assert {op: segment.device for segment in manifest.segments for op in segment.ops} == plan.placement
    assert manifest.model_sha256 == plan.provenance.inputs.get("model", manifest.model_sha256)
    inputs = zoo.example_inputs(zoo.build("bert", size="small"))
    check_equal(run_segments(tmp_path, inputs), run_whole(model, inputs))


def test_the_example_runs_it(model: Path, tmp_path: Path) -> None:
    """Tests that a folder needs onnxruntime, numpy and json alone, with inputs and without."""
    plan = plan_for(model, "throughput")
    plan_exporters()["onnx-stages"].write(plan, tmp_path, ExportOptions(model=model))
    inputs = zoo.example_inputs(zoo.build("bert", size="small"))
    np.savez(tmp_path / "inputs.npz", **cast(Any, inputs))
    expected = run_whole(model, inputs)
    code = f"import sys, runpy; sys.argv[0] = {str(EXAMPLE)!r}; runpy.run_path(sys.argv[0], None, '__main__')"
    code += "; assert not {'weftline', 'onnx'} & set(sys.modules)"
    for given in ([], [str(tmp_path / "inputs.npz")]):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-c", code, str(tmp_path), *given],
            capture_output=True,
            encoding="utf-8",
            check=False,
        )
        assert done.returncode == 0, done.stderr
        for segment in read_manifest(tmp_path).segments:
            assert f"segment {segment.number} on {segment.device}: {len(segment.ops)} ops" in done.stdout
    for name, array in expected.items():
        shown = next(line for line in done.stdout.splitlines() if line.startswith(f"{name}: "))
        assert float(shown.rsplit(" ", 1)[1]) == pytest.approx(float(array.mean()), rel=1e-3, abs=1e-5)


def _with_weights_elsewhere(folder: Path) -> onnx.ModelProto:
    """A segment whose weights are somebody's file beside the folder."""
    (folder / "secret.bin").write_bytes(bytes(16))
    weight = onnx.TensorProto(name="w", data_type=1, dims=[4], data_location=onnx.TensorProto.EXTERNAL)
    weight.external_data.add(key="location", value="../secret.bin")
    node = onnx.helper.make_node("Identity", ["w"], ["y"])
    graph = onnx.helper.make_graph([node], "g", [], [onnx.helper.make_tensor_value_info("y", 1, [4])], [weight])
    return onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("segments", 0, "file"), "../secret.onnx", "no file of this folder"),
        (("segments", 0, "file"), "/tmp/secret.onnx", "no file of this folder"),
        (("segments", 0, "file"), "link.onnx", "no file of this folder"),
        (("segments", 0, "file"), "second.onnx", "is a link"),
        (("segments", 0, "file"), "pipe.onnx", "no regular file"),
        (("segments", 0, "file"), "a\0b", "no file of this folder"),
        (("segments", 0, "file"), "outside.onnx", "segment 0 cannot be run"),
        (("segments", 0, "inputs"), ["nobody's"], "which comes from none before it"),
        (("segments", 1, "outputs"), ["input_ids"], "is there already"),
        (("segments",), [{}], "is not of an export: KeyError"),
        (("outputs",), ["nobody's"], "comes from no segment"),
        (("tensors", 0, "shape"), [2**30] * 100_000, "impossible shape"),
        (("tensors", 0, "shape"), [2**30, 2**30, 0], "too large"),
        (("tensors", 0, "shape"), [True], "impossible shape"),
        (("tensors", 0, "dtype"), "O", "no plain array"),
        (("tensors", 0, "dtype"), ["f4"], "unknown type"),
        (("tensors", 0, "shape"), [2**40, 2**40], "impossible shape"),
        (("tensors", 0, "shape"), [2**20, 2**20], "too large"),
        (("tensors", 0, "shape"), [-1], "impossible shape"),
    ],
)
def test_the_example_trusts_no_manifest(
    place: tuple[Any, ...], value: object, words: str, model: Path, tmp_path: Path
) -> None:
    """Tests files and weights outside of the folder, tensors of nobody, and shapes that fit into no memory."""
    folder = tmp_path / "stages"
    folder.mkdir()
    plan = plan_for(model, "throughput")
    plan_exporters()["onnx-stages"].write(plan, folder, ExportOptions(model=model))
    (folder / "link.onnx").symlink_to(model)
    (folder / "second.onnx").hardlink_to(model)
    os.mkfifo(folder / "pipe.onnx")
    onnx.save(_with_weights_elsewhere(tmp_path), folder / "outside.onnx")
    manifest = json.loads((folder / "manifest.json").read_text())
    manifest["tensors"].sort(key=lambda wire: wire["source"])
    holder = manifest
    for key in place[:-1]:
        holder = holder[key]
    holder[place[-1]] = value
    (folder / "manifest.json").write_text(json.dumps(manifest))
    example = runpy.run_path(str(EXAMPLE))
    with pytest.raises(SystemExit, match=words):
        example["run"](folder, example["example_inputs"](folder))


@pytest.mark.parametrize(
    "text", ["[" * 100_000, '{"a":' + "9" * 5000 + "}", "[]", "{}", "\0", '{"inputs":[],"inputs":[]}']
)
def test_the_example_reads_no_nonsense(text: str, tmp_path: Path) -> None:
    """Tests manifests that are none, or made to cost time: each is one sentence."""
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(SystemExit, match="is not of an export"):
        runpy.run_path(str(EXAMPLE))["read_manifest"](tmp_path)


def test_a_second_export_leaves_nothing_of_the_first(model: Path, tmp_path: Path) -> None:
    """Tests that a folder holds one export, not parts of two, and that files which are of none stay."""
    write = plan_exporters()["onnx-stages"].write
    first = write(plan_for(model, "latency"), tmp_path, ExportOptions(model=model))
    mine = tmp_path / "segment_99.onnx"
    mine.write_bytes(b"kept")
    write_router(tmp_path, router_of(small_fleet()))  # an export of a fleet has one, too
    files = write(plan_for(model, "throughput"), tmp_path, ExportOptions(model=model))
    assert len(files) < len(first)
    assert sorted([*files, mine]) == sorted(tmp_path.iterdir())
    (tmp_path / "router.json").write_text('{"format": "mine"}', encoding="utf-8")
    files = write(plan_for(model, "latency"), tmp_path, ExportOptions(model=model))
    assert sorted([*files, mine, tmp_path / "router.json"]) == sorted(tmp_path.iterdir())


def test_a_manifest_of_something_else_stays(model: Path, tmp_path: Path) -> None:
    """Tests that a folder with another program's manifest.json is refused, and nothing in it is touched."""
    (tmp_path / "manifest.json").write_text('{"name": "my web page"}', encoding="utf-8")
    (tmp_path / "segment_0.onnx").write_bytes(b"mine")
    with pytest.raises(InputError, match=r"manifest\.json: is not of an export"):
        plan_exporters()["onnx-stages"].write(plan_for(model, "latency"), tmp_path, ExportOptions(model=model))
    assert (tmp_path / "manifest.json").read_text(encoding="utf-8") == '{"name": "my web page"}'
    assert (tmp_path / "segment_0.onnx").read_bytes() == b"mine"


@pytest.mark.parametrize("name", ["notes.txt", "segment_01.onnx", "segment_x.onnx"])
def test_a_manifest_that_names_other_files(name: str, model: Path, tmp_path: Path) -> None:
    """Tests that a file which no export has made is not removed, though a manifest names it as a segment."""
    write = plan_exporters()["onnx-stages"].write
    write(plan_for(model, "throughput"), tmp_path, ExportOptions(model=model))
    manifest = json.loads((tmp_path / "manifest.json").read_text())
    manifest["segments"][1]["file"] = name
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    (tmp_path / name).write_bytes(b"mine")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(InputError, match=r"manifest\.json: is not of an export: no segment is named"):
        write(plan_for(model, "latency"), tmp_path, ExportOptions(model=model))
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_own_weights_are_not_overwritten(model: Path, tmp_path: Path) -> None:
    """Tests a model whose weights have the name that the export would use, in the folder it would use."""
    out = tmp_path / "out"
    out.mkdir()
    path = tmp_path / "m.onnx"
    onnx.save(onnx.load(model), path, save_as_external_data=True, location="out/weights.bin", size_threshold=0)
    before = (out / "weights.bin").read_bytes()
    with pytest.raises(InputError, match="would be overwritten"):
        plan_exporters()["onnx-stages"].write(plan_for(path, "throughput"), out, ExportOptions(model=path))
    assert (out / "weights.bin").read_bytes() == before


def test_what_is_refused(model: Path, tmp_path: Path) -> None:
    """Tests a missing model, one that is not the plan's, and the model's own folder."""
    plan, write = plan_for(model, "throughput"), plan_exporters()["onnx-stages"].write
    with pytest.raises(UsageError, match="--model"):
        write(plan, tmp_path, ExportOptions())
    with pytest.raises(UsageError, match="--runtime"):
        write(plan, tmp_path, ExportOptions(model=model, runtimes={"gpu0": "openvino:CPU"}))
    with pytest.raises(UsageError, match="name another one"):
        write(plan, model.parent, ExportOptions(model=model))
    other = tmp_path / "other.onnx"
    zoo.save(zoo.build("unet", size="small"), other)
    (tmp_path / "out").mkdir()
    with pytest.raises(InputError, match="is not the model that the plan was made for"):
        write(plan, tmp_path / "out", ExportOptions(model=other))
    assert list((tmp_path / "out").iterdir()) == []
