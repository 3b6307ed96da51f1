"""Blocks and an order for every device -> a Timetable: when everything starts, what it costs, what memory it needs.

Every operation starts as early as its devices' orders and its edges allow. Simplified: a device does nothing but its
order; what is sent does not hold the sender (unless a link is a device of its own).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.simulate.kernels.schedule import earliest_starts, memory_peaks, misplaced

__all__ = ["Orders", "Timetable", "flat_orders", "schedule_violations", "simulate_schedule"]

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
    """Device -> largest sum of changes along its order."""

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
    return Timetable(blocks, micro_batches, kept, start, span, tuple(memory_peaks(table, ptr, of).tolist()))


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
