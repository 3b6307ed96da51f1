"""Board: a schedule that list schedulers fill op by op, with transfers booked on ports and buses.

In: a Problem. Out: a Board, and the parts that kernels share: when would the inputs of an op be on a device, book them,
put the op there. An op may go into a gap of its device; transfers are appended, in the order of the op's inputs.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.memory_left import Bools
from weftline.problem import Problem
from weftline.simulate import Timeline
from weftline.simulate.kernels.jit import part
from weftline.simulate.tables import Tables, Unsigned, tables

__all__ = [
    "BookingTables",
    "ListSchedule",
    "booking_tables",
    "clear_board",
    "commit",
    "earliest_starts",
    "make_board",
    "timeline_of",
]


class BookingTables(NamedTuple):
    """What of `Tables` is needed to book an op: a small tuple, since kernels count the references of all its arrays."""

    time: Ints
    transfer: Ints
    transfer_row: Indices
    edge_ptr: Unsigned
    edge_tensor: Unsigned
    edge_maker: Unsigned
    bus: Indices
    per_edge: bool


def booking_tables(table: Tables) -> BookingTables:
    """A part of the tables."""
    return BookingTables(*(getattr(table, name) for name in BookingTables._fields))


class ListSchedule(NamedTuple):
    """The state of a schedule so far; where groups stand is in a WeightRoom beside it."""

    busy: Ints
    """(K, n + 1, 2): times when each device works, sorted; intervals that touch are one."""
    number: Ints
    """(K,): how many of them."""
    send_free: Ints
    receive_free: Ints
    """(K,): when the ports are free."""
    bus_free: Ints
    send_scratch: Ints
    bus_scratch: Ints
    """Copies for trials."""
    arrival: Ints
    """(tensors x K), -1 = not there; one entry where tensors are sent per edge."""
    trial: Ints
    """Transfers of the op in hand, in the columns of `sent`."""
    placement: Indices
    start: Ints
    end: Ints
    sent: Ints
    """(T, 6): see TRANSFER_COLUMNS."""


def make_board(problem: Problem) -> ListSchedule:
    """Empty."""
    table = tables(problem)
    n, k = table.time.shape
    buses = int(table.bus.max(initial=-1)) + 1
    return ListSchedule(
        busy=np.zeros((k, n + 1, 2), np.int64),
        number=np.zeros(k, np.int64),
        send_free=np.zeros(k, np.int64),
        receive_free=np.zeros(k, np.int64),
        bus_free=np.zeros(buses, np.int64),
        send_scratch=np.zeros(k, np.int64),
        bus_scratch=np.zeros(buses, np.int64),
        arrival=np.full(1 if table.per_edge else len(table.producer) * k, -1, np.int64),
        trial=np.zeros((int(np.diff(table.edge_ptr).max(initial=0)) + 1, 6), np.int64),
        placement=np.full(n, -1, np.int32),
        start=np.zeros(n, np.int64),
        end=np.full(n, -1, np.int64),
        sent=np.zeros((len(table.consumer_of) + 1, 6), np.int64),
    )


def timeline_of(board: ListSchedule, transfers: int) -> Timeline:
    """What stands on the board, copied. Peaks are left to the simulator."""
    return Timeline(
        board.placement.copy(),
        board.start.copy(),
        board.end.copy(),
        board.sent[:transfers].copy(),
        np.zeros(len(board.number), np.int64),
    )


@part
def clear_board(board: ListSchedule) -> None:
    """Empty it for the next schedule."""
    board.number[:] = 0
    board.send_free[:] = 0
    board.receive_free[:] = 0
    board.bus_free[:] = 0
    board.arrival[:] = -1
    board.placement[:] = -1
    board.end[:] = -1


@part
def _gap(busy: Ints, device: int, count: int, ready: int, duration: int) -> tuple[int, int]:
    """Earliest start >= ready in the sorted busy intervals of a device, and the position to insert at."""
    low, high = 0, count
    while low < high:  # first interval that ends after `ready`
        middle = (low + high) // 2
        if busy[device, middle, 1] <= ready:
            low = middle + 1
        else:
            high = middle
    begin = ready
    while low < count and busy[device, low, 0] < begin + duration:
        begin = max(begin, busy[device, low, 1])
        low += 1
    return begin, low


@part
def _occupy(busy: Ints, number: Ints, device: int, ready: int, duration: int) -> int:
    """Put an op that takes time into the first gap -> its start. Intervals that touch become one."""
    count = number[device]
    begin, place = _gap(busy, device, count, ready, duration)
    end = begin + duration
    after = place < count and busy[device, place, 0] == end
    if place > 0 and busy[device, place - 1, 1] == begin:
        busy[device, place - 1, 1] = end
        if after:
            busy[device, place - 1, 1] = busy[device, place, 1]
            for i in range(place, count - 1):
                busy[device, i, 0] = busy[device, i + 1, 0]
                busy[device, i, 1] = busy[device, i + 1, 1]
            number[device] -= 1
    elif after:
        busy[device, place, 0] = begin
    else:
        for i in range(count, place, -1):
            busy[device, i, 0] = busy[device, i - 1, 0]
            busy[device, i, 1] = busy[device, i - 1, 1]
        busy[device, place, 0] = begin
        busy[device, place, 1] = end
        number[device] += 1
    return begin


@part
def _book(
    wires: BookingTables, board: ListSchedule, op: int, device: int, send: Ints, receive: int, bus_free: Ints
) -> tuple[int, int, int]:
    """Book the missing inputs of an op -> (when all are there, -1 = no link; number of transfers; receive port free).

    `send` and `bus_free` are changed; the transfers are in `trial`.
    """
    ready, count = 0, 0
    devices = wires.time.shape[1]
    trial, placement, ends, per_edge = board.trial, board.placement, board.end, wires.per_edge
    for e in range(np.int64(wires.edge_ptr[op]), np.int64(wires.edge_ptr[op + 1])):
        maker = np.uint64(wires.edge_maker[e])
        done, origin = ends[maker], np.int64(placement[maker])
        if origin != device:
            tensor = np.uint64(wires.edge_tensor[e])
            known = -1 if per_edge else board.arrival[tensor * np.uint64(devices) + np.uint64(device)]
            length = int(wires.transfer[np.uint64(wires.transfer_row[tensor]), origin, device])
            if length < 0:
                return -1, 0, receive
            if known >= 0:
                done = known
            elif length > 0:
                begin = max(done, send[origin], receive)
                if len(bus_free) > 0:
                    lane = wires.bus[origin, device]
                    if lane >= 0:
                        begin = max(begin, bus_free[lane])
                        bus_free[lane] = begin + length
                done = begin + length
                send[origin] = done
                receive = done
                trial[count, 0] = tensor
                trial[count, 1] = origin
                trial[count, 4] = begin
                trial[count, 5] = done
                count += 1
        ready = max(ready, done)
    return ready, count, receive


@part
def earliest_starts(
    wires: BookingTables, board: ListSchedule, op: int, insertion: bool, is_open: Bools, begin: Ints
) -> None:
    """Fill `begin`: when the op could start on each open device (behind everything there, or in a gap).

    -1 = not open, or a link is missing.
    """
    send, bus_free = board.send_scratch, board.bus_scratch
    for device in range(len(is_open)):
        begin[device] = -1
        if not is_open[device]:
            continue
        for d in range(len(send)):
            send[d] = board.send_free[d]
        for lane in range(len(bus_free)):
            bus_free[lane] = board.bus_free[lane]
        ready, _, _ = _book(wires, board, op, device, send, board.receive_free[device], bus_free)
        duration = int(wires.time[op, device])
        count = board.number[device]
        if ready >= 0 and duration > 0 and count > 0:
            if insertion:
                ready, _ = _gap(board.busy, device, count, ready, duration)
            else:
                ready = max(ready, board.busy[device, count - 1, 1])
        begin[device] = ready


@part
def commit(wires: BookingTables, board: ListSchedule, op: int, device: int, insertion: bool, total: int) -> int:
    """Put the op and its transfers on the board -> number of transfers so far."""
    begin, count, receive = _book(wires, board, op, device, board.send_free, board.receive_free[device], board.bus_free)
    board.receive_free[device] = receive
    for k in range(count):
        board.sent[total, 0] = board.trial[k, 0]
        board.sent[total, 1] = board.trial[k, 1]
        board.sent[total, 2] = device
        board.sent[total, 3] = op if wires.per_edge else -1
        board.sent[total, 4] = board.trial[k, 4]
        board.sent[total, 5] = board.trial[k, 5]
        total += 1
        if not wires.per_edge:
            board.arrival[board.trial[k, 0] * wires.time.shape[1] + device] = board.trial[k, 5]
    duration = int(wires.time[op, device])
    if duration > 0:
        if not insertion and board.number[device] > 0:
            begin = max(begin, board.busy[device, board.number[device] - 1, 1])
        begin = _occupy(board.busy, board.number, device, begin, duration)
    board.placement[op] = device
    board.start[op] = begin
    board.end[op] = begin + duration
    return total
