"""The process of one task: progress, answers, errors as sentences, and that it ends in every way."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from tests.ui.serving import until

from weftline.cluster import preset_text
from weftline.ui.task import CheckTask, ModelFile, PlanTask, Said, Task
from weftline.zoo import build, save

PLAN: dict[str, Any] = {
    "cluster": preset_text("four-unequal"),
    "cluster_name": "four-unequal",
    "objective": "throughput",
    "stages": None,
    "solver": "auto",
    "seconds": 60.0,
    "gap": None,
    "seed": 0,
    "shapes": (),
    "argv": ("plan", "mine.onnx"),
}


def start(task: Task, seconds: float = 100.0) -> subprocess.Popen[bytes]:
    data = msgspec.json.encode(task)
    process = subprocess.Popen(
        [sys.executable, "-m", "weftline.ui.worker", str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert process.stdin is not None
    process.stdin.write(b"%010d" % len(data) + data)
    process.stdin.flush()
    return process


def lines(process: subprocess.Popen[bytes]) -> Any:
    assert process.stdout is not None
    for line in process.stdout:
        yield msgspec.json.decode(line, type=Said)


def finish(process: subprocess.Popen[bytes]) -> list[Said]:
    found = list(lines(process))
    process.wait(60)
    close(process)
    return found


def close(process: subprocess.Popen[bytes]) -> None:
    for stream in (process.stdin, process.stdout):
        if stream is not None:
            stream.close()


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("model") / "secret-place.onnx"
    save(build("bert", size="small"), path)
    return path


def test_stop_keeps_the_best_plan(model: Path, tmp_path: Path) -> None:
    """Tests that a search tells its progress, and answers with its best plan when it is stopped."""
    output = tmp_path / "plan.json"
    process = start(PlanTask(model=ModelFile(str(model), "mine.onnx"), output=str(output), **PLAN))
    said = lines(process)
    first = next(line for line in said if any(value is not None for _, value, _ in line.rows))
    assert process.stdin is not None
    process.stdin.write(b"stop\n")
    process.stdin.flush()
    last = [first, *said][-1]
    assert not last.error
    assert last.answer is not None
    assert last.answer["stopped_by"] == "interrupted"
    assert last.answer["value_ns"] > last.answer["bound_ns"] > 0
    assert output.is_file()
    process.wait(60)
    close(process)


def test_errors_are_sentences_with_labels(model: Path, tmp_path: Path) -> None:
    """Tests that an error names the user's file and not where the server keeps it."""
    broken = tmp_path / "hidden-place"
    broken.write_bytes(b"certainly no model")
    task = PlanTask(model=ModelFile(str(broken), "mine.onnx"), output=str(tmp_path / "plan.json"), **PLAN)
    said = finish(start(task))[-1]
    assert said.kind == "InputError"
    assert said.error.startswith("mine.onnx: the format is not known")
    assert "hidden-place" not in said.error


def test_a_cluster_is_checked() -> None:
    """Tests the answers for a good and for a bad cluster."""
    (good,) = finish(start(CheckTask(preset_text("laptop"))))
    assert good.answer is not None
    assert good.answer["devices"] == [["cpu", "cpu"], ["igpu", "gpu"], ["gpu", "gpu"]]
    (bad,) = finish(start(CheckTask("version = 1\n[[device]]\nid = 3\n")))
    assert bad.answer == {"error": "device[0].id: is a number, not text in quotes"}


@pytest.mark.parametrize("how", ["input ends", "watcher is killed", "deadline"])
def test_nothing_outlives_its_server(model: Path, tmp_path: Path, how: str) -> None:
    """Tests that a working process ends with its input, with its watcher, and after its deadline."""
    task = PlanTask(model=ModelFile(str(model), "mine.onnx"), output=str(tmp_path / "plan.json"), **PLAN)
    process = start(task, seconds=0.5 if how == "deadline" else 100.0)
    until(lambda: len(psutil.Process(process.pid).children()) > 0)
    everyone = [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]
    if how == "input ends":
        assert process.stdin is not None
        process.stdin.close()
    elif how == "watcher is killed":
        os.kill(process.pid, signal.SIGKILL)
    process.wait(60)
    until(lambda: not any(other.is_running() for other in everyone))
    close(process)
