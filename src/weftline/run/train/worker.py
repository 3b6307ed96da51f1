"""A process of a real run: joins the group, works, writes down the answer or the error, and ends with its parent.

In: a folder with `jobs.json`, for another kind of work a `Task`. Out: `answer.json` there, written by rank 0, or
`error-RANK.json`. A worker dies with its parent: by a signal of the kernel on Linux, and everywhere because its
standard input ends. Simplified: CPU and gloo only.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from weftline.errors import WeftlineError
from weftline.run.train.job import TrainJob
from weftline.worker.child import LastWords, die_with, end_with_input

__all__ = ["Task", "main", "start"]


@dataclass(frozen=True)
class Task:
    """What processes do."""

    load: Callable[[Path], None]
    """Imports what all of them need; starts no thread."""
    work: Callable[[Path, Any, int, int], bytes]
    """(folder, store, rank, world) -> the answer; that of rank 0 counts."""


def main(folder: Path, world: int, ranks: Sequence[int], parent: int, task: Task) -> int:
    """A spawned process: one rank, or all of them as forks of a process that has loaded torch but started no thread."""
    die_with(parent)
    if len(ranks) == 1:
        end_with_input()
        return _member(folder, world, ranks[0], task)
    task.load(folder)
    here, children = os.getpid(), {}
    for rank in ranks:
        child = os.fork()
        if child == 0:
            die_with(here)
            end_with_input()
            code = _member(folder, world, rank, task)
            sys.stderr.flush()
            os._exit(code)
        children[child] = rank
    return _first_failure(folder, children)


def start(task: Task) -> int:
    """`main` with what the command line says."""
    folder, world, ranks, parent = sys.argv[1:5]
    return main(Path(folder), int(world), [int(rank) for rank in ranks.split(",")], int(parent), task)


def _first_failure(folder: Path, children: dict[int, int]) -> int:
    """0 when all have ended well; when one fails, the others are ended too."""
    import signal

    while children:
        child, status = os.wait()
        rank = children.pop(child)
        if status:
            if os.WIFSIGNALED(status):
                _write_error(folder, rank, WeftlineError(f"process {rank} was ended by signal {os.WTERMSIG(status)}"))
            # The others may have an error of their own to write down.
            threading.Event().wait(0.2)
            for other in children:
                with suppress(OSError):
                    os.kill(other, signal.SIGKILL)
                    os.waitpid(other, 0)
            return 1
    return 0


def _member(folder: Path, world: int, rank: int, task: Task) -> int:
    """One rank of the process group -> exit code."""
    try:
        import torch.distributed as dist

        answer = task.work(folder, dist.FileStore(str(folder / "store"), world), rank, world)
        if rank == 0:
            _write(folder / "answer.json", answer)
    except Exception as error:
        _write_error(folder, rank, error)
        traceback.print_exc()
        return 1
    return 0


def _load(folder: Path) -> None:
    import torch.distributed

    if any(job.engine == "torch" for job in _jobs(folder)):
        import torch.distributed.pipelining  # noqa: F401


def _train(folder: Path, store: Any, rank: int, world: int) -> bytes:
    """Run the schedules of a folder."""
    import torch.distributed as dist

    from weftline.run.train.train import work

    jobs = _jobs(folder)
    limit = timedelta(seconds=max(job.time_limit for job in jobs))
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
    reports = work(jobs, rank)
    dist.barrier()
    dist.destroy_process_group()
    return msgspec.json.encode(reports)


def _jobs(folder: Path) -> list[TrainJob]:
    return msgspec.json.decode((folder / "jobs.json").read_bytes(), type=list[TrainJob])


def _write_error(folder: Path, rank: int, error: Exception) -> None:
    _write(folder / f"error-{rank}.json", msgspec.json.encode(LastWords.of(error)))


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


if __name__ == "__main__":
    sys.exit(start(Task(_load, _train)))
