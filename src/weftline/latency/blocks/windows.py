"""Head and tail windows: on which devices can an op run, and when, if everything must end within a horizon?

In: the flat tables of a problem (or of a block whose end ops have a time on one device only) and a horizon. Out: for
every op and device the earliest start, the time from its start to the end of everything, and whether the two fit into
the horizon. Paths with communication only: contention and memory are ignored, so a device that is struck out is struck
out for every plan within the horizon.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.tables import Tables

__all__ = ["NEVER", "Windows", "windows"]

NEVER = 2**61
ROUNDS = 500
"""Passes over the graph at most; windows are valid after every one of them."""


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


def windows(table: Tables, horizon: int = NEVER, group: Indices | None = None) -> Windows:
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
    for _ in range(ROUNDS):
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
            came = NEVER
            for a in range(devices):
                if able[maker, a] and (a == k or group[maker] != group[op]):
                    length = table.transfer[row, a, k]
                    if length >= 0:
                        came = min(came, head[maker, a] + table.time[maker, a] + length)
            ready = max(ready, came)
        if ready >= NEVER:
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
                left = NEVER
                for b in range(devices):
                    if able[reader, b] and (b == k or group[reader] != group[op]):
                        length = table.transfer[row, k, b]
                        if length >= 0:
                            left = min(left, length + tail[reader, b])
                after = max(after, left)
        if after >= NEVER:
            able[op, k] = False
        tail[op, k] = table.time[op, k] + after
