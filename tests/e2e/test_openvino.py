"""OpenVINO from end to end: a saved IR is planned, exported and run by HETERO on two devices of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from tests.e2e.test_command_line import run
from tests.run.openvino_samples import model_files

HERE = ("--runtime", "cpu=openvino:CPU", "--runtime", "gpu=openvino:CPU2", "--runtime", "igpu=openvino:CPU3")

PLAN = ("plan", "resnet50.xml", "--cluster", "laptop", "--solver", "policy")


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


def test_a_measured_plan(planned: Path) -> None:
    """Tests that candidates run for real, that the answer says what was measured, and that the plan holds and runs."""
    words = (*PLAN, "--reward", "measured", "--measurements", "5", *HERE, "-o", "measured.json")
    said = run(*words, cwd=planned).stdout
    assert "Measured on openvino: 5 placements" in said
    assert "the simulator's" in said
    plan = json.loads((planned / "measured.json").read_text())
    assert plan["measured"]["count"] == 5
    assert plan["measured"]["reference"] == "cpu"
    assert plan["problem"]["rules"]["runtime"] == "sequential"
    run("verify", "measured.json", cwd=planned)
    run("run", "measured.json", "--model", "resnet50.xml", *HERE, "--rounds", "1", cwd=planned)


def test_interrupting_a_measured_plan(planned: Path) -> None:
    """Tests that Ctrl-C keeps the best measured so far, and that no process is left."""
    words = (*PLAN, "--reward", "measured", "--measurements", "100000", *HERE, "--json")
    code = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "  # nohup has it ignored
    process = subprocess.Popen(
        [sys.executable, "-c", f"{code}from weftline.cli import main; main()", *words],
        cwd=planned, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    mine = psutil.Process(process.pid)
    while not mine.children() and process.poll() is None:
        time.sleep(0.05)
    workers = mine.children()
    with suppress(psutil.NoSuchProcess):
        while workers[0].cpu_times().user < 3:  # the model is loaded, and something was measured
            time.sleep(0.05)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert "Traceback" not in err
    assert process.returncode in (0, 130)
    if process.returncode == 0:
        assert json.loads(out)["stopped_by"] == "interrupted"
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("run", "plan.json", "--model", "resnet50.xml"), 3, "--runtime"),
        (("run", "plan.json", "--model", "resnet50.xml", "--engine", "weftline"), 2, "local, torch or openvino"),
        (("run", "plan.json", "--model", "none.xml", *HERE), 3, "none.xml"),
        (("export", "plan.json", "--to", "torch-csv", "-o", "out"), 2, "not for a plan"),
        (("export", "plan.json", "--to", "nowhere", "-o", "out"), 2, "unknown target"),
        (("export", "plan.json", "--to", "openvino", "--runtime", "ghost=openvino:CPU", "-o", "out"), 2, "ghost"),
        (("run", "plan.json", "--model", "resnet50.xml", "--runtime", "cpu"), 2, "gpu0=openvino:GPU.1"),
        (("run", "plan.json", "--model", "resnet50.onnx", *HERE), 3, "not the model that the plan was made for"),
        (
            ("export", "plan.json", "--to", "openvino", "--model", "resnet50.onnx", *HERE, "-o", "out"),
            3,
            "not the model that the plan was made for",
        ),
        ((*PLAN, "--measurements", "5"), 2, "are for --reward measured"),
        ((*PLAN, *HERE), 2, "are for --reward measured"),
        ((*PLAN, "--runtime", "both"), 2, "neither parallel, sequential"),
        ((*PLAN, "--reward", "measured", *HERE[:4]), 3, "device 'igpu' cannot be run by OpenVINO"),
        ((*PLAN, "--reward", "measured", *HERE, "--gap", "1%"), 2, "a gap and a work limit"),
        ((*PLAN, "--reward", "measured", *HERE, "--objective", "throughput"), 2, "are for the objective latency"),
        (("plan", "plan.json", "--cluster", "laptop", "--reward", "measured", *HERE), 3, "this is a weftline plan"),
    ],
)
def test_mistakes_are_said_in_one_line(planned: Path, words: tuple[str, ...], code: int, says: str) -> None:
    """Tests exit codes and sentences."""
    failed = run(*words, cwd=planned, code=code)
    assert says in failed.stderr
    assert "Traceback" not in failed.stderr
