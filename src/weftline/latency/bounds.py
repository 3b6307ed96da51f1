"""What paths alone say about the latency; contention and memory are ignored.

The path bound: no inference is faster than its longest chain of ops, each on the device that suits the chain best.
earliest(i, k) = time(i, k) + max over inputs j of min over devices a of (earliest(j, a) + transfer(j, a, k)).
The bound is the largest over ops of the smallest over devices. Witness: the ops it rests on.

Head and tail windows: on which devices can an op run, and when, if everything must end within a horizon? In: the flat
tables of a problem (or of a block whose end ops have a time on one device only) and a horizon. Out: for every op and
device the earliest start, the time from its start to the end of everything, and whether the two fit into the horizon. A
device that is struck out is struck out for every plan within the horizon.
"""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound, group_bound, load_bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.tables import Tables, tables

__all__ = ["OUT_OF_REACH", "Windows", "lower_bounds", "path_bound", "windows"]

OUT_OF_REACH = 2**61
"""A time that nothing reaches; two of them can be added."""
MOST_PASSES = 500
"""Over the graph, for windows, which are valid after every one of them."""


def path_bound(problem: Problem) -> Bound:
    """O(edges x devices^2)."""
    begun = perf_counter()
    earliest, critical = _earliest(tables(problem))
    per_op = earliest.min(axis=1)
    sink = int(per_op.argmax())
    ops = _depends_on(critical, sink)
    if per_op[sink] >= OUT_OF_REACH:
        name = problem.graph.ops[sink].name
        raise InfeasibleError(f"missing links leave no way to bring its inputs to op {name!r}", proved=True)
    return Bound(int(per_op[sink]), "path", {"kind": "path", "ops": ops}, perf_counter() - begun)


@kernel
def _earliest(table: Tables) -> tuple[Ints, Ints]:
    """(n, K) earliest ends, and for each the input op that decides it (-1 = none)."""
    n, devices = table.time.shape
    earliest = np.full((n, devices), OUT_OF_REACH, np.int64)
    critical = np.full((n, devices), -1, np.int64)
    for op in range(n):
        for k in range(devices):
            if table.time[op, k] < 0:
                continue
            ready = 0
            for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
                maker, row = table.edge_maker[e], table.transfer_row[table.edge_tensor[e]]
                came = OUT_OF_REACH
                for a in range(devices):
                    length = table.transfer[row, a, k]
                    if length >= 0 and earliest[maker, a] < OUT_OF_REACH:
                        came = min(came, earliest[maker, a] + length)
                if came > ready:
                    ready = came
                    critical[op, k] = maker
            earliest[op, k] = min(ready + table.time[op, k], OUT_OF_REACH)
    return earliest, critical


def _depends_on(critical: Ints, sink: int) -> list[int]:
    """The sink and everything its value rests on, ascending."""
    found, stack = {sink}, [sink]
    while stack:
        for op in set(critical[stack.pop()].tolist()) - {-1}:
            if op not in found:
                found.add(op)
                stack.append(op)
    return sorted(found)


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies, the largest first."""
    found = [group_bound(problem), load_bound(problem), path_bound(problem)]
    return tuple(sorted(found, key=lambda bound: -bound.value))


class Windows(NamedTuple):
    """n ops, K devices. Entries of `head` and `tail` mean something only where `able` holds."""

    head: Ints
    """(n, K): no plan within the horizon starts the op earlier on this device."""
    tail: Ints
    """(n, K): from the start of the op on this device to the end of everything."""
    able: NDArray[np.bool_]
    """(n, K): False = no plan within the horizon runs the op there."""
    stuck: int
    """An op that has no device left, so that no plan exists within the horizon; -1 = every op has one."""


def windows(table: Tables, horizon: int = OUT_OF_REACH, group: Indices | None = None) -> Windows:
    """Strike out (op, device) pairs until nothing changes. Ops with the same number in `group` share a device."""
    n, devices = table.time.shape
    head, tail = np.zeros((n, devices), np.int64), np.zeros((n, devices), np.int64)
    able = np.ascontiguousarray(table.time >= 0)
    sets = np.arange(n, dtype=np.int32) if group is None else np.ascontiguousarray(group, np.int32)
    stuck = _shrink(table, horizon, sets, int(sets.max(initial=-1)) + 1, head, tail, able)
    return Windows(head, tail, able, stuck)


@kernel
def _shrink(
    table: Tables, horizon: int, group: Indices, groups: int, head: Ints, tail: Ints, able: NDArray[np.bool_]
) -> int:
    """Fill the three arrays -> an op without a device, or -1."""
    n, devices = table.time.shape
    allowed = np.ones((groups, devices), np.bool_)
    for _ in range(MOST_PASSES):
        _share(group, able, allowed)
        for op in range(n):
            _head(table, group, op, head, able)
        for op in range(n - 1, -1, -1):
            _tail(table, group, op, tail, able)
        changed = False
        for op in range(n):
            left = False
            for k in range(devices):
                if able[op, k] and head[op, k] + tail[op, k] > horizon:
                    able[op, k] = False
                if not able[op, k] and allowed[group[op], k]:
                    changed = True
                left = left or able[op, k]
            if not left:
                return op
        if not changed:
            return -1
    _share(group, able, allowed)
    for op in range(n):
        if not able[op].any():
            return op
    return -1


@part
def _share(group: Indices, able: NDArray[np.bool_], allowed: NDArray[np.bool_]) -> None:
    """A device that one op of a group has lost is lost for all of them."""
    n, devices = able.shape
    for op in range(n):
        for k in range(devices):
            if not able[op, k]:
                allowed[group[op], k] = False
    for op in range(n):
        for k in range(devices):
            able[op, k] = allowed[group[op], k]


@part
def _head(table: Tables, group: Indices, op: int, head: Ints, able: NDArray[np.bool_]) -> None:
    """Earliest starts of an op from those of the ops before it; a device that no input can reach is struck out."""
    devices = table.time.shape[1]
    for k in range(devices):
        if not able[op, k]:
            continue
        ready = 0
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            maker, row = np.int64(table.edge_maker[e]), table.transfer_row[np.int64(table.edge_tensor[e])]
            came = OUT_OF_REACH
            for a in range(devices):
                if able[maker, a] and (a == k or group[maker] != group[op]):
                    length = table.transfer[row, a, k]
                    if length >= 0:
                        came = min(came, head[maker, a] + table.time[maker, a] + length)
            ready = max(ready, came)
        if ready >= OUT_OF_REACH:
            able[op, k] = False
        head[op, k] = ready


@part
def _tail(table: Tables, group: Indices, op: int, tail: Ints, able: NDArray[np.bool_]) -> None:
    """The same from behind, the op's own time included."""
    devices = table.time.shape[1]
    for k in range(devices):
        if not able[op, k]:
            continue
        after = 0
        for o in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[o]
            row = table.transfer_row[tensor]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                left = OUT_OF_REACH
                for b in range(devices):
                    if able[reader, b] and (b == k or group[reader] != group[op]):
                        length = table.transfer[row, k, b]
                        if length >= 0:
                            left = min(left, length + tail[reader, b])
                after = max(after, left)
        if after >= OUT_OF_REACH:
            able[op, k] = False
        tail[op, k] = table.time[op, k] + after
