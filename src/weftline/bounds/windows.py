"""Windows: when each op can run on each device if everything must end by a horizon; and where it cannot run at all.

head(i, k) = earliest start of op i on device k, tail(i, k) = time from that start to the end of everything, both along
paths with communication over devices that are still possible. A device with head + tail beyond the horizon is struck
out, which makes other heads and tails longer, until nothing changes. Contention is ignored, so nothing is lost.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.jit import kernel, part
from weftline.simulate.tables import Tables

__all__ = ["NEVER", "Windows", "narrow", "windows"]

NEVER = 2**61


class Windows(NamedTuple):
    """Of n ops on K devices. Heads and tails are `NEVER` where an op cannot run."""

    head: Ints
    tail: Ints
    able: NDArray[np.bool_]


def windows(table: Tables, horizon: int = NEVER, group: Indices | None = None) -> Windows | None:
    """Windows of a whole problem, None if no plan ends by the horizon. `group`: ops that share a device."""
    able = np.ascontiguousarray(table.time >= 0)
    found = Windows(np.zeros(able.shape, np.int64), np.zeros(able.shape, np.int64), able)
    return found if narrow(table, found, horizon, np.zeros(0, np.int32) if group is None else group) else None


@kernel
def narrow(table: Tables, found: Windows, horizon: int, group: Indices) -> bool:
    """Fill heads and tails and strike out devices until nothing changes -> whether every op has a device left."""
    able = found.able
    while True:
        if len(group):
            _share(able, group)
        _heads(table, found.head, able)
        _tails(table, found.tail, able)
        struck = False
        for op in range(len(able)):
            left = 0
            for k in range(able.shape[1]):
                if able[op, k]:
                    head, tail = found.head[op, k], found.tail[op, k]
                    if head >= NEVER or tail >= NEVER or head + tail > horizon:
                        able[op, k] = False
                        struck = True
                    else:
                        left += 1
            if left == 0:
                return False
        if not struck:
            return True


@part
def _share(able: NDArray[np.bool_], group: Indices) -> None:
    """What one op of a group cannot use, none of them can."""
    most = 0
    for op in range(len(group)):
        most = max(most, group[op])
    both = np.ones((most + 1, able.shape[1]), np.bool_)
    for op in range(len(group)):
        for k in range(able.shape[1]):
            both[group[op], k] &= able[op, k]
    for op in range(len(group)):
        for k in range(able.shape[1]):
            able[op, k] = both[group[op], k]


@part
def _heads(table: Tables, head: Ints, able: NDArray[np.bool_]) -> None:
    n, devices = able.shape
    for op in range(n):
        for k in range(devices):
            head[op, k] = 0 if able[op, k] else NEVER
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            maker, row = table.edge_maker[e], table.transfer_row[table.edge_tensor[e]]
            for k in range(devices):
                if not able[op, k]:
                    continue
                came = NEVER
                for a in range(devices):
                    length = table.transfer[row, a, k]
                    if able[maker, a] and length >= 0 and head[maker, a] < NEVER:
                        came = min(came, head[maker, a] + table.time[maker, a] + length)
                head[op, k] = max(head[op, k], came)


@part
def _tails(table: Tables, tail: Ints, able: NDArray[np.bool_]) -> None:
    n, devices = able.shape
    for op in range(n - 1, -1, -1):
        for k in range(devices):
            tail[op, k] = table.time[op, k] if able[op, k] else NEVER
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
                        length = table.transfer[row, k, b]
                        if able[reader, b] and length >= 0 and tail[reader, b] < NEVER:
                            left = min(left, length + tail[reader, b])
                    after = max(after, left)
            tail[op, k] = min(NEVER, tail[op, k] + after)
