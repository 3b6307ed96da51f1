"""The latency kernels: serial generation of a timeline, one action after another, each as early as its resources allow.

`run_order` books the transfers of an op just before the op (in order of their producers' ends); `run_actions` follows
an explicit list of ops and transfers. Both append: an action never starts before an earlier action of the same device,
port or bus has ended. Ops and transfers that take no time occupy nothing.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import Tables

__all__ = ["INFEASIBLE", "Workspace", "run_actions", "run_order", "workspace"]

INFEASIBLE = NEVER
"""Value of a placement that cannot run at all; throughput adds the number of its reason."""
FEW_PENDING = 24
"""Up to so many pending inputs of one op are kept in order by insertion."""

Workspace = tuple[Ints, Ints, Ints, Ints, Ints, Ints]


def workspace(table: Tables) -> Workspace:
    """Scratch for one run: when devices, send ports, receive ports and buses are free, arrivals, pending inputs.

    The last bus is the clock of the sequential runtime. Arrivals are per tensor and device, or per edge.
    """
    devices = table.time.shape[1]
    widest = int(np.diff(table.edge_ptr).max(initial=0))
    arrivals = len(table.edge_tensor) if table.per_edge else len(table.producer) * devices
    return (
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(devices, np.int64),
        np.zeros(int(table.bus.max(initial=-1)) + 2, np.int64),
        np.zeros(arrivals, np.int64),
        np.zeros((widest + 1, 3), np.int64),
    )


@part
def _clear(space: Workspace, end: Ints) -> None:
    device_free, send_free, receive_free, bus_free, arrival, _ = space
    device_free[:] = 0
    send_free[:] = 0
    receive_free[:] = 0
    bus_free[:] = 0
    arrival[:] = -1
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

    The hot loop of every search: arrays are taken out of their tuples once, and indices are unsigned.
    """
    time, transfer, transfer_row, bus = table.time, table.transfer, table.transfer_row, table.bus
    edge_ptr, edge_tensor, edge_maker = table.edge_ptr, table.edge_tensor, table.edge_maker
    per_edge, sequential, has_bus = table.per_edge, table.sequential, len(space[3]) > 1
    device_free, send_free, receive_free, bus_free, arrival, pending = space
    devices, one = np.uint64(time.shape[1]), np.uint64(1)
    _clear(space, end)
    value, transfers, clock = 0, 0, 0
    for position in range(len(order)):
        op = np.uint64(order[position])
        device = np.uint64(placement[op])
        if end[op] >= 0:
            return INFEASIBLE, transfers  # the order holds an op twice
        ready, count = 0, 0
        for edge in range(np.uint64(edge_ptr[op]), np.uint64(edge_ptr[op + one])):
            maker = np.uint64(edge_maker[edge])
            origin = np.uint64(placement[maker])
            done = end[maker]
            if done < 0:
                return INFEASIBLE, transfers  # the order is not topological
            if origin != device:
                tensor = np.uint64(edge_tensor[edge])
                came = -1 if per_edge else arrival[tensor * devices + device]
                if came < 0:
                    place = count
                    while (
                        0 < place < FEW_PENDING and pending[place - 1, 0] > done
                    ):  # sorted as they come, unless they are many
                        pending[place, 0] = pending[place - 1, 0]
                        pending[place, 1] = pending[place - 1, 1]
                        pending[place, 2] = pending[place - 1, 2]
                        place -= 1
                    pending[place, 0], pending[place, 1], pending[place, 2] = done, np.int64(tensor), np.int64(origin)
                    count += 1
                    continue
                done = came
            ready = max(ready, done)
        if count > FEW_PENDING:
            sort_rows(pending, count)
        for k in range(count):
            begin, tensor, origin = pending[k, 0], np.uint64(pending[k, 1]), np.uint64(pending[k, 2])
            length = transfer[np.uint64(transfer_row[tensor]), origin, device]
            if length > 0:
                begin = max(begin, send_free[origin], receive_free[device])
                if has_bus and bus[origin, device] >= 0:
                    begin = max(begin, bus_free[bus[origin, device]])
                    bus_free[bus[origin, device]] = begin + length
                if sequential:
                    begin = clock
                    clock += length
                send_free[origin] = begin + length
                receive_free[device] = begin + length
                if record:
                    _note(
                        sent,
                        transfers,
                        int(tensor),
                        int(origin),
                        int(device),
                        int(op) if per_edge else -1,
                        begin,
                        length,
                    )
                transfers += 1
            elif length < 0:
                return INFEASIBLE, transfers
            if not per_edge:
                arrival[tensor * devices + device] = begin + length
            ready = max(ready, begin + length)
        duration = time[op, device]
        if duration < 0:
            return INFEASIBLE, transfers
        if sequential:
            ready = clock
            clock += duration
        elif duration > 0:
            ready = max(ready, device_free[device])
            device_free[device] = ready + duration
        start[op] = ready
        end[op] = ready + duration
        value = max(value, ready + duration)
    return value, transfers


@part
def _note(sent: Ints, row: int, tensor: int, origin: int, target: int, consumer: int, begin: int, length: int) -> None:
    sent[row, 0] = tensor
    sent[row, 1] = origin
    sent[row, 2] = target
    sent[row, 3] = consumer
    sent[row, 4] = begin
    sent[row, 5] = begin + length


@part
def _book(table: Tables, space: Workspace, origin: int, target: int, earliest: int, length: int) -> int:
    """The start of a transfer that takes time: it holds both ports, and the bus if there is one."""
    _, send_free, receive_free, bus_free, _, _ = space
    if table.sequential:
        begin = bus_free[-1]
        bus_free[-1] = begin + length
        return int(begin)
    begin = max(earliest, send_free[origin], receive_free[target])
    lane = table.bus[origin, target]
    if lane >= 0:
        begin = max(begin, bus_free[lane])
        bus_free[lane] = begin + length
    send_free[origin] = begin + length
    receive_free[target] = begin + length
    return int(begin)


@part
def _begin_op(table: Tables, space: Workspace, device: int, ready: int, duration: int) -> int:
    """The start of an op whose inputs are there at `ready`."""
    device_free, _, _, bus_free, _, _ = space
    if table.sequential:
        begin = bus_free[-1]
        bus_free[-1] = begin + duration
        return int(begin)
    if duration == 0:
        return int(ready)
    begin = max(ready, device_free[device])
    device_free[device] = begin + duration
    return int(begin)


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
    arrival = space[4]
    _clear(space, end)
    transfers = 0
    for a in range(len(actions)):
        what, target, consumer = actions[a, 0], actions[a, 1], actions[a, 2]
        if target < 0:
            ready = _inputs_ready(table, what, placement, end, arrival)
            duration = table.time[what, placement[what]]
            if ready < 0 or duration < 0 or end[what] >= 0:
                return a + 1, transfers
            start[what] = _begin_op(table, space, placement[what], ready, duration)
            end[what] = start[what] + duration
            continue
        maker = table.producer[what]
        slot = _slot(table, placement, what, target, consumer)
        if maker < 0 or end[maker] < 0 or slot < 0 or arrival[slot] >= 0:
            return a + 1, transfers
        origin = placement[maker]
        length = table.transfer[table.transfer_row[what], origin, target]
        if length <= 0:
            return a + 1, transfers
        begin = _book(table, space, origin, target, end[maker], length)
        arrival[slot] = begin + length
        _note(sent, transfers, what, origin, target, consumer, begin, length)
        transfers += 1
    return 0, transfers
