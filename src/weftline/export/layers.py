"""The layers of a model as a plan places them: for targets that think in whole transformer blocks.

In: a plan whose ops carry blocks (`encoder/layer.3`). Out: `Layers`: the device of every numbered layer, of what comes
before them (embedding) and after them (final norm, head). A plan that cuts inside a layer is refused, and so is a model
with no such layers, or with two stacks of them. Simplified: a block is a layer if its name ends with a number.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from weftline.cluster import Device
from weftline.errors import InputError, UsageError
from weftline.graph import Graph
from weftline.plans.plan import Plan
from weftline.units import format_names

__all__ = ["Layers", "check_fits", "layers_of", "placed_devices", "run_lengths"]

_LAYER = re.compile(r"(?P<stack>.*?)[._/-]?(?P<number>\d{1,6})")
HINT = 'keep layers whole by sets in the cluster file: [limits] together = [["/encoder/layer.0/*"], ...]'


@dataclass(frozen=True)
class Layers:
    """Where the layers are; devices by their id."""

    stack: str
    """What the layers are called without their number: `encoder/layer`."""
    devices: tuple[str, ...]
    """Of layer 0, 1, ..."""
    embedding: str
    """Device of everything before the layers."""
    head: str
    """Device of everything after the layers."""

    @property
    def number(self) -> int:
        """How many layers there are."""
        return len(self.devices)


def placed_devices(plan: Plan) -> tuple[Graph, list[Device]]:
    """The graph, and the device of every op of it."""
    problem = plan.load_problem()
    try:
        return problem.graph, [
            problem.devices[problem.device_index[plan.placement[op.name]]] for op in problem.graph.ops
        ]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint="try weftline verify") from None


def layers_of(plan: Plan, target: str) -> Layers:
    """The layers of a plan; `target` stands in the errors."""
    graph, devices = placed_devices(plan)
    if any(op.backward for op in graph.ops):
        raise UsageError(f"{target} takes plans of forward ops; this graph is for training")
    stack, layer = _stack(graph, target)
    number = max(layer) + 1
    ids = [device.id for device in devices]
    whole = [
        _one_device(f"layer {n} ({stack})", ids, [i for i, at in enumerate(layer) if at == n], target)
        for n in range(number)
    ]
    before, after = _around(graph, layer)
    embedding = _one_device("what comes before the layers", ids, before, target) if before else whole[0]
    head = _one_device("what comes after the layers", ids, after, target) if after else whole[-1]
    return Layers(stack, tuple(whole), embedding, head)


def run_lengths(devices: Iterable[str], target: str) -> list[tuple[str, int]]:
    """[(device, layers in a row)]; refused if a device comes twice."""
    runs: list[tuple[str, int]] = []
    for device in devices:
        if runs and runs[-1][0] == device:
            runs[-1] = (device, runs[-1][1] + 1)
        else:
            runs.append((device, 1))
    names = [device for device, _ in runs]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"{target} needs layers in a row on each device; those of {format_names(twice)} are not")
    return runs


def check_fits(expected: str, found: str, what: str, target: str) -> None:
    """Refuse a plan whose embedding or head is not where the target puts it."""
    if expected != found:
        raise UsageError(f"{target} runs {what} on {expected}, the plan on {found}; pin it there and plan again")


def _stack(graph: Graph, target: str) -> tuple[str, list[int]]:
    """The name of the stack of layers, and the layer of every op, -1 outside."""
    found = [_LAYER.fullmatch(op.block) for op in graph.ops]
    stacks: dict[str, set[int]] = defaultdict(set)
    for match in found:
        if match is not None:
            stacks[match["stack"]].add(int(match["number"]))
    if not stacks:
        missing = "its ops have no names of layers" if not any(op.block for op in graph.ops) else "no block is numbered"
        raise UsageError(f"{target} needs a model of numbered layers, such as encoder/layer.0; here {missing}")
    if len(stacks) > 1:
        raise UsageError(f"{target} takes one stack of layers; this model has {format_names(sorted(stacks))}")
    stack, numbers = next(iter(stacks.items()))
    if numbers != set(range(len(numbers))):
        raise UsageError(f"{target}: the layers {stack!r} are not numbered 0 to {len(numbers) - 1}")
    return stack, [-1 if match is None else int(match["number"]) for match in found]


def _one_device(what: str, ids: Sequence[str], ops: Sequence[int], target: str) -> str:
    used = sorted({ids[op] for op in ops})
    if len(used) > 1:
        raise UsageError(f"{target} cannot cut inside {what}, which the plan has on {format_names(used)} ({HINT})")
    return used[0]


def _around(graph: Graph, layer: Sequence[int]) -> tuple[list[int], list[int]]:
    """Ops outside the layers: those that no layer leads to, and those after one. Ops are in topological order."""
    led = [at >= 0 for at in layer]
    for tensor in sorted(graph.tensors, key=lambda tensor: tensor.producer):
        if tensor.producer >= 0 and led[tensor.producer]:
            for op in tensor.consumers:
                led[op] = True
    outside = [op for op, at in enumerate(layer) if at < 0]
    return [op for op in outside if not led[op]], [op for op in outside if led[op]]
