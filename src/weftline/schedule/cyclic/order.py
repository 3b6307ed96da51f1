"""Cyclic orders: for every device a repeating sequence of the blocks of U micro-batches; and their period in search.

In: blocks and U, or starts. Out: `CyclicPattern` (what is fixed) and `CyclicOrder` (what a search changes). Copy u of
block i is item u * n + i. An item stands in one slot on each of its devices; window k of a device runs the slot for
repetition k - lag. Lags belong to slots: the windows of two devices need not begin together. Simplified: balanced
blocks only.

The period is the largest ratio of time to repetitions over the cycles of constraints. `settle` is for search: floating
point, warm start from the starts of a similar order, ends early above a cut; `exact_period` is exact. A cycle
without repetitions is a deadlock: no period is long enough.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.repetend import Repetend
from weftline.simulate.kernels.jit import part

__all__ = ["CyclicOrder", "CyclicPattern", "Potentials", "make_pattern", "order_of_starts", "repeated", "settle"]

Floats = NDArray[np.float64]
Times = NDArray[Any]
"""Whole or not; Python's own integers where 64 bits are not enough."""
WIDE_LIMIT = 2**62
"""Whole numbers below it stay in 64 bits."""
DEADLOCK_RATIO = 1e300
"""A ratio above all others."""
TRIAL_STAMP, CHANGED_ITEMS, QUEUE_HEAD, QUEUE_LENGTH, CYCLE_SLOTS = range(5)
"""Slots of `Potentials.state`."""


class CyclicPattern(NamedTuple):
    """U copies of the blocks; slots of device d are at positions `device_ptr[d]:device_ptr[d + 1]` of an order."""

    span: Ints
    """Item -> how long it takes."""
    arc_ptr: Indices
    arc_to: Indices
    arc_weight: Ints
    """Item -> items that wait for it, and how long after its start."""
    slot_ptr: Indices
    """Item -> its slots `slot_ptr[i]:slot_ptr[i + 1]`, one on each of its devices."""
    slot_item: Indices
    slot_device: Indices
    slot_change: Ints
    """Slot -> change of memory."""
    device_ptr: Indices
    limit: Ints
    unit: Floats
    """Device -> memory that weighs as much as half an activation."""


class CyclicOrder(NamedTuple):
    """One cyclic order of every device."""

    slot: Indices
    """Position -> slot."""
    position: Indices
    """Slot -> position."""
    lag: Ints
    """Slot -> windows by which it lags behind."""


def make_pattern(blocks: Blocks, copies: int) -> CyclicPattern:
    """The arrays of so many micro-batches."""
    table, n = blocks.table, blocks.n
    arcs, slots = np.diff(table.after_ptr), np.diff(table.device_ptr)
    owner = np.repeat(np.arange(n), arcs)
    slot_item = np.repeat(np.arange(n, dtype=np.int32), slots)
    device_ptr = np.zeros(len(blocks.devices) + 1, np.int32)
    np.cumsum(copies * np.bincount(table.device_of, minlength=len(blocks.devices)), out=device_ptr[1:])
    unit = np.ones(len(blocks.devices))
    np.maximum.at(unit, table.device_of, table.device_memory / 2)
    return CyclicPattern(
        _copied(table.span, copies),
        _pointers(arcs, copies),
        _copied(table.after_of, copies, n),
        _copied(table.span[owner] + table.after_lag, copies),
        _pointers(slots, copies),
        _copied(slot_item, copies, n),
        _copied(table.device_of, copies),
        _copied(table.device_memory, copies),
        device_ptr,
        table.limit,
        unit,
    )


def _copied(row: NDArray[Any], copies: int, step: int = 0) -> NDArray[Any]:
    """A row for every copy, each larger than the one before by the step."""
    if copies == 1:
        return row
    shift = np.repeat(np.arange(copies, dtype=row.dtype) * step, len(row))
    return np.asarray(np.tile(row, copies) + shift)


def _pointers(sizes: NDArray[Any], copies: int) -> Indices:
    found = np.zeros(len(sizes) * copies + 1, np.int32)
    np.cumsum(_copied(sizes, copies), out=found[1:])
    return found


def order_of_starts(
    pattern: CyclicPattern, starts: Sequence[float | Fraction] | Times, length: float | Fraction
) -> CyclicOrder:
    """The order that starts mean, whether or not they overlap: by their remainder in the window."""
    if isinstance(length, Fraction):
        starts, length = _whole([Fraction(start) for start in starts], length)
    lags, phase = np.divmod(np.asarray(starts), length)
    lags = (lags - lags.min()).astype(np.int64)
    item = pattern.slot_item
    if phase.dtype == object:  # beyond 64 bits: ranks mean the same
        rank = {value: number for number, value in enumerate(sorted(set(phase)))}
        phase = np.array([rank[value] for value in phase])
    slot = np.lexsort((lags[item], phase[item], pattern.slot_device)).astype(np.int32)
    return _order(slot, lags[item])


def _whole(starts: list[Fraction], length: Fraction) -> tuple[Times, int]:
    """Starts and length in a unit in which all are whole."""
    unit = lcm(length.denominator, *{start.denominator for start in starts})
    rows = [start.numerator * (unit // start.denominator) for start in starts]
    whole = length.numerator * (unit // length.denominator)
    return np.array(rows, np.int64 if max(whole, *map(abs, rows)) < WIDE_LIMIT else object), whole


def repeated(pattern: CyclicPattern, repetend: Repetend) -> CyclicOrder:
    """A repetend run several times, as one repetition of the pattern (whose copies are a multiple of its own)."""
    times = len(pattern.span) // len(repetend.starts)
    starts: list[Fraction] = []
    for turn in range(times):
        starts += [start + turn * repetend.length for start in repetend.starts]
    return order_of_starts(pattern, starts, times * repetend.length)


def _order(slot: Indices, lag: Ints) -> CyclicOrder:
    position = np.empty(len(slot), np.int32)
    position[slot] = np.arange(len(slot), dtype=np.int32)
    return CyclicOrder(slot, position, np.ascontiguousarray(lag, np.int64))


@part
def right_of(pattern: CyclicPattern, order: CyclicOrder, t: int) -> int:
    """The next position on the same device."""
    device = pattern.slot_device[order.slot[t]]
    return t + 1 if t + 1 < pattern.device_ptr[device + 1] else pattern.device_ptr[device]


@part
def left_of(pattern: CyclicPattern, order: CyclicOrder, t: int) -> int:
    """The position before on the same device."""
    device = pattern.slot_device[order.slot[t]]
    return t - 1 if t > pattern.device_ptr[device] else pattern.device_ptr[device + 1] - 1


@part
def excess_of(pattern: CyclicPattern, order: CyclicOrder, device: int) -> float:
    """Memory above the limit, in units; only the order counts."""
    first, last = pattern.device_ptr[device], pattern.device_ptr[device + 1]
    level = 0
    for t in range(first, last):
        slot = order.slot[t]
        level -= pattern.slot_change[slot] * order.lag[slot]
    peak = level
    for t in range(first, last):
        level += pattern.slot_change[order.slot[t]]
        peak = max(peak, level)
    return float(max(0, peak - pattern.limit[device]) / pattern.unit[device])


class Potentials(NamedTuple):
    """Starts of the items, and what one trial of a search changes in them."""

    start: Floats
    old: Floats
    """Item -> start before the trial, where `seen` says that the trial changed it."""
    seen: Ints
    """Item -> last trial that changed it."""
    visits: Indices
    parent: Indices
    """Item -> item that pushes it, -1 for none; valid where `seen`."""
    parent_slot: Indices
    """Item -> slot of the parent whose order pushes it, -1 for an edge."""
    parent_weight: Ints
    parent_height: Ints
    changed: Indices
    queue: Indices
    queued: NDArray[np.bool_]
    cycle: Indices
    """Slots whose order arcs stand on the critical cycle."""
    state: Ints
    """Trial, changed items, head of the queue, its length, slots of the critical cycle."""


def make_potentials(pattern: CyclicPattern) -> Potentials:
    """All starts 0."""
    m = len(pattern.span)
    indices = [np.zeros(m, np.int32) for _ in range(5)]
    return Potentials(
        np.zeros(m),
        np.zeros(m),
        np.zeros(m, np.int64),
        indices[0],
        indices[1],
        indices[2],
        np.zeros(m, np.int64),
        np.zeros(m, np.int64),
        indices[3],
        indices[4],
        np.zeros(m, np.bool_),
        np.zeros(m, np.int32),
        np.zeros(5, np.int64),
    )


@part
def start_trial(now: Potentials) -> None:
    """Forget the last trial: what it changed stays."""
    now.state[TRIAL_STAMP] += 1
    now.state[CHANGED_ITEMS] = 0
    now.state[QUEUE_HEAD] = 0
    now.state[QUEUE_LENGTH] = 0


@part
def undo_trial(now: Potentials) -> None:
    """Take the starts back that the trial changed."""
    for j in range(now.state[CHANGED_ITEMS]):
        item = now.changed[j]
        now.start[item] = now.old[item]
    now.state[CHANGED_ITEMS] = 0


@part
def push(now: Potentials, item: int) -> None:
    """Put an item into the queue unless it waits there."""
    if not now.queued[item]:
        now.queued[item] = True
        m = len(now.queue)
        tail = now.state[QUEUE_HEAD] + now.state[QUEUE_LENGTH]
        now.queue[tail - m if tail >= m else tail] = item
        now.state[QUEUE_LENGTH] += 1


@part
def push_all(now: Potentials) -> None:
    """Put all items into the queue."""
    for item in range(len(now.queue)):
        push(now, item)


@part
def _empty(now: Potentials) -> None:
    m = len(now.queue)
    for j in range(now.state[QUEUE_LENGTH]):
        now.queued[now.queue[(now.state[QUEUE_HEAD] + j) % m]] = False
    now.state[QUEUE_HEAD] = 0
    now.state[QUEUE_LENGTH] = 0


@part
def _relax(
    now: Potentials, item: int, start: float, margin: float, by: int, slot: int, weight: int, height: int
) -> None:
    if start <= now.start[item] + margin:
        return
    if now.seen[item] != now.state[TRIAL_STAMP]:
        now.seen[item] = now.state[TRIAL_STAMP]
        now.old[item] = now.start[item]
        now.visits[item] = 0
        now.changed[now.state[CHANGED_ITEMS]] = item
        now.state[CHANGED_ITEMS] += 1
    now.start[item] = start
    now.parent[item] = by
    now.parent_slot[item] = slot
    now.parent_weight[item] = weight
    now.parent_height[item] = height
    push(now, item)


@part
def _on_cycle(now: Potentials, item: int) -> int:
    """An item of the cycle of parents that the item hangs on, or -1."""
    node = item
    for _ in range(len(now.queue) + 1):
        if now.seen[node] != now.state[TRIAL_STAMP] or now.parent[node] < 0:
            return -1
        node = now.parent[node]
        if node == item:
            return item
    return node


@part
def _read_cycle(now: Potentials, first: int) -> tuple[int, int]:
    """Time and repetitions of a cycle of parents; its order arcs become the critical cycle."""
    weight, height, node = 0, 0, first
    now.state[CYCLE_SLOTS] = 0
    while True:
        weight += now.parent_weight[node]
        height += now.parent_height[node]
        if now.parent_slot[node] >= 0:
            now.cycle[now.state[CYCLE_SLOTS]] = now.parent_slot[node]
            now.state[CYCLE_SLOTS] += 1
        node = now.parent[node]
        if node == first:
            return weight, height


@part
def settle(
    pattern: CyclicPattern, order: CyclicOrder, now: Potentials, ratio: float, cut: float, margin: float
) -> float:
    """Move the starts of queued items and of what they push until all hold -> the ratio, `ratio` or more.

    Above the cut it ends at once, with starts that mean nothing.
    """
    m = len(now.queue)
    while now.state[QUEUE_LENGTH] > 0:
        item = now.queue[now.state[QUEUE_HEAD]]
        now.state[QUEUE_HEAD] = 0 if now.state[QUEUE_HEAD] + 1 == m else now.state[QUEUE_HEAD] + 1
        now.state[QUEUE_LENGTH] -= 1
        now.queued[item] = False
        if now.seen[item] == now.state[TRIAL_STAMP] and now.parent[item] >= 0:
            now.visits[item] += 1
            first = _on_cycle(now, item) if now.visits[item] > 1 else -1
            if first >= 0:
                weight, height = _read_cycle(now, first)
                ratio = DEADLOCK_RATIO if height <= 0 else max(ratio, weight / height)
                if ratio > cut:
                    _empty(now)
                    return ratio
                for j in range(now.state[CHANGED_ITEMS]):
                    now.parent[now.changed[j]] = -1
                    now.visits[now.changed[j]] = 0
                push_all(now)
        start = now.start[item]
        for a in range(pattern.arc_ptr[item], pattern.arc_ptr[item + 1]):
            weight = pattern.arc_weight[a]
            _relax(now, pattern.arc_to[a], start + weight, margin, item, -1, weight, 0)
        span = pattern.span[item]
        for slot in range(pattern.slot_ptr[item], pattern.slot_ptr[item + 1]):
            device = pattern.slot_device[slot]
            t = order.position[slot] + 1
            wrap = 0
            if t == pattern.device_ptr[device + 1]:
                t, wrap = pattern.device_ptr[device], 1
            after = order.slot[t]
            if after != slot:
                height = order.lag[slot] - order.lag[after] + wrap
                start_after = start + span - ratio * height
                _relax(now, pattern.slot_item[after], start_after, margin, item, slot, span, height)
    return ratio
