"""The same training in one process, without any schedule: what a real run is compared with.

In: a job and the user's model. Out: gradients, outputs and losses of the whole model, micro-batch by micro-batch.
Simplified: the whole model must fit in the memory of one process.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from weftline.errors import InputError
from weftline.run.train.job import Job
from weftline.run.train.model import Shard, StageModel

__all__ = ["Reference", "build_stage", "micro_batches", "update"]


def build_stage(job: Job, model: StageModel, seed: int, stage: int, shard: Shard) -> Any:
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

    def __init__(self, job: Job, model: StageModel, seed: int) -> None:
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
