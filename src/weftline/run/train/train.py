"""What one rank does in a process group that exists: run jobs, train, compare with one process, measure.

In: jobs and this rank's number; the user's model. Out: the reports of all ranks, the same on every rank. `Reference`
trains the same in one process, without any schedule: gradients, outputs and losses of the whole model, micro-batch by
micro-batch. Rank 0 takes the largest absolute difference; each rank sends its tensors there, in the order of stages.
Simplified: CPU only, one thread; plain gradient descent; the whole model must fit in the memory of one process; a shard
of a parameter is an equal slice along one dimension.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import mean
from time import perf_counter
from typing import Any

import msgspec
import torch
import torch.distributed as dist

from weftline.errors import InputError, WeftlineError
from weftline.run.train.model import Report, Shard, StageModel, TrainJob, load_model

__all__ = [
    "Reference",
    "build_stage",
    "compare_gradients",
    "compare_losses",
    "compare_outputs",
    "compare_weights",
    "forward_ranks",
    "micro_batches",
    "update",
    "work",
]


def build_stage(job: TrainJob, model: StageModel, seed: int, stage: int, shard: Shard) -> Any:
    """A stage's module, with weights that depend on the seed and the stage alone; frozen if it has no backward."""
    with torch.random.fork_rng(devices=[]):
        # Not torch.manual_seed, which notes down the call for every kind of device there might be.
        torch.random.default_generator.manual_seed(1_000_003 * seed + stage)
        module = model.stage(stage, shard)
    if not job.layout.trained[stage]:
        module.requires_grad_(False)
    return module


def micro_batches(batch: torch.Tensor, count: int, what: str) -> list[torch.Tensor]:
    """Equal parts of a batch."""
    if batch.shape[0] % count:
        raise InputError(f"{what} has {batch.shape[0]} rows, which {count} micro-batches cannot share equally")
    return list(batch.chunk(count))


def update(modules: Sequence[Any], rate: float) -> None:
    """A step of plain gradient descent."""
    with torch.no_grad():
        for module in modules:
            for parameter in module.parameters():
                if parameter.grad is not None:
                    parameter.sub_(rate * parameter.grad)
                    parameter.grad = None


class Reference:
    """The whole model in this process."""

    def __init__(self, job: TrainJob, model: StageModel, seed: int) -> None:
        self.job, self.model = job, model
        self.modules = [build_stage(job, model, seed, stage, Shard()) for stage in range(job.layout.stages)]
        self.outputs: dict[int, list[torch.Tensor]] = {}

    def step(self, number: int) -> float:
        """Accumulate gradients over all micro-batches -> the loss."""
        layout = self.job.layout
        count = layout.micro_batches
        data = {s: micro_batches(self.model.data(s, number), count, "the data") for s in layout.sources}
        targets = {s: micro_batches(self.model.target(s, number), count, "the target") for s in layout.sinks}
        self.outputs = {s: [] for s in layout.sinks}
        total = 0.0
        for m in range(count):
            made: dict[int, torch.Tensor] = {}
            for stage in _forward_order(layout.inputs):
                taken = [made[k] for k in layout.inputs[stage]] if layout.inputs[stage] else [data[stage][m]]
                with torch.set_grad_enabled(layout.trained[stage]):
                    made[stage] = self.modules[stage](*taken)
            losses = []
            for stage in layout.sinks:
                losses.append(self.model.loss(made[stage], targets[stage][m]) / count)
                self.outputs[stage].append(made[stage].detach())
            loss = torch.stack(losses).sum()
            if loss.requires_grad:
                loss.backward()
            total += float(loss.detach())
        return total


def _forward_order(inputs: Sequence[Sequence[int]]) -> list[int]:
    order: list[int] = []
    while len(order) < len(inputs):
        order += [s for s, row in enumerate(inputs) if s not in order and all(k in order for k in row)]
    return order


MOST_DIMS = 8


def forward_ranks(job: TrainJob, stage: int) -> tuple[int, ...]:
    """The ranks that hold a stage."""
    return next(work.ranks for work in job.blocks if work.kind == "F" and work.stage == stage)


def compare_weights(job: TrainJob, group: Any, rank: int, modules: dict[int, Any], whole: Reference | None) -> float:
    """Largest difference of weights; before the first step it must be 0."""
    return _compare_parameters(job, group, rank, modules, whole, _weight)


def compare_gradients(job: TrainJob, group: Any, rank: int, modules: dict[int, Any], whole: Reference | None) -> float:
    """Largest difference of the gradients of all weights."""
    return _compare_parameters(job, group, rank, modules, whole, _gradient)


def compare_outputs(
    job: TrainJob, group: Any, rank: int, outputs: dict[int, list[torch.Tensor]], whole: Reference | None
) -> float:
    """Largest difference of what the sinks give, by the first rank of each."""
    worst, count = 0.0, job.layout.micro_batches
    first = [[s for s in job.layout.sinks if forward_ranks(job, s)[0] == r] for r in range(job.ranks)]
    mine = [tensor for stage in first[rank] for tensor in outputs[stage]]
    shown = _gathered(mine, [len(stages) * count for stages in first], rank, group)
    if whole is None:
        return worst
    for stages, tensors in zip(first, shown, strict=True):
        expected = [(stage, tensor) for stage in stages for tensor in whole.outputs[stage]]
        for tensor, (stage, other) in zip(tensors, expected, strict=True):
            worst = max(worst, _distance(tensor, other, f"the output of stage {stage}"))
    return worst


def _compare_parameters(
    job: TrainJob, group: Any, rank: int, modules: dict[int, Any], whole: Reference | None, look: Any
) -> float:
    worst = 0.0
    held = [[s for s in range(job.layout.stages) if r in forward_ranks(job, s)] for r in range(job.ranks)]
    mine = [look(p) for stage in held[rank] for p in modules[stage].parameters()]
    if whole is None:
        _show(mine, group)
        return worst
    full = [[(stage, *pair) for stage in row for pair in whole.modules[stage].named_parameters()] for row in held]
    shown = _gathered(mine, [len(row) for row in full], rank, group)
    for owner, (tensors, row) in enumerate(zip(shown, full, strict=True)):
        for tensor, (stage, name, parameter) in zip(tensors, row, strict=True):
            title, ranks = f"{name} of stage {stage} on rank {owner}", forward_ranks(job, stage)
            expected = _slice(look(parameter), tensor.shape, ranks.index(owner), len(ranks), title)
            worst = max(worst, _distance(tensor, expected, title))
    return worst


def _gathered(mine: list[torch.Tensor], counts: list[int], rank: int, group: Any) -> list[list[torch.Tensor]]:
    """Rank -> its tensors, on rank 0; nothing elsewhere."""
    if rank != 0:
        _show(mine, group)
        return []
    return [mine, *(_seen(count, owner, group) for owner, count in enumerate(counts) if owner)]


def _weight(parameter: torch.Tensor) -> torch.Tensor:
    return parameter.detach()


def _gradient(parameter: torch.Tensor) -> torch.Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def _slice(full: torch.Tensor, shape: Sequence[int], position: int, size: int, title: str) -> torch.Tensor:
    """The part of a whole parameter that a shard of this shape holds."""
    differing = [d for d, (a, b) in enumerate(zip(full.shape, shape, strict=False)) if a != b]
    if len(shape) == full.dim() and not differing:
        return full
    if len(shape) == full.dim() and len(differing) == 1:
        return full.tensor_split(size, differing[0])[position]
    raise InputError(f"{title} has shape {tuple(shape)}, no slice of {tuple(full.shape)}", hint="see Shard.part")


def _distance(shown: torch.Tensor, expected: torch.Tensor, title: str) -> float:
    if shown.shape != expected.shape:
        raise InputError(f"{title} has shape {tuple(shown.shape)} instead of {tuple(expected.shape)}")
    if not shown.numel():
        return 0.0
    return _or_infinite(float((shown.double() - expected.double()).abs().max()))


def _show(tensors: Sequence[torch.Tensor], group: Any) -> None:
    """Two messages to rank 0: the shapes, then everything in one row."""
    heads = torch.zeros(max(1, len(tensors)), MOST_DIMS + 1, dtype=torch.int64)
    for head, tensor in zip(heads, tensors, strict=False):
        head[0] = tensor.dim()
        head[1 : 1 + tensor.dim()] = torch.tensor(tensor.shape)
    dist.send(heads, 0, group=group)
    dist.send(torch.cat([tensor.detach().double().flatten() for tensor in (*tensors, torch.zeros(1))]), 0, group=group)


def _seen(count: int, owner: int, group: Any) -> list[torch.Tensor]:
    heads = torch.zeros(max(1, count), MOST_DIMS + 1, dtype=torch.int64)
    dist.recv(heads, owner, group=group)
    shapes = [head[1 : 1 + int(head[0])].tolist() for head in heads[:count]]
    sizes = [math.prod(shape) for shape in shapes]
    row = torch.zeros(sum(sizes) + 1, dtype=torch.float64)
    dist.recv(row, owner, group=group)
    return [part.view(shape) for part, shape in zip(row.split([*sizes, 1]), shapes, strict=False)]


def compare_losses(group: Any, loss: float | None, expected: float) -> float:
    """Difference of the whole loss, on every rank; `expected` counts on rank 0 alone."""
    both = torch.tensor([0.0 if loss is None else loss, expected], dtype=torch.float64)
    dist.all_reduce(both, group=group)
    return _or_infinite(abs(float(both[0] - both[1])))


def _or_infinite(difference: float) -> float:
    """NaN is no agreement."""
    return math.inf if math.isnan(difference) else difference


def work(jobs: Sequence[TrainJob], rank: int) -> list[list[Report]]:
    """Run all jobs in the process group that exists -> job -> rank -> what it saw, the same on every rank."""
    torch.set_num_threads(1)
    groups: dict[tuple[int, ...], Any] = {}
    reports = []
    for job in jobs:
        found = _exchange(_run(job, rank, groups))
        reports.append([msgspec.json.decode(text, type=Report) for text in found])
    return reports


def _run(job: TrainJob, rank: int, groups: dict[tuple[int, ...], Any]) -> bytes:
    """One job on this rank; ranks beyond those of the job only make groups with the others."""
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
        self.job, self.rank, self.group = job, rank, group
        self.make = load_model(job.model)
        self.seconds: list[float] = []
        self.losses: list[float] = []
        self.blocks: dict[int, list[float]] = {}
        self.gradient = self.output = self.loss = 0.0

    def train(self, seed: int, groups: dict[tuple[int, ...], Any]) -> None:
        """All steps of one seed, beside the same in one process on rank 0."""
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
    world = dist.get_world_size()
    sizes = [torch.zeros(1, dtype=torch.int64) for _ in range(world)]
    dist.all_gather(sizes, torch.tensor([len(text)]))
    longest = max(int(size) for size in sizes)
    mine = torch.zeros(longest, dtype=torch.uint8)
    mine[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.uint8)
    found = [torch.zeros(longest, dtype=torch.uint8) for _ in range(world)]
    dist.all_gather(found, mine)
    return [bytes(row[: int(size)].tolist()) for row, size in zip(found, sizes, strict=True)]
