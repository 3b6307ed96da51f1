"""Starts the processes of a real run, watches them, and collects what they report.

In: jobs, or the module of another kind of worker. Out: for every job the reports of its ranks. Processes are started
on this machine and meet through a file in a private folder; under torchrun this process is one of them already.
Nothing outlives the call. Simplified: one machine unless torchrun brings more.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

from weftline.errors import InputError, LimitReached, UsageError, WeftlineError
from weftline.run.train.job import Report, TrainJob
from weftline.worker.child import LastWords
from weftline.worker.parent import Child

__all__ = ["launch", "run_processes", "under_torchrun"]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def launch(jobs: Sequence[TrainJob], *, time_limit: float) -> list[list[Report]]:
    """Run jobs -> job -> rank -> report."""
    if under_torchrun():
        return _join(jobs)
    world = max(job.ranks for job in jobs)
    with TemporaryDirectory(prefix="weftline-run-") as name:
        folder = Path(name)
        (folder / "jobs.json").write_bytes(msgspec.json.encode(list(jobs)))
        answer = run_processes("weftline.run.train.worker", folder, world, time_limit)
        return msgspec.json.decode(answer, type=list[list[Report]])


def run_processes(module: str, folder: Path, world: int, time_limit: float) -> bytes:
    """Run a worker's module (`train.worker.start`) as so many processes -> the answer of rank 0."""
    with ExitStack() as ending:
        # Where it is safe, one process loads torch and forks: loading takes seconds, forking does not.
        shares = [range(world)] if sys.platform == "linux" else [range(r, r + 1) for r in range(world)]
        workers = [ending.enter_context(_start(module, folder, share, world)) for share in shares]
        _wait(workers, folder, time.monotonic() + time_limit)
        return (folder / "answer.json").read_bytes()


def under_torchrun() -> bool:
    """Whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def _join(jobs: Sequence[TrainJob]) -> list[list[Report]]:
    from datetime import timedelta

    import torch.distributed as dist

    from weftline.run.train.train import work

    world, need = int(os.environ["WORLD_SIZE"]), max(job.ranks for job in jobs)
    if world < need:
        raise UsageError(f"the schedule needs {need} processes and torchrun started {world}")
    limit = timedelta(seconds=max(job.time_limit for job in jobs))
    dist.init_process_group("gloo", timeout=limit)
    try:
        return work(jobs, dist.get_rank())
    finally:
        dist.destroy_process_group()


def _start(module: str, folder: Path, ranks: range, world: int) -> Child:
    environment = dict.fromkeys(_THREADS, "1")
    if sys.platform == "linux":
        environment["GLOO_SOCKET_IFNAME"] = os.environ.get("GLOO_SOCKET_IFNAME", "lo")
    words = (str(folder), str(world), ",".join(map(str, ranks)), str(os.getpid()))
    return Child(module, *words, environment=environment, answers=False)


def _wait(workers: Sequence[Child], folder: Path, end: float) -> None:
    """Until all have ended well; the first that fails ends the run."""
    while any(worker.code is None for worker in workers):
        if any(worker.code for worker in workers):
            break
        if time.monotonic() > end:
            raise LimitReached("the time limit was over before the run was done. Try a larger time limit")
        time.sleep(0.02)
    failed = next((worker for worker in workers if worker.code), None)
    if failed is not None:
        # Others fail because one did: give the one with the cause a moment to say it.
        time.sleep(0.2)
        raise _cause(folder, failed)


def _cause(folder: Path, first: Child) -> WeftlineError:
    """The error of our own if there is one, else the first that a process reported."""
    said: list[tuple[int, LastWords]] = []
    for path in sorted(folder.glob("error-*.json")):
        said.append((int(path.stem.split("-")[1]), msgspec.json.decode(path.read_bytes(), type=LastWords)))
    # A process that lost its peer says so; the peer knows why.
    said.sort(key=lambda pair: (not pair[1].ours, "onnect" in pair[1].what, pair[0]))
    if not said:
        tail = "\n".join(first.printed(100))[-2000:]
        return WeftlineError(f"a process of the run ended with code {first.code}:\n{tail}")
    rank, words = said[0]
    if words.ours:
        kinds: dict[str, type[WeftlineError]] = {"InputError": InputError, "UsageError": UsageError}
        return kinds.get(words.kind, WeftlineError)(words.what)
    return WeftlineError(f"process {rank} of the run failed: {words.kind}: {words.what}")
