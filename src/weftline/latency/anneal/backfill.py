"""A placement and an order -> a timeline in which every op and transfer takes the first gap that is long enough.

The simulator appends: a transfer is booked when its reader is, and never before an earlier booking of the same port.
Here it may go into a gap of both its ports (and its bus), and an op into a gap of its device. Replaying the actions of
the result gives it or something earlier. Parallel runtime only: where everything waits for its turn there are no gaps.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate import Timeline
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.tables import Tables

__all__ = ["backfill", "gap", "spaces", "take"]

MADE_AT, OF_TENSOR, CAME_FROM = 0, 1, 2
"""`pending[i]`, a transfer to book: when its tensor is made (ns), the tensor, the device it is on."""
BUSY_FROM, BUSY_UNTIL = 0, 1
"""`busy[i]`: an interval, ns."""
SENT_TENSOR, SENT_FROM, SENT_TO, SENT_FOR, SENT_AT, SENT_UNTIL = 0, 1, 2, 3, 4, 5
"""`sent[i]`: a row of `Timeline.transfers`."""


def backfill(table: Tables, placement: Indices, order: Indices) -> Timeline | None:
    """The timeline (without peaks), None if a device or a link is missing or the runtime is sequential."""
    if table.sequential:
        return None
    n, k = table.time.shape
    start, end = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    sent = np.zeros((len(table.edge_tensor) + 1, 6), np.int64)
    placement, order = np.ascontiguousarray(placement, np.int32), np.ascontiguousarray(order, np.int32)
    pending = np.zeros((int(np.diff(table.edge_ptr).max(initial=0)) + 1, 3), np.int64)
    count = _fill(table, placement, order, start, end, sent, pending)
    return None if count < 0 else Timeline(placement, start, end, sent[:count], np.zeros(k, np.int64))


@part
def gap(busy: Ints, begin: int, count: int, ready: int, length: int) -> int:
    """Earliest start >= ready among `count` sorted busy intervals that stand from row `begin`."""
    low, high = begin, begin + count
    while low < high:  # first interval that ends after `ready`
        middle = (low + high) // 2
        if busy[middle, BUSY_UNTIL] <= ready:
            low = middle + 1
        else:
            high = middle
    while low < begin + count and busy[low, BUSY_FROM] < ready + length:
        ready = max(ready, busy[low, BUSY_UNTIL])
        low += 1
    return ready


@part
def take(busy: Ints, begin: int, count: int, start: int, length: int) -> None:
    """Insert an interval that is free."""
    i = begin + count
    while i > begin and busy[i - 1, BUSY_FROM] > start:
        busy[i, BUSY_FROM], busy[i, BUSY_UNTIL] = busy[i - 1, BUSY_FROM], busy[i - 1, BUSY_UNTIL]
        i -= 1
    busy[i, BUSY_FROM], busy[i, BUSY_UNTIL] = start, start + length


@part
def _take_common(
    busy: Ints, begin: Ints, number: Ints, resources: tuple[int, int, int], ready: int, length: int
) -> int:
    """Earliest start >= ready that all of some resources have (-1 is none), taken on all of them."""
    start = -1
    while start < ready:
        start = ready
        for r in resources:
            if r >= 0:
                ready = gap(busy, begin[r], number[r], ready, length)
    for r in resources:
        if r >= 0:
            take(busy, begin[r], number[r], start, length)
            number[r] += 1
    return start


@part
def spaces(table: Tables, placement: Indices) -> Ints:
    """Where the intervals of each device, send port, receive port and bus begin: as many rows as they can need."""
    devices = table.time.shape[1]
    buses = 0
    for a in range(devices):
        for b in range(devices):
            buses = max(buses, table.bus[a, b] + 1)
    begin = np.zeros(3 * devices + buses + 1, np.int64)
    for op in range(len(placement)):
        here = placement[op]
        begin[here + 1] += 1
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            origin = placement[table.edge_maker[e]]
            if origin != here:
                begin[devices + origin + 1] += 1
                begin[2 * devices + here + 1] += 1
                if table.bus[origin, here] >= 0:
                    begin[3 * devices + table.bus[origin, here] + 1] += 1
    return np.cumsum(begin)


@kernel
def _fill(table: Tables, placement: Indices, order: Indices, start: Ints, end: Ints, sent: Ints, pending: Ints) -> int:
    """Fill `start`, `end` and `sent` -> number of transfers, -1 if something cannot be done.

    Invariant, before position p: rows `begin[r]`..`begin[r] + number[r] - 1` of `busy` are the intervals of device,
    port or bus r, sorted and disjoint; an op that is not booked has `end` -1, a tensor that never came `arrival` -1.

    `test_backfill_uses_gaps` (tests/latency/test_anneal.py) replays its actions in the simulator; it has no reference.
    """
    devices, total = table.time.shape[1], 0
    begin = spaces(table, placement)
    number = np.zeros(len(begin), np.int64)
    busy = np.zeros((begin[-1] + 1, 2), np.int64)
    arrival = np.full(1 if table.per_edge else len(table.producer) * devices, -1, np.int64)
    for p in range(len(order)):
        op = order[p]
        here = placement[op]
        # 1. Inputs: here already, or pending in the order of their makers' ends.
        ready, count = 0, 0
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            maker, tensor = np.int64(table.edge_maker[e]), np.int64(table.edge_tensor[e])
            done, origin = end[maker], placement[maker]
            if done < 0:
                return -1
            if origin != here:
                came = -1 if table.per_edge else arrival[tensor * devices + here]
                if came < 0:
                    pending[count, MADE_AT], pending[count, OF_TENSOR], pending[count, CAME_FROM] = done, tensor, origin
                    count += 1
                    continue
                done = came
            ready = max(ready, done)
        if count > 1:
            sort_rows(pending, count)
        # 2. Transfers: the first gap that both ports (and the bus) have.
        for i in range(count):
            at, tensor, origin = pending[i, MADE_AT], pending[i, OF_TENSOR], pending[i, CAME_FROM]
            length = int(table.transfer[table.transfer_row[tensor], origin, here])
            if length < 0:
                return -1
            if length > 0:
                lane = 3 * devices + table.bus[origin, here] if table.bus[origin, here] >= 0 else -1
                resources = (devices + origin, 2 * devices + here, lane)
                at = _take_common(busy, begin, number, resources, at, length)
                sent[total, SENT_TENSOR], sent[total, SENT_FROM], sent[total, SENT_TO] = tensor, origin, here
                sent[total, SENT_FOR] = op if table.per_edge else -1
                sent[total, SENT_AT], sent[total, SENT_UNTIL] = at, at + length
                total += 1
            if not table.per_edge:
                arrival[tensor * devices + here] = at + length
            ready = max(ready, at + length)
        # 3. The op: the first gap of its device.
        duration = int(table.time[op, here])
        if duration < 0:
            return -1
        if duration > 0:
            ready = gap(busy, begin[here], number[here], ready, duration)
            take(busy, begin[here], number[here], ready, duration)
            number[here] += 1
        start[op], end[op] = ready, ready + duration
    return total
