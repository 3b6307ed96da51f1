"""Bombs and injection: small files that become large, deep ones, and names that are code somewhere else."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import msgspec
import pytest
from onnx import TensorProto, helper
from reliability.fuzz_readers import READERS
from reliability.fuzz_seeds import seeds

from weftline.certify import check
from weftline.errors import InputError
from weftline.importers import read_file
from weftline.plans import Plan, load_plan
from weftline.report import plan_markdown, trace_json
from weftline.run.inputs import MOST_BYTES, read_arrays
from weftline.run.split.weights import open_weights

HOSTILE = "<script>alert(1)</script>|`x`\n## [a](javascript:b)"


@pytest.mark.parametrize("name", [name for name, reader in READERS.items() if reader.form == "json"])
@pytest.mark.parametrize("depth", [500, 200_000])
def test_deep_nesting(name: str, depth: int, tmp_path: Path) -> None:
    """Tests that a tower of brackets is an input error in every reader of JSON, not a crash of the process."""
    reader = READERS[name]
    path = tmp_path / reader.file
    data = json.loads(seeds(reader.seeds)[0])
    data[next(reversed(data))] = "HERE"
    path.write_text(json.dumps(data).replace('"HERE"', "[" * depth + "]" * depth))
    with pytest.raises((InputError, check.Refusal)):
        reader.read(path)


def test_graphs_in_graphs(tmp_path: Path) -> None:
    """Tests a model whose If holds an If, and so on: almost as deep as protobuf reads."""
    value = helper.make_tensor_value_info
    for depth in (5, 15, 28):
        inner = helper.make_graph([helper.make_node("Identity", ["c"], ["y"])], "g", [], [value("y", 9, [])])
        for _ in range(depth):
            node = helper.make_node("If", ["c"], ["y"], then_branch=inner, else_branch=inner.__class__())
            inner = helper.make_graph([node], "g", [], [value("y", 9, [])])
        inner.input.append(value("c", TensorProto.BOOL, []))
        path = tmp_path / "m.onnx"
        path.write_bytes(helper.make_model(inner).SerializeToString())
        try:
            graph = read_file(path).graph
        except InputError:
            continue
        assert len(graph.ops) == 1


def test_a_zip_bomb(tmp_path: Path) -> None:
    """Tests that an archive that says it holds more than the limit is refused before anything is unpacked."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.npy", bytes(1000))
    size = (MOST_BYTES // 2 + 1).to_bytes(4, "little")
    data = out.getvalue()
    entry = data.index(b"PK\x01\x02")
    data = data[: entry + 24] + size + data[entry + 28 :]
    path = tmp_path / "x.npz"
    path.write_bytes(data)
    with pytest.raises(InputError, match=r"x\.npz"):
        read_arrays(path)


@pytest.mark.parametrize("location", ["../secret", "/etc/passwd", "link", "hard", "pipe", "folder", "in/../../secret"])
def test_weights_from_elsewhere(location: str, tmp_path: Path) -> None:
    """Tests every way out of a model's folder: .., absolute, both kinds of links, what is no file."""
    (tmp_path / "secret").write_bytes(b"outside")
    folder = tmp_path / "model"
    (folder / "folder").mkdir(parents=True)
    (folder / "link").symlink_to("../secret")
    (folder / "hard").hardlink_to(tmp_path / "secret")
    os.mkfifo(folder / "pipe")
    with pytest.raises(InputError, match="external data"), open_weights(folder, location):
        pass


def _hostile_plan(folder: Path) -> Plan:
    """Every text of a plan that is free is hostile."""
    data = json.loads(seeds("plan")[0])
    data |= {"solver": HOSTILE, "stopped_by": HOSTILE, "bound_by": HOSTILE, "baselines": {HOSTILE: 1}}
    first = data["problem"]["graph"]["ops"][0]["name"]
    data["problem"]["graph"]["name"] = data["problem"]["graph"]["ops"][0]["name"] = HOSTILE
    data["placement"] = {HOSTILE if op == first else op: device for op, device in data["placement"].items()}
    data["problem"]["cost_source"] = data["provenance"]["version"] = data["provenance"]["problem_sha256"] = HOSTILE
    path = folder / "plan.json"
    path.write_text(json.dumps(data))
    return load_plan(path)


def test_markdown_of_a_hostile_plan(tmp_path: Path) -> None:
    """Tests that no text of a plan becomes a tag, a link, a heading or a cell of its Markdown page."""
    page = plan_markdown(_hostile_plan(tmp_path))
    outside = page.split("problem sha256")[0]
    assert "<script" not in outside.replace("\\<script", "")
    assert "\n## [a]" not in page
    assert "[a](" not in outside.replace("\\[a\\](", "")
    assert page.split("problem sha256")[1].count("`") == 2


def test_trace_of_a_hostile_plan(tmp_path: Path) -> None:
    """Tests that a hostile name stays one string of the trace."""
    trace = msgspec.json.decode(trace_json(_hostile_plan(tmp_path)))
    assert any(HOSTILE in event.get("name", "") for event in trace["traceEvents"])
    assert all(
        set(event) <= {"ph", "name", "pid", "tid", "ts", "dur", "args", "cat", "id"} for event in trace["traceEvents"]
    )
