"""Kernels for schedules: per-device orders -> earliest starts (longest path), and the memory that an order needs.

An operation is a block of a micro-batch: number = micro-batch * blocks + block. Orders are compressed rows: device d
does `of[ptr[d]:ptr[d+1]]` one after another.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import BlockTable
from weftline.simulate.kernels.jit import kernel

__all__ = ["earliest_starts", "memory_peaks", "misplaced"]


@kernel
def earliest_starts(table: BlockTable, count: int, ptr: Ints, of: Ints, span: Ints, lag: Ints, start: Ints) -> int:
    """Write the earliest start of every operation -> makespan, or -1 where the orders wait for each other for ever.

    `span` has one entry per operation, `lag` one per micro-batch and incoming edge (as in the table): so times may
    differ between micro-batches.
    """
    n = len(table.span)
    lags = len(table.before_of)
    waits = np.zeros(count * n, np.int32)
    follower = np.full(count * len(table.device_of), -1, np.int64)
    for op in range(count * n):
        block = op % n
        waits[op] = table.before_ptr[block + 1] - table.before_ptr[block]
        start[op] = 0
    for device in range(len(ptr) - 1):
        for t in range(ptr[device], ptr[device + 1] - 1):
            block = of[t] % n
            for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
                if table.device_of[j] == device:
                    follower[of[t] // n * len(table.device_of) + j] = of[t + 1]
            waits[of[t + 1]] += 1
    stack = np.empty(count * n, np.int64)
    size = 0
    for op in range(count * n):
        if waits[op] == 0:
            stack[size] = op
            size += 1
    done, makespan = 0, 0
    while size:
        size -= 1
        op = stack[size]
        done += 1
        micro, block = op // n, op % n
        end = start[op] + span[op]
        makespan = max(makespan, end)
        for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
            after = follower[micro * len(table.device_of) + j]
            if after >= 0:
                start[after] = max(start[after], end)
                waits[after] -= 1
                if waits[after] == 0:
                    stack[size] = after
                    size += 1
        for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
            target = table.after_of[e]
            after = micro * n + target
            delay = 0
            for back in range(table.before_ptr[target], table.before_ptr[target + 1]):
                if table.before_of[back] == block:
                    delay = lag[micro * lags + back]
            start[after] = max(start[after], end + delay)
            waits[after] -= 1
            if waits[after] == 0:
                stack[size] = after
                size += 1
    return makespan if done == count * n else -1


@kernel
def memory_peaks(table: BlockTable, ptr: Ints, of: Ints) -> Ints:
    """Device -> largest sum of changes along its order (0 when it stays below)."""
    n = len(table.span)
    peak = np.zeros(len(ptr) - 1, np.int64)
    for device in range(len(ptr) - 1):
        level = 0
        for t in range(ptr[device], ptr[device + 1]):
            block = of[t] % n
            for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
                if table.device_of[j] == device:
                    level += table.device_memory[j]
            peak[device] = max(peak[device], level)
    return peak


@kernel
def misplaced(table: BlockTable, count: int, ptr: Ints, of: Ints) -> int:
    """A device whose order does not hold each of its operations exactly once, or -1."""
    n, slots = len(table.span), len(table.device_of)
    wanted = np.zeros(len(ptr) - 1, np.int64)
    for j in range(slots):
        wanted[table.device_of[j]] += count
    seen = np.zeros(count * slots, np.bool_)
    for device in range(len(ptr) - 1):
        if ptr[device + 1] - ptr[device] != wanted[device]:
            return device
        for t in range(ptr[device], ptr[device + 1]):
            if of[t] < 0 or of[t] >= count * n:
                return device
            block, place = of[t] % n, -1
            for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
                if table.device_of[j] == device:
                    place = of[t] // n * slots + j
            if place < 0 or seen[place]:
                return device
            seen[place] = True
    return -1
