"""What one rank does in a process group that exists: run jobs, train, compare with one process, measure.

In: jobs and this rank's number. Out: the reports of all ranks, the same on every rank. Simplified: CPU only, one
thread; the optimizer is plain gradient descent.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import mean
from time import perf_counter
from typing import Any

import msgspec

from weftline.errors import WeftlineError
from weftline.run.train.job import Report, TrainJob

__all__ = ["work"]


def work(jobs: Sequence[TrainJob], rank: int) -> list[list[Report]]:
    """Run all jobs in the process group that exists -> job -> rank -> what it saw, the same on every rank."""
    import torch

    torch.set_num_threads(1)
    groups: dict[tuple[int, ...], Any] = {}
    reports = []
    for job in jobs:
        found = _exchange(_run(job, rank, groups))
        reports.append([msgspec.json.decode(text, type=Report) for text in found])
    return reports


def _run(job: TrainJob, rank: int, groups: dict[tuple[int, ...], Any]) -> bytes:
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

    def __init__(self, job: TrainJob, rank: int, group: Any) -> None:
        from weftline.run.train.model import load_model

        self.job, self.rank, self.group = job, rank, group
        self.make = load_model(job.model)
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.blocks: dict[int, list[float]] = {}
        self.gradient = self.output = self.loss = 0.0

    def train(self, seed: int, groups: dict[tuple[int, ...], Any]) -> None:
        """All steps of one seed, beside the same in one process on rank 0."""
        import torch.distributed as dist

        from weftline.run.train.reference import Reference, compare_weights, update

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
            from weftline.run.train.pipeline import TorchPipeline

            return TorchPipeline(self.job, self.rank, model, seed, self.group)
        from weftline.run.train.actions import Interpreter

        return Interpreter(self.job, self.rank, model, seed, groups)

    def _check(self, engine: Any, whole: Any, step: int, loss: float | None) -> None:
        from weftline.run.train.reference import compare_gradients, compare_losses, compare_outputs

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
