"""The exact period of a cyclic order: integers only, all of it in one kernel while they fit into 64 bits.

In: a pattern and a cyclic order. Out: length of a repetition and starts that keep it, as fractions; None for a
deadlock. The length begins at the largest load and rises from cycle to cycle until starts settle. Beyond 64 bits the
same steps run on Python's integers.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np

from weftline.graph.arrays import Ints
from weftline.schedule.cyclic.order import CyclicOrder, Pattern
from weftline.simulate.kernels.jit import kernel

__all__ = ["exact_period"]

EXACT = 2.0**61
DEADLOCKED, TOO_LARGE = 0, -1
"""Said in the place of repetitions."""

Arcs = tuple[Ints, Ints, Ints, Ints]
"""Tail, head, weight, height."""


def exact_period(pattern: Pattern, order: CyclicOrder) -> tuple[Fraction, list[Fraction]] | None:
    """Length of one repetition and starts of the items, exactly; None for a deadlock."""
    time, repeats, start = _exact(pattern, order)
    if repeats == TOO_LARGE:
        time, repeats, start = _beyond(pattern, order)
    if repeats == DEADLOCKED:
        return None
    if repeats == 1:
        return Fraction(time), [Fraction(s) for s in start.tolist()]
    return Fraction(time, repeats), [Fraction(s, repeats) for s in start.tolist()]


@kernel
def _exact(pattern: Pattern, order: CyclicOrder) -> tuple[int, int, Ints]:
    """Length as time and repetitions; starts are scaled by the repetitions."""
    arcs = _arcs(pattern, order)
    weight, height = arcs[2], arcs[3]
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
        if largest * repeats >= EXACT or time * turns >= EXACT:
            return time, TOO_LARGE, start
        first = _settle(arcs, start, parent, time, repeats)
        if first < 0:
            return time, repeats, start
        time, repeats = _sum_cycle(arcs, parent, first)
        if repeats <= 0:
            return time, DEADLOCKED, start
        unit, rest = time, repeats
        while rest:
            unit, rest = rest, unit % rest
        time //= unit
        repeats //= unit


def _beyond(pattern: Pattern, order: CyclicOrder) -> tuple[int, int, Any]:
    """The same with integers of any size."""
    tail, head, weight, height = _arcs(pattern, order)
    arcs: Any = (tail, head, weight.astype(object), height.astype(object))
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
            return total, DEADLOCKED, start
        length = Fraction(int(total), int(repetitions))


@kernel
def _arcs(pattern: Pattern, order: CyclicOrder) -> Arcs:
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
    return tail, head, weight, height


@kernel
def _longest_row(pattern: Pattern) -> int:
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
    tail, _, weight, height = arcs
    total, repetitions, node = 0, 0, first
    while True:
        a = parent[node]
        total += weight[a]
        repetitions += height[a]
        node = tail[a]
        if node == first:
            return total, repetitions
