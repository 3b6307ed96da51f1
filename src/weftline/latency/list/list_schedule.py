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
from weftline.simulate.kernels.booking import BUSY_UNTIL, append_transfer, first_gap, note_transfer, occupy
from weftline.simulate.kernels.jit import part, uncounted_part
from weftline.simulate.tables import Tables, Unsigned, tables
from weftline.simulate.timeline import SENT_END, SENT_SOURCE, SENT_START, SENT_TENSOR

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
    """(K * (n + 1), 2): times when each device works, see `kernels.booking`."""
    first: Ints
    number: Ints
    """(K,): the first row of each device, and how many there are."""
    free: Ints
    scratch: Ints
    """(2 K + buses,): when send ports, then receive ports, then buses (last one first) are free; a copy for trials."""
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
        busy=np.zeros((k * (n + 1), 2), np.int64),
        first=np.arange(k, dtype=np.int64) * (n + 1),
        number=np.zeros(k, np.int64),
        free=np.zeros(2 * k + buses, np.int64),
        scratch=np.zeros(2 * k + buses, np.int64),
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
    board.free[:] = 0
    board.arrival[:] = -1
    board.placement[:] = -1
    board.end[:] = -1


@uncounted_part
def _book(wires: BookingTables, board: ListSchedule, op: int, device: int, free: Ints) -> tuple[int, int]:
    """Book the missing inputs of an op -> (when all are there, -1 = no link; number of transfers).

    `free` is changed; the transfers are in `trial`.
    """
    ready, count = 0, 0
    devices = wires.time.shape[1]
    trial, placement, ends, per_edge = board.trial, board.placement, board.end, wires.per_edge
    bus, has_bus = wires.bus, len(free) > 2 * devices
    for e in range(np.int64(wires.edge_ptr[op]), np.int64(wires.edge_ptr[op + 1])):
        maker = np.uint64(wires.edge_maker[e])
        done, origin = ends[maker], np.int64(placement[maker])
        if origin != device:
            tensor = np.uint64(wires.edge_tensor[e])
            known = -1 if per_edge else board.arrival[tensor * np.uint64(devices) + np.uint64(device)]
            length = int(wires.transfer[np.uint64(wires.transfer_row[tensor]), origin, device])
            if length < 0:
                return -1, 0
            if known >= 0:
                done = known
            elif length > 0:
                lane = len(free) - 1 - bus[origin, device] if has_bus and bus[origin, device] >= 0 else -1
                begin = append_transfer(free, lane, int(origin), devices + device, done, length)
                done = begin + length
                trial[count, SENT_TENSOR] = tensor
                trial[count, SENT_SOURCE] = origin
                trial[count, SENT_START] = begin
                trial[count, SENT_END] = done
                count += 1
        ready = max(ready, done)
    return ready, count


@uncounted_part
def earliest_starts(
    wires: BookingTables, board: ListSchedule, op: int, insertion: bool, is_open: Bools, begin: Ints
) -> None:
    """Fill `begin`: when the op could start on each open device (behind everything there, or in a gap).

    -1 = not open, or a link is missing.
    """
    free, scratch = board.free, board.scratch
    for device in range(len(is_open)):
        begin[device] = -1
        if not is_open[device]:
            continue
        for i in range(len(free)):
            scratch[i] = free[i]
        ready, _ = _book(wires, board, op, device, scratch)
        duration = int(wires.time[op, device])
        count = board.number[device]
        if ready >= 0 and duration > 0 and count > 0:
            if insertion:
                ready, _ = first_gap(board.busy, board.first[device], count, ready, duration)
            else:
                ready = max(ready, board.busy[board.first[device] + count - 1, BUSY_UNTIL])
        begin[device] = ready


@uncounted_part
def commit(wires: BookingTables, board: ListSchedule, op: int, device: int, insertion: bool, total: int) -> int:
    """Put the op and its transfers on the board -> number of transfers so far."""
    begin, count = _book(wires, board, op, device, board.free)
    for k in range(count):
        tensor, origin = board.trial[k, SENT_TENSOR], board.trial[k, SENT_SOURCE]
        sent_at, came = board.trial[k, SENT_START], board.trial[k, SENT_END]
        note_transfer(board.sent, total, tensor, origin, device, op if wires.per_edge else -1, sent_at, came - sent_at)
        total += 1
        if not wires.per_edge:
            board.arrival[tensor * wires.time.shape[1] + device] = came
    duration = int(wires.time[op, device])
    if duration > 0:
        first, count = board.first[device], board.number[device]
        if not insertion and count > 0:
            begin = max(begin, board.busy[first + count - 1, BUSY_UNTIL])
        begin, board.number[device] = occupy(board.busy, first, count, begin, duration)
    board.placement[op] = device
    board.start[op] = begin
    board.end[op] = begin + duration
    return total
