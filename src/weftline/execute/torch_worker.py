"""What one process of a real run does: join the group, run the jobs, compare with one process, report.

In: a folder with `jobs.json` (or the same jobs under torchrun). Out: `answer.json` there, written by rank 0, or
`error-RANK.json`. A worker dies with its parent: by a signal of the kernel on Linux, and everywhere because its
standard input ends. Simplified: CPU and gloo only.
"""

from __future__ import annotations

import os
import sys
import threading
import traceback
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from statistics import mean
from time import perf_counter
from typing import Any

import msgspec

from weftline.errors import WeftlineError
from weftline.execute.torch_job import Job, Report

__all__ = ["main", "work"]


def work(jobs: Sequence[Job], rank: int) -> list[list[Report]]:
    """Run all jobs in the process group that exists -> job -> rank -> what it saw, the same on every rank."""
    import torch

    torch.set_num_threads(1)
    groups: dict[tuple[int, ...], Any] = {}
    reports = []
    for job in jobs:
        found = _exchange(_run(job, rank, groups))
        reports.append([msgspec.json.decode(text, type=Report) for text in found])
    return reports


def _run(job: Job, rank: int, groups: dict[tuple[int, ...], Any]) -> bytes:
    """One job on this rank; ranks beyond those of the job only make groups with the others."""
    import torch.distributed as dist

    everyone = tuple(range(job.ranks))
    for ranks in sorted({everyone, *(w.ranks for w in job.blocks if len(w.ranks) > 1)}):
        if ranks not in groups:
            groups[ranks] = dist.new_group(list(ranks))
    if rank >= job.ranks:
        return msgspec.json.encode(Report((), (), {}, 0.0, 0.0, 0.0, 0.0))
    trace = _Trace(job, rank, groups[everyone])
    for seed in job.seeds:
        trace.train(seed, groups)
    link = _link_seconds(groups[everyone], rank) if job.ranks > 1 else 0.0
    return msgspec.json.encode(trace.report(link))


class _Trace:
    """Runs the seeds of a job and collects what is reported."""

    def __init__(self, job: Job, rank: int, group: Any) -> None:
        from weftline.execute.torch_model import load_model

        self.job, self.rank, self.group = job, rank, group
        self.make = load_model(job.model)
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.blocks: dict[int, list[float]] = {}
        self.gradient = self.output = self.loss = 0.0

    def train(self, seed: int, groups: dict[tuple[int, ...], Any]) -> None:
        """All steps of one seed, beside the same in one process on rank 0."""
        import torch.distributed as dist

        from weftline.execute.torch_compare import compare_weights
        from weftline.execute.torch_reference import Reference, update

        job, rank = self.job, self.rank
        engine = self._engine(seed, groups)
        whole = Reference(job, self.make(job.layout, seed), seed) if job.check and rank == 0 else None
        if job.check and compare_weights(job, self.group, rank, engine.modules, whole) > 0:
            raise WeftlineError("the model does not give the same weights in every process for the same seed")
        for step in range(job.steps):
            dist.barrier(group=self.group)
            start = perf_counter()
            loss = engine.step(step)
            dist.barrier(group=self.group)
            self.seconds.append(perf_counter() - start)
            if job.check:
                self._check(engine, whole, step, loss)
            if loss is not None:
                self.losses.append(loss)
            update(list(engine.modules.values()), job.rate)
            if whole is not None:
                update(whole.modules, job.rate)
        # First steps warm up; without later ones, the first seed does.
        skipped = job.layout.micro_batches if job.steps > 1 else 0
        if skipped or seed != job.seeds[0] or len(job.seeds) == 1:
            for block, times in engine.block_seconds.items():
                self.blocks.setdefault(block, []).extend(times[skipped:])

    def _engine(self, seed: int, groups: dict[tuple[int, ...], Any]) -> Any:
        model = self.make(self.job.layout, seed)
        if self.job.engine == "torch":
            from weftline.execute.torch_pipeline import Pipeline

            return Pipeline(self.job, self.rank, model, seed, self.group)
        from weftline.execute.torch_actions import Interpreter

        return Interpreter(self.job, self.rank, model, seed, groups)

    def _check(self, engine: Any, whole: Any, step: int, loss: float | None) -> None:
        from weftline.execute.torch_compare import compare_gradients, compare_losses, compare_outputs

        job, group, rank = self.job, self.group, self.rank
        expected = whole.step(step) if whole is not None else 0.0
        if any(job.layout.trained):
            self.gradient = max(self.gradient, compare_gradients(job, group, rank, engine.modules, whole))
        if job.engine == "weftline":
            self.output = max(self.output, compare_outputs(job, group, rank, engine.outputs, whole))
        self.loss = max(self.loss, compare_losses(group, loss, expected))

    def report(self, link: float) -> Report:
        """What goes to the parent."""
        times = {block: mean(found) for block, found in self.blocks.items() if found}
        return Report(tuple(self.seconds), tuple(self.losses), times, link, self.gradient, self.output, self.loss)


def _link_seconds(group: Any, rank: int) -> float:
    """One way of 64 KiB between ranks 0 and 1: half of a round, the mean of 10."""
    import torch
    import torch.distributed as dist

    message = torch.zeros(2**14)
    dist.barrier(group=group)
    start = perf_counter()
    for _ in range(10 if rank < 2 else 0):
        if rank == 0:
            dist.send(message, 1, group=group)
            dist.recv(message, 1, group=group)
        else:
            dist.recv(message, 0, group=group)
            dist.send(message, 0, group=group)
    return (perf_counter() - start) / 20


def _exchange(text: bytes) -> list[bytes]:
    """Everyone's bytes on every rank, without pickles."""
    import torch
    import torch.distributed as dist

    world = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(text)]))
    longest = max(int(size) for size in sizes)
    mine = torch.zeros(longest, dtype=torch.uint8)
    mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(world)]
    dist.all_gather(found, mine)
    return [bytes(row[: int(size)].tolist()) for row, size in zip(found, sizes, strict=True)]


def main(folder: Path, world: int, ranks: Sequence[int], parent: int) -> int:
    """A spawned process: one rank, or all of them as forks of a process that has loaded torch but started no thread."""
    _die_with(parent)
    if len(ranks) == 1:
        _watch_parent()
        return _member(folder, world, ranks[0])
    jobs = msgspec.json.decode((folder / "jobs.json").read_bytes(), type=list[Job])
    import torch.distributed

    if any(job.engine == "torch" for job in jobs):
        import torch.distributed.pipelining  # noqa: F401
    here, children = os.getpid(), []
    for rank in ranks:
        child = os.fork()
        if child == 0:
            _die_with(here)
            _watch_parent()
            code = _member(folder, world, rank)
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    return _first_failure(children)


def _first_failure(children: list[int]) -> int:
    """0 when all have ended well; when one fails, the others are ended too."""
    import signal

    while children:
        child, status = os.wait()
        children.remove(child)
        if status:
            # The others may have an error of their own to write down.
            threading.Event().wait(0.2)
            for other in children:
                with suppress(OSError):
                    os.kill(other, signal.SIGKILL)
            return 1
    return 0


def _member(folder: Path, world: int, rank: int) -> int:
    """One rank of the process group -> exit code."""
    try:
        jobs = msgspec.json.decode((folder / "jobs.json").read_bytes(), type=list[Job])
        import torch.distributed as dist

        limit = timedelta(seconds=max(job.time_limit for job in jobs))
        store = dist.FileStore(str(folder / "store"), world)
        dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=limit)
        reports = work(jobs, rank)
        if rank == 0:
            _write(folder / "answer.json", msgspec.json.encode(reports))
        dist.barrier()
        dist.destroy_process_group()
    except Exception as error:
        said = {"kind": type(error).__name__, "what": str(error)[:4000], "ours": isinstance(error, WeftlineError)}
        _write(folder / f"error-{rank}.json", msgspec.json.encode(said))
        traceback.print_exc()
        return 1
    return 0


def _write(path: Path, data: bytes) -> None:
    temporary = path.with_suffix(".tmp")
    temporary.write_bytes(data)
    temporary.replace(path)


def _die_with(parent: int) -> None:
    """On Linux the kernel ends this process when its parent is gone."""
    if sys.platform == "linux":
        import ctypes
        import signal

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
        if os.getppid() != parent:
            os._exit(1)


def _watch_parent() -> None:
    """The starter holds the other end of standard input and writes nothing: reading ends when it is gone."""

    def watch() -> None:
        with suppress(OSError):
            while os.read(0, 4096):
                pass
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), [int(r) for r in sys.argv[3].split(",")], int(sys.argv[4])))
