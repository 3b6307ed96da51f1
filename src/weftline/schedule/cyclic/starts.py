"""Cyclic orders to start a search from: made at once, often without idle time but beyond the memory limits.

In: blocks, U, a random generator. Out: starts of U micro-batches for a given length of the repetition, in which edges
hold but blocks may overlap (where no free slot is found): only their order matters. Modulo placement puts block after
block into the first free slot of the repeating window; compaction fills the window without looking at edges and lets
lags keep them later; projection reads a few micro-batches from the middle of a finished schedule.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks, BlockTable
from weftline.schedule.list.priority import ListRun, list_variants
from weftline.simulate import Orders, Timetable, simulate_schedule
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.sentinels import NEVER

__all__ = ["compact", "compaction", "list_timetables", "modulo_placement", "place_in_order", "projection"]

MOST_LOOKS = 64
"""Candidate slots that a block looks at before it overlaps."""


class Window(NamedTuple):
    """What is taken: device d has `size[d]` intervals in its row."""

    size: Ints
    start: Ints
    width: Ints


@part
def _make_window(table: BlockTable, copies: int) -> Window:
    """Nothing is taken; device d has the columns of row d."""
    size = np.zeros(len(table.limit), np.int64)
    for j in range(len(table.device_of)):
        size[table.device_of[j]] += copies
    most = size.max()
    size[:] = 0
    return Window(size, np.zeros((len(size), most), np.int64), np.zeros((len(size), most), np.int64))


@part
def _is_free(table: BlockTable, window: Window, block: int, start: int, length: int) -> bool:
    for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
        device = table.device_of[j]
        for k in range(window.size[device]):
            distance = (start - window.start[device, k]) % length
            if distance < window.width[device, k] or distance + table.span[block] > length:
                return False
    return True


@part
def _first_free(table: BlockTable, window: Window, block: int, ready: int, length: int) -> int:
    """The earliest start from `ready` on, within one length, that overlaps nothing; -1 if none is found."""
    start = ready
    for _ in range(MOST_LOOKS):
        if _is_free(table, window, block, start, length):
            return start
        after = NEVER
        for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
            device = table.device_of[j]
            for k in range(window.size[device]):
                end = ready + (window.start[device, k] + window.width[device, k] - ready) % length
                if end > start:
                    after = min(after, end)
        if after == NEVER:
            break
        start = after
    return -1


@part
def _take(table: BlockTable, window: Window, block: int, start: int, length: int) -> None:
    for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
        device = table.device_of[j]
        window.start[device, window.size[device]] = start % length
        window.width[device, window.size[device]] = table.span[block]
        window.size[device] += 1


@kernel
def place_in_order(table: BlockTable, order: Indices, copies: int, length: int) -> Ints:
    """Each block into the first free slot after what it waits for; copy u is ready u / copies of the length later."""
    n, window = len(table.span), _make_window(table, copies)
    ready = np.zeros(copies * n, np.int64)
    for item in range(copies * n):
        ready[item] = length * (item // n) // copies
    for k in range(n):
        block = order[k]
        for copy in range(copies):
            item = copy * n + block
            ready[item] = max(ready[item], _first_free(table, window, block, ready[item], length))
            _take(table, window, block, ready[item], length)
            for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
                after = copy * n + table.after_of[e]
                ready[after] = max(ready[after], ready[item] + table.span[block] + table.after_lag[e])
    return ready


@kernel
def compact(table: BlockTable, items: Ints, copies: int, length: int) -> Ints:
    """Items into free slots without a look at edges; then, from the end, as late as what waits for them allows."""
    n, window = len(table.span), _make_window(table, copies)
    starts = np.zeros(copies * n, np.int64)
    for k in range(copies * n):
        block = items[k] % n
        starts[items[k]] = max(0, _first_free(table, window, block, 0, length)) % length
        _take(table, window, block, starts[items[k]], length)
    for k in range(n - 1, -1, -1):
        block = table.order[k]
        for copy in range(copies):
            item, latest = copy * n + block, NEVER
            for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
                wait = table.span[block] + table.after_lag[e]
                latest = min(latest, starts[copy * n + table.after_of[e]] - wait)
            if latest < NEVER:
                starts[item] += length * ((latest - starts[item]) // length)
    return starts


def modulo_placement(blocks: Blocks, copies: int, length: int, random: Random | None = None) -> Ints:
    """Blocks in a topological order (or a random one), each into the first free slot after what it waits for.

    Copy u begins u / copies of the length later.
    """
    return place_in_order(blocks.table, _order(blocks, random), copies, length)


def compaction(blocks: Blocks, copies: int, length: int, random: Random) -> Ints:
    """Blocks on many devices first, then the others in any order, without edges; then as few lags as edges need."""
    n = blocks.n
    items = [(-len(blocks.blocks[i % n].devices), random.random(), i) for i in range(copies * n)]
    return compact(blocks.table, np.array([item for *_, item in sorted(items)]), copies, length)


def list_timetables(
    blocks: Blocks, is_over: Callable[[], bool], *, most: int, most_variants: int, most_operations: int
) -> list[Timetable]:
    """Long schedules of the best list rules, to be projected."""
    count = max(12, min(6 * len(blocks.devices) + 24, most_operations // blocks.n))
    run = ListRun(blocks, count)
    made: dict[int, Orders] = {}
    variants = list_variants(blocks, count)
    for rules in variants[:: -(-len(variants) // most_variants)]:
        if is_over():
            break
        makespan = run.run(rules)
        if makespan >= 0:
            made.setdefault(makespan, run.orders())
    return [simulate_schedule(blocks, count, made[key]) for key in sorted(made)[:most]]


def projection(timetable: Timetable, copies: int, random: Random) -> tuple[list[float], float] | None:
    """Starts of some micro-batches from the middle of a schedule, and the length that they suggest."""
    n, count = timetable.blocks.n, timetable.micro_batches
    if count < 4 * copies:
        return None
    first = (count - copies) // 3 + random.randrange(1 + (count - copies) // 6)
    span = min(count - copies - first, copies * 4)
    starts = timetable.start.reshape(count, n)
    length = float(starts[first + span].mean() - starts[first].mean()) / span * copies if span else 0.0
    if length <= 0:
        return None
    return [float(s) for s in starts[first : first + copies].ravel()], length


def _order(blocks: Blocks, random: Random | None) -> Indices:
    """A topological order, of the numbers or a random one."""
    table = blocks.table
    if random is None:
        return table.order
    waits = [int(table.before_ptr[i + 1] - table.before_ptr[i]) for i in range(blocks.n)]
    ready, order = [i for i in range(blocks.n) if not waits[i]], []
    while ready:
        order.append(ready.pop(random.randrange(len(ready))))
        for e in range(table.after_ptr[order[-1]], table.after_ptr[order[-1] + 1]):
            after = int(table.after_of[e])
            waits[after] -= 1
            if not waits[after]:
                ready.append(after)
    return np.array(order, np.int32)
