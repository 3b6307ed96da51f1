"""Blocks and an order for every device -> a Timetable: when everything starts, what it costs, what memory it needs.

Every operation starts as early as its devices' orders and its edges allow. Simplified: a device does nothing but its
order; what is sent does not hold the sender (unless a link is a device of its own).

An operation is a block of a micro-batch: number = micro-batch * blocks + block. In kernels, orders are compressed rows:
device d does `of[ptr[d]:ptr[d+1]]` one after another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks, BlockTable
from weftline.simulate.kernels.jit import kernel

__all__ = [
    "Orders",
    "Timetable",
    "earliest_starts",
    "flat_orders",
    "memory_peaks",
    "misplaced",
    "schedule_violations",
    "simulate_schedule",
]


@kernel
def earliest_starts(table: BlockTable, count: int, ptr: Ints, of: Ints, span: Ints, lag: Ints, start: Ints) -> int:
    """Write the earliest start of every operation -> makespan, or -1 where the orders wait for each other for ever.

    `span` has one entry per operation, `lag` one per micro-batch and incoming edge (as in the table): so times may
    differ between micro-batches.
    """
    n = len(table.span)
    lags = len(table.before_of)
    waits = np.zeros(count * n, np.int32)
    follower = np.full(count * len(table.device_of), -1, np.int64)
    for op in range(count * n):
        block = op % n
        waits[op] = table.before_ptr[block + 1] - table.before_ptr[block]
        start[op] = 0
    for device in range(len(ptr) - 1):
        for t in range(ptr[device], ptr[device + 1] - 1):
            block = of[t] % n
            for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
                if table.device_of[j] == device:
                    follower[of[t] // n * len(table.device_of) + j] = of[t + 1]
            waits[of[t + 1]] += 1
    stack = np.empty(count * n, np.int64)
    size = 0
    for op in range(count * n):
        if waits[op] == 0:
            stack[size] = op
            size += 1
    done, makespan = 0, 0
    while size:
        size -= 1
        op = stack[size]
        done += 1
        micro, block = op // n, op % n
        end = start[op] + span[op]
        makespan = max(makespan, end)
        for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
            after = follower[micro * len(table.device_of) + j]
            if after >= 0:
                start[after] = max(start[after], end)
                waits[after] -= 1
                if waits[after] == 0:
                    stack[size] = after
                    size += 1
        for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
            target = table.after_of[e]
            after = micro * n + target
            delay = 0
            for back in range(table.before_ptr[target], table.before_ptr[target + 1]):
                if table.before_of[back] == block:
                    delay = lag[micro * lags + back]
            start[after] = max(start[after], end + delay)
            waits[after] -= 1
            if waits[after] == 0:
                stack[size] = after
                size += 1
    return makespan if done == count * n else -1


@kernel
def memory_peaks(table: BlockTable, ptr: Ints, of: Ints) -> Ints:
    """Device -> largest sum of changes along its order (0 when it stays below)."""
    n = len(table.span)
    peak = np.zeros(len(ptr) - 1, np.int64)
    for device in range(len(ptr) - 1):
        level = 0
        for t in range(ptr[device], ptr[device + 1]):
            block = of[t] % n
            for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
                if table.device_of[j] == device:
                    level += table.device_memory[j]
            peak[device] = max(peak[device], level)
    return peak


@kernel
def misplaced(table: BlockTable, count: int, ptr: Ints, of: Ints) -> int:
    """A device whose order does not hold each of its operations exactly once, or -1."""
    n, slots = len(table.span), len(table.device_of)
    wanted = np.zeros(len(ptr) - 1, np.int64)
    for j in range(slots):
        wanted[table.device_of[j]] += count
    seen = np.zeros(count * slots, np.bool_)
    for device in range(len(ptr) - 1):
        if ptr[device + 1] - ptr[device] != wanted[device]:
            return device
        for t in range(ptr[device], ptr[device + 1]):
            if of[t] < 0 or of[t] >= count * n:
                return device
            block, place = of[t] % n, -1
            for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
                if table.device_of[j] == device:
                    place = of[t] // n * slots + j
            if place < 0 or seen[place]:
                return device
            seen[place] = True
    return -1


Orders = tuple[Ints, ...]
"""Device -> its operations in order; operation = micro-batch * blocks + block."""


@dataclass(frozen=True, eq=False)
class Timetable:
    """What a schedule does, and when."""

    blocks: Blocks
    micro_batches: int
    orders: Orders
    start: Ints
    """Operation -> its start."""
    span: Ints
    """Operation -> how long it takes."""
    peak_memory: tuple[int, ...]
    """Device -> largest sum of changes along its order, with what is reserved."""

    @cached_property
    def end(self) -> Ints:
        """Operation -> its end."""
        return self.start + self.span

    @cached_property
    def makespan(self) -> int:
        """From time 0 to the last end."""
        return int(self.end.max())

    @cached_property
    def busy(self) -> tuple[int, ...]:
        """Device -> time that it works."""
        return tuple(int(self.span[order].sum()) for order in self.orders)

    @property
    def bubbles(self) -> tuple[int, ...]:
        """Device -> makespan without its work; 0 for links."""
        return self._idle([self.makespan] * len(self.orders))

    @property
    def bubble(self) -> int:
        """The largest of the devices' bubbles."""
        return max(self.bubbles)

    @cached_property
    def device_spans(self) -> tuple[int, ...]:
        """Device -> time from its first start to its last end."""
        return tuple(int(self.end[order[-1]] - self.start[order[0]]) if len(order) else 0 for order in self.orders)

    @property
    def device_span(self) -> int:
        """The longest time that a device needs from its first start to its last end; links do not count."""
        return max(s for s, lane in zip(self.device_spans, self.blocks.devices, strict=True) if not lane.link)

    @property
    def device_span_bubble(self) -> int:
        """The largest idle time between a device's first start and last end."""
        return max(self._idle(list(self.device_spans)))

    @property
    def longest_latency(self) -> int:
        """From the first start of a micro-batch to its last end, of the slowest one."""
        shape = self.micro_batches, self.blocks.n
        return int((self.end.reshape(shape).max(axis=1) - self.start.reshape(shape).min(axis=1)).max())

    def latency_after(self, block: int) -> int:
        """The longest time from the end of a block to the last end of its micro-batch."""
        ends = self.end.reshape(self.micro_batches, self.blocks.n)
        return int((ends.max(axis=1) - ends[:, block]).max())

    def _idle(self, whole: Sequence[int]) -> tuple[int, ...]:
        lanes = zip(whole, self.busy, self.blocks.devices, strict=True)
        return tuple(0 if lane.link else length - busy for length, busy, lane in lanes)


def simulate_schedule(
    blocks: Blocks, micro_batches: int, orders: Sequence[Ints], *, span: Ints | None = None, lag: Ints | None = None
) -> Timetable:
    """Start everything as early as the orders allow; `InfeasibleError` if they wait for each other for ever.

    `span` (per operation) and `lag` (per micro-batch and incoming edge) replace the times of the blocks, for noise.
    """
    table, n = blocks.table, blocks.n
    ptr, of = flat_orders(blocks, micro_batches, orders)
    span = _repeated(table.span, micro_batches) if span is None else np.ascontiguousarray(span, np.int64)
    lag = _repeated(table.before_lag, micro_batches) if lag is None else np.ascontiguousarray(lag, np.int64)
    if span.shape != (micro_batches * n,) or lag.shape != (micro_batches * len(table.before_lag),):
        raise UsageError("times need one entry per operation, latencies one per micro-batch and edge")
    start = np.zeros(micro_batches * n, np.int64)
    if earliest_starts(table, micro_batches, ptr, of, span, lag, start) < 0:
        raise InfeasibleError("the orders of the devices wait for each other for ever (deadlock)")
    kept = tuple(of[begin:end] for begin, end in pairwise(ptr.tolist()))
    peaks = zip(memory_peaks(table, ptr, of).tolist(), blocks.devices, strict=True)
    held = tuple(peak + lane.reserved for peak, lane in peaks)
    return Timetable(blocks, micro_batches, kept, start, span, held)


def _repeated(row: Ints, times: int) -> Ints:
    """A row again and again; faster than `np.tile`."""
    rows = np.empty((times, len(row)), np.int64)
    rows[:] = row
    return rows.ravel()


def flat_orders(blocks: Blocks, micro_batches: int, orders: Sequence[Ints]) -> tuple[Ints, Ints]:
    """Orders as kernels want them; every operation must stand once on each of its devices."""
    if micro_batches < 1 or len(orders) != len(blocks.devices):
        raise UsageError("a schedule has at least one micro-batch and an order for every device")
    ptr = np.zeros(len(orders) + 1, np.int64)
    np.cumsum([len(order) for order in orders], out=ptr[1:])
    of = np.concatenate([np.asarray(order, np.int64) for order in orders]) if ptr[-1] else np.zeros(0, np.int64)
    wrong = misplaced(blocks.table, micro_batches, ptr, of)
    if wrong >= 0:
        name = blocks.devices[wrong].id
        raise UsageError(f"the order of device {name!r} must hold each of its operations exactly once")
    return ptr, of


def schedule_violations(timetable: Timetable) -> tuple[str, ...]:
    """What breaks a limit: memory, by device."""
    return tuple(
        f"device {lane.id!r} needs {peak} of {lane.memory} memory"
        for peak, lane in zip(timetable.peak_memory, timetable.blocks.devices, strict=True)
        if not lane.link and peak > lane.memory
    )
