"""The period of a cyclic order: the largest ratio of time to repetitions over the cycles of its constraints.

In: a pattern and a cyclic order. Out: the ratio, and starts that keep it. `settle` is for search: floating point, warm
start from the starts of a similar order, ends early above a cut; `cyclic_exact` says the truth. A cycle without
repetitions is a deadlock: no period is long enough.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.schedule.cyclic.order import CyclicOrder, Floats, Pattern
from weftline.simulate.kernels.jit import part

__all__ = ["DEADLOCK", "Potentials", "make_potentials", "push", "push_all", "settle", "start_trial", "undo_trial"]

DEADLOCK = 1e300
"""A ratio above all others."""
TRIAL_STAMP, CHANGED_ITEMS, QUEUE_HEAD, QUEUE_LENGTH, CYCLE_SLOTS = range(5)
"""Slots of `Potentials.state`."""


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
def settle(pattern: Pattern, order: CyclicOrder, now: Potentials, ratio: float, cut: float, margin: float) -> float:
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
                ratio = DEADLOCK if height <= 0 else max(ratio, weight / height)
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
