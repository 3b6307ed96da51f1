"""m-TOPO (Jeon et al., Baechi, 2020): ops in topological order, device after device filled up to its share of memory.

The share of device k is total * M_k / sum of M + the largest op, and at most M_k (a device without limit counts as one
that holds the whole model). An op counts its weights, workspace and outputs; a `together` set the largest of them. An
op that its device cannot take goes to the next one that can, and the filling goes on where it was. The topological
order is Kahn's with a queue, as in all of Baechi and in Placeto.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.memory_left import Candidate as Plan
from weftline.latency.list.memory_left import (
    WeightRoom,
    clear_room,
    close_unlinked,
    make_room,
    offer_leaving_room,
    open_devices,
    settle,
)
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.tables import Tables, tables

__all__ = ["SOLVER", "group_memory", "kahn_order", "shares"]


def kahn_order(problem: Problem) -> Indices:
    """A topological order as a queue makes it: first come, first served."""
    return _kahn(tables(problem))


@kernel
def _kahn(table: Tables) -> Indices:
    n = len(table.time)
    waiting = np.zeros(n, np.int64)
    order = np.empty(n, np.int32)
    count = 0
    for op in range(n):
        waiting[op] = np.int64(table.edge_ptr[op + 1]) - np.int64(table.edge_ptr[op])
        if waiting[op] == 0:
            order[count] = op
            count += 1
    for position in range(n):
        op = order[position]
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    order[count] = reader
                    count += 1
    return order


def _solve(search: Search) -> None:
    problem, table, room = search.problem, tables(search.problem), make_room(search.problem)
    order, size = kahn_order(problem), group_memory(problem)

    def plan(capacity: Ints) -> Plan:
        room.capacity[:] = capacity
        stuck = _fill(table, room, order, size, shares(size, capacity))
        if stuck >= 0:
            raise InfeasibleError(f"m-TOPO finds no device for op {problem.graph.ops[stuck].name!r}")
        return Plan(room.fixed[problem.group].astype(np.int32), order=order)

    offer_leaving_room(search, plan)


def group_memory(problem: Problem) -> Ints:
    """(groups,): weights of all ops, and the largest workspace + outputs of one."""
    arrays = problem.graph.arrays
    weights = np.zeros(int(problem.group.max()) + 1, np.int64)
    np.add.at(weights, problem.group, arrays.weight_bytes)
    made = np.zeros(len(problem.group), np.int64)
    inner = arrays.producer >= 0
    np.add.at(made, arrays.producer[inner], arrays.tensor_bytes[inner])
    largest = np.zeros(len(weights), np.int64)
    np.maximum.at(largest, problem.group, made + arrays.workspace_bytes)
    return weights + largest


def shares(size: Ints, capacity: Ints) -> Ints:
    """(K,): how far each device is filled."""
    total = int(size.sum())
    limits = [min(max(limit, 0), total) for limit in capacity.tolist()]
    fair = [total * limit // max(sum(limits), 1) + int(size.max()) for limit in limits]
    return np.minimum(np.array(fair, np.int64), capacity)


@kernel
def _fill(table: Tables, room: WeightRoom, order: Indices, size: Ints, share: Ints) -> int:
    """Fill the room -> -1, or the op that no device can take."""
    clear_room(room)
    devices = len(share)
    used, is_open = np.zeros(devices, np.int64), np.zeros(devices, np.bool_)
    current = 0
    for position in range(len(order)):
        op = int(order[position])
        which = room.group[op]
        if room.fixed[which] >= 0:
            continue
        while current < devices and used[current] + size[which] > share[current]:
            current += 1
        open_devices(room, op, is_open)
        if room.gaps:
            close_unlinked(table, room, op, is_open)
        chosen = -1
        for offset in range(devices):
            device = (current + offset) % devices
            if is_open[device]:
                chosen = device
                break
        if chosen < 0:
            return op
        settle(room, op, chosen)
        used[chosen] += size[which]
    return -1


SOLVER = Solver("m-topo", "Baechi's m-TOPO: fill device after device in topological order", _solve)
