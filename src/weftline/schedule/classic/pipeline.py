"""Blocks -> the pipeline that they are, and rows of operations for its devices -> orders for everything.

A stage is a forward block on one device and the backward block that mirrors it: structure only, names and stage numbers
are not read. Blocks on several devices are kept aside (`wide`), blocks on links only are looked through. What does not
look like a pipeline is an `InfeasibleError` that says why, so that a schedule which needs one does not apply. Published
schedules say what devices do; where blocks sit on links, these serve what is ready first, as it comes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.problem.blocks import Blocks
from weftline.simulate import Orders

__all__ = ["BlockPipeline", "PipelineStage", "read_pipeline", "with_links"]


@dataclass(frozen=True)
class PipelineStage:
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
class BlockPipeline:
    """Stages in forward order."""

    stages: tuple[PipelineStage, ...]
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


def read_pipeline(blocks: Blocks) -> BlockPipeline:
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
    return BlockPipeline(tuple(stages), tuple(map(frozenset, after)), tuple(map(frozenset, near)), wide, rows)


def _nearest(blocks: Blocks, single: list[bool]) -> list[set[int]]:
    """Block -> the single-device blocks that come last before it, seen through all others."""
    table = blocks.table
    near: list[set[int]] = [set() for _ in range(blocks.n)]
    for i in table.order:
        for before in table.before_of[table.before_ptr[i] : table.before_ptr[i + 1]]:
            near[i] |= {int(before)} if single[before] else near[before]
    return near


def _matched(place: list[tuple[int, int]], kinds: dict[str, list[int]], near: list[set[int]]) -> list[PipelineStage]:
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
            stages[f] = PipelineStage(device, f, b, weight_of.get(b, -1))
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


def with_links(blocks: Blocks, micro_batches: int, rows: Sequence[Sequence[int]]) -> Orders:
    """Orders of all lanes; `InfeasibleError` if the devices' rows wait for each other for ever."""
    lanes = blocks.devices
    if not any(lane.link for lane in lanes):
        return tuple(np.array(row, np.int64) for row in rows)
    served = _serve(blocks, micro_batches, rows)
    return tuple(np.array(served[d] if lane.link else rows[d], np.int64) for d, lane in enumerate(lanes))


def _serve(blocks: Blocks, micro_batches: int, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Lane -> its operations as they start: earliest possible start first, lanes free, devices in their order."""
    table, n = blocks.table, blocks.n
    waits = np.diff(table.before_ptr).tolist() * micro_batches
    for row in rows:
        for op in row[1:]:
            waits[op] += 1
    follows: dict[int, list[int]] = {}
    for row in rows:
        for first, second in pairwise(row):
            follows.setdefault(first, []).append(second)
    ready = [0] * len(waits)
    free = [0] * len(blocks.devices)
    heap = [(0, op) for op in range(len(waits)) if not waits[op]]
    served: list[list[int]] = [[] for _ in blocks.devices]
    done = 0
    while heap:
        when, op = heappop(heap)
        block = blocks.blocks[op % n]
        start = max(when, *(free[d] for d in block.devices))
        if start > when:
            heappush(heap, (start, op))
            continue
        done += 1
        end = start + block.span
        for d in block.devices:
            free[d] = end
            served[d].append(op)
        base, i = op - op % n, op % n
        unlocked = [(base + int(table.after_of[e]), int(table.after_lag[e])) for e in _row(table.after_ptr, i)]
        for other, lag in [*unlocked, *((after, 0) for after in follows.get(op, ()))]:
            ready[other] = max(ready[other], end + lag)
            waits[other] -= 1
            if not waits[other]:
                heappush(heap, (ready[other], other))
    if done < len(waits):
        raise InfeasibleError("the orders of the devices wait for each other for ever (deadlock)")
    return served


def _row(pointer: Indices, i: int) -> range:
    return range(int(pointer[i]), int(pointer[i + 1]))
