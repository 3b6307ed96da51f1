"""Booking of ops and transfers on devices, ports and buses: behind everything that is booked, or in a gap.

Appended (as the simulator does): `free` says from when on each resource is free. In gaps: busy intervals stand in one
table. Those of a resource are `count` rows from its `first` on: sorted, apart from each other (what touches becomes
one), and each of them takes time.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import part, uncounted_part
from weftline.simulate.tables import Tables
from weftline.simulate.timeline import SENT_CONSUMER, SENT_END, SENT_SOURCE, SENT_START, SENT_TARGET, SENT_TENSOR

__all__ = [
    "BUSY_FROM",
    "BUSY_UNTIL",
    "append_transfer",
    "book_transfer",
    "first_gap",
    "first_rows",
    "note_transfer",
    "occupy",
]

BUSY_FROM, BUSY_UNTIL = range(2)
"""Columns of an interval, ns."""


@uncounted_part
def append_transfer(free: Ints, lane: int, send: int, receive: int, earliest: int, length: int) -> int:
    """The start of a transfer that takes time, behind all that its ports and its bus (`lane`, -1 = none) have to do."""
    begin = max(earliest, free[send], free[receive])
    if lane >= 0:
        begin = max(begin, free[lane])
        free[lane] = begin + length
    free[send] = begin + length
    free[receive] = begin + length
    return int(begin)


@uncounted_part
def note_transfer(
    sent: Ints, row: int, tensor: int, origin: int, target: int, consumer: int, begin: int, length: int
) -> None:
    """Write a row of `Timeline.transfers`."""
    sent[row, SENT_TENSOR] = tensor
    sent[row, SENT_SOURCE] = origin
    sent[row, SENT_TARGET] = target
    sent[row, SENT_CONSUMER] = consumer
    sent[row, SENT_START] = begin
    sent[row, SENT_END] = begin + length


@uncounted_part
def first_gap(busy: Ints, first: int, count: int, ready: int, length: int) -> tuple[int, int]:
    """The earliest start >= ready of something that takes time, and the row before which it would stand."""
    low, high = first, first + count
    while low < high:  # first interval that ends after `ready`
        middle = (low + high) // 2
        if busy[middle, BUSY_UNTIL] <= ready:
            low = middle + 1
        else:
            high = middle
    while low < first + count and busy[low, BUSY_FROM] < ready + length:
        ready = max(ready, busy[low, BUSY_UNTIL])
        low += 1
    return ready, low


@uncounted_part
def occupy(busy: Ints, first: int, count: int, ready: int, length: int) -> tuple[int, int]:
    """Put something that takes time into the first gap -> its start, and the new count."""
    begin, row = first_gap(busy, first, count, ready, length)
    end, last = begin + length, first + count
    meets_next = row < last and busy[row, BUSY_FROM] == end
    if row > first and busy[row - 1, BUSY_UNTIL] == begin:
        busy[row - 1, BUSY_UNTIL] = end
        if meets_next:
            busy[row - 1, BUSY_UNTIL] = busy[row, BUSY_UNTIL]
            for i in range(row, last - 1):
                busy[i, BUSY_FROM] = busy[i + 1, BUSY_FROM]
                busy[i, BUSY_UNTIL] = busy[i + 1, BUSY_UNTIL]
            return begin, count - 1
        return begin, count
    if meets_next:
        busy[row, BUSY_FROM] = begin
        return begin, count
    for i in range(last, row, -1):
        busy[i, BUSY_FROM] = busy[i - 1, BUSY_FROM]
        busy[i, BUSY_UNTIL] = busy[i - 1, BUSY_UNTIL]
    busy[row, BUSY_FROM] = begin
    busy[row, BUSY_UNTIL] = end
    return begin, count + 1


@uncounted_part
def book_transfer(
    busy: Ints, first: Ints, number: Ints, send: int, receive: int, lane: int, ready: int, length: int
) -> int:
    """The first start at which both ports, and the bus (`lane`, -1 = none), have a gap; it is booked."""
    while True:
        at, _ = first_gap(busy, first[send], number[send], ready, length)
        at, _ = first_gap(busy, first[receive], number[receive], at, length)
        if lane >= 0:
            at, _ = first_gap(busy, first[lane], number[lane], at, length)
        if at == ready:
            break
        ready = at
    _, number[send] = occupy(busy, first[send], number[send], ready, length)
    _, number[receive] = occupy(busy, first[receive], number[receive], ready, length)
    if lane >= 0:
        _, number[lane] = occupy(busy, first[lane], number[lane], ready, length)
    return ready


@part
def first_rows(table: Tables, placement: Indices) -> Ints:
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
