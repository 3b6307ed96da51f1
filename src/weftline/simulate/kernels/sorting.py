"""Radix sort for kernels: linear, stable, and compiled by numba in a fraction of the time that `np.argsort` takes.

A binary heap of whole numbers in an array, smallest first, that outlives a kernel's call.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Ints
from weftline.simulate.kernels.jit import part

__all__ = ["pop", "push", "radix_order", "sort_rows"]

DIGIT_BITS = 11
"""Bits sorted at a time: 2^11 counters stay in the first cache."""


@part
def radix_order(keys: Ints, count: int) -> Ints:
    """Positions of the first `count` keys (none negative) in ascending order; equal keys keep their order."""
    largest = 0
    for i in range(count):
        largest = max(largest, keys[i])
    order, spare = np.empty(count, np.int64), np.empty(count, np.int64)
    for i in range(count):
        order[i] = i
    places = np.empty(2**DIGIT_BITS + 1, np.int64)
    shift = 0
    while largest >> shift > 0:
        places[:] = 0
        for i in range(count):
            places[((keys[i] >> shift) & (2**DIGIT_BITS - 1)) + 1] += 1
        for digit in range(2**DIGIT_BITS):
            places[digit + 1] += places[digit]
        for i in range(count):
            digit = (keys[order[i]] >> shift) & (2**DIGIT_BITS - 1)
            spare[places[digit]] = order[i]
            places[digit] += 1
        order, spare = spare, order
        shift += DIGIT_BITS
    return order


@part
def sort_rows(rows: Ints, count: int) -> None:
    """Sort the first `count` rows ascending by column 0; equal ones keep their order."""
    columns = rows.shape[1]
    keys, copy = np.empty(count, np.int64), np.empty((count, columns), np.int64)
    for i in range(count):
        keys[i] = rows[i, 0]
        for column in range(columns):
            copy[i, column] = rows[i, column]
    order = radix_order(keys, count)
    for i in range(count):
        for column in range(columns):
            rows[i, column] = copy[order[i], column]


@part
def push(heap: Ints, count: int, value: int) -> int:
    """Put a value in -> the new count."""
    i = count
    while i > 0 and heap[(i - 1) // 2] > value:
        heap[i] = heap[(i - 1) // 2]
        i = (i - 1) // 2
    heap[i] = value
    return count + 1


@part
def pop(heap: Ints, count: int) -> int:
    """Take the smallest value out of `count` (> 0) ones; count - 1 are left."""
    least, last, i = heap[0], heap[count - 1], 0
    while 2 * i + 1 < count - 1:
        child = 2 * i + 1
        if child + 1 < count - 1 and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= last:
            break
        heap[i] = heap[child]
        i = child
    heap[i] = last
    return int(least)
