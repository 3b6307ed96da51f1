"""Facts that the documents state and the code decides: verbs, fields, limits, groups of entry points."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer.main

from weftline import cluster, graph, units
from weftline.ask import scheduling
from weftline.certify import check
from weftline.certify import problem as reader
from weftline.cli.main import app
from weftline.cluster import rules
from weftline.cluster import toml as toml_form
from weftline.cost import profile_file, table
from weftline.graph.build import MAX_NAME, MAX_OPS
from weftline.grid.job import Failure, Row
from weftline.grid.questions import SweepFile
from weftline.importers import registry
from weftline.importers.onnx import call as onnx_types
from weftline.importers.onnx import products as onnx_einsum
from weftline.importers.onnx import scope as onnx_load
from weftline.importers.onnx import values as onnx_values
from weftline.importers.openvino import ir
from weftline.papers import cost_file, regal
from weftline.papers import fiddle as msr_fiddle
from weftline.papers.moirai import instance as moirai
from weftline.plans import plan as files
from weftline.plans import plan as model
from weftline.plans import schedule as schedule_files
from weftline.plans import score
from weftline.plugins import GROUPS
from weftline.problem import Rules, load
from weftline.problem.model import DeviceFile, ProblemFile
from weftline.zoo.builder import MAX_WEIGHT_BYTES
from weftline.zoo.synthetic import MAX_SYNTHETIC_OPS

ROOT = Path(__file__).parents[2]


def page(name: str) -> str:
    """The text of a document."""
    return (ROOT / name).read_text(encoding="utf-8")


def table_rows(text: str) -> dict[str, str]:
    """First cell -> second cell of all table rows with at least two cells."""
    rows = re.findall(r"^\| (.+?) \| (.+?) \|", text, re.MULTILINE)
    return dict(rows)


def test_readme_lists_the_verbs() -> None:
    """Tests that the README's table of verbs is the list of verbs that exist."""
    listed = set(re.findall(r"^\| `weftline (\w+)` \|", page("README.md"), re.MULTILINE))
    assert listed == set(typer.main.get_command(app).commands)  # type: ignore[attr-defined]


STRUCTS = [
    graph.Op,
    graph.Tensor,
    graph.Tied,
    ProblemFile,
    DeviceFile,
    Rules,
    model.Plan,
    model.BoundEntry,
    model.DeviceUse,
    model.Stage,
    model.TimelineFile,
    model.Provenance,
    model.MeasuredFile,
    profile_file.Profile,
    profile_file.DeviceProfile,
    profile_file.Kernel,
    profile_file.LinkProfile,
    SweepFile,
    Row,
    Failure,
]


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_formats_name_every_field(struct: type) -> None:
    """Tests that every field of a file form stands in the page about formats."""
    named = set(re.findall(r"`(?:[\w\[\]]+\.)*(\w+)(?:\[\])?`", page("docs/formats.md")))
    assert set(struct.__struct_fields__) <= named  # type: ignore[attr-defined]


def test_formats_name_every_witness() -> None:
    """Tests that every kind of witness is explained."""
    rows = table_rows(page("docs/formats.md"))
    missing = [kind for kind in check.WITNESSES | check.REFUTATIONS if f"`{kind}`" not in rows]
    assert not missing, "docs/formats.md: the table of kinds of witness lacks a row"


def test_formats_name_every_toml_field() -> None:
    """Tests that every field of a cluster file is explained."""
    section = page("docs/formats.md").partition("## Cluster TOML")[2].partition("\n## ")[0]
    named = set(re.findall(r"`(?:[\w\[\]]+\.)*(\w+)(?:\[\])?`", section))
    fields = {*cluster.Device.__struct_fields__, *cluster.Rate.__struct_fields__, *cluster.Limits.__struct_fields__}
    assert fields | {"between", "from", "to", "latency", "shared", "version", "name"} <= named


def test_security_states_the_limits() -> None:
    """Tests that the table of limits says what the code says."""
    rows = table_rows(page("docs/security.md"))
    expected = {
        "model file": f"{registry.MAX_FILE_BYTES >> 30} GiB",
        "cost file (msr-fiddle, Moirai, REGAL)": f"{cost_file.MAX_COST_FILE_BYTES >> 20} MiB",
        "problem file": f"{load.MAX_FILE_BYTES >> 30} GiB",
        "plan file": f"{files.MAX_PLAN_BYTES >> 30} GiB",
        "fleet file": f"{files.MAX_PLAN_BYTES >> 30} GiB",
        "schedule file": f"{schedule_files.MAX_BYTES >> 30} GiB, {schedule_files.MAX_OPERATIONS:,} operations",
        "placement file (`simulate --placement`)": f"{score.MOST_BYTES >> 20} MiB",
        "measured costs (`profile`)": f"{profile_file.MAX_FILE_BYTES >> 20} MiB, {profile_file.MAX_KERNELS:,} kernels",
        "OpenVINO IR": f"{ir.MAX_BYTES >> 20} MiB, {ir.MAX_DEPTH} levels of nesting",
        "cluster file": f"{toml_form.MAX_FILE_BYTES >> 20} MiB",
        "ops of a graph, also after inlining": f"{MAX_OPS:,}",
        "tensors of a graph": f"{4 * MAX_OPS:,}",
        "length of a name in a graph": f"{MAX_NAME:,} characters",
        "nesting of ONNX functions and bodies": f"{onnx_load.MAX_NESTING}",
        "rank of a tensor": f"{onnx_types.MAX_RANK}",
        "elements of a tensor whose value is computed": f"{onnx_values.MAX_ELEMENTS}",
        "length of an Einsum equation": f"{onnx_einsum.MAX_EQUATION:,} characters",
        "nesting of protobuf text": f"{regal.MAX_DEPTH}",
        "digits of a number in protobuf text": f"{regal.MAX_DIGITS}",
        "devices of a cluster": f"{rules.MAX_DEVICES:,}",
        "links of a cluster": f"{rules.MAX_LINKS:,}",
        "length of a name in a cluster": f"{rules.MAX_TEXT} characters",
        "length of a pattern": f"{rules.MAX_PATTERN:,} characters",
        "devices of each class in an msr-fiddle file": f"{msr_fiddle.MAX_DEVICES:,}",
        "devices of a Moirai file": f"{moirai.MAX_DEVICES:,}",
        "numbers in one cell of an `.xls`": f"{moirai.MAX_NUMBERS:,}",
        "one time, size or rate, and every sum": f"2^{units.MAX_QUANTITY.bit_length() - 1}",
        "entries of a table of times": f"{table.MAX_ENTRIES:,}",
        "stages that may be asked for": f"{load.MAX_STAGES:,}",
        "ops of a synthetic graph": f"{MAX_SYNTHETIC_OPS:,}",
        "weights of a zoo model": f"{MAX_WEIGHT_BYTES >> 30} GiB",
    }
    stated = {name: rows[name].partition(" (")[0] for name in expected}
    assert stated == expected
    assert reader.MAX_FILE_BYTES == files.MAX_PLAN_BYTES
    assert f"{scheduling.MAX_OPERATIONS:,} are planned" in rows["schedule file"]


def test_guide_names_every_entry_point() -> None:
    """Tests that the groups of entry points that the code asks for are the ones in the guide."""
    asked = set(GROUPS)
    listed = set(re.findall(r"^\| `(weftline\.\w+)` \|", page("docs/guide/solver.md"), re.MULTILINE))
    assert listed == asked
