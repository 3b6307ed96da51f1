"""One placement -> the Loads of a pipeline: compute, tensors that enter, tensors that leave, memory of each stage.

Every device used is one stage. The quotient graph (one node per stage, one per op on a host device, forward ops only)
must be acyclic. A tensor that leaves a device is paid for once, at the costliest of its destinations; a host device
pays nothing. Memory of a stage: weights + the peak of one inference that runs its ops in the order of the graph; with
overlapped communication, tensors that cross its border are held twice.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.latency import INFEASIBLE
from weftline.simulate.memory import hold, sweep, weights_held
from weftline.simulate.tables import Tables, check_placement, tables
from weftline.simulate.timeline import Loads, violations

__all__ = ["LOAD_REASONS", "add_loads", "replica_periods", "simulate_throughput", "stage_loads", "stage_peaks"]


def simulate_throughput(problem: Problem, placement: Indices) -> Loads:
    """Cost a partition. `InfeasibleError` if it is no pipeline: a cycle, an absent time or link, too many stages."""
    table, placement = tables(problem), check_placement(problem, placement)
    parts = np.zeros((4, len(problem.devices)), np.int64)
    rank = np.zeros(len(problem.devices), np.int64)
    value = stage_loads(table, placement, parts, rank)
    if value >= INFEASIBLE:
        raise InfeasibleError(LOAD_REASONS[value - INFEASIBLE])
    used = np.unique(placement)
    stages = tuple(int(device) for device in used[np.argsort(rank[used], kind="stable")])
    compute, entering, leaving, load = parts
    return Loads(placement, compute, entering, leaving, load, stage_peaks(table, placement), stages)


def replica_periods(problem: Problem) -> list[int]:
    """Periods of the whole model on single devices that can hold it: the fastest, as many as stages are allowed."""
    periods = []
    for device in range(len(problem.devices)):
        try:
            loads = simulate_throughput(problem, np.full(len(problem.graph.ops), device, np.int32))
        except InfeasibleError:
            continue
        if not violations(problem, loads):
            periods.append(loads.value)
    return sorted(periods)[: problem.stage_limit]


PART_COMPUTE, PART_ENTERING, PART_LEAVING, PART_LOAD = range(4)
"""Rows of `parts`, ns of each device."""
NO_TIME, NO_LINK, MANY_STAGES, CYCLIC_STAGES = range(4)
"""What is added to INFEASIBLE."""
LOAD_REASONS = {
    NO_TIME: "an op stands on a device that cannot run it",
    NO_LINK: "a tensor must cross between devices that have no link",
    MANY_STAGES: "more devices are used than stages are allowed",
    CYCLIC_STAGES: "the stages depend on each other in a cycle",
}


@kernel
def stage_loads(table: Tables, placement: Indices, parts: Ints, rank: Ints) -> int:
    """Fill compute, entering, leaving, load (rows of `parts`) and stage ranks -> period, or INFEASIBLE + reason."""
    reason = add_loads(table, placement, parts)
    if reason >= INFEASIBLE:
        return reason
    stages = 0
    used = np.zeros(parts.shape[1], np.int64)
    for op in range(len(placement)):
        stages += 1 - used[placement[op]]
        used[placement[op]] = 1
    if stages > table.stage_limit:
        return INFEASIBLE + MANY_STAGES
    if not _rank_stages(table, placement, rank):
        return INFEASIBLE + CYCLIC_STAGES
    return reason


@kernel
def add_loads(table: Tables, placement: Indices, parts: Ints) -> int:
    """Fill compute, entering, leaving and load of any placement -> the largest load, or INFEASIBLE + reason."""
    devices = table.time.shape[1]
    parts[:] = 0
    for op in range(len(placement)):
        duration = table.time[op, placement[op]]
        if duration < 0:
            return INFEASIBLE + NO_TIME
        parts[PART_COMPUTE, placement[op]] += duration
    seen = np.full(devices, -1, np.int64)
    for tensor in range(len(table.producer)):
        if table.producer[tensor] < 0:
            continue
        home = placement[table.producer[tensor]]
        costliest = 0
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            device = placement[table.consumer_of[c]]
            if device == home or seen[device] == tensor:
                continue
            seen[device] = tensor
            length = table.transfer[table.transfer_row[tensor], home, device]
            if length < 0:
                return INFEASIBLE + NO_LINK
            costliest = max(costliest, length)
            if not table.host[device]:
                parts[PART_ENTERING, device] += length
        if not table.host[home]:
            parts[PART_LEAVING, home] += costliest
    value = 0
    for device in range(devices):
        compute, entering, leaving = (
            parts[PART_COMPUTE, device],
            parts[PART_ENTERING, device],
            parts[PART_LEAVING, device],
        )
        busy = max(compute, entering, leaving) if table.overlapped else compute + entering + leaving
        parts[PART_LOAD, device] = busy
        value = max(value, busy)
    return value


@part
def _rank_stages(table: Tables, placement: Indices, rank: Ints) -> bool:
    """Topological order of the quotient graph of the forward ops; False if it has a cycle.

    Nodes 0..K-1 are the stages, K + i is op i where it stands on a host device.
    """
    devices, n = table.time.shape[1], len(placement)
    node = np.empty(n, np.int64)
    first = np.full(devices + n, -1, np.int64)  # ops of a node as linked lists
    following = np.full(n, -1, np.int64)
    for op in range(n - 1, -1, -1):
        node[op] = devices + op if table.host[placement[op]] else placement[op]
        if not table.backward[op]:
            following[op] = first[node[op]]
            first[node[op]] = op
    waiting = np.zeros(devices + n, np.int64)
    for tensor in range(len(table.producer)):
        maker = table.producer[tensor]
        if maker >= 0 and not table.backward[maker]:
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                op = table.consumer_of[c]
                if not table.backward[op] and node[op] != node[maker]:
                    waiting[node[op]] += 1
    queue = np.empty(devices + n, np.int64)
    tail = 0
    for v in range(devices + n):
        if first[v] >= 0 and waiting[v] == 0:
            queue[tail] = v
            tail += 1
    rank[:] = devices + n
    head = 0
    done = 0
    while head < tail:
        v = queue[head]
        if v < devices:
            rank[v] = head
        elif rank[placement[v - devices]] > head:
            rank[placement[v - devices]] = head
        head += 1
        op = first[v]
        while op >= 0:
            done += 1
            for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
                tensor = table.output_of[k]
                for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                    target = table.consumer_of[c]
                    if not table.backward[target] and node[target] != v:
                        waiting[node[target]] -= 1
                        if waiting[node[target]] == 0:
                            queue[tail] = node[target]
                            tail += 1
            op = following[op]
    forward = 0
    for op in range(n):
        if not table.backward[op]:
            forward += 1
    return bool(done == forward)


@kernel
def stage_peaks(table: Tables, placement: Indices) -> Ints:
    """(K,): bytes. Time inside a stage is the position of an op among the ops of its stage."""
    held = weights_held(table, placement)
    if not table.dynamic:
        return held
    devices, n, m = len(held), len(placement), len(table.producer)
    place = np.empty(n, np.int64)
    length = np.zeros(devices, np.int64)
    for op in range(n):
        place[op] = length[placement[op]]
        length[placement[op]] += 1
    copies = 2 if table.overlapped else 1
    rows = np.empty((n + m + len(table.consumer_of), 4), np.int64)
    count = 0
    for op in range(n):
        count = hold(rows, count, placement[op], place[op], place[op] + 1, table.workspace_bytes[op])
    last = np.zeros(devices, np.int64)
    used = np.full(devices, -1, np.int64)
    for tensor in range(m):
        maker = table.producer[tensor]
        home = placement[maker] if maker >= 0 else -1
        crosses = False
        until = place[maker] + 1 if maker >= 0 else 0
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            op = table.consumer_of[c]
            device = placement[op]
            if device == home:
                until = max(until, place[op] + 1)
            else:
                crosses = True
                last[device] = max(last[device], place[op] + 1) if used[device] == tensor else place[op] + 1
                used[device] = tensor
        size = table.tensor_bytes[tensor]
        if maker >= 0:
            leaves = crosses or table.is_output[tensor]
            until = length[home] if leaves else until
            count = hold(rows, count, home, place[maker], until, size * copies if leaves else size)
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            device = placement[table.consumer_of[c]]
            if device != home and used[device] == tensor:
                used[device] = -1
                count = hold(rows, count, device, 0, last[device], size * copies)
    return sweep(rows[:count], held)
