"""Runs that are ended from outside: workers, their parent or all of them die at some moment, and nothing may stay.

A pipeline of two workers runs by `weftline run` in processes of their own. After a random delay (start-up, warm-up
and the middle of the run alike) the victims get a signal. A row counts how many rounds ended as they should, how long
that took, and what was left: processes, shared memory and semaphores with a name, and folders, after the next run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from benchmarks.planned import Row
from benchmarks.results_file import Collector
from weftline.ask import make_plan
from weftline.cluster.detect import worker_cluster
from weftline.pipeline.prepare import prepare
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.zoo import build, save

__all__ = ["fault_settings", "measure_faults"]

VICTIMS = ("first worker", "last worker", "parent", "worker and parent", "all, Ctrl-C")
SIZES: dict[str, Row] = {
    "tiny": {"rounds": 1, "victims": ["last worker"]},
    "quick": {"rounds": 2, "victims": list(VICTIMS)},
    "full": {"rounds": 10, "victims": list(VICTIMS)},
}
LONGEST = 30.0
"""Seconds after which a round counts as never noticed."""


def fault_settings(size: str) -> Row:
    """Rounds for each kind of victim."""
    return dict(SIZES[size])


def measure_faults(settings: Row, collect: Collector) -> None:
    """One row per kind of victim."""
    prepare()
    with TemporaryDirectory(prefix="weftline-faults-") as folder:
        model, plan = Path(folder) / "model.onnx", Path(folder) / "plan.json"
        save(build("resnet50", size="small"), model)
        graph = read_model(model)
        assert not isinstance(graph, Problem)
        problem = build_problem(graph, worker_cluster((1.0, 1.0)), rules=Rules(objective="throughput"))
        make_plan(problem, time_limit=2.0).save(plan)
        for victims in settings["victims"]:
            print(f"faults: {victims}", file=sys.stderr, flush=True)
            collect.measure({"victims": victims}, partial(_row, victims, settings["rounds"], model, plan, Path(folder)))


def _row(victims: str, rounds: int, model: Path, plan: Path, folder: Path) -> Row:
    random = Random(victims)
    before = _named()
    seconds, said, late, alive = [], 0, 0, 0
    temporary = folder / "temporary"
    temporary.mkdir(exist_ok=True)
    for _ in range(rounds):
        with _running(model, plan, temporary, 10**6) as parent:
            workers = _workers(parent)
            time.sleep(random.uniform(0.0, 1.5))
            begun = time.monotonic()
            _strike(victims, parent, workers)
            over = _wait(parent, workers)
            seconds.append(round(time.monotonic() - begun, 3))
            late += not over
            alive += sum(_alive(worker) for worker in workers)
            assert parent.stderr is not None
            words = parent.stderr.read() if over else ""
            said += _is_clear(victims, parent, words)
    with _running(model, plan, temporary, 1) as last:
        last.wait(timeout=120)
    return {
        "rounds": rounds,
        "longest": max(seconds),
        "middle": sorted(seconds)[rounds // 2],
        "clear": said,
        "late": late,
        "alive": alive,
        "named": len(_named() - before),
        "folders": sum(path.name.startswith("weftline") for path in temporary.iterdir()),
    }


@contextmanager
def _running(model: Path, plan: Path, temporary: Path, requests: int) -> Iterator[subprocess.Popen[str]]:
    words = ["run", str(plan), "--model", str(model), "--requests", str(requests), "--no-baselines"]
    with subprocess.Popen(
        [sys.executable, "-m", "weftline", *words],
        env={**os.environ, "TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as parent:
        try:
            yield parent
        finally:
            parent.kill()


def _workers(parent: subprocess.Popen[str]) -> list[psutil.Process]:
    """The two workers, once both are there."""
    here, deadline = psutil.Process(parent.pid), time.monotonic() + 60
    while time.monotonic() < deadline:
        found = here.children(recursive=True)
        if len(found) >= 2:
            return found
        time.sleep(0.01)
    raise RuntimeError("no workers were started")


def _strike(victims: str, parent: subprocess.Popen[str], workers: list[psutil.Process]) -> None:
    if victims == "all, Ctrl-C":  # what a terminal does
        for process in [*workers, parent]:
            os.kill(process.pid, signal.SIGINT)
        return
    chosen = {
        "first worker": [workers[0].pid],
        "last worker": [workers[-1].pid],
        "parent": [parent.pid],
        "worker and parent": [workers[0].pid, parent.pid],
    }
    for pid in chosen[victims]:
        os.kill(pid, signal.SIGKILL)


def _wait(parent: subprocess.Popen[str], workers: list[psutil.Process]) -> bool:
    deadline = time.monotonic() + LONGEST
    while time.monotonic() < deadline:
        if parent.poll() is not None and not any(_alive(worker) for worker in workers):
            return True
        time.sleep(0.005)
    return False


def _is_clear(victims: str, parent: subprocess.Popen[str], words: str) -> bool:
    """A worker's end is told by name and with its signal; nobody shows a traceback."""
    if "Traceback" in words:
        return False
    if victims.endswith("worker"):
        return parent.returncode not in (0, None) and "SIGKILL" in words and "device" in words
    return parent.returncode != 0


def _alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _named() -> set[str]:
    """Shared memory and semaphores that have a name."""
    return {path.name for path in Path("/dev/shm").iterdir()} if Path("/dev/shm").is_dir() else set()
