"""The package that the guide writes, as if it were installed: its entry points work on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "solver.md"


LAYERS = {
    "format": "weftline-layers",
    "version": 1,
    "layers": 4,
    "pools": [{"name": "gpu", "count": 2}],
    "units": [{"name": "gpu", "pool": 0, "rates": [9000000, 5000000, 2000000]}],
}


def block_of_file(name: str) -> str:
    """The fenced block of the guide that is saved as that file."""
    found = re.findall(
        rf"^```\w+ file={re.escape(name)}\n(.*?)^```$", GUIDE.read_text("utf-8"), re.MULTILINE | re.DOTALL
    )
    assert len(found) == 1
    return str(found[0])


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that Python takes for a place where the guide's package is installed."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "tiny_weft.py").write_text(block_of_file("tiny_weft.py"), "utf-8")
    project = tomllib.loads(block_of_file("pyproject.toml"))["project"]
    about = folder / "tiny_weft-1.0.dist-info"
    about.mkdir()
    about.joinpath("METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    )
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {target}" for name, target in points.items())]
    about.joinpath("entry_points.txt").write_text("\n".join(lines) + "\n")
    (folder / "chain.txt").write_text("tiny-chain\nfirst 900000000 4096\nsecond 900000000 4096\n")
    (folder / "layers.json").write_text(json.dumps(LAYERS))
    (folder / "broken.txt").write_text("tiny-chain\nfirst many 4096\n")
    return folder


def weftline(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command line with that folder on Python's path."""
    return subprocess.run(
        [sys.executable, "-c", "from weftline.cli import main; main()", *words],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder)},
        capture_output=True,
        encoding="utf-8",
        check=False,
    )


@pytest.mark.parametrize(("objective", "solver"), [("latency", "shuffle"), ("throughput", "last-device")])
def test_solver_and_importer(installed: Path, objective: str, solver: str) -> None:
    """Tests that a solver of each family plans a file of the new format, and that the plan verifies."""
    words = (
        "chain.txt",
        "--cluster",
        "laptop",
        "--objective",
        objective,
        "--solver",
        solver,
        "-o",
        f"{solver}.json",
        "--json",
    )
    done = weftline(installed, "plan", *words)
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["solver"] == solver
    assert set(plan["placement"]) == {"first", "second"}
    assert weftline(installed, "verify", f"{solver}.json").returncode == 0


def test_solver_of_layers(installed: Path) -> None:
    """Tests that a solver of fleets plans layers on devices with tables, and that the plan verifies."""
    done = weftline(installed, "plan", "layers.json", "--solver", "in-a-row", "--work", "5", "-o", "row.json", "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert (plan["solver"], plan["rate"]) == ("in-a-row", 5.0)
    assert [(one["first"], one["last"]) for one in plan["instances"]] == [(0, 2), (2, 4)]
    assert weftline(installed, "verify", "row.json").returncode == 0


def test_importer_refuses(installed: Path) -> None:
    """Tests that bad content of the new format is one error that names the file."""
    done = weftline(installed, "plan", "broken.txt", "--cluster", "laptop")
    assert done.returncode == 3
    assert done.stderr.startswith("error: broken.txt: a line is not")


def test_architecture(installed: Path) -> None:
    """Tests that the new architecture is listed and built."""
    listed = json.loads(weftline(installed, "zoo", "--json").stdout)
    assert listed["architectures"]["two-layers"]["sizes"] == ["full", "small"]
    done = weftline(installed, "zoo", "build", "two-layers", "--set", "hidden=32", "-o", "two.onnx", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["ops"] == 3
