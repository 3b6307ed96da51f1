"""The annealer's schedule: a trial re-books the order from the first position that changed, and can be taken back.

The times are those of `simulate.latency_kernel.run_order`, to the nanosecond: the inputs that are missing on an op's
device are booked in order of their producers' ends, then the op. A trial ends early when its value is sure to pass a
limit, and when an order that changed nothing has been seen to the end of the change.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.tables import Unsigned

__all__ = ["keep_trial", "schedule", "undo_trial"]

FEW = 24
"""Up to so many missing inputs of one op are kept in order by insertion."""
LATEST = 2**61


@part
def schedule(
    cost: Ints,
    edge_ptr: Unsigned,
    edge: Unsigned,
    transfer: Ints,
    bus: Indices,
    order: Indices,
    position: Indices,
    device: Indices,
    end: Ints,
    arrival: Ints,
    stored: Ints,
    fresh: Ints,
    kept: Ints,
    log: Ints,
    free: Ints,
    pending: Ints,
    first: int,
    quiet: int,
    limit: int,
    stride: int,
    buses: int,
    per_edge: bool,
    sequential: bool,
) -> tuple[int, int, int, bool]:
    """Book positions `first`.. -> (value, positions done, arrivals logged, True if the rest is as it was).

    A value above `limit` is only known to be above it. `quiet` is the position after the last change of an order-only
    move (devices are the same), where the rest may turn out to be as it was; n + 1 for other moves.
    """
    n, devices, width = len(order), np.uint64(cost.shape[1]), free.shape[0]
    sends, receives, lanes = devices, devices + devices, devices + devices + devices
    one, zero = np.uint64(1), np.uint64(0)
    begin_at = first - first % stride
    for c in range(width):
        free[c] = stored[begin_at // stride, c]
    value, clock, logged, clean = free[width - 1], free[width - 2], 0, True
    for p in range(begin_at, n):
        if p == quiet and clean and p % stride == 0:
            same = value == stored[p // stride, width - 1] and clock == stored[p // stride, width - 2]
            for c in range(width - 2):
                same = same and free[c] == stored[p // stride, c]
            if same:
                return value, p, logged, True
        if stride == 1 or p % stride == 0:
            row = np.uint64(p) if stride == 1 else np.uint64(p // stride)
            for c in range(width - 2):
                fresh[row, c] = free[c]
            fresh[row, width - 2] = clock
            fresh[row, width - 1] = value
        op = np.uint64(order[np.uint64(p)])
        here = np.uint64(device[op])
        ready, count = 0, 0
        for e in range(np.uint64(edge_ptr[op]), np.uint64(edge_ptr[op + one])):
            maker = np.uint64(edge[e, zero])
            origin = np.uint64(device[maker])
            done = end[maker]
            if origin != here:
                slot = np.int64(0)
                if not per_edge:
                    slot = np.int64(np.uint64(edge[e, 2]) * devices + here)
                    by = arrival[slot, 1]
                    if by <= -2 or (by >= 0 and position[by] < begin_at and device[by] == here):
                        ready = max(ready, arrival[slot, 0])
                        continue
                place = count
                while 0 < place < FEW and pending[place - 1, 0] > done:
                    pending[place, 0] = pending[place - 1, 0]
                    pending[place, 1] = pending[place - 1, 1]
                    pending[place, 2] = pending[place - 1, 2]
                    place -= 1
                pending[place, 0] = done
                pending[place, 1] = transfer[np.uint64(edge[e, one]), origin, here]
                pending[place, 2] = slot * np.int64(devices) + np.int64(origin)
                count += 1
                continue
            ready = max(ready, done)
        if count > FEW:
            sort_rows(pending, count)
        for i in range(count):
            begin, length = pending[i, 0], pending[i, 1]
            if length > 0:
                origin = np.uint64(pending[i, 2]) % devices
                begin = max(begin, free[sends + origin], free[receives + here])
                if buses > 0 and bus[origin, here] >= 0:
                    lane = lanes + np.uint64(bus[origin, here])
                    begin = max(begin, free[lane])
                    free[lane] = begin + length
                if sequential:
                    begin = clock
                    clock = min(clock + length, LATEST)
                begin = min(begin, LATEST)
                free[sends + origin] = begin + length
                free[receives + here] = begin + length
            if not per_edge:
                slot = np.int64(np.uint64(pending[i, 2]) // devices)
                clean = clean and arrival[slot, 0] == begin + length
                log[logged, 0], log[logged, 1], log[logged, 2] = slot, arrival[slot, 0], arrival[slot, 1]
                arrival[slot, 0], arrival[slot, 1] = begin + length, -2 - np.int64(op)
                logged += 1
            ready = max(ready, begin + length)
        duration = cost[op, here, zero]
        if sequential:
            ready = clock
            clock += duration
        elif duration > 0:
            ready = max(ready, free[here])
            free[here] = ready + duration
        finish = ready + duration
        before = end[op]
        kept[np.uint64(p)] = before
        end[op] = finish
        clean = clean and finish == before
        value = max(value, finish)
        if finish + cost[op, here, one] > limit:
            return finish + cost[op, here, one], p + 1, logged, False
    return value, n, logged, False


@part
def undo_trial(
    order: Indices, end: Ints, kept: Ints, arrival: Ints, log: Ints, begin_at: int, done: int, logged: int
) -> None:
    """Take back what `schedule` wrote. The order must still be the trial's."""
    for p in range(begin_at, done):
        end[order[p]] = kept[p]
    for i in range(logged - 1, -1, -1):
        arrival[log[i, 0], 0] = log[i, 1]
        arrival[log[i, 0], 1] = log[i, 2]


@part
def keep_trial(
    stored: Ints, fresh: Ints, arrival: Ints, log: Ints, begin_at: int, done: int, stride: int, logged: int
) -> None:
    """What `schedule` wrote becomes the state."""
    for row in range(begin_at // stride, (done - 1) // stride + 1):
        for c in range(stored.shape[1]):
            stored[row, c] = fresh[row, c]
    for i in range(logged):
        arrival[log[i, 0], 1] = -2 - arrival[log[i, 0], 1]
