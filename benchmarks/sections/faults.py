"""Runs that are ended from outside: workers, their parent or all of them die at some moment, and nothing may stay.

In: rounds for each kind of victim. Out: one row per kind. A pipeline of two workers runs by `weftline run` in processes
of their own. After a random delay (start-up, warm-up and the middle of the run alike) the victims get a signal. A row
counts how many rounds ended as they should, how long that took, and what was left: processes, shared memory and
semaphores with a name, and folders, after the next run.
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

from benchmarks.measure import say
from benchmarks.results import Collector, Row
from benchmarks.section import Column, Run, Section, Table, fields, verdict
from weftline.ask import make_plan
from weftline.cluster.detect import worker_cluster
from weftline.pipeline import prepare
from weftline.problem import Problem, Rules, build_problem, read_model
from weftline.zoo import build, save

__all__ = ["SECTION"]

VICTIMS = ("first worker", "last worker", "parent", "worker and parent", "all, Ctrl-C")
SIZES: dict[str, Row] = {
    "tiny": {"rounds": 1, "victims": ["last worker"]},
    "quick": {"rounds": 2, "victims": list(VICTIMS)},
    "full": {"rounds": 10, "victims": list(VICTIMS)},
}
LONGEST = 30.0
"""Seconds after which a round counts as never noticed."""


def measure(settings: Row, collect: Collector) -> None:
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
            say(f"faults: {victims}")
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
        found: list[psutil.Process] = here.children(recursive=True)
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


def _sum(run: Run) -> Iterator[str]:
    rounds, late = (sum(row[name] for row in run.rows) for name in ("rounds", "late"))
    yield f"{rounds} rounds, {late} of them not over after 30 s."


def _screen(run: Run) -> Iterator[str]:
    rounds, clear = (sum(row[name] for row in run.rows) for name in ("rounds", "clear"))
    kinds = ", ".join(f"{row['victims']} {row['longest']:.2f}" for row in run.rows)
    left = {name: sum(row[name] for row in run.rows) for name in ("alive", "named", "folders")}
    yield (
        f"{rounds} rounds, **{clear} ended clearly**. Longest time until all was over, by victim, s: {kinds}. Left "
        f"behind: {left['alive']} processes, {left['named']} names of shared memory, {left['folders']} folders."
    )


def _losses(run: Run) -> Iterator[str]:
    unclear = [f"{row['victims']} {row['rounds'] - row['clear']}" for row in run.rows if row["clear"] < row["rounds"]]
    yield from verdict("Rounds that did not end clearly", unclear)
    left = {name: sum(row[name] for row in run.rows) for name in ("late", "alive", "named", "folders")}
    yield from verdict("Left behind or late", [f"{name} {count}" for name, count in left.items() if count])


TABLE: Table[Row] = Table(
    (
        *fields("victims | rounds | clear"),
        Column("seconds", lambda row: f"{row['middle']:.2f}, {row['longest']:.2f}"),
        *fields("processes left=alive | shared memory left=named | folders left=folders"),
    )
)
SECTION = Section(
    name="faults",
    title="Runs that are ended from outside",
    chapter="real",
    asked="Kill workers, their parent or all at a random moment of a run: does it end soon and clearly, and is nothing "
    "left? {rounds} rounds for each kind of victim.",
    sizes=SIZES,
    measure=measure,
    screen=(_screen,),
    losses=_losses,
    blocks=(
        "A pipeline of two workers, by `weftline run`. After a random delay of at most 1.5 s the victims get `kill -9` "
        "(the last row: Ctrl-C to all). *clear*: rounds whose exit code is not 0, without a traceback and, where a "
        "worker alone was killed, with a message that names its device and the signal. *seconds*: until the command "
        "and all workers were gone, median and longest. Left at the end: processes, shared memory and semaphores with "
        "a name, and folders after the next run.",
        TABLE,
        _sum,
    ),
    limits=(),
    warm=True,
)
