"""Exact periods: of a cyclic order, and the least of all orders of one micro-batch of a linear pipeline.

`exact_period`: a pattern and a cyclic order -> length of a repetition and starts that keep it, as fractions; None for a
deadlock. The length begins at the largest load and rises from cycle to cycle until starts settle: integers only, in one
kernel while they fit into 64 bits, beyond that the same steps on Python's integers.

`least_linear_period`: a linear pipeline has on every device one F, one B, perhaps one W; all F in a row, then all B
back, each W after its B. It is recognised by its edges and memory changes, not by names. For a given period the devices
are settled from last to first: the time from F to B of a device should be short, and the shortest possible after it is
never worse.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.cyclic.order import CyclicOrder, CyclicPattern, make_pattern, order_of_starts
from weftline.schedule.repetend import Repetend, repetend_of_starts
from weftline.simulate.kernels.jit import kernel

__all__ = ["LinearPipeline", "exact_period", "fraction_below", "least_linear_period", "linear_pipeline"]

EXACT_LIMIT = 2.0**61
"""Below it floating point says for certain that 64 bits are enough."""
IS_DEADLOCKED, IS_TOO_LARGE = 0, -1
"""Said in the place of repetitions."""


class Arcs(NamedTuple):
    """Constraints: the head starts at least `weight` after the tail, `height` repetitions later."""

    tail: Ints
    head: Ints
    weight: Ints
    height: Ints


def exact_period(pattern: CyclicPattern, order: CyclicOrder) -> tuple[Fraction, list[Fraction]] | None:
    """Length of one repetition and starts of the items, exactly; None for a deadlock."""
    time, repeats, start = _exact(pattern, order)
    if repeats == IS_TOO_LARGE:
        time, repeats, start = _beyond(pattern, order)
    if repeats == IS_DEADLOCKED:
        return None
    if repeats == 1:
        return Fraction(time), [Fraction(s) for s in start.tolist()]
    return Fraction(time, repeats), [Fraction(s, repeats) for s in start.tolist()]


@kernel
def _exact(pattern: CyclicPattern, order: CyclicOrder) -> tuple[int, int, Ints]:
    """Length as time and repetitions; starts are scaled by the repetitions."""
    arcs = _arcs(pattern, order)
    weight, height = arcs.weight, arcs.height
    start = np.zeros(len(pattern.span), np.int64)
    parent = np.full(len(pattern.span), -1, np.int64)
    heaviest, highest, turns = 0, 0, 1.0
    for a in range(len(weight)):
        heaviest = max(heaviest, abs(weight[a]))
        highest = max(highest, abs(height[a]))
        turns += abs(height[a])
    largest = float(heaviest) * len(start) * (highest + 2)
    time, repeats = _longest_row(pattern), 1
    while True:
        if largest * repeats >= EXACT_LIMIT or time * turns >= EXACT_LIMIT:
            return time, IS_TOO_LARGE, start
        first = _settle(arcs, start, parent, time, repeats)
        if first < 0:
            return time, repeats, start
        time, repeats = _sum_cycle(arcs, parent, first)
        if repeats <= 0:
            return time, IS_DEADLOCKED, start
        unit, rest = time, repeats
        while rest:
            unit, rest = rest, unit % rest
        time //= unit
        repeats //= unit


def _beyond(pattern: CyclicPattern, order: CyclicOrder) -> tuple[int, int, Any]:
    """The same with integers of any size."""
    small = _arcs(pattern, order)
    arcs: Any = small._replace(weight=small.weight.astype(object), height=small.height.astype(object))
    settle: Any = getattr(_settle, "py_func", _settle)
    sum_cycle: Any = getattr(_sum_cycle, "py_func", _sum_cycle)
    start: Any = np.zeros(len(pattern.span), object)
    parent = np.full(len(pattern.span), -1, np.int64)
    length = Fraction(int(_longest_row(pattern)))
    while True:
        first = settle(arcs, start, parent, length.numerator, length.denominator)
        if first < 0:
            return length.numerator, length.denominator, start
        total, repetitions = sum_cycle(arcs, parent, first)
        if repetitions <= 0:
            return total, IS_DEADLOCKED, start
        length = Fraction(int(total), int(repetitions))


@kernel
def _arcs(pattern: CyclicPattern, order: CyclicOrder) -> Arcs:
    """Edges, then for every device each slot and the next one."""
    edges, slots = len(pattern.arc_to), len(order.slot)
    tail, head = np.empty(edges + slots, np.int64), np.empty(edges + slots, np.int64)
    weight, height = np.empty(edges + slots, np.int64), np.zeros(edges + slots, np.int64)
    for item in range(len(pattern.span)):
        for a in range(pattern.arc_ptr[item], pattern.arc_ptr[item + 1]):
            tail[a], head[a], weight[a] = item, pattern.arc_to[a], pattern.arc_weight[a]
    for device in range(len(pattern.limit)):
        first, last = pattern.device_ptr[device], pattern.device_ptr[device + 1]
        for t in range(first, last):
            slot, after = order.slot[t], order.slot[t + 1 if t + 1 < last else first]
            a = edges + t
            tail[a], head[a] = pattern.slot_item[slot], pattern.slot_item[after]
            weight[a] = pattern.span[tail[a]]
            height[a] = order.lag[slot] - order.lag[after] + (0 if t + 1 < last else 1)
    return Arcs(tail, head, weight, height)


@kernel
def _longest_row(pattern: CyclicPattern) -> int:
    """The largest load of a device: the ratio of one cycle."""
    row = np.zeros(len(pattern.limit), np.int64)
    for slot in range(len(pattern.slot_item)):
        row[pattern.slot_device[slot]] += pattern.span[pattern.slot_item[slot]]
    return int(row.max())


@kernel
def _settle(arcs: Arcs, start: Ints, parent: Ints, time: int, repeats: int) -> int:
    """Push starts along arcs, weights scaled by `repeats` -> -1 when all hold, or an item on a cycle of parents."""
    tail, head, weight, height = arcs
    start[:] = 0
    parent[:] = -1
    while True:
        moved = False
        for a in range(len(tail)):
            value = start[tail[a]] + weight[a] * repeats - time * height[a]
            if value > start[head[a]]:
                start[head[a]] = value
                parent[head[a]] = a
                moved = True
        if not moved:
            return -1
        first = _parent_cycle(tail, parent)
        if first >= 0:
            return first


@kernel
def _parent_cycle(tail: Ints, parent: Ints) -> int:
    """An item on a cycle of parents, or -1."""
    colour = np.zeros(len(parent), np.int64)
    for first in range(len(parent)):
        node = first
        while colour[node] == 0 and parent[node] >= 0:
            colour[node] = first + 1
            node = tail[parent[node]]
        if colour[node] == first + 1 and parent[node] >= 0:
            return int(node)
        if colour[node] == 0:
            colour[node] = first + 1
    return -1


@kernel
def _sum_cycle(arcs: Arcs, parent: Ints, first: int) -> tuple[int, int]:
    """Time and repetitions of a cycle of parents."""
    tail, weight, height = arcs.tail, arcs.weight, arcs.height
    total, repetitions, node = 0, 0, first
    while True:
        a = parent[node]
        total += weight[a]
        repetitions += height[a]
        node = tail[a]
        if node == first:
            return total, repetitions


@dataclass(frozen=True)
class LinearStage:
    """The blocks of one device (W is -1 if there is none) and its memory limit."""

    f: int
    b: int
    w: int
    limit: int
    f_lag: int = 0
    """Latency from F to the next stage's F."""
    b_lag: int = 0
    """Latency from the next stage's B to B."""


@dataclass(frozen=True)
class LinearPipeline:
    """Stages in the order of the forward pass."""

    blocks: Blocks
    stages: tuple[LinearStage, ...]

    def starts(self, period: Fraction) -> list[Fraction] | None:
        """Starts of all blocks with this period, or None: then there are none."""
        unit = period.denominator
        found = self._starts(period.numerator, unit)
        return None if found is None else [Fraction(start, unit) for start in found]

    def _starts(self, period: int, unit: int) -> list[int] | None:
        """The same in whole numbers: all times are in parts of a time unit."""
        distance, weight = [0] * len(self.stages), [0] * len(self.stages)
        least = 0
        for number in reversed(range(len(self.stages))):
            stage = self.stages[number]
            found = self._shortest(stage, least, period, unit)
            if found is None:
                return None
            distance[number], weight[number] = found
            if number:
                before = self.stages[number - 1]
                lags = before.f_lag + before.b_lag
                least = distance[number] + (self._span(before.f) + self._span(stage.b) + lags) * unit
        starts, begin = [0] * self.blocks.n, 0
        for stage, gap, delay in zip(self.stages, distance, weight, strict=True):
            starts[stage.f], starts[stage.b] = begin, begin + gap
            if stage.w >= 0:
                starts[stage.w] = begin + gap + delay
            begin += (self._span(stage.f) + stage.f_lag) * unit
        return starts

    def _span(self, block: int) -> int:
        return self.blocks.blocks[block].span

    def _shortest(self, stage: LinearStage, least: int, period: int, unit: int) -> tuple[int, int] | None:
        """Shortest time from F to B on a device that keeps its memory, and the time from B to W."""
        f, b = self._span(stage.f) * unit, self._span(stage.b) * unit
        w = self._span(stage.w) * unit if stage.w >= 0 else 0
        candidates = []
        if f <= period - b - w:  # W right after B
            candidates.append((_next_in(max(least, f), f, period - b - w, period), b))
        if w and f + w <= period - b:  # W right after the next F
            distance = _next_in(max(least, f), f + w, period - b, period)
            candidates.append((distance, period - distance % period + f))
        for distance, delay in sorted(candidates):
            if self._peak(stage, distance, delay, period) <= stage.limit:
                return distance, delay
        return None

    def _peak(self, stage: LinearStage, distance: int, delay: int, period: int) -> int:
        """Memory when F starts, the largest: of F, of repetitions before their B, of those between B and W."""
        taken, given = self.blocks.blocks[stage.f].memory[0], self.blocks.blocks[stage.b].memory[0]
        before_b = distance // period
        before_w = (distance + delay) // period
        return taken * (1 + before_b) + (taken + given) * (before_w - before_b)


def _next_in(least: int, low: int, high: int, period: int) -> int:
    """The smallest number >= least whose remainder in the period lies in [low, high]."""
    turns, rest = divmod(least, period)
    if rest <= high:
        return turns * period + max(rest, low)
    return (turns + 1) * period + low


def linear_pipeline(blocks: Blocks) -> LinearPipeline | None:
    """The pipeline that the blocks are, or None."""
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for i, block in enumerate(blocks.blocks):
        if len(block.devices) != 1:
            return None
        rows[block.devices[0]].append(i)
    used = [(d, row) for d, row in enumerate(rows) if row]
    lags = {(a, b): lag for a, b, lag in blocks.edges}
    stages: dict[int, LinearStage] = {}
    for device, row in used:
        stage = _stage(blocks, device, row, lags)
        if stage is None:
            return None
        stages[stage.f] = stage
    return _in_a_row(blocks, stages, lags)


def _stage(blocks: Blocks, device: int, row: list[int], lags: dict[tuple[int, int], int]) -> LinearStage | None:
    """The one block that takes memory, the one that gives back, and perhaps one more after it without successors."""
    takes = [i for i in row if blocks.blocks[i].memory[0] > 0]
    rest = [i for i in row if blocks.blocks[i].memory[0] <= 0]
    if len(takes) != 1 or len(rest) not in (1, 2) or blocks.devices[device].link:
        return None
    limit = blocks.devices[device].room
    if len(rest) == 1:
        return LinearStage(takes[0], rest[0], -1, limit)
    for b, w in (rest, rest[::-1]):
        if lags.get((b, w)) == 0 and not any(source == w for source, _ in lags):
            return LinearStage(takes[0], b, w, limit)
    return None


def _in_a_row(
    blocks: Blocks, stages: dict[int, LinearStage], lags: dict[tuple[int, int], int]
) -> LinearPipeline | None:
    """Put stages in the order of their F, and check that there is no other edge."""
    heads = [f for f in stages if not any(target == f for _, target in lags)]
    if len(heads) != 1 or not blocks.balanced:
        return None
    left = dict(lags)
    found: list[LinearStage] = []
    here = stages[heads[0]]
    while True:
        if left.pop((here.f, here.b), 0) or (here.w >= 0 and left.pop((here.b, here.w), 1)):
            return None
        after = [stages[b] for a, b in left if a == here.f and b in stages]
        if not after:
            found.append(here)
            break
        f_lag, b_lag = left.pop((here.f, after[0].f)), left.pop((after[0].b, here.b), None)
        if len(after) > 1 or b_lag is None:
            return None
        found.append(LinearStage(here.f, here.b, here.w, here.limit, f_lag, b_lag))
        here = after[0]
    direct = (here.f, here.b) in lags
    return LinearPipeline(blocks, tuple(found)) if not left and direct and len(found) == len(stages) else None


def fraction_below(value: Fraction, most: int) -> Fraction:
    """The largest fraction below a value with a denominator up to `most`."""
    best = Fraction(0)
    for denominator in range(1, max(1, most) + 1):
        numerator = -(-value.numerator * denominator // value.denominator) - 1
        best = max(best, Fraction(numerator, denominator))
    return best


def least_linear_period(
    pipeline: LinearPipeline, bound: Fraction, pattern: CyclicPattern | None = None
) -> Repetend | None:
    """The repetend of one micro-batch with the least period of all, or None: memory is too small for any."""
    blocks = pipeline.blocks
    longest = Fraction(sum(b.span for b in blocks.blocks) + sum(lag for *_, lag in blocks.edges))
    low, high = -(-bound.numerator // bound.denominator) - 1, int(longest)
    starts, length = pipeline.starts(bound), bound
    if starts is None:
        starts, length = pipeline.starts(longest), longest
        if starts is None:
            return None
        while high - low > 1:  # feasible at high, and nothing below the bound
            middle = (low + high) // 2
            found = pipeline.starts(Fraction(middle)) if middle >= bound else None
            if found is None:
                low = middle
            else:
                high, starts, length = middle, found, Fraction(middle)
    pattern = make_pattern(blocks, 1) if pattern is None else pattern
    while True:  # periods are ratios of cycles: try the next smaller one until there is none
        repetend = _tight(blocks, pattern, starts, length)
        if repetend.length <= bound:
            return repetend
        below = fraction_below(repetend.length, int(longest / bound) + 1)
        if below < bound:
            return repetend
        found = pipeline.starts(below)
        if found is None:
            return repetend
        starts, length = found, below


def _tight(blocks: Blocks, pattern: CyclicPattern, starts: list[Fraction], length: Fraction) -> Repetend:
    """The repetend with the least period of the order that starts mean."""
    exact = exact_period(pattern, order_of_starts(pattern, starts, length))
    assert exact is not None
    return repetend_of_starts(blocks, 1, exact[0], exact[1])
