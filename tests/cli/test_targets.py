"""Where verbs write: never over what they read, and nothing is begun that could not be written."""

from __future__ import annotations

import json
from pathlib import Path

import onnx
import pytest
from typer.testing import CliRunner, Result

from weftline.cli.main import app
from weftline.zoo import build, save


def ask(*words: str | Path | int) -> Result:
    """The result of a command."""
    return CliRunner().invoke(app, [str(word) for word in words])


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A small model with its weights beside it."""
    path = tmp_path / "model.onnx"
    save(build("bert", size="small"), path)
    found = onnx.load(path)
    onnx.save(found, path, save_as_external_data=True, location="model.weights", size_threshold=0)
    return path


def test_inputs_are_not_written_over(model: Path, tmp_path: Path) -> None:
    """Tests the model, its weights beside it, the cluster, and a plan, under another name too."""
    plan, cluster, link = tmp_path / "plan.json", tmp_path / "c.toml", tmp_path / "link"
    cluster.write_text(ask("cluster", "show", "laptop").stdout)
    link.symlink_to(model)
    planned = ("plan", model, "--cluster", cluster, "--work", 1, "--solver", "greedy", "-o")
    before = {path: path.read_bytes() for path in (model, tmp_path / "model.weights", cluster)}
    for target in (*before, link):
        done = ask(*planned, target)
        assert "is also what is read" in str(done.exception), target
    assert {path: path.read_bytes() for path in before} == before
    assert ask(*planned, plan).exit_code == 0
    for words in (("report", plan, "-o", plan), ("simulate", plan, "--trace", plan)):
        assert "is also what is read" in str(ask(*words).exception)
    assert ask("verify", plan).exit_code == 0


def test_targets_are_looked_at_first(model: Path, tmp_path: Path) -> None:
    """Tests that a folder, or a file in no folder, is refused before the model is read."""
    for target, words in ((tmp_path, "is a folder"), (tmp_path / "no" / "plan.json", "No such file")):
        assert words in str(ask("plan", "nothing.onnx", "--cluster", "laptop", "-o", target).exception)


def test_a_plan_on_stdout(model: Path) -> None:
    """Tests that `-o -` prints the plan alone, and says the rest elsewhere."""
    asked = ("plan", model, "--cluster", "laptop", "--work", 1, "--solver", "greedy", "-o", "-")
    done = ask(*asked)
    assert done.exit_code == 0
    assert json.loads(done.stdout)["format"] == "weftline-plan"
    assert "written to" in done.stderr
    assert "stdout" in str(ask(*asked, "--json").exception)


def test_a_picture_on_stdout(model: Path, tmp_path: Path) -> None:
    """Tests that `-o -` prints the picture alone, and that a folder that exists is still one to write into."""
    plan = tmp_path / "plan.json"
    assert ask("plan", model, "--cluster", "laptop", "--work", 1, "--solver", "greedy", "-o", plan).exit_code == 0
    asked = ("export", plan, "--to", "svg", "-o")
    done = ask(*asked, "-")
    assert done.exit_code == 0
    assert done.stdout.startswith("<svg ")
    assert done.stdout.endswith("</svg>\n")
    assert "written: -" in done.stderr
    assert "stdout" in str(ask(*asked, "-", "--json").exception)
    assert json.loads(ask(*asked, tmp_path, "--json").stdout) == {"files": [str(tmp_path / "timeline.svg")]}
