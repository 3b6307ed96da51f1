"""Workers that are killed in the middle of a real run: one error in time, no process left, no temporary folder left."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from tests.run.openvino_samples import RUNTIMES, model_files, split_plan
from tests.run.test_plan_torch import cluster

import weftline
import weftline as wl
from weftline import zoo
from weftline.plans.plan import save_plan

SOURCE, HERE = Path(weftline.__file__).parents[1], Path(__file__).parents[2]
PATIENCE = 120.0
"""Seconds; nothing here takes so long unless something is broken."""


def _run(tmp_path: Path, *words: str) -> subprocess.Popen[str]:
    """A verb whose temporary files lie in a folder of their own."""
    (tmp_path / "temporary").mkdir()
    (tmp_path / "pids").mkdir()
    own = {"TMPDIR": str(tmp_path / "temporary"), "WEFTLINE_TEST_PIDS": str(tmp_path / "pids")}
    environment = {**os.environ, **own, "PYTHONPATH": f"{SOURCE}:{HERE}"}
    command = [sys.executable, *words]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment, cwd=tmp_path)


def _below(parent: subprocess.Popen[str], ready: Callable[[list[psutil.Process]], bool]) -> list[psutil.Process]:
    """All processes that it has started, once they are as wanted; each after the one that started it."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and parent.poll() is None:
        found: list[psutil.Process] = psutil.Process(parent.pid).children(recursive=True)
        if ready(found):
            return found
        time.sleep(0.05)
    parent.kill()
    raise AssertionError(f"the processes did not start: {parent.communicate()[1]}")


def _busy(process: psutil.Process, seconds: float) -> bool:
    """Has it computed so long?"""
    try:
        return bool(sum(process.cpu_times()[:2]) > seconds)
    except psutil.NoSuchProcess:
        return False


def _one_error(process: subprocess.Popen[str], found: list[psutil.Process], tmp_path: Path) -> str:
    """What it says when it ends, after which nothing is left."""
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 1, errors
    assert "Traceback" not in errors
    assert sum(line.startswith("error: ") for line in errors.splitlines()) == 1, errors
    assert not [child for child in found if child.is_running() and child.status() != psutil.STATUS_ZOMBIE]
    assert list((tmp_path / "temporary").glob("*weftline*")) == []
    return " ".join(errors.split())


@pytest.mark.parametrize("victim", ["starter", "first", "last"])
def test_a_plan_over_torch(victim: str, tmp_path: Path) -> None:
    """Tests the process that loads torch and forks, and either rank."""
    model, path = tmp_path / "m.onnx", tmp_path / "plan.json"
    zoo.save(zoo.build("resnet50", size="small"), model)
    graph = wl.load(model)
    save_plan(wl.plan(graph, cluster(2), objective="throughput", solver="even-split", work_limit=50, copies=1), path)
    words = ("-m", "weftline", "run", str(path), "--model", str(model), "--engine", "torch")
    with _run(tmp_path, *words, "--requests", "1000000", "--timeout", "20") as process:
        found = _below(process, lambda all_: len(all_) == 3 and all(_busy(rank, 0.3) for rank in all_[1:]))
        found[{"starter": 0, "first": 1, "last": 2}[victim]].send_signal(signal.SIGKILL)
        said = _one_error(process, found, tmp_path)
    assert "SIGKILL" in said or "that process is gone" in said


SCHEDULE = """
import sys
from tests.run.test_torch_run import MODEL, timetable
from weftline import WeftlineError
from weftline.run import run_schedule
from weftline.schedule.make_blocks import make_shape
try:
    run_schedule(timetable(make_shape("vshape", 2), 2), model=f"{MODEL}:never_ends", steps=1)
except WeftlineError as error:
    print(f"error: {error}", file=sys.stderr)
    sys.exit(1)
"""


@pytest.mark.parametrize("victim", ["starter", "last"])
def test_a_schedule(victim: str, tmp_path: Path) -> None:
    """Tests the same for a schedule, whose ranks are in the middle of a step."""
    with _run(tmp_path, "-c", SCHEDULE) as process:
        found = _below(process, lambda all_: len(all_) == 3 and len(list((tmp_path / "pids").iterdir())) == 2)
        found[0 if victim == "starter" else 2].send_signal(signal.SIGKILL)
        said = _one_error(process, found, tmp_path)
    assert "SIGKILL" in said


def test_a_plan_on_openvino(tmp_path: Path) -> None:
    """Tests the process that runs OpenVINO, in the middle of its rounds, with inputs in a temporary folder."""
    xml, _ = model_files("resnet50", tmp_path)
    plan = split_plan(xml)
    save_plan(plan, tmp_path / "plan.json")
    inputs: dict[str, Any] = {
        t.name: np.ones(t.shape, t.dtype) for t in plan.load_problem().graph.tensors if t.producer < 0
    }
    np.savez(tmp_path / "x.npz", **inputs)
    words = ["-m", "weftline", "run", "plan.json", "--model", str(xml), "--inputs", "x.npz", "--rounds", "10000"]
    words += [word for id, runtime in RUNTIMES.items() for word in ("--runtime", f"{id}={runtime}")]
    with _run(tmp_path, *words) as process:
        found = _below(process, lambda all_: len(all_) == 1 and _busy(all_[0], 2.0))
        found[0].send_signal(signal.SIGKILL)
        said = _one_error(process, found, tmp_path)
    assert "crashed (signal 9)" in said


def test_a_profile_by_openvino(tmp_path: Path) -> None:
    """Tests the process that measures."""
    xml, _ = model_files("resnet50", tmp_path)
    words = ["-m", "weftline", "profile", str(xml), "--cluster", "laptop", "--repeats", "100000", "--no-cache"]
    words += [word for id, runtime in RUNTIMES.items() for word in ("--runtime", f"{id}={runtime}")]
    with _run(tmp_path, *words, "-o", "costs.json") as process:
        found = _below(process, lambda all_: len(all_) == 1 and _busy(all_[0], 2.0))
        found[0].send_signal(signal.SIGKILL)
        said = _one_error(process, found, tmp_path)
    assert "crashed (signal 9)" in said
    assert not (tmp_path / "costs.json").exists()
