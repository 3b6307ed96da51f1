"""The annealer's schedule: a trial re-books the order from the first position that changed, and can be taken back.

The times are those of `simulate.latency_kernel.run_order`, to the nanosecond: the inputs that are missing on an op's
device are booked in order of their producers' ends, then the op. A trial ends early when its value is sure to pass a
limit, and when an order that changed nothing has been seen to the end of the change.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.state import BOOKED_FOR, FOLLOWS, MAKER, READY_AT, TENSOR, TIME, TRANSFER_ROW
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.tables import Unsigned

__all__ = ["keep_trial", "schedule", "undo_trial"]

FEW = 24
"""Up to so many missing inputs of one op are kept in order by insertion."""
LATEST = 2**61
MADE_AT, LENGTH, CAME_FROM = 0, 1, 2
"""`pending[i]`, a transfer to book: when its tensor is made (ns), how long it takes (ns), slot * K + the device it is
on."""
SLOT, OLD_TIME, OLD_OP = 0, 1, 2
"""`log[i]`, an arrival before the trial: where it stands, and its READY_AT and BOOKED_FOR."""


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

    Invariant, before position p: `end`, `arrival`, `free`, `clock` and `value` are those of the order up to p alone;
    `fresh` holds them at every `stride`-th position since `begin_at`, `kept` and `log` what they were before the trial,
    and BOOKED_FOR is at most -2 for what this trial booked. `undo_trial` or `keep_trial` must follow.

    tests/latency/test_anneal.py (`test_state_is_the_simulators`, `test_stored_prefixes_may_be_sparse`) compares the
    times with `run_order`, whose plain-Python reference is `simulate/reference.py` (tests/simulate/test_agreement.py).
    """
    n, devices, width = len(order), np.uint64(cost.shape[1]), free.shape[0]
    at_clock, at_value = width - 2, width - 1  # the last columns: clock of the sequential runtime, latest end so far
    sends, receives, lanes = devices, devices + devices, devices + devices + devices
    one = np.uint64(1)
    begin_at = first - first % stride
    for c in range(width):
        free[c] = stored[begin_at // stride, c]
    value, clock, logged, clean = free[at_value], free[at_clock], 0, True
    for p in range(begin_at, n):
        # 1. Is everything as it was, or is this a position to store?
        if p == quiet and clean and p % stride == 0:
            same = value == stored[p // stride, at_value] and clock == stored[p // stride, at_clock]
            for c in range(at_clock):
                same = same and free[c] == stored[p // stride, c]
            if same:
                return value, p, logged, True
        if stride == 1 or p % stride == 0:
            row = np.uint64(p) if stride == 1 else np.uint64(p // stride)
            for c in range(at_clock):
                fresh[row, c] = free[c]
            fresh[row, at_clock] = clock
            fresh[row, at_value] = value
        # 2. Inputs: here already, or pending in the order of their makers' ends.
        op = np.uint64(order[np.uint64(p)])
        here = np.uint64(device[op])
        ready, count = 0, 0
        for e in range(np.uint64(edge_ptr[op]), np.uint64(edge_ptr[op + one])):
            maker = np.uint64(edge[e, MAKER])
            origin = np.uint64(device[maker])
            done = end[maker]
            if origin != here:
                slot = np.int64(0)
                if not per_edge:
                    slot = np.int64(np.uint64(edge[e, TENSOR]) * devices + here)
                    by = arrival[slot, BOOKED_FOR]
                    if by <= -2 or (by >= 0 and position[by] < begin_at and device[by] == here):
                        ready = max(ready, arrival[slot, READY_AT])
                        continue
                place = count
                while 0 < place < FEW and pending[place - 1, MADE_AT] > done:
                    pending[place, MADE_AT] = pending[place - 1, MADE_AT]
                    pending[place, LENGTH] = pending[place - 1, LENGTH]
                    pending[place, CAME_FROM] = pending[place - 1, CAME_FROM]
                    place -= 1
                pending[place, MADE_AT] = done
                pending[place, LENGTH] = transfer[np.uint64(edge[e, TRANSFER_ROW]), origin, here]
                pending[place, CAME_FROM] = slot * np.int64(devices) + np.int64(origin)
                count += 1
                continue
            ready = max(ready, done)
        if count > FEW:
            sort_rows(pending, count)
        # 3. Book what is pending on both ports, and on the bus if there is one.
        for i in range(count):
            begin, length = pending[i, MADE_AT], pending[i, LENGTH]
            if length > 0:
                origin = np.uint64(pending[i, CAME_FROM]) % devices
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
                slot = np.int64(np.uint64(pending[i, CAME_FROM]) // devices)
                clean = clean and arrival[slot, READY_AT] == begin + length
                log[logged, SLOT], log[logged, OLD_TIME], log[logged, OLD_OP] = (
                    slot,
                    arrival[slot, READY_AT],
                    arrival[slot, BOOKED_FOR],
                )
                arrival[slot, READY_AT], arrival[slot, BOOKED_FOR] = begin + length, -2 - np.int64(op)
                logged += 1
            ready = max(ready, begin + length)
        # 4. Book the op.
        duration = cost[op, here, TIME]
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
        if finish + cost[op, here, FOLLOWS] > limit:
            return finish + cost[op, here, FOLLOWS], p + 1, logged, False
    return value, n, logged, False


@part
def undo_trial(
    order: Indices, end: Ints, kept: Ints, arrival: Ints, log: Ints, begin_at: int, done: int, logged: int
) -> None:
    """Take back what `schedule` wrote. The order must still be the trial's."""
    for p in range(begin_at, done):
        end[order[p]] = kept[p]
    for i in range(logged - 1, -1, -1):
        arrival[log[i, SLOT], READY_AT] = log[i, OLD_TIME]
        arrival[log[i, SLOT], BOOKED_FOR] = log[i, OLD_OP]


@part
def keep_trial(
    stored: Ints, fresh: Ints, arrival: Ints, log: Ints, begin_at: int, done: int, stride: int, logged: int
) -> None:
    """What `schedule` wrote becomes the state."""
    for row in range(begin_at // stride, (done - 1) // stride + 1):
        for c in range(stored.shape[1]):
            stored[row, c] = fresh[row, c]
    for i in range(logged):
        arrival[log[i, SLOT], BOOKED_FOR] = -2 - arrival[log[i, SLOT], BOOKED_FOR]
