"""Our own interpreter of action lists over torch.distributed: runs every schedule that can be lowered.

In: a job with the action list of this rank, the user's model, process groups. Out: gradients in the modules of this
rank, losses and outputs of its sinks. Sends are started and not waited for; receives are started where the list says
and waited for where the data is needed. Simplified: shapes do not change between micro-batches; a split backward walks
the graph twice, once for inputs and once for weights.
"""

from __future__ import annotations

from collections import defaultdict, deque
from time import perf_counter
from typing import Any

import torch
import torch.distributed as dist

from weftline.errors import UsageError
from weftline.run.train.model import ACTIVATION, GRADIENT, Shard, StageModel, TrainJob
from weftline.run.train.train import build_stage, micro_batches

__all__ = ["Interpreter"]

_TYPES = (
    torch.float32,
    torch.float64,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int32,
    torch.bool,
    torch.uint8,
)
_HEAD = 10
"""Length of the message that tells shape and type before the first tensor of an edge."""
_SAVED = tuple[list[torch.Tensor], torch.Tensor, torch.Tensor | None]
"""Inputs, what gradients start from, the gradient that came."""


class Interpreter:
    """One rank."""

    def __init__(
        self, job: TrainJob, rank: int, model: StageModel, seed: int, groups: dict[tuple[int, ...], Any]
    ) -> None:
        self.job, self.rank, self.model = job, rank, model
        self.modules: dict[int, Any] = {}
        for work in job.blocks:
            if work.kind == "F" and rank in work.ranks:
                shard = Shard(work.ranks.index(rank), len(work.ranks), groups.get(work.ranks))
                self.modules[work.stage] = build_stage(job, model, seed, work.stage, shard)
        self.edge_of = {(edge.source, edge.target): k for k, edge in enumerate(job.edges)}
        self.into: dict[int, list[int]] = defaultdict(list)
        self.out_of: dict[int, list[int]] = defaultdict(list)
        for k, edge in enumerate(job.edges):
            self.into[edge.target].append(k)
            self.out_of[edge.source].append(k)
        self.uses = self._uses()
        self.forms: dict[tuple[int, int], tuple[list[int], torch.dtype]] = {}
        self.block_seconds: dict[int, list[float]] = defaultdict(list)
        self.outputs: dict[int, list[torch.Tensor]] = {}

    def step(self, number: int) -> float | None:
        """Run the list once -> mean loss of the sinks that this rank holds first, or None."""
        layout, rank = self.job.layout, self.rank
        held = [work for work in self.job.blocks if work.kind == "F" and rank in work.ranks]
        stages = {work.stage for work in held}
        count = layout.micro_batches
        self.data = {
            s: micro_batches(self.model.data(s, number), count, "the data") for s in layout.sources if s in stages
        }
        self.targets = {
            s: micro_batches(self.model.target(s, number), count, "the target") for s in layout.sinks if s in stages
        }
        self.outputs = {s: [torch.empty(0)] * count for s in self.targets}
        self.first = {work.stage for work in held if work.ranks[0] == rank}
        self.loss = 0.0
        self.values: dict[tuple[int, int], torch.Tensor] = {}
        self.left: dict[tuple[int, int], int] = {}
        self.saved: dict[tuple[int, int], _SAVED] = {}
        self.arriving: dict[tuple[int, int], tuple[Any, torch.Tensor]] = {}
        self.leaving: deque[tuple[Any, torch.Tensor]] = deque()
        for row in self.job.actions[rank]:
            do, micro, block = str(row[0]), int(row[1]), int(row[2])
            if do == "compute":
                self._compute(block, micro)
            else:
                edge, peer = self.edge_of[block, int(row[3])], int(row[4])
                if do == "send":
                    # To start a send holds the device as the block does.
                    start = perf_counter()
                    self._send(edge, micro, peer)
                    self.block_seconds[block][-1] += perf_counter() - start
                else:
                    self._receive(edge, micro, peer)
        for work, _ in self.leaving:
            work.wait()
        return self.loss if self.first & set(self.targets) else None

    def _uses(self) -> dict[int, int]:
        """Edge -> how often this rank takes its value: sends, and the block it is for."""
        uses: dict[int, int] = defaultdict(int)
        for row in self.job.actions[self.rank]:
            if row[0] == "send" and row[1] == 0:
                uses[self.edge_of[int(row[2]), int(row[3])]] += 1
        for k, edge in enumerate(self.job.edges):
            uses[k] += self.rank in self.job.blocks[edge.target].ranks
        return uses

    # Data.

    def _put(self, edge: int, micro: int, value: torch.Tensor) -> None:
        if self.uses[edge]:
            self.values[edge, micro], self.left[edge, micro] = value, self.uses[edge]

    def _take(self, edge: int, micro: int) -> torch.Tensor:
        key = edge, micro
        if key in self.arriving:
            work, value = self.arriving.pop(key)
            work.wait()
            return value
        value = self.values[key]
        self.left[key] -= 1
        if not self.left[key]:
            del self.values[key], self.left[key]
        return value

    def _send(self, edge: int, micro: int, peer: int) -> None:
        value = self._take(edge, micro).contiguous()
        form = list(value.shape), value.dtype
        if (edge, peer) not in self.forms:
            self.forms[edge, peer] = form
            head = torch.zeros(_HEAD, dtype=torch.int64)
            head[0], head[1] = len(form[0]), _TYPES.index(value.dtype)
            head[2 : 2 + len(form[0])] = torch.tensor(form[0])
            self.leaving.append((dist.isend(head, peer, tag=2 * edge), head))
        elif self.forms[edge, peer] != form:
            raise UsageError("the shape of a tensor between stages changes from micro-batch to micro-batch")
        self.leaving.append((dist.isend(value, peer, tag=2 * edge + 1), value))
        while self.leaving and self.leaving[0][0].is_completed():
            self.leaving.popleft()[0].wait()

    def _receive(self, edge: int, micro: int, peer: int) -> None:
        if (edge, peer) not in self.forms:
            head = torch.zeros(_HEAD, dtype=torch.int64)
            dist.recv(head, peer, tag=2 * edge)
            self.forms[edge, peer] = head[2 : 2 + int(head[0])].tolist(), _TYPES[int(head[1])]
        shape, kind = self.forms[edge, peer]
        value = torch.empty(shape, dtype=kind)
        self.arriving[edge, micro] = dist.irecv(value, peer, tag=2 * edge + 1), value

    # Blocks.

    def _compute(self, block: int, micro: int) -> None:
        work = self.job.blocks[block]
        taken = {edge: self._take(edge, micro) for edge in self.into[block]}
        start = perf_counter()
        if work.kind == "F":
            given = {ACTIVATION: self._forward(work.stage, micro, taken)}
        elif work.kind == "B":
            given = {GRADIENT: self._backward(work.stage, micro, taken, work.split)}
        elif work.kind == "W":
            self._weights(work.stage, micro)
            given = {}
        else:
            given = {what: value for what in (ACTIVATION, GRADIENT) for value in self._passed(taken, what)}
        for edge in self.out_of[block]:
            about = self.job.edges[edge]
            value = given.get(about.what)
            if isinstance(value, dict):
                value = value[about.stage]
            self._put(edge, micro, torch.zeros(1) if value is None else value)
        self.block_seconds[block].append(perf_counter() - start)

    def _forward(self, stage: int, micro: int, taken: dict[int, torch.Tensor]) -> torch.Tensor:
        layout = self.job.layout
        by_stage = {
            self.job.edges[k].stage: value for k, value in taken.items() if self.job.edges[k].what == ACTIVATION
        }
        inputs = [by_stage[s].detach() for s in layout.inputs[stage]]
        for value, giver in zip(inputs, layout.inputs[stage], strict=True):
            value.requires_grad_(layout.trained[giver])
        with torch.set_grad_enabled(layout.trained[stage]):
            output = self.modules[stage](*(inputs or [self.data[stage][micro]]))
            root = output
            if stage in self.targets:
                root = self.model.loss(output, self.targets[stage][micro]) / layout.micro_batches
                self.outputs[stage][micro] = output.detach()
                if stage in self.first:
                    self.loss += float(root.detach())
        if layout.trained[stage]:
            self.saved[stage, micro] = inputs, root, None
        activation: torch.Tensor = output.detach()
        return activation

    def _backward(self, stage: int, micro: int, taken: dict[int, torch.Tensor], split: bool) -> dict[int, torch.Tensor]:
        """Gradients for the stages that feed this one; with a split backward the weights wait for their block."""
        inputs, root, _ = self.saved.pop((stage, micro))
        parts = [(self.job.edges[k].giver, value) for k, value in taken.items() if self.job.edges[k].what == GRADIENT]
        gradient = None
        for _, value in sorted(parts, key=lambda part: part[0]):
            gradient = value if gradient is None else gradient + value
        wanted = [x for x in inputs if x.requires_grad]
        if split:
            if wanted and root.requires_grad:
                found = torch.autograd.grad(root, wanted, gradient, retain_graph=True, allow_unused=True)
                for x, g in zip(wanted, found, strict=True):
                    x.grad = g
            self.saved[stage, micro] = [], root, gradient
        elif root.requires_grad:
            torch.autograd.backward(root, gradient)
        givers = self.job.layout.inputs[stage]
        return {s: torch.zeros_like(x) if x.grad is None else x.grad for s, x in zip(givers, inputs, strict=True)}

    def _weights(self, stage: int, micro: int) -> None:
        _, root, gradient = self.saved.pop((stage, micro))
        weights = [p for p in self.modules[stage].parameters() if p.requires_grad]
        if not weights or not root.requires_grad:
            return
        found = torch.autograd.grad(root, weights, gradient, allow_unused=True)
        for weight, g in zip(weights, found, strict=True):
            if g is not None:
                weight.grad = g if weight.grad is None else weight.grad + g

    def _passed(self, taken: dict[int, torch.Tensor], what: str) -> list[Any]:
        """What a communication block hands on: the activation, or the gradient by stage."""
        found = [(self.job.edges[k].stage, value) for k, value in taken.items() if self.job.edges[k].what == what]
        return [value if what == ACTIVATION else {stage: value} for stage, value in found]
