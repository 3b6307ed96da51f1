"""A placement and an order -> a timeline in which every op and transfer takes the first gap that is long enough.

The simulator appends: a transfer is booked when its reader is, and never before an earlier booking of the same port.
Here it may go into a gap of both its ports (and its bus), and an op into a gap of its device. Replaying the actions of
the result gives it or something earlier. Parallel runtime only: where everything waits for its turn there are no gaps.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate import Timeline
from weftline.simulate.kernels.booking import book_transfer, first_rows, note_transfer, occupy
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.tables import Tables

__all__ = ["backfill"]

MADE_AT, OF_TENSOR, CAME_FROM = 0, 1, 2
"""`pending[i]`, a transfer to book: when its tensor is made (ns), the tensor, the device it is on."""


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


@kernel
def _fill(table: Tables, placement: Indices, order: Indices, start: Ints, end: Ints, sent: Ints, pending: Ints) -> int:
    """Fill `start`, `end` and `sent` -> number of transfers, -1 if something cannot be done.

    Invariant, before position p: rows `first[r]`..`first[r] + number[r] - 1` of `busy` are the intervals of device,
    port or bus r, sorted and disjoint; an op that is not booked has `end` -1, a tensor that never came `arrival` -1.

    `test_backfill_uses_gaps` (tests/latency/test_anneal.py) replays its actions in the simulator; it has no reference.
    """
    devices, total = table.time.shape[1], 0
    first = first_rows(table, placement)
    number = np.zeros(len(first), np.int64)
    busy = np.zeros((first[-1] + 1, 2), np.int64)
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
                at = book_transfer(busy, first, number, devices + origin, 2 * devices + here, lane, at, length)
                note_transfer(sent, total, tensor, origin, here, op if table.per_edge else -1, at, length)
                total += 1
            if not table.per_edge:
                arrival[tensor * devices + here] = at + length
            ready = max(ready, at + length)
        # 3. The op: the first gap of its device.
        duration = int(table.time[op, here])
        if duration < 0:
            return -1
        if duration > 0:
            ready, number[here] = occupy(busy, first[here], number[here], ready, duration)
        start[op], end[op] = ready, ready + duration
    return total
