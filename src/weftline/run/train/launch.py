"""The processes of a real run: started, watched, ended; and what each of them does with its `Task`.

In: jobs, or the module of another kind of worker. Out: for every job the reports of its ranks. Processes are started
on this machine and meet through a file in a private folder; under torchrun this process is one of them already. There
they find `jobs.json`; rank 0 writes `answer.json`, a rank that fails `error-RANK.json`. Nothing outlives the call: a
process dies with its parent, by a signal of the kernel on Linux, and everywhere because its standard input ends.
Simplified: one machine unless torchrun brings more; CPU and gloo only.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from weftline.errors import InputError, LimitReached, UsageError, WeftlineError
from weftline.files import run_folder
from weftline.run.train.model import Report, TrainJob
from weftline.worker.child import LastWords, die_with, end_with_input
from weftline.worker.parent import Child

__all__ = ["Task", "launch", "main", "run_processes", "start", "under_torchrun"]

_THREADS = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")
_INTERFACES = ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME")
_LOOPBACK = {"linux": "lo", "darwin": "lo0"}
"""Where processes of one machine listen, unless the user names another interface."""


def launch(jobs: Sequence[TrainJob], *, time_limit: float) -> list[list[Report]]:
    """Run jobs -> job -> rank -> report."""
    if under_torchrun():
        return _join(jobs)
    world = max(job.ranks for job in jobs)
    with run_folder() as folder:
        (folder / "jobs.json").write_bytes(msgspec.json.encode(list(jobs)))
        answer = run_processes("weftline.run.train.launch", folder, world, time_limit)
        return msgspec.json.decode(answer, type=list[list[Report]])


def run_processes(module: str, folder: Path, world: int, time_limit: float) -> bytes:
    """Run a worker's module (one that calls `start`) as so many processes -> the answer of rank 0."""
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
    if sys.platform in _LOOPBACK:
        environment |= {name: os.environ.get(name) or _LOOPBACK[sys.platform] for name in _INTERFACES}
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
        code, tail = first.code or 0, "\n".join(first.printed(100))[-2000:]
        how = f"was ended by {_signal(-code)}" if code < 0 else f"ended with code {code}"
        return WeftlineError(f"a process of the run {how}" + (f":\n{tail}" if tail else ", and the others with it"))
    rank, words = said[0]
    if words.ours:
        kinds: dict[str, type[WeftlineError]] = {"InputError": InputError, "UsageError": UsageError}
        return kinds.get(words.kind, WeftlineError)(words.what)
    return WeftlineError(f"process {rank} of the run failed: {words.kind}: {words.what}")


def _signal(number: int) -> str:
    """`signal 9 (SIGKILL)`."""
    with suppress(ValueError):
        return f"signal {number} ({signal.Signals(number).name})"
    return f"signal {number}"


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
    while children:
        child, status = os.wait()
        rank = children.pop(child)
        if status:
            if os.WIFSIGNALED(status):
                _write_error(folder, rank, WeftlineError(f"process {rank} was ended by {_signal(os.WTERMSIG(status))}"))
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
