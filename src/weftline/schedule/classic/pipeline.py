"""Blocks -> the pipeline that they are: stages in forward order, each with its backward blocks; from structure only.

Names and stage numbers are not read: a stage is a forward block on one device and the backward block that mirrors it.
Blocks on several devices are kept aside (`wide`), blocks on links only are looked through. What does not look like a
pipeline is an `InfeasibleError` that says why, so that a schedule which needs one does not apply.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks

__all__ = ["Pipeline", "Stage", "read_pipeline"]


@dataclass(frozen=True)
class Stage:
    """One part of the model on one device; block numbers, -1 where there is none."""

    device: int
    forward: int
    backward: int = -1
    weight: int = -1

    @property
    def back(self) -> tuple[int, ...]:
        """The whole backward pass: gradients of inputs, then at once those of weights."""
        return tuple(block for block in (self.backward, self.weight) if block >= 0)


@dataclass(frozen=True)
class Pipeline:
    """Stages in forward order."""

    stages: tuple[Stage, ...]
    after: tuple[frozenset[int], ...]
    """Stage -> stages whose forward block comes next."""
    near: tuple[frozenset[int], ...]
    """Block -> the single-device blocks that come last before it, seen through all others."""
    wide: tuple[int, ...]
    """Blocks on several devices."""
    chains: tuple[tuple[int, ...], ...]
    """Stages by connected part of the graph, each in forward order."""

    @property
    def devices(self) -> tuple[int, ...]:
        """Stage -> device."""
        return tuple(stage.device for stage in self.stages)

    @property
    def trains(self) -> bool:
        """Whether there is a backward pass."""
        return any(stage.backward >= 0 for stage in self.stages)

    @property
    def splits(self) -> bool:
        """Whether every backward pass has a part for weights."""
        return all(stage.weight >= 0 for stage in self.stages)

    def is_path(self, chain: tuple[int, ...]) -> bool:
        """Whether each stage of the chain hands over to the next."""
        return all(second in self.after[first] for first, second in pairwise(chain))

    def ranks(self, chunks: int) -> tuple[int, ...]:
        """One chain without blocks on several devices, `chunks` stages on each device -> its devices in order."""
        count = len(self.stages) // chunks
        first = self.devices[:count]
        if self.wide:
            raise InfeasibleError("the schedule does not know blocks on several devices")
        if len(self.chains) != 1 or not self.is_path(self.chains[0]) or chunks * count != len(self.stages):
            raise InfeasibleError(f"the schedule needs one chain of stages, {chunks} on each device")
        if len(set(first)) != count:
            raise InfeasibleError("the first stages of the schedule must be on different devices")
        return first


def read_pipeline(blocks: Blocks) -> Pipeline:
    """Find the stages, or say why there are none."""
    real = [[d for d in block.devices if not blocks.devices[d].link] for block in blocks.blocks]
    if any(block.kind == "C" and real[i] for i, block in enumerate(blocks.blocks)):
        raise InfeasibleError("the schedule does not know communication that holds a device")
    wide = tuple(i for i in range(blocks.n) if len(real[i]) > 1)
    near = _nearest(blocks, [len(r) == 1 for r in real])
    order = [int(i) for i in blocks.table.order if len(real[i]) == 1]
    kinds = {kind: [i for i in order if blocks.blocks[i].kind == kind] for kind in "FBW"}
    part = _parts(blocks.n, blocks.edges)
    place = [(part[i], real[i][0] if len(real[i]) == 1 else -1) for i in range(blocks.n)]
    stages = _matched(place, kinds, near)
    number = {stage.forward: k for k, stage in enumerate(stages)}
    after: list[set[int]] = [set() for _ in stages]
    for k, stage in enumerate(stages):
        for before in near[stage.forward]:
            if before in number:
                after[number[before]].add(k)
    chains: dict[int, list[int]] = {}
    for k, stage in enumerate(stages):
        chains.setdefault(part[stage.forward], []).append(k)
    rows = tuple(tuple(chain) for chain in chains.values())
    return Pipeline(tuple(stages), tuple(map(frozenset, after)), tuple(map(frozenset, near)), wide, rows)


def _nearest(blocks: Blocks, single: list[bool]) -> list[set[int]]:
    """Block -> the single-device blocks that come last before it, seen through all others."""
    table = blocks.table
    near: list[set[int]] = [set() for _ in range(blocks.n)]
    for i in table.order:
        for before in table.before_of[table.before_ptr[i] : table.before_ptr[i + 1]]:
            near[i] |= {int(before)} if single[before] else near[before]
    return near


def _matched(place: list[tuple[int, int]], kinds: dict[str, list[int]], near: list[set[int]]) -> list[Stage]:
    """Backward blocks mirror forward blocks at each place (connected part, device): what was last comes first."""
    weight_of, all_backward = {}, set(kinds["B"])
    for weight in kinds["W"]:
        backward = [b for b in near[weight] if b in all_backward and place[b] == place[weight]]
        if len(backward) != 1 or backward[0] in weight_of:
            raise InfeasibleError("gradients of weights must follow one backward block of their device")
        weight_of[backward[0]] = weight
    there: dict[tuple[int, int], tuple[list[int], list[int]]] = {}
    for row, kind in enumerate("FB"):
        for i in kinds[kind]:
            there.setdefault(place[i], ([], []))[row].append(i)
    stages = {}
    for (_, device), (forward, backward) in there.items():
        if backward and len(backward) != len(forward):
            raise InfeasibleError("every forward block needs one backward block on its device")
        for f, b in zip(forward, reversed(backward or [-1] * len(forward)), strict=True):
            stages[f] = Stage(device, f, b, weight_of.get(b, -1))
    found = [stages[f] for f in kinds["F"]]
    if not found or len({stage.backward >= 0 for stage in found}) > 1:
        raise InfeasibleError("the schedule needs forward blocks, all or none of them with a backward block")
    return found


def _parts(count: int, edges: tuple[tuple[int, int, int], ...]) -> list[int]:
    """Block -> the least block of its connected part."""
    part = list(range(count))

    def root(i: int) -> int:
        while part[i] != i:
            part[i] = part[part[i]]
            i = part[i]
        return i

    for source, target, _ in edges:
        low, high = sorted((root(source), root(target)))
        part[high] = low
    return [root(i) for i in range(count)]
