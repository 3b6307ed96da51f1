"""Topological orders for given devices: by descending path to the end (with transfers), or depth first."""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.dice import Dice, below
from weftline.simulate.jit import part

__all__ = ["depth_first", "list_order"]


@part
def list_order(
    cost: Ints,
    transfer: Ints,
    after_ptr: Indices,
    after_of: Indices,
    after_row: Indices,
    device: Indices,
    level: Ints,
    order: Indices,
) -> None:
    """Fill `order`: ops by descending `level`, the longest path from an op to the end; equals keep their order."""
    n = len(order)
    for op in range(n - 1, -1, -1):
        longest, here = 0, device[op]
        for e in range(after_ptr[op], after_ptr[op + 1]):
            reader = after_of[e]
            longest = max(longest, level[reader] + transfer[after_row[e], here, device[reader]])
        level[op] = longest + cost[op, here, 0]
        order[op] = op
    other = np.empty(n, np.int32)
    run = 1
    while run < n:  # merge sort: runs of 1, 2, 4, ...
        for low in range(0, n, 2 * run):
            middle, high = min(low + run, n), min(low + 2 * run, n)
            a, b = low, middle
            for i in range(low, high):
                if a < middle and (b >= high or level[order[a]] >= level[order[b]]):
                    other[i] = order[a]
                    a += 1
                else:
                    other[i] = order[b]
                    b += 1
        for i in range(n):
            order[i] = other[i]
        run *= 2


@part
def depth_first(before_ptr: Indices, after_ptr: Indices, after_of: Indices, dice: Dice, order: Indices) -> None:
    """Fill `order`: reverse postorder of a depth-first search; the readers of an op come in a random rotation."""
    n = len(order)
    stack, turn, seen = np.empty(n, np.int32), np.zeros(n, np.int32), np.full(n, -1, np.int32)
    free = n
    start = below(dice, n)
    for i in range(n):
        source = (start + i) % n
        if before_ptr[source] < before_ptr[source + 1]:
            continue
        depth = 1
        stack[0] = source
        seen[source] = 0
        while depth > 0:
            op = stack[depth - 1]
            count = after_ptr[op + 1] - after_ptr[op]
            if seen[op] == 0 and count > 1:
                turn[op] = below(dice, count)
            if seen[op] < count:
                reader = after_of[after_ptr[op] + (turn[op] + seen[op]) % count]
                seen[op] += 1
                if seen[reader] < 0:
                    seen[reader] = 0
                    stack[depth] = reader
                    depth += 1
            else:
                depth -= 1
                free -= 1
                order[free] = op
