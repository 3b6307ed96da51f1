"""A binary heap of whole numbers in an array, smallest first, that outlives a kernel's call."""

from __future__ import annotations

from weftline.graph.arrays import Ints
from weftline.simulate.jit import part

__all__ = ["pop", "push"]


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
