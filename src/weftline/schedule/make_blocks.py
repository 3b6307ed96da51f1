"""Blocks of one micro-batch: of named placements, and of a pipeline that was planned.

`make_shape`: a shape, the number of devices, training or inference -> `Blocks`. The shapes of Tessel have spans forward
1, backward 3 (the forward pass is computed again) and 1 for blocks on all devices; memory is one unit per held
activation. Others are pipelines with split backward passes.

`pipeline_blocks`: a throughput problem, its placement and loads -> `Blocks` in ns and bytes: forward, backward or split
gradients per stage, transfers on the links. The devices' limits are what weights (for training: with gradients and
optimizer state) leave free. Simplified: the gradients of inputs and of weights take as long as the forward pass each,
unless the graph has backward ops of its own; a transfer holds its link, not the devices; a backward pass frees half of
the held activations, the gradients of the weights the other half. With recompute a micro-batch holds what enters a
stage; room for the other activations of one micro-batch is reserved all the time, though they are there during its
backward pass alone. Nothing is lost where the backward pass is whole: a device runs one block at a time, and a backward
pass follows the fullest moment. Where it is split, gradients of weights may follow: then it can be too much.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from weftline.errors import InfeasibleError, UsageError, near
from weftline.problem import NO_LIMIT, Problem
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.simulate import Loads
from weftline.units import format_bytes

__all__ = ["SHAPES", "Shape", "chunked", "make_shape", "pipeline_blocks"]

MOST_DEVICES = 256
MOST_LETTERS = 50
"""Of each of the names in that of a transfer."""
OPTIMIZER_STATE = 4
"""Training holds weights, gradients and two moments (Adam), all of the weights' size."""


@dataclass(frozen=True)
class Shape:
    """One entry of the registry."""

    name: str
    description: str
    make: Callable[[int, bool], Blocks]
    """Number of devices, training -> blocks."""


@dataclass(frozen=True)
class _Step:
    """A step of a chain; `stage` joins a forward step with its backward step."""

    kind: str
    span: int
    devices: tuple[int, ...]
    memory: int
    stage: int


def make_shape(name: str, devices: int, *, train: bool = True) -> Blocks:
    """The blocks of a named shape."""
    if name not in SHAPES:
        raise UsageError(f"unknown shape {name!r:.100}{near(name, SHAPES)} (there are: {', '.join(SHAPES)})")
    if not 1 <= devices <= MOST_DEVICES:
        raise UsageError(f"a shape has 1 to {MOST_DEVICES} devices")
    return SHAPES[name].make(devices, train)


def chunked(
    name: str,
    stages: Sequence[int],
    forward: Sequence[int],
    backward: Sequence[int],
    weight: Sequence[int] | None = None,
    *,
    latency: int = 0,
    memory: tuple[int, int, int] = (2, -1, -1),
    train: bool = True,
) -> Blocks:
    """A chain of stages on devices `stages[i]` with spans per stage; `weight` splits the backward pass in two.

    `memory` is the change by F, B and W (of a whole backward pass: both together). Edges between devices have
    `latency`.
    """
    count, lanes = len(stages), [Lane(str(d)) for d in range(max(stages) + 1)]
    blocks, edges = [], []
    for i, device in enumerate(stages):
        blocks.append(Block("F", forward[i], (device,), (memory[0] if train else 0,), f"F{i}", i))
        if i:
            edges.append((i - 1, i, latency if stages[i - 1] != device else 0))
    last = 0
    for i in reversed(range(count if train else 0)):
        change = memory[1] if weight is not None else memory[1] + memory[2]
        edges.append((i, len(blocks), 0))
        if i < count - 1:
            edges.append((last, len(blocks), latency if stages[i + 1] != stages[i] else 0))
        last = len(blocks)
        blocks.append(Block("B", backward[i], (stages[i],), (change,), f"B{i}", i))
        if weight is not None:
            edges.append((last, len(blocks), 0))
            blocks.append(Block("W", weight[i], (stages[i],), (memory[2],), f"W{i}", i))
    return Blocks.of(name, lanes, blocks, edges)


def _chains(name: str, devices: int, chains: Sequence[Sequence[_Step]]) -> Blocks:
    """Join chains that run side by side; a step on all devices that several chains share stands in all of them."""
    rows: dict[tuple[int, tuple[int, ...], int], _Step] = {}
    for number, chain in enumerate(chains):
        for depth, step in enumerate(chain):
            rows[depth, step.devices, -1 if len(step.devices) > 1 else number] = step
    keys = sorted(rows)
    place = {key: i for i, key in enumerate(keys)}
    edges = set()
    for number, chain in enumerate(chains):
        ids = [place[d, s.devices, -1 if len(s.devices) > 1 else number] for d, s in enumerate(chain)]
        edges |= set(pairwise(ids))
    count = [rows[key] for key in keys]
    blocks = [
        Block(s.kind, s.span, s.devices, (s.memory,) * len(s.devices), f"{s.kind}{i}", s.stage)
        for i, s in enumerate(count)
    ]
    return Blocks.of(name, [Lane(str(d)) for d in range(devices)], blocks, sorted(edges))


def _forward(stages: Sequence[tuple[int, ...]], memory: Sequence[int], first: int = 0) -> list[_Step]:
    return [_Step("F", 1, s, m, first + i) for i, (s, m) in enumerate(zip(stages, memory, strict=True))]


def _mirrored(forward: Sequence[_Step], train: bool, backward: int = 3) -> list[_Step]:
    """The forward steps, and for training their backward steps in reverse."""
    if not train:
        return [_Step(s.kind, s.span, s.devices, 0, s.stage) for s in forward]
    back = [
        _Step("B", backward if len(s.devices) == 1 else 1, s.devices, -s.memory, s.stage) for s in reversed(forward)
    ]
    return [*forward, *back]


def _each(devices: int) -> list[tuple[int, ...]]:
    return [(d,) for d in range(devices)]


def _title(shape: str, devices: int, train: bool) -> str:
    return f"{shape}-{devices}-{'train' if train else 'infer'}"


def _vshape(p: int, train: bool) -> Blocks:
    return _chains(_title("vshape", p, train), p, [_mirrored(_forward(_each(p), [1] * p), train)])


def _xshape(p: int, train: bool) -> Blocks:
    _even(p)
    down = _forward(_each(p), [1] * p)
    up = _forward(_each(p)[::-1], [1] * p, p)
    return _chains(_title("xshape", p, train), p, [_mirrored(down, train), _mirrored(up, train)])


def _with_all(title: str, p: int, train: bool, places: Sequence[int], backward: int = 3) -> Blocks:
    """A pipeline with blocks on all devices before the given stages (p = after the last one)."""
    if p < 2:
        raise UsageError("a shape with blocks on all devices needs at least 2 devices")
    everyone = tuple(range(p))
    stages, memory = list(_each(p)), [1] * p
    for place in sorted(places, reverse=True):
        stages.insert(place, everyone)
        memory.insert(place, 0)
    return _chains(_title(title, p, train), p, [_mirrored(_forward(stages, memory), train, backward)])


def _nnshape(p: int, train: bool) -> Blocks:
    _even(p)
    return _with_all("nnshape", p, train, (0, p // 2))


def _finetune(p: int, train: bool) -> Blocks:
    whole = _with_all("finetune", p, train, (0,), 2)
    if not train:
        return whole
    edges = [edge for edge in whole.edges if edge[1] < whole.n - 1]
    return Blocks.of(whole.name, whole.devices, whole.blocks[:-1], edges)


def _kshape(p: int, train: bool) -> Blocks:
    _even(p)
    everyone, half = tuple(range(p)), p // 2
    chains = []
    for branch in (0, 1):
        stages = [(d,) for d in range(branch * half, (branch + 1) * half)]
        steps = [*_forward(stages, [1] * half, branch * half), _Step("F", 1, everyone, 1, p)]
        chains.append(_mirrored(steps, train))
    return _chains(_title("kshape", p, train), p, chains)


def _alphafold(p: int, train: bool) -> Blocks:
    forward = _forward(_each(p) * 3, [0] * (2 * p) + [1] * p)
    back = [_Step("B", 1, s.devices, -1, s.stage) for s in reversed(forward[2 * p :])] if train else []
    steps = [*forward, *back] if train else _mirrored(forward, False)
    return _chains(_title("alphafold", p, train), p, [steps])


def _linear(p: int, train: bool) -> Blocks:
    return chunked(_title("linear", p, train), range(p), [1] * p, [1] * p, [1] * p, train=train)


def _zigzag(p: int, train: bool) -> Blocks:
    stages = [*range(p), *reversed(range(p))]
    return chunked(_title("zigzag", p, train), stages, [1] * 2 * p, [1] * 2 * p, [1] * 2 * p, train=train)


def _interleaved(p: int, train: bool) -> Blocks:
    return chunked(_title("interleaved", p, train), [*range(p), *range(p)], [1] * 2 * p, [2] * 2 * p, train=train)


def _even(p: int) -> None:
    if p < 2 or p % 2:
        raise UsageError("this shape needs an even number of devices")


def _four(p: int, train: bool) -> Blocks:
    if p < 2:
        raise UsageError("this shape needs at least 2 devices")
    return _with_all("nnshape-eager", p, train, (0, 1))


SHAPES: dict[str, Shape] = {
    shape.name: shape
    for shape in (
        Shape("vshape", "a plain pipeline", _vshape),
        Shape("xshape", "two pipelines in opposite directions (Chimera)", _xshape),
        Shape("mshape", "a pipeline after an embedding on all devices", lambda p, t: _with_all("mshape", p, t, (0,))),
        Shape("nnshape", "encoder and decoder, an embedding on all devices before each", _nnshape),
        Shape("nnshape-eager", "the same with both embeddings before the second stage", _four),
        Shape("kshape", "two branches joined by a block on all devices", _kshape),
        Shape("mllm", "a pipeline between two blocks on all devices", lambda p, t: _with_all("mllm", p, t, (0, p))),
        Shape("finetune", "mshape with a frozen embedding", _finetune),
        Shape("alphafold", "three forward sweeps, one backward", _alphafold),
        Shape("linear", "a pipeline with split backward pass (F, B, W; half-activations)", _linear),
        Shape("zigzag", "split backward pass, two chunks per device there and back (ZB-V)", _zigzag),
        Shape("interleaved", "whole backward pass, two chunks per device round and round", _interleaved),
    )
}


@dataclass
class _Stage:
    device: int
    forward: int = 0
    backward: int = 0
    """Time of backward ops that the graph itself has."""
    held: int = 0
    """Bytes of activations that the backward pass needs."""
    entering: int = 0
    """Those of them that come from other stages, or from the caller."""
    weights: int = 0
    sends: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    """Stage -> transfer time of what it gets."""
    carries: dict[int, list[tuple[int, str]]] = field(default_factory=lambda: defaultdict(list))
    """Stage -> bytes of each tensor that it gets, and its name, producer and first reader."""


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
        if tensor.producer < 0:  # an input of the model enters wherever a forward pass reads it
            for target in {home[op] for op in tensor.consumers if not graph.ops[op].backward}:
                stages[target].held += tensor.bytes
                stages[target].entering += tensor.bytes
            continue
        if graph.ops[tensor.producer].backward:
            continue
        source = home[tensor.producer]
        stages[source].held += tensor.bytes
        readers: dict[int, int] = {}
        for reader in tensor.consumers:
            if not graph.ops[reader].backward:
                readers.setdefault(home[reader], reader)
        for target in sorted(readers.keys() - {source}):
            ends = (tensor.name, graph.ops[tensor.producer].name, graph.ops[readers[target]].name)
            stages[source].carries[target].append((tensor.bytes, "{}: {} -> {}".format(*map(_short, ends))))
            length = int(cost.transfer[cost.transfer_row[t], stages[source].device, stages[target].device])
            stages[source].sends[target] += length
            stages[target].held += tensor.bytes
            stages[target].entering += tensor.bytes
    for tied in graph.tied:
        for place in {home[op] for op in tied.ops}:
            stages[place].weights += tied.bytes
    return stages


def _short(name: str) -> str:
    return name if len(name) <= MOST_LETTERS else f"{name[: MOST_LETTERS - 3]}..."


def _carried(stage: _Stage, target: int) -> str:
    """The largest of the tensors that a stage sends to another one, and how many there are beside it."""
    rows = stage.carries[target]
    more = f" and {len(rows) - 1} more" if len(rows) > 1 else ""
    return max(rows)[1] + more


class _Builder:
    def __init__(self, problem: Problem, stages: list[_Stage], train: bool, split: bool, recompute: bool) -> None:
        self.problem, self.stages, self.train, self.split, self.recompute = problem, stages, train, split, recompute
        self.lanes = [Lane(problem.devices[s.device].id, self._room(s), reserved=self._reserved(s)) for s in stages]
        self.blocks: list[Block] = []
        self.edges: list[tuple[int, int]] = []
        self.links: dict[tuple[int, int], int] = {}

    def build(self) -> Blocks:
        forward = [self._add("F", i, max(1, s.forward), self._held(s)) for i, s in enumerate(self.stages)]
        for i, stage in enumerate(self.stages):
            for target, length in stage.sends.items():
                self._join(forward[i], forward[target], i, target, length, _carried(stage, target))
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
            left = self._left(stage)
            back.append(self._add("B", i, first, left - held))
            self.edges.append((forward[i], back[i]))
            if self.split:
                self.edges.append((back[i], self._add("W", i, weight, -left)))
        for i, stage in enumerate(self.stages):
            for target, length in stage.sends.items():
                self._join(back[target], back[i], target, i, length, f"gradient of {_carried(stage, target)}")

    def _held(self, stage: _Stage) -> int:
        """Bytes from forward to backward: all activations, or what enters the stage where they are computed again."""
        if not self.train:
            return 0
        return stage.entering if self.recompute else stage.held

    def _left(self, stage: _Stage) -> int:
        """Bytes from the gradients of the inputs to those of the weights: half of all activations."""
        return stage.held // 2 if self.split else 0

    def _reserved(self, stage: _Stage) -> int:
        """What there is during a backward pass beyond what is counted before it or after it, whichever is more."""
        if not (self.train and self.recompute):
            return 0
        return stage.held - max(stage.entering, self._left(stage))

    def _room(self, stage: _Stage) -> int:
        """What the weights leave of a device."""
        device = self.problem.devices[stage.device]
        if device.capacity is None:
            return NO_LIMIT
        needed = stage.weights * (OPTIMIZER_STATE if self.train else 1)
        if needed > device.capacity:
            raise InfeasibleError(
                f"device {device.id!r} holds {format_bytes(device.capacity)}, and the weights of its stage need "
                f"{format_bytes(needed)} ({'with gradients and optimizer state' if self.train else 'for inference'})",
                proved=True,
            )
        return int(device.capacity) - needed

    def _add(self, kind: str, stage: int, span: int, memory: int, lane: int | None = None, name: str = "") -> int:
        devices = (stage if lane is None else lane,)
        self.blocks.append(Block(kind, span, devices, (memory,), name or f"{kind}{stage}", stage))
        return len(self.blocks) - 1

    def _join(self, source: int, target: int, a: int, b: int, length: int, name: str) -> None:
        """An edge, with a block on the link from stage a to stage b where the transfer takes time."""
        if length <= 0:
            self.edges.append((source, target))
            return
        if (a, b) not in self.links:
            self.links[a, b] = len(self.lanes)
            self.lanes.append(Lane(f"{self.lanes[a].id}:{self.lanes[b].id}"[:64], link=True))
        transfer = self._add("C", a, length, 0, self.links[a, b], name)
        self.edges += [(source, transfer), (transfer, target)]
