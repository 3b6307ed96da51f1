"""HEFT (Topcuoglu, Hariri, Wu 2002), aware of contention: ops by descending upward rank, each where it ends first.

An op may be inserted into a gap of its device; its transfers are booked on ports and buses as the simulator does.
Memory counts weights (and tied weights); the first op of a `together` set fixes the device of the set.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem.feasible import allowed_devices, least_memory
from weftline.search import Search, Solver
from weftline.simulate import Timeline
from weftline.simulate.jit import kernel
from weftline.simulate.order import default_order
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER", "heft"]


def _solve(search: Search) -> None:
    timeline = heft(search)
    # The order as it was found, transfers included; and the same placement booked anew, which is sometimes better.
    search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))
    search.offer(timeline.placement)


def heft(search: Search) -> Timeline:
    """Schedule every op; raises `InfeasibleError` where memory or missing links leave no device for one."""
    problem, table = search.problem, tables(search.problem)
    n = len(problem.graph.ops)
    placement = np.full(n, -1, np.int32)
    start, end = np.zeros(n, np.int64), np.full(n, -1, np.int64)
    sent = np.zeros((len(table.consumer_of) + 1, 6), np.int64)
    allowed = np.ascontiguousarray(allowed_devices(problem))
    left = problem.capacity.copy()
    count = _schedule(
        table, default_order(problem), problem.group, allowed, least_memory(problem), left, placement, start, end, sent
    )
    if count < 0:
        raise InfeasibleError(f"HEFT finds no device for op {problem.graph.ops[-count - 1].name!r}")
    return Timeline(placement, start, end, sent[:count], np.zeros(len(problem.devices), np.int64))


@kernel
def _gap(busy: Ints, count: int, ready: int, duration: int) -> tuple[int, int]:
    """Earliest start >= ready in the sorted busy intervals of a device, and the position to insert at."""
    low, high = 0, count
    while low < high:  # first interval that ends after `ready`
        middle = (low + high) // 2
        if busy[middle, 1] <= ready:
            low = middle + 1
        else:
            high = middle
    begin = ready
    while low < count and busy[low, 0] < begin + duration:
        begin = max(begin, busy[low, 1])
        low += 1
    return begin, low


@kernel
def _try(
    table: Tables,
    op: int,
    device: int,
    placement: Indices,
    end: Ints,
    arrival: Ints,
    ports: Ints,
    bus_free: Ints,
    sent: Ints,
) -> tuple[int, int]:
    """Book the missing inputs of an op on a copy of the ports -> (when all are there or -1, number of transfers)."""
    ready, count = 0, 0
    devices = table.time.shape[1]
    for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
        tensor, maker = np.int64(table.edge_tensor[e]), table.edge_maker[e]
        done, origin = end[maker], placement[maker]
        if origin != device:
            known = -1 if table.per_edge else arrival[tensor * devices + device]
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
                sent[count, 0], sent[count, 1], sent[count, 2] = tensor, origin, device
                sent[count, 3] = op if table.per_edge else -1
                sent[count, 4], sent[count, 5] = begin, done
                count += 1
        ready = max(ready, done)
    return ready, count


@kernel
def _tied_extra(table: Tables, group: Indices, which: int, device: int, holds: Ints) -> int:
    """Bytes of tied weights that a group brings to a device which does not hold them yet."""
    extra = 0
    for weight in range(len(table.tied_bytes)):
        if holds[weight, device] == 0:
            for k in range(table.tied_ptr[weight], table.tied_ptr[weight + 1]):
                if group[table.tied_of[k]] == which:
                    extra += table.tied_bytes[weight]
                    break
    return extra


@kernel
def _hold_tied(table: Tables, group: Indices, which: int, device: int, holds: Ints) -> None:
    for weight in range(len(table.tied_bytes)):
        for k in range(table.tied_ptr[weight], table.tied_ptr[weight + 1]):
            if group[table.tied_of[k]] == which:
                holds[weight, device] = 1


@kernel
def _schedule(
    table: Tables,
    order: Indices,
    group: Indices,
    allowed: Ints,
    need: Ints,
    left: Ints,
    placement: Indices,
    start: Ints,
    end: Ints,
    sent: Ints,
) -> int:
    """Fill placement, times and transfers -> number of transfers, or -1 - op where no device is left for an op."""
    n, devices = table.time.shape
    busy = np.zeros((devices, n + 1, 2), np.int64)
    number = np.zeros(devices, np.int64)
    ports = np.zeros((2, devices), np.int64)
    bus_free = np.zeros(table.bus.max() + 2, np.int64)
    arrival = np.full(1 if table.per_edge else len(table.producer) * devices, -1, np.int64)
    fixed = np.full(len(need), -1, np.int64)
    holds = np.zeros((len(table.tied_bytes), devices), np.int64)
    widest = np.int64(0)
    for op in range(n):
        widest = max(widest, np.int64(table.edge_ptr[op + 1]) - np.int64(table.edge_ptr[op]))
    trial = np.zeros((widest + 1, 6), np.int64)
    total = 0
    for op in order:
        which = group[op]
        best_end, best_device = np.int64(2**62), -1
        for device in range(devices):
            if fixed[which] >= 0 and fixed[which] != device:
                continue
            if fixed[which] < 0 and (
                not allowed[which, device]
                or need[which] + _tied_extra(table, group, which, device, holds) > left[device]
            ):
                continue
            ready, _ = _try(table, op, device, placement, end, arrival, ports.copy(), bus_free.copy(), trial)
            if ready < 0:
                continue
            duration = table.time[op, device]
            begin = ready if duration == 0 else _gap(busy[device], number[device], ready, duration)[0]
            if begin + duration < best_end:
                best_end, best_device = begin + duration, device
        if best_device < 0:
            return -1 - op
        device = best_device
        if fixed[which] < 0:
            fixed[which] = device
            left[device] -= need[which] + _tied_extra(table, group, which, device, holds)
            _hold_tied(table, group, which, device, holds)
        ready, count = _try(table, op, device, placement, end, arrival, ports, bus_free, trial)
        for k in range(count):
            sent[total] = trial[k]
            total += 1
            if not table.per_edge:
                arrival[trial[k, 0] * devices + device] = trial[k, 5]
        duration = table.time[op, device]
        begin = ready
        if duration > 0:
            begin, position = _gap(busy[device], number[device], ready, duration)
            for i in range(number[device], position, -1):
                busy[device, i, 0], busy[device, i, 1] = busy[device, i - 1, 0], busy[device, i - 1, 1]
            busy[device, position, 0], busy[device, position, 1] = begin, begin + duration
            number[device] += 1
        placement[op] = device
        start[op], end[op] = begin, begin + duration
    return total


SOLVER = Solver("heft", "HEFT with insertion: by upward rank, each op where it ends first", _solve, baseline=True)
