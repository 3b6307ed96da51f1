"""Runs a schedule's rows with torch.distributed.pipelining itself (`_PipelineScheduleRuntime`, torch 2.13).

In: a job with rows, the user's model, the process group. Out: gradients in the modules of this rank, the loss on the
rank of the last stage. All of that API is private, so another version of torch is refused. torch would send the shapes
of tensors from rank to rank as pickles; here every rank finds them by itself, and `_ShapedStage` reads no pickle
whatever the others say. Simplified: no overlap; every rank computes one micro-batch of the whole chain for the shapes.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from time import perf_counter
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

from weftline.errors import InputError, UsageError, WeftlineError
from weftline.files import run_folder
from weftline.run.train.model import Shard, StageModel, TrainJob
from weftline.run.train.train import build_stage, micro_batches

__all__ = ["TESTED_TORCH", "TorchPipeline"]

TESTED_TORCH = "2.13.0"


class TorchPipeline:
    """One rank."""

    def __init__(self, job: TrainJob, rank: int, model: StageModel, seed: int, group: Any) -> None:
        if torch.__version__.split("+")[0] != TESTED_TORCH:
            raise UsageError(
                f"--engine torch was tested with torch {TESTED_TORCH}, not {torch.__version__}; use --engine weftline"
            )
        self.job, self.rank, self.model = job, rank, model
        self.block_seconds: dict[int, list[float]] = defaultdict(list)
        self.outputs: dict[int, list[torch.Tensor]] = {}
        self.modules: dict[int, Any] = {}
        parts = []
        passed = _passed(job, model, seed)
        # torch numbers the stages along the chain, the layout as the blocks do.
        for position, stage in enumerate(job.chain):
            work = {w.kind: (k, w) for k, w in enumerate(job.blocks) if w.stage == stage}
            if work["F"][1].ranks != (rank,):
                continue
            self.modules[stage] = build_stage(job, model, seed, stage, Shard())
            blocks = {kind: k for kind, (k, _) in work.items()}
            part = _ShapedStage(
                self.modules[stage],
                position,
                len(job.chain),
                torch.device("cpu"),
                input_args=passed[position],
                output_args=passed[position + 1],
                group=group,
            )
            _timed(part, "forward_one_chunk", self.block_seconds[blocks["F"]])
            _timed(part, "backward_one_chunk", self.block_seconds[blocks["B"]])
            if "W" in blocks:
                _timed(part, "backward_weight_one_chunk", self.block_seconds[blocks["W"]])
            parts.append(part)
        loss = _added(model.loss, self.block_seconds[_forward_block(job, job.chain[-1])])
        self.schedule = _PipelineScheduleRuntime(parts, job.layout.micro_batches, loss_fn=loss, scale_grads=True)
        with run_folder() as folder:
            path = folder / "schedule.csv"
            path.write_text("".join(",".join(row) + "\n" for row in job.rows), encoding="ascii")
            self.schedule._load_csv(str(path), format="compute_only")

    def step(self, number: int) -> float | None:
        """One training step -> mean loss, on the rank of the last stage."""
        first, last = self.job.chain[0], self.job.chain[-1]
        count = self.job.layout.micro_batches
        arguments = [self.model.data(first, number)] if first in self.modules else []
        for batch in arguments:
            micro_batches(batch, count, "the data")  # torch would cut unequal parts
        if last not in self.modules:
            self.schedule.step(*arguments, return_outputs=False)
            return None
        losses: list[torch.Tensor] = []
        self.schedule.step(*arguments, target=self.model.target(last, number), losses=losses, return_outputs=False)
        return float(torch.stack([loss.detach() for loss in losses]).mean())


class _ShapedStage(PipelineStage):  # type: ignore[misc]
    """A stage that knows its shapes; torch's own asks the others if one of them says that it does not."""

    def _recv_meta(self, src_stage: int) -> Any:
        raise WeftlineError(f"stage {self.stage_index} was to read a pickle from stage {src_stage}")

    def _send_meta(self, meta: Any, dst_stage: int) -> None:
        raise WeftlineError(f"stage {self.stage_index} was to send a pickle to stage {dst_stage}")


def _passed(job: TrainJob, model: StageModel, seed: int) -> list[torch.Tensor]:
    """What a micro-batch is before the first stage and after each, without values; one stage is held at a time."""
    tensor = micro_batches(model.data(job.chain[0], 0), job.layout.micro_batches, "the data")[0]
    found = [_without_values(tensor)]
    with torch.random.fork_rng(devices=[]), torch.enable_grad():
        for stage in job.chain:
            needed = tensor.requires_grad
            made = build_stage(job, model, seed, stage, Shard())(tensor.detach().requires_grad_(needed))
            if not isinstance(made, torch.Tensor):
                raise InputError(f"stage {stage} gives {type(made).__name__}, not one tensor")
            tensor = made
            found.append(_without_values(tensor))
    return found


def _without_values(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="meta", requires_grad=tensor.requires_grad)


def _timed(part: Any, name: str, seconds: list[float]) -> None:
    """Note how long a method of a stage takes."""
    method: Callable[..., Any] = getattr(part, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        start = perf_counter()
        try:
            return method(*arguments, **options)
        finally:
            seconds.append(perf_counter() - start)

    setattr(part, name, timed)


def _added(loss: Callable[..., Any], seconds: list[float]) -> Callable[..., Any]:
    """The loss, whose time counts as part of the last stage's forward block."""

    def timed(*arguments: Any) -> Any:
        start = perf_counter()
        found = loss(*arguments)
        if seconds:
            seconds[-1] += perf_counter() - start
        return found

    return timed


def _forward_block(job: TrainJob, stage: int) -> int:
    return next(k for k, work in enumerate(job.blocks) if work.kind == "F" and work.stage == stage)
