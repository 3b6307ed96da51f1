"""Memory of each device: weights + live activations + workspace, or the static sum.

An interval [start, end) holds bytes on a device: an output from its op's start to its last local use or send (to the
end of all if the caller receives it), a received copy from its transfer's start to its last use, an input of the model
from 0 to its last use, workspace while its op runs. What ends at t is gone before what starts at t arrives; empty
intervals count nothing.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import radix_order
from weftline.simulate.tables import Tables, tables
from weftline.simulate.timeline import SENT_CONSUMER, SENT_END, SENT_START, SENT_TARGET, SENT_TENSOR, Timeline

__all__ = ["hold", "latency_intervals", "latency_peaks", "memory_over_time", "sweep", "weights_held"]

HELD_ON, HELD_SINCE, HELD_UNTIL, HELD_BYTES = range(4)
"""Columns of an interval: the device, from when until when, how much."""


def memory_over_time(problem: Problem, timeline: Timeline) -> list[list[tuple[int, int]]]:
    """For every device the steps (time in ns, bytes held from then on), starting at 0."""
    table = tables(problem)
    held = weights_held(table, timeline.placement)
    steps: list[list[tuple[int, int]]] = [[(0, int(level))] for level in held]
    if not table.dynamic:
        return steps
    rows = latency_intervals(table, timeline.placement, timeline.start, timeline.end, timeline.transfers)
    for device, profile in enumerate(steps):
        mine = rows[(rows[:, HELD_ON] == device) & (rows[:, HELD_SINCE] < rows[:, HELD_UNTIL])]
        change: dict[int, int] = {0: 0}
        for _, start, end, size in mine.tolist():
            change[start] = change.get(start, 0) + size
            change[end] = change.get(end, 0) - size
        level = profile.pop()[1]
        for time in sorted(change):
            level += change[time]
            profile.append((time, level))
    return steps


@kernel
def weights_held(table: Tables, placement: Indices) -> Ints:
    """(K,): bytes held all the time; a tied weight counts once per device."""
    held = np.zeros(table.time.shape[1], np.int64)
    for op in range(len(placement)):
        held[placement[op]] += table.static_bytes[op]
    seen = np.full(len(held), -1, np.int64)
    for weight in range(len(table.tied_bytes)):
        for k in range(table.tied_ptr[weight], table.tied_ptr[weight + 1]):
            device = placement[table.tied_of[k]]
            if seen[device] != weight:
                seen[device] = weight
                held[device] += table.tied_bytes[weight]
    return held


@part
def hold(rows: Ints, count: int, device: int, start: int, end: int, size: int) -> int:
    """Write one interval, return the number of intervals."""
    rows[count, HELD_ON] = device
    rows[count, HELD_SINCE] = start
    rows[count, HELD_UNTIL] = end
    rows[count, HELD_BYTES] = size
    return count + 1


@kernel
def latency_intervals(table: Tables, placement: Indices, start: Ints, end: Ints, sent: Ints) -> Ints:
    """(rows, 4): see HELD_ON."""
    devices = table.time.shape[1]
    n, m = len(placement), len(table.producer)
    finish = 0
    for op in range(n):
        finish = max(finish, end[op])
    rows = np.empty((n + m * 2 + len(sent) + len(table.consumer_of), 4), np.int64)
    count = 0
    for op in range(n):
        count = hold(rows, count, placement[op], start[op], end[op], table.workspace_bytes[op])
    last_send = np.zeros(m, np.int64)
    received = np.full(m * devices, -1, np.int64)
    for t in range(len(sent)):
        tensor, target, since = sent[t, SENT_TENSOR], sent[t, SENT_TARGET], sent[t, SENT_START]
        last_send[tensor] = max(last_send[tensor], sent[t, SENT_END])
        if table.per_edge:
            count = hold(rows, count, target, since, end[sent[t, SENT_CONSUMER]], table.tensor_bytes[tensor])
        else:
            received[tensor * devices + target] = since
    last = np.zeros(devices, np.int64)
    used = np.full(devices, -1, np.int64)
    for tensor in range(m):
        maker = table.producer[tensor]
        home = placement[maker] if maker >= 0 else -1
        until = max(last_send[tensor], end[maker]) if maker >= 0 else 0
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            op = table.consumer_of[c]
            device = placement[op]
            if device == home:
                until = max(until, end[op])
                continue
            if used[device] != tensor:
                used[device] = tensor
                last[device] = 0
            last[device] = max(last[device], end[op])
            if table.per_edge and maker >= 0 and table.transfer[table.transfer_row[tensor], home, device] == 0:
                count = hold(rows, count, device, end[maker], end[op], table.tensor_bytes[tensor])
        if maker >= 0:
            until = finish if table.is_output[tensor] else until
            count = hold(rows, count, home, start[maker], until, table.tensor_bytes[tensor])
        if table.per_edge and maker >= 0:
            continue
        for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
            device = placement[table.consumer_of[c]]
            if device != home and used[device] == tensor:
                used[device] = -1  # one copy per device
                since = 0
                if maker >= 0:
                    since = received[tensor * devices + device]
                    if since < 0:
                        since = end[maker]  # the transfer takes no time
                count = hold(rows, count, device, since, last[device], table.tensor_bytes[tensor])
    return rows[:count]


@kernel
def sweep(rows: Ints, held: Ints) -> Ints:
    """(K,): the largest level of each device, given intervals on top of what is held all the time."""
    real = np.empty(len(rows), np.int64)  # intervals that hold something
    count = 0
    for r in range(len(rows)):
        if rows[r, HELD_SINCE] < rows[r, HELD_UNTIL] and rows[r, HELD_BYTES] > 0:
            real[count] = r
            count += 1
    times = np.empty(2 * count, np.int64)
    for i in range(count):  # ends first: at equal times a stable sort frees before it allocates
        times[i] = rows[real[i], HELD_UNTIL]
        times[count + i] = rows[real[i], HELD_SINCE]
    order = radix_order(times, 2 * count)
    level = held.copy()
    peak = held.copy()
    for i in range(2 * count):
        r = real[order[i] % count]
        device = rows[r, HELD_ON]
        level[device] += rows[r, HELD_BYTES] if order[i] >= count else -rows[r, HELD_BYTES]
        peak[device] = max(peak[device], level[device])
    return peak


@kernel
def latency_peaks(table: Tables, placement: Indices, start: Ints, end: Ints, sent: Ints) -> Ints:
    """(K,): bytes."""
    held = weights_held(table, placement)
    if not table.dynamic:
        return held
    return sweep(latency_intervals(table, placement, start, end, sent), held)
