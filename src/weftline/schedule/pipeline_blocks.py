"""Blocks of a pipeline that was planned: forward, backward or split gradients per stage, transfers on the links.

In: a throughput problem, its placement and loads. Out: `Blocks` in ns and bytes; the devices' limits are what weights
(for training: with gradients and optimizer state) leave free. Simplified: the gradients of inputs and of weights take
as long as the forward pass each, unless the graph has backward ops of its own; a transfer holds its link, not the
devices; a backward pass frees half of the held activations, the gradients of the weights the other half.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from weftline.errors import InfeasibleError, UsageError
from weftline.problem import NO_LIMIT, Problem
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.simulate import Loads

__all__ = ["pipeline_blocks"]

OPTIMIZER_STATE = 4
"""Training holds weights, gradients and two moments (Adam), all of the weights' size."""


@dataclass
class _Stage:
    device: int
    forward: int = 0
    backward: int = 0
    """Time of backward ops that the graph itself has."""
    held: int = 0
    """Bytes of activations that the backward pass needs."""
    entering: int = 0
    """Those of them that come from other stages."""
    weights: int = 0
    sends: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Stage -> transfer time of what it gets."""


def pipeline_blocks(
    problem: Problem, loads: Loads, *, train: bool, split: bool = False, recompute: bool = False
) -> Blocks:
    """One micro-batch of a planned pipeline."""
    if problem.rules.objective != "throughput":
        raise UsageError("a schedule needs a throughput plan: weftline plan MODEL --objective throughput")
    stages = _stages(problem, loads)
    made = _Builder(problem, stages, train, split, recompute)
    return made.build()


def _stages(problem: Problem, loads: Loads) -> list[_Stage]:
    stages = [_Stage(device) for device in loads.stages]
    number = {stage.device: i for i, stage in enumerate(stages)}
    graph, cost = problem.graph, problem.cost
    home = [number[int(device)] for device in loads.placement]
    for i, op in enumerate(graph.ops):
        stage = stages[home[i]]
        time = int(cost.time[i, stage.device])
        if op.backward:
            stage.backward += time
        else:
            stage.forward += time
        stage.weights += op.weight_bytes
    for t, tensor in enumerate(graph.tensors):
        if tensor.producer < 0 or graph.ops[tensor.producer].backward:
            continue
        source = home[tensor.producer]
        stages[source].held += tensor.bytes
        readers = {home[op] for op in tensor.consumers if not graph.ops[op].backward}
        for target in sorted(readers - {source}):
            length = int(cost.transfer[cost.transfer_row[t], stages[source].device, stages[target].device])
            stages[source].sends[target] += length
            stages[target].held += tensor.bytes
            stages[target].entering += tensor.bytes
    for tied in graph.tied:
        for place in {home[op] for op in tied.ops}:
            stages[place].weights += tied.bytes
    return stages


class _Builder:
    def __init__(self, problem: Problem, stages: list[_Stage], train: bool, split: bool, recompute: bool) -> None:
        self.problem, self.stages, self.train, self.split, self.recompute = problem, stages, train, split, recompute
        self.lanes = [Lane(problem.devices[s.device].id, self._room(s)) for s in stages]
        self.blocks: list[Block] = []
        self.edges: list[tuple[int, int]] = []
        self.links: dict[tuple[int, int], int] = {}

    def build(self) -> Blocks:
        forward = [self._add("F", i, max(1, s.forward), self._held(s)) for i, s in enumerate(self.stages)]
        for i, stage in enumerate(self.stages):
            for target, length in stage.sends.items():
                self._join(forward[i], forward[target], i, target, length)
        if self.train:
            self._backward(forward)
        return Blocks.of(self.problem.graph.name, self.lanes, self.blocks, self.edges)

    def _backward(self, forward: list[int]) -> None:
        back = []
        for i, stage in enumerate(self.stages):
            held = self._held(stage)
            whole = stage.backward or 2 * stage.forward
            weight = max(1, whole // 2) if self.split else 0
            first = max(1, whole - weight + (stage.forward if self.recompute else 0))
            back.append(self._add("B", i, first, -(held - held // 2) if self.split else -held))
            self.edges.append((forward[i], back[i]))
            if self.split:
                self.edges.append((back[i], self._add("W", i, weight, -(held // 2))))
        for i, stage in enumerate(self.stages):
            for target, length in stage.sends.items():
                self._join(back[target], back[i], target, i, length)

    def _held(self, stage: _Stage) -> int:
        """Bytes from forward to backward: all activations, or what enters the stage where they are computed again."""
        if not self.train:
            return 0
        return stage.entering if self.recompute else stage.held

    def _room(self, stage: _Stage) -> int:
        """What the weights leave of a device."""
        device = self.problem.devices[stage.device]
        if device.capacity is None:
            return NO_LIMIT
        needed = stage.weights * (OPTIMIZER_STATE if self.train else 1)
        if needed > device.capacity:
            raise InfeasibleError(
                f"device {device.id!r} holds {device.capacity} bytes, and the weights of its stage need {needed} "
                f"({'with gradients and optimizer state' if self.train else 'for inference'})",
                proved=True,
            )
        return int(device.capacity) - needed

    def _add(self, kind: str, stage: int, span: int, memory: int, lane: int | None = None) -> int:
        devices = (stage if lane is None else lane,)
        self.blocks.append(Block(kind, span, devices, (memory,), f"{kind}{stage}", stage))
        return len(self.blocks) - 1

    def _join(self, source: int, target: int, a: int, b: int, length: int) -> None:
        """An edge, with a block on the link from stage a to stage b where the transfer takes time."""
        if length <= 0:
            self.edges.append((source, target))
            return
        if (a, b) not in self.links:
            self.links[a, b] = len(self.lanes)
            self.lanes.append(Lane(f"{self.lanes[a].id}:{self.lanes[b].id}"[:64], link=True))
        transfer = self._add("C", a, length, 0, self.links[a, b])
        self.edges += [(source, transfer), (transfer, target)]
