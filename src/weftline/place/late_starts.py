"""Every op and transfer of a plan as late as it can go, last first: how long before the end must each op start?

In: Tables, a placement and the ends of its ops. Out: (n,) ns from the late start of each op to the end of everything.
It is `backfill` with the clock turned round: transfers and ops take the last gap of their ports, buses and devices.
Ops by falling tail are a topological order in which critical ones come first. Parallel runtime only.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.backfill import gap, spaces, take
from weftline.simulate.jit import kernel, part
from weftline.simulate.sorting import sort_rows
from weftline.simulate.tables import Tables

__all__ = ["late_tails"]


def late_tails(table: Tables, placement: Indices, end: Ints) -> Ints:
    """`end` (n,) says who goes last; the devices and links of the placement must exist."""
    last_first = np.lexsort((-np.arange(len(end)), -end)).astype(np.int32)
    tail = np.zeros(len(end), np.int64)
    _push(table, np.ascontiguousarray(placement, np.int32), last_first, tail)
    return tail


@part
def _most_readers(table: Tables) -> int:
    """Of the outputs of one op."""
    most = 0
    for op in range(len(table.time)):
        count = 0
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            count += table.consumer_ptr[tensor + 1] - table.consumer_ptr[tensor]
        most = max(most, count)
    return most


@part
def _pending(table: Tables, placement: Indices, op: int, tail: Ints, at: Ints, pending: Ints) -> tuple[int, int]:
    """Fill (tail of the reader, tensor, target) for what the op sends -> how many, and the tail of readers here."""
    here, count, ready = placement[op], 0, 0
    for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
        tensor = table.output_of[k]
        at[:] = -1
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            reader = table.consumer_of[c]
            there = placement[reader]
            if there == here:
                ready = max(ready, tail[reader])
            elif table.per_edge:
                pending[count, 0], pending[count, 1], pending[count, 2] = tail[reader], tensor, there
                count += 1
            else:
                at[there] = max(at[there], tail[reader])
        for there in range(len(at)):
            if at[there] >= 0:
                pending[count, 0], pending[count, 1], pending[count, 2] = at[there], tensor, there
                count += 1
    return count, ready


@kernel
def _push(table: Tables, placement: Indices, last_first: Indices, tail: Ints) -> None:
    """Fill `tail`; times count from the end."""
    devices = table.time.shape[1]
    begin = spaces(table, placement)
    number = np.zeros(len(begin), np.int64)
    busy = np.zeros((begin[-1] + 1, 2), np.int64)
    pending = np.zeros((_most_readers(table) + 1, 3), np.int64)
    room = np.zeros(devices, np.int64)
    for p in range(len(last_first)):
        op = last_first[p]
        here = placement[op]
        count, ready = _pending(table, placement, op, tail, room, pending)
        if count > 1:
            sort_rows(pending, count)
        for i in range(count):
            at, tensor, there = pending[i, 0], pending[i, 1], pending[i, 2]
            length = int(table.transfer[table.transfer_row[tensor], here, there])
            if length > 0:
                out, into, lane = devices + here, 2 * devices + there, 3 * devices + table.bus[here, there]
                while True:
                    fits = gap(busy, begin[out], number[out], at, length)
                    fits = gap(busy, begin[into], number[into], fits, length)
                    if table.bus[here, there] >= 0:
                        fits = gap(busy, begin[lane], number[lane], fits, length)
                    if fits == at:
                        break
                    at = fits
                take(busy, begin[out], number[out], at, length)
                take(busy, begin[into], number[into], at, length)
                number[out] += 1
                number[into] += 1
                if table.bus[here, there] >= 0:
                    take(busy, begin[lane], number[lane], at, length)
                    number[lane] += 1
            ready = max(ready, at + max(length, 0))
        duration = int(table.time[op, here])
        if duration > 0:
            ready = gap(busy, begin[here], number[here], ready, duration)
            take(busy, begin[here], number[here], ready, duration)
            number[here] += 1
        tail[op] = ready + duration
