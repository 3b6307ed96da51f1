"""Starts the processes of a real run, watches them, and collects what they report.

In: jobs, or the module of another kind of worker. Out: for every job the reports of its ranks. Processes are started
on this machine and meet through a file in a private folder; under torchrun this process is one of them already.
Nothing outlives the call. Simplified: one machine unless torchrun brings more.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from weftline.errors import InputError, LimitReached, UsageError, WeftlineError
from weftline.run.train.job import Job, Report

__all__ = ["launch", "run_processes", "under_torchrun"]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def launch(jobs: Sequence[Job], *, time_limit: float) -> list[list[Report]]:
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
    """Run a worker's module (`torch_worker.start`) as so many processes -> the answer of rank 0."""
    workers: list[subprocess.Popen[bytes]] = []
    try:
        # Where it is safe, one process loads torch and forks: loading takes seconds, forking does not.
        shares = [range(world)] if sys.platform == "linux" else [range(r, r + 1) for r in range(world)]
        for share in shares:
            workers.append(_start(module, folder, share, world))
        _wait(workers, folder, time.monotonic() + time_limit)
        return (folder / "answer.json").read_bytes()
    finally:
        for worker in workers:
            _end(worker)


def under_torchrun() -> bool:
    """Whether torchrun started this process as one of several."""
    return "TORCHELASTIC_RUN_ID" in os.environ and "RANK" in os.environ


def _join(jobs: Sequence[Job]) -> list[list[Report]]:
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


def _start(module: str, folder: Path, ranks: range, world: int) -> subprocess.Popen[bytes]:
    environment = {**os.environ, **dict.fromkeys(_THREADS, "1")}
    if sys.platform == "linux":
        environment.setdefault("GLOO_SOCKET_IFNAME", "lo")
    command = [sys.executable, "-P", "-m", module, str(folder), str(world)]
    with (folder / f"said-{ranks[0]}.txt").open("wb") as said:
        return subprocess.Popen(
            [*command, ",".join(map(str, ranks)), str(os.getpid())],
            stdin=subprocess.PIPE,
            stdout=said,
            stderr=said,
            env=environment,
        )


def _wait(workers: Sequence[subprocess.Popen[bytes]], folder: Path, end: float) -> None:
    """Until all have ended well; the first that fails ends the run."""
    while any(worker.poll() is None for worker in workers):
        if any(worker.poll() for worker in workers):
            break
        if time.monotonic() > end:
            raise LimitReached("the time limit was over before the run was done. Try a larger time limit")
        time.sleep(0.02)
    failed = [rank for rank, worker in enumerate(workers) if worker.poll()]
    if failed:
        # Others fail because one did: give the one with the cause a moment to say it.
        time.sleep(0.2)
        raise _cause(folder, failed[0], workers[failed[0]].poll())


def _cause(folder: Path, first: int, code: int | None) -> WeftlineError:
    """The error of our own if there is one, else the first that a process reported."""
    said: list[tuple[int, dict[str, Any]]] = []
    for path in sorted(folder.glob("error-*.json")):
        said.append((int(path.stem.split("-")[1]), msgspec.json.decode(path.read_bytes())))
    # A process that lost its peer says so; the peer knows why.
    said.sort(key=lambda pair: (not pair[1]["ours"], "onnect" in pair[1]["what"], pair[0]))
    if not said:
        tail = (folder / f"said-{first}.txt").read_text(errors="replace").strip()[-2000:]
        return WeftlineError(f"a process of the run ended with code {code}:\n{tail}")
    rank, error = said[0]
    if error["ours"]:
        kinds: dict[str, type[WeftlineError]] = {"InputError": InputError, "UsageError": UsageError}
        return kinds.get(error["kind"], WeftlineError)(error["what"])
    return WeftlineError(f"process {rank} of the run failed: {error['kind']}: {error['what']}")


def _end(worker: subprocess.Popen[bytes]) -> None:
    if worker.stdin is not None:
        worker.stdin.close()
    if worker.poll() is None:
        worker.kill()
    worker.wait()
