"""OpenVINO from end to end: a saved IR is planned, exported and run by HETERO on two devices of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.e2e.test_command_line import run
from tests.execute.openvino_samples import model_files

HERE = ("--runtime", "cpu=openvino:CPU", "--runtime", "gpu=openvino:CPU2", "--runtime", "igpu=openvino:CPU3")


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with resnet50.xml and plan.json, whose plan uses two devices."""
    folder = tmp_path_factory.mktemp("openvino")
    model_files("resnet50", folder)
    words = ("--cluster", "laptop", "--runtime", "sequential", "--solver", "even-split", "-o", "plan.json")
    run("plan", "resnet50.xml", *words, cwd=folder)
    return folder


def test_a_plan_runs(planned: Path) -> None:
    """Tests that outputs equal the unsplit model, and that both times are said."""
    words = ("--model", "resnet50.xml", *HERE, "--rounds", "3", "--json")
    done = json.loads(run("run", "plan.json", *words, cwd=planned).stdout)
    assert done["engine"] == "openvino"
    assert len(done["devices"]) > 1
    assert done["max_output_difference"] <= 1e-3
    assert min(done["measured_seconds"], done["predicted_seconds"]) > 0


def test_a_plan_is_exported(planned: Path) -> None:
    """Tests that every op of the plan has its device's name in the affinities."""
    run("export", "plan.json", "--to", "openvino", "--model", "resnet50.xml", *HERE, "-o", "out", cwd=planned)
    affinity = json.loads((planned / "out" / "affinity.json").read_text())
    placement = json.loads((planned / "plan.json").read_text())["placement"]
    names = {"cpu": "CPU", "gpu": "CPU2", "igpu": "CPU3"}
    assert all(affinity[op] == names[device] for op, device in placement.items())
    assert (planned / "out" / "load_affinity.py").is_file()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "plan.json", "--model", "resnet50.xml"), 3, "--runtime"),
        (("run", "plan.json", "--model", "resnet50.xml", "--engine", "torch"), 2, "engine openvino"),
        (("run", "plan.json", "--model", "none.xml", *HERE), 3, "none.xml"),
        (("export", "plan.json", "--to", "torch-csv", "-o", "out"), 2, "not for a plan"),
        (("export", "plan.json", "--to", "nowhere", "-o", "out"), 2, "unknown target"),
        (("export", "plan.json", "--to", "openvino", "--runtime", "ghost=openvino:CPU", "-o", "out"), 2, "ghost"),
        (("run", "plan.json", "--model", "resnet50.xml", "--runtime", "cpu"), 2, "gpu0=openvino:GPU.1"),
    ],
)
def test_mistakes_are_said_in_one_line(planned: Path, words: tuple[str, ...], code: int, says: str) -> None:
    """Tests exit codes and sentences."""
    failed = run(*words, cwd=planned, code=code)
    assert says in failed.stderr
    assert "Traceback" not in failed.stderr
