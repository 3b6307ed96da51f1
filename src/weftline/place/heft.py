"""HEFT (Topcuoglu, Hariri, Wu 2002), aware of contention: ops by descending upward rank, each where it ends first.

An op may be inserted into a gap of its device; its transfers are booked on ports and buses, in the order of its inputs.
Memory counts weights (and tied weights); the first op of a `together` set fixes the device of the set.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem.feasible import allowed_devices, least_memory
from weftline.search import Search, Solver
from weftline.simulate import Timeline
from weftline.simulate.jit import kernel, part
from weftline.simulate.order import default_order
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER", "heft"]


def _solve(search: Search) -> None:
    timeline = heft(search)
    # The order as it was found, transfers included; and the same placement booked anew, which is sometimes better.
    search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))
    if not search.stopped_by or search.best is None:
        search.offer(timeline.placement)


class Board(NamedTuple):
    """The state of the schedule so far."""

    group: Indices
    """Op -> `together` set or itself."""
    allowed: NDArray[np.bool_]
    """(groups, K)"""
    need: Ints
    """Weights of a group."""
    left: Ints
    """Memory left on each device."""
    fixed: Ints
    """Device of each group, -1 = none yet."""
    holds: Ints
    """(tied weights, K): 1 where a device holds one."""
    busy: Ints
    """(K, n + 1, 2): sorted intervals of each device."""
    number: Ints
    """How many of them."""
    ports: Ints
    """(2, K): when the send and receive ports are free."""
    bus_free: Ints
    arrival: Ints
    """(tensors x K) or one entry where tensors are sent per edge."""
    trial: Ints
    """Transfers of the op in hand."""
    placement: Indices
    start: Ints
    end: Ints
    sent: Ints


def heft(search: Search) -> Timeline:
    """Schedule every op; raises `InfeasibleError` where memory or missing links leave no device for one."""
    problem, table = search.problem, tables(search.problem)
    n, k = table.time.shape
    need = least_memory(problem)
    board = Board(
        group=problem.group,
        allowed=np.ascontiguousarray(allowed_devices(problem)),
        need=need,
        left=problem.capacity.copy(),
        fixed=np.full(len(need), -1, np.int64),
        holds=np.zeros((len(table.tied_bytes), k), np.int64),
        busy=np.zeros((k, n + 1, 2), np.int64),
        number=np.zeros(k, np.int64),
        ports=np.zeros((2, k), np.int64),
        bus_free=np.zeros(int(table.bus.max(initial=-1)) + 2, np.int64),
        arrival=np.full(1 if table.per_edge else len(table.producer) * k, -1, np.int64),
        trial=np.zeros((int(np.diff(table.edge_ptr).max(initial=0)) + 1, 6), np.int64),
        placement=np.full(n, -1, np.int32),
        start=np.zeros(n, np.int64),
        end=np.full(n, -1, np.int64),
        sent=np.zeros((len(table.consumer_of) + 1, 6), np.int64),
    )
    count = _schedule(table, default_order(problem), board, board.ports.copy(), board.bus_free.copy())
    if count < 0:
        raise InfeasibleError(f"HEFT finds no device for op {problem.graph.ops[-count - 1].name!r}")
    return Timeline(board.placement, board.start, board.end, board.sent[:count], np.zeros(k, np.int64))


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
def _try(table: Tables, board: Board, op: int, device: int, ports: Ints, bus_free: Ints) -> tuple[int, int]:
    """Book the missing inputs of an op on these ports -> (when all are there or -1, number of transfers)."""
    ready, count = 0, 0
    devices = table.time.shape[1]
    trial = board.trial
    for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
        tensor, maker = np.int64(table.edge_tensor[e]), table.edge_maker[e]
        done, origin = board.end[maker], board.placement[maker]
        if origin != device:
            known = -1 if table.per_edge else board.arrival[tensor * devices + device]
            length = table.transfer[table.transfer_row[tensor], origin, device]
            if length < 0:
                return -1, 0
            if known >= 0:
                done = known
            elif length > 0:
                begin = max(done, ports[0, origin], ports[1, device])
                lane = table.bus[origin, device]
                if lane >= 0:
                    begin = max(begin, bus_free[lane])
                    bus_free[lane] = begin + length
                done = begin + length
                ports[0, origin] = done
                ports[1, device] = done
                trial[count, 0] = tensor
                trial[count, 1] = origin
                trial[count, 2] = device
                trial[count, 3] = op if table.per_edge else -1
                trial[count, 4] = begin
                trial[count, 5] = done
                count += 1
        ready = max(ready, done)
    return ready, count


@part
def _memory_needed(table: Tables, board: Board, which: int, device: int, take: bool) -> int:
    """Bytes a group brings to a device: its weights, and tied ones that are not there yet (`take`: now they are)."""
    needed = board.need[which]
    for weight in range(len(table.tied_bytes)):
        if board.holds[weight, device] == 0:
            for k in range(table.tied_ptr[weight], table.tied_ptr[weight + 1]):
                if board.group[table.tied_of[k]] == which:
                    needed += table.tied_bytes[weight]
                    if take:
                        board.holds[weight, device] = 1
                    break
    return int(needed)


@part
def _lacks_memory(table: Tables, board: Board, which: int, device: int) -> bool:
    return bool(_memory_needed(table, board, which, device, False) > board.left[device])


@part
def _best_device(table: Tables, board: Board, op: int, ports: Ints, bus_free: Ints) -> int:
    """Where the op ends first, -1 = nowhere. `ports` and `bus_free` are scratch."""
    which = board.group[op]
    best_end, best_device = np.int64(2**62), -1
    for device in range(table.time.shape[1]):
        if board.fixed[which] >= 0:
            if board.fixed[which] != device:
                continue
        elif not board.allowed[which, device] or _lacks_memory(table, board, which, device):
            continue
        for d in range(table.time.shape[1]):
            ports[0, d] = board.ports[0, d]
            ports[1, d] = board.ports[1, d]
        for lane in range(len(bus_free)):
            bus_free[lane] = board.bus_free[lane]
        ready, _ = _try(table, board, op, device, ports, bus_free)
        duration = table.time[op, device]
        if ready < 0:
            continue
        if duration > 0:
            ready, _ = _gap(board.busy, device, board.number[device], ready, duration)
        if ready + duration < best_end:
            best_end, best_device = ready + duration, device
    return best_device


@part
def _commit(table: Tables, board: Board, op: int, device: int, total: int) -> int:
    """Put the op and its transfers on the board -> number of transfers so far."""
    which = board.group[op]
    if board.fixed[which] < 0:
        board.fixed[which] = device
        board.left[device] -= _memory_needed(table, board, which, device, True)
    begin, count = _try(table, board, op, device, board.ports, board.bus_free)
    for k in range(count):
        for column in range(6):
            board.sent[total, column] = board.trial[k, column]
        total += 1
        if not table.per_edge:
            board.arrival[board.trial[k, 0] * table.time.shape[1] + device] = board.trial[k, 5]
    duration = table.time[op, device]
    if duration > 0:
        busy = board.busy
        begin, position = _gap(busy, device, board.number[device], begin, duration)
        for i in range(board.number[device], position, -1):
            busy[device, i, 0] = busy[device, i - 1, 0]
            busy[device, i, 1] = busy[device, i - 1, 1]
        busy[device, position, 0] = begin
        busy[device, position, 1] = begin + duration
        board.number[device] += 1
    board.placement[op] = device
    board.start[op] = begin
    board.end[op] = begin + duration
    return total


@kernel
def _schedule(table: Tables, order: Indices, board: Board, ports: Ints, bus_free: Ints) -> int:
    """Fill the board -> number of transfers, or -1 - op where no device is left for an op."""
    total = 0
    for position in range(len(order)):
        op = int(order[position])
        device = _best_device(table, board, op, ports, bus_free)
        if device < 0:
            return int(-1 - op)
        total = _commit(table, board, op, device, total)
    return total


SOLVER = Solver("heft", "HEFT with insertion: by upward rank, each op where it ends first", _solve, baseline=True)
