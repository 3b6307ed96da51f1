"""The latency kernels: serial generation of a timeline, one action after another, each as early as its resources allow.

`run_order` books the transfers of an op just before the op (in order of their producers' ends); `run_actions` follows
an explicit list of ops and transfers. Both append: an action never starts before an earlier action of the same device,
port or bus has ended. Ops and transfers that take no time occupy nothing.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.booking import append_transfer, note_transfer
from weftline.simulate.kernels.jit import kernel, part, uncounted_part
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import Tables
from weftline.simulate.timeline import ACTION_CONSUMER, ACTION_TARGET, ACTION_WHAT

__all__ = ["INFEASIBLE", "Workspace", "run_actions", "run_order", "workspace"]

INFEASIBLE = NEVER
"""Value of a placement that cannot run at all; throughput adds the number of its reason."""
CLOCK_SLOT = 0
"""Of `Workspace.free`: in the sequential runtime everything waits for this one."""
FEW_PENDING = 24
"""Up to so many pending inputs of one op are kept in order by insertion."""

PENDING_SINCE, PENDING_TENSOR, PENDING_ORIGIN = range(3)
"""Columns of `Workspace.pending`: when the tensor was made, which one, and where."""


class Workspace(NamedTuple):
    """Scratch for one run. Times in ns."""

    free: Ints
    """(3 K + buses,): from when on devices, then send ports, then receive ports are free; buses, the last one first."""
    arrival: Ints
    """Per tensor and device, or per edge: when it arrived, -1 = not yet."""
    pending: Ints
    """Inputs of the op in hand that have yet to be sent."""


def workspace(table: Tables) -> Workspace:
    """Enough for any run of these tables."""
    devices = table.time.shape[1]
    widest = int(np.diff(table.edge_ptr).max(initial=0))
    arrivals = len(table.edge_tensor) if table.per_edge else len(table.producer) * devices
    return Workspace(
        np.zeros(3 * devices + int(table.bus.max(initial=-1)) + 1, np.int64),
        np.zeros(arrivals, np.int64),
        np.zeros((widest + 1, 3), np.int64),
    )


@part
def _clear(space: Workspace, end: Ints) -> None:
    space.free[:] = 0
    space.arrival[:] = -1
    end[:] = -1


@kernel
def run_order(
    table: Tables,
    order: Indices,
    placement: Indices,
    start: Ints,
    end: Ints,
    sent: Ints,
    record: bool,
    space: Workspace,
) -> tuple[int, int]:
    """Fill `start`, `end` (and `sent` if `record`) -> (latency or INFEASIBLE, number of transfers).

    Before each op: `end` is known of all ops before it and -1 of others, `arrival` of all that was sent to a device,
    `free` of all that was booked. `reference_latency` says the same in plain Python; tests compare them bit for bit.
    The hot loop of every search: arrays are taken out of their tuples once, and indices are unsigned.
    """
    time, edge_ptr, edge_tensor, edge_maker = table.time, table.edge_ptr, table.edge_tensor, table.edge_maker
    free, arrival, pending = space.free, space.arrival, space.pending
    devices, one = np.uint64(time.shape[1]), np.uint64(1)
    _clear(space, end)
    value, transfers = 0, 0
    for position in range(len(order)):
        op = np.uint64(order[position])
        device = np.uint64(placement[op])
        duration = time[op, device]
        if end[op] >= 0 or duration < 0:
            return INFEASIBLE, transfers  # the order holds an op twice, or the device cannot run it
        ready, count = 0, 0
        for edge in range(np.uint64(edge_ptr[op]), np.uint64(edge_ptr[op + one])):
            maker = np.uint64(edge_maker[edge])
            origin = np.uint64(placement[maker])
            done = end[maker]
            if done < 0:
                return INFEASIBLE, transfers  # the order is not topological
            if origin != device:
                tensor = np.uint64(edge_tensor[edge])
                came = -1 if table.per_edge else arrival[tensor * devices + device]
                if came < 0:
                    _pend(pending, count, done, int(tensor), int(origin))
                    count += 1
                    continue
                done = came
            ready = max(ready, done)
        if count > 0:
            came, transfers = _send(table, space, sent, record, int(op), int(device), count, transfers)
            if came < 0:
                return INFEASIBLE, transfers
            ready = max(ready, came)
        if table.sequential:
            ready = free[CLOCK_SLOT]
            free[CLOCK_SLOT] = ready + duration
        elif duration > 0:
            ready = max(ready, free[device])
            free[device] = ready + duration
        start[op] = ready
        end[op] = ready + duration
        value = max(value, ready + duration)
    return value, transfers


@uncounted_part
def _send(
    table: Tables, space: Workspace, sent: Ints, record: bool, op: int, device: int, count: int, transfers: int
) -> tuple[int, int]:
    """Book what is pending, in the order in which it was made -> (when all is there, -1 = no link; transfers)."""
    transfer, transfer_row, bus, per_edge = table.transfer, table.transfer_row, table.bus, table.per_edge
    free, arrival, pending = space.free, space.arrival, space.pending
    devices, has_bus = table.time.shape[1], len(free) > 3 * table.time.shape[1]
    if count > FEW_PENDING:
        sort_rows(pending, count)
    ready = 0
    for k in range(count):
        begin, tensor, origin = pending[k, PENDING_SINCE], pending[k, PENDING_TENSOR], pending[k, PENDING_ORIGIN]
        length = int(transfer[np.uint64(transfer_row[np.uint64(tensor)]), np.uint64(origin), np.uint64(device)])
        if length < 0:
            return -1, transfers
        if length > 0:
            if table.sequential:
                begin = free[CLOCK_SLOT]
                free[CLOCK_SLOT] = begin + length
            else:
                lane = len(free) - 1 - bus[origin, device] if has_bus and bus[origin, device] >= 0 else -1
                begin = append_transfer(free, lane, devices + origin, 2 * devices + device, begin, length)
            if record:
                note_transfer(sent, transfers, tensor, origin, device, op if per_edge else -1, begin, length)
            transfers += 1
        if not per_edge:
            arrival[tensor * devices + device] = begin + length
        ready = max(ready, begin + length)
    return ready, transfers


@uncounted_part
def _pend(pending: Ints, count: int, since: int, tensor: int, origin: int) -> None:
    """Put one more row behind `count` others: in the order of `since`, unless they are many."""
    place = count
    while 0 < place < FEW_PENDING and pending[place - 1, PENDING_SINCE] > since:
        pending[place, PENDING_SINCE] = pending[place - 1, PENDING_SINCE]
        pending[place, PENDING_TENSOR] = pending[place - 1, PENDING_TENSOR]
        pending[place, PENDING_ORIGIN] = pending[place - 1, PENDING_ORIGIN]
        place -= 1
    pending[place, PENDING_SINCE] = since
    pending[place, PENDING_TENSOR] = tensor
    pending[place, PENDING_ORIGIN] = origin


@part
def _slot(table: Tables, placement: Indices, tensor: int, target: int, consumer: int) -> int:
    """Where the arrival of a tensor is kept: by device, or by the edge to one consumer; -1 = nobody reads it there."""
    if not table.per_edge:
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            if consumer < 0 and placement[table.consumer_of[c]] == target:
                return int(tensor * table.time.shape[1] + target)
    elif consumer >= 0 and placement[consumer] == target:
        for k in range(np.int64(table.edge_ptr[consumer]), np.int64(table.edge_ptr[consumer + 1])):
            if table.edge_tensor[k] == tensor:
                return k
    return -1


@part
def _inputs_ready(table: Tables, op: int, placement: Indices, end: Ints, arrival: Ints) -> int:
    """When all inputs of an op are on its device, -1 = something is missing."""
    device = placement[op]
    ready = 0
    for k in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
        tensor, maker = np.int64(table.edge_tensor[k]), np.int64(table.edge_maker[k])
        done = end[maker]
        origin = placement[maker]
        if done >= 0 and origin != device:
            length = table.transfer[table.transfer_row[tensor], origin, device]
            if length > 0:
                done = arrival[k if table.per_edge else tensor * table.time.shape[1] + device]
            elif length < 0:
                done = -1
        if done < 0:
            return -1
        ready = max(ready, done)
    return int(ready)


@kernel
def run_actions(
    table: Tables, actions: Ints, placement: Indices, start: Ints, end: Ints, sent: Ints, space: Workspace
) -> tuple[int, int]:
    """Follow an explicit list -> (0 or 1 + the index of the action that cannot be done, number of transfers)."""
    free, arrival, devices = space.free, space.arrival, table.time.shape[1]
    _clear(space, end)
    transfers, clock = 0, 0
    for a in range(len(actions)):
        what, target, consumer = actions[a, ACTION_WHAT], actions[a, ACTION_TARGET], actions[a, ACTION_CONSUMER]
        if target < 0:
            device = placement[what]
            ready = _inputs_ready(table, what, placement, end, arrival)
            duration = table.time[what, device]
            if ready < 0 or duration < 0 or end[what] >= 0:
                return a + 1, transfers
            if table.sequential:
                ready = clock
                clock += duration
            elif duration > 0:
                ready = max(ready, free[device])
                free[device] = ready + duration
            start[what] = ready
            end[what] = ready + duration
            continue
        maker = table.producer[what]
        slot = _slot(table, placement, what, target, consumer)
        if maker < 0 or end[maker] < 0 or slot < 0 or arrival[slot] >= 0:
            return a + 1, transfers
        origin = placement[maker]
        length = table.transfer[table.transfer_row[what], origin, target]
        if length <= 0:
            return a + 1, transfers
        if table.sequential:
            begin = clock
            clock += length
        else:
            lane = len(free) - 1 - table.bus[origin, target] if table.bus[origin, target] >= 0 else -1
            begin = append_transfer(free, lane, devices + origin, 2 * devices + target, end[maker], length)
        arrival[slot] = begin + length
        note_transfer(sent, transfers, what, origin, target, consumer, begin, length)
        transfers += 1
    return 0, transfers
