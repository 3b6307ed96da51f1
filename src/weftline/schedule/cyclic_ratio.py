"""The period of a cyclic order: the largest ratio of time to repetitions over the cycles of its constraints.

In: a pattern and a cyclic order. Out: the ratio, and starts that keep it. `settle` is for search: floating point, warm
start from the starts of a similar order, ends early above a cut. `exact_period` is the truth: integers only. A cycle
without repetitions is a deadlock: no period is long enough.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.schedule.cyclic_order import CyclicOrder, Floats, Pattern
from weftline.simulate.jit import kernel, part

__all__ = [
    "DEADLOCK",
    "Potentials",
    "exact_period",
    "make_potentials",
    "push",
    "push_all",
    "settle",
    "start_trial",
    "undo_trial",
]

DEADLOCK = 1e300
EXACT = 2**61


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


def make_potentials(pattern: Pattern) -> Potentials:
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
    now.state[0] += 1
    now.state[1] = 0
    now.state[2] = 0
    now.state[3] = 0


@part
def undo_trial(now: Potentials) -> None:
    """Take the starts back that the trial changed."""
    for j in range(now.state[1]):
        item = now.changed[j]
        now.start[item] = now.old[item]
    now.state[1] = 0


@part
def push(now: Potentials, item: int) -> None:
    """Put an item into the queue unless it waits there."""
    if not now.queued[item]:
        now.queued[item] = True
        m = len(now.queue)
        tail = now.state[2] + now.state[3]
        now.queue[tail - m if tail >= m else tail] = item
        now.state[3] += 1


@part
def push_all(now: Potentials) -> None:
    """Put all items into the queue."""
    for item in range(len(now.queue)):
        push(now, item)


@part
def _empty(now: Potentials) -> None:
    m = len(now.queue)
    for j in range(now.state[3]):
        now.queued[now.queue[(now.state[2] + j) % m]] = False
    now.state[2] = 0
    now.state[3] = 0


@part
def _relax(
    now: Potentials, item: int, start: float, margin: float, by: int, slot: int, weight: int, height: int
) -> None:
    if start <= now.start[item] + margin:
        return
    if now.seen[item] != now.state[0]:
        now.seen[item] = now.state[0]
        now.old[item] = now.start[item]
        now.visits[item] = 0
        now.changed[now.state[1]] = item
        now.state[1] += 1
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
        if now.seen[node] != now.state[0] or now.parent[node] < 0:
            return -1
        node = now.parent[node]
        if node == item:
            return item
    return node


@part
def _read_cycle(now: Potentials, first: int) -> tuple[int, int]:
    """Time and repetitions of a cycle of parents; its order arcs become the critical cycle."""
    weight, height, node = 0, 0, first
    now.state[4] = 0
    while True:
        weight += now.parent_weight[node]
        height += now.parent_height[node]
        if now.parent_slot[node] >= 0:
            now.cycle[now.state[4]] = now.parent_slot[node]
            now.state[4] += 1
        node = now.parent[node]
        if node == first:
            return weight, height


@part
def settle(pattern: Pattern, order: CyclicOrder, now: Potentials, ratio: float, cut: float, margin: float) -> float:
    """Move the starts of queued items and of what they push until all hold -> the ratio, `ratio` or more.

    Above the cut it ends at once, with starts that mean nothing.
    """
    m = len(now.queue)
    while now.state[3] > 0:
        item = now.queue[now.state[2]]
        now.state[2] = 0 if now.state[2] + 1 == m else now.state[2] + 1
        now.state[3] -= 1
        now.queued[item] = False
        if now.seen[item] == now.state[0] and now.parent[item] >= 0:
            now.visits[item] += 1
            first = _on_cycle(now, item) if now.visits[item] > 1 else -1
            if first >= 0:
                weight, height = _read_cycle(now, first)
                ratio = DEADLOCK if height <= 0 else max(ratio, weight / height)
                if ratio > cut:
                    _empty(now)
                    return ratio
                for j in range(now.state[1]):
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


@kernel
def _exact_pass(
    tail: Ints, head: Ints, weight: Ints, height: Ints, start: Ints, parent: Ints, time: int, repeats: int
) -> bool:
    """One pass over all arcs with weights scaled by `repeats` -> whether a start moved."""
    moved = False
    for a in range(len(tail)):
        value = start[tail[a]] + weight[a] * repeats - time * height[a]
        if value > start[head[a]]:
            start[head[a]] = value
            parent[head[a]] = a
            moved = True
    return moved


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


def exact_period(pattern: Pattern, order: CyclicOrder) -> tuple[Fraction, list[Fraction]] | None:
    """Length of one repetition and starts of the items, exactly; None for a deadlock."""
    tail, head, weight, height = _arcs(pattern, order)
    length = Fraction(max(int(pattern.span[i].sum()) for i in _rows(pattern)))
    largest = int(np.abs(weight).max()) * len(pattern.span) * (int(np.abs(height).max()) + 2)
    one_pass: Any = _exact_pass
    while True:
        time, repeats = length.numerator, length.denominator
        fits = largest * repeats < EXACT and time * (int(np.abs(height).sum()) + 1) < EXACT
        start, parent = np.zeros(len(pattern.span), np.int64 if fits else object), np.full(len(pattern.span), -1)
        run = one_pass if fits else getattr(one_pass, "py_func", one_pass)
        arcs = (tail, head, weight, height) if fits else (tail, head, weight.astype(object), height.astype(object))
        first = -1
        while first < 0 and run(*arcs, start, parent, time, repeats):
            first = _parent_cycle(tail, parent)
        if first < 0:
            return length, [Fraction(int(s), repeats) for s in start]
        total, repetitions = _sum_cycle(tail, weight, height, parent, first)
        if repetitions <= 0:
            return None
        length = Fraction(total, repetitions)


def _rows(pattern: Pattern) -> list[Indices]:
    """Device -> its items."""
    found = [pattern.slot_item[pattern.slot_device == d] for d in range(len(pattern.limit))]
    return [row for row in found if len(row)]


def _arcs(pattern: Pattern, order: CyclicOrder) -> tuple[Ints, Ints, Ints, Ints]:
    m = len(pattern.span)
    tail, head = [np.repeat(np.arange(m), np.diff(pattern.arc_ptr))], [pattern.arc_to.astype(np.int64)]
    weight, height = [pattern.arc_weight], [np.zeros(len(pattern.arc_to), np.int64)]
    for d in range(len(pattern.limit)):
        row = order.slot[pattern.device_ptr[d] : pattern.device_ptr[d + 1]]
        after = np.roll(row, -1)
        wrap = np.zeros(len(row), np.int64)
        wrap[-1:] = 1
        tail.append(pattern.slot_item[row].astype(np.int64))
        head.append(pattern.slot_item[after].astype(np.int64))
        weight.append(pattern.span[pattern.slot_item[row]])
        height.append(order.lag[row] - order.lag[after] + wrap)
    joined = [np.concatenate(rows) for rows in (tail, head, weight, height)]
    return joined[0], joined[1], joined[2], joined[3]


def _sum_cycle(tail: Ints, weight: Ints, height: Ints, parent: Ints, first: int) -> tuple[int, int]:
    total, repetitions, node = 0, 0, first
    while True:
        a = int(parent[node])
        total += int(weight[a])
        repetitions += int(height[a])
        node = int(tail[a])
        if node == first:
            return total, repetitions
