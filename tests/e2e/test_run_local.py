"""`weftline run` with the local engine, as a user calls it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest
from tests.run.local_samples import feeds, small_model

CLUSTER = """version = 1
[[device]]
id = "a"
kind = "cpu"
rate = { fp32 = "10 GFLOP/s", bandwidth = "10 GB/s", launch = "1 us", source = "guess" }
runtime = "ort:CPUExecutionProvider"
[[device]]
id = "b"
kind = "cpu"
rate = { fp32 = "10 GFLOP/s", bandwidth = "10 GB/s", launch = "1 us", source = "guess" }
runtime = "ort:CPUExecutionProvider"
speed = 0.5
[[link]]
between = ["a", "b"]
bandwidth = "5 GB/s"
latency = "20 us"
"""


def weftline(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "weftline", *words], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model, a cluster, inputs and a plan."""
    folder = tmp_path_factory.mktemp("run")
    small_model(folder / "small.onnx")
    (folder / "cluster.toml").write_text(CLUSTER)
    np.savez(folder / "x.npz", **cast(Any, feeds(1)[0]))
    words = ("--objective", "throughput", "--solver", "even-split", "--work", "1", "-o", "plan.json")
    made = weftline(folder, "plan", "small.onnx", "--cluster", "cluster.toml", *words)
    assert made.returncode == 0, made.stderr
    return folder


def test_run(folder: Path) -> None:
    """Tests that a plan runs, that JSON has what was measured, and that the devices have the speeds of the cluster."""
    words = ("run", "plan.json", "--model", "small.onnx", "--requests", "10", "--inputs", "x.npz", "--json")
    done = weftline(folder, *words)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["engine"] == "local"
    assert answer["requests"] == 10
    assert {run["device"]: run["speed"] for run in answer["devices"]} == {"a": 1.0, "b": 0.5}
    assert any("replicas" in name for name in answer["baselines"])
    assert answer["max_output_difference"] < 1e-3


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("--tolerance", "0", "--seed", "1", "--no-baselines"), 0, ""),
        (("--engine", "weftline"), 2, "local, torch or openvino"),
        (("--runtime", "a=ort:RocketExecutionProvider:0"), 3, "RocketExecutionProvider"),
        (("--runtime", "a=ort:CPUExecutionProvider:4000"), 3, "core 4000"),
        (("--inputs", "plan.json"), 3, "plan.json"),
        (("--requests", "0"), 2, "requests"),
    ],
)
def test_what_goes_wrong(folder: Path, words: tuple[str, ...], code: int, says: str) -> None:
    """Tests exit codes and what is said."""
    done = weftline(folder, "run", "plan.json", "--model", "small.onnx", "--requests", "2", *words)
    assert (done.returncode in (0, 7)) if code == 0 else (done.returncode == code), done.stderr
    assert says in done.stderr
    assert "Traceback" not in done.stderr


INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # nohup has it ignored
    "from weftline.cli import main; main()"
)


def test_interrupted(folder: Path, tmp_path: Path) -> None:
    """Tests that Ctrl-C ends a run and its workers at once, says so, and leaves no file."""
    words = ("run", "plan.json", "--model", "small.onnx", "--requests", "1000000")
    with subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *words],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        start_new_session=True,
    ) as process:
        workers: list[psutil.Process] = []
        deadline = time.monotonic() + 60
        try:
            while len(workers) < 2 or list(tmp_path.iterdir()):  # the folder goes when the sessions are made
                assert process.poll() is None
                assert time.monotonic() < deadline, list(tmp_path.iterdir())
                time.sleep(0.05)
                workers = psutil.Process(process.pid).children()
            os.killpg(process.pid, signal.SIGINT)
        except BaseException:
            process.kill()
            raise
        try:
            _, err = process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
    assert process.returncode == 130
    assert b"Traceback" not in err
    assert not any(worker.is_running() and worker.status() != psutil.STATUS_ZOMBIE for worker in workers)
    assert not list(tmp_path.iterdir())
