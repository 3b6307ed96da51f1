"""Topological orders for given devices: by descending path to the end (with transfers), or depth first.

Moves of the latency annealer: which ops a trial is about, and how an order changes. Parts of one kernel.

Order moves change a range of positions and keep it topological: SHIFT puts one op elsewhere between the ops it reads
from and those that read from it; GATHER pulls some ops of a window together at its front or its back. Device moves take
one op, a ball of neighbours on one device, a dominator (or post-dominator) subtree, perhaps without a subtree of it,
a device's ops in a window of the order, or two ops that swap their devices.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.state import MEMBER, OPS, PLACE, SIZE, TIME
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.random import Dice, below, log_size, unit

__all__ = [
    "BALL",
    "GATHER",
    "ONE",
    "SHIFT",
    "SUBTREE",
    "SWAP",
    "WINDOW",
    "choose_ball",
    "choose_subtree",
    "choose_window",
    "depth_first",
    "gather",
    "list_order",
    "shift_op",
]


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
        level[op] = longest + cost[op, here, TIME]
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


SHIFT, GATHER, ONE, BALL, SUBTREE, WINDOW, SWAP = 0, 1, 2, 3, 4, 5, 6
MOST_IN_BALL = 60
MOST_IN_GATHER = 400
LESS = 0.6
"""How often a subtree is taken without a subtree of it."""


@part
def shift_op(
    before_ptr: Indices,
    before_of: Indices,
    after_ptr: Indices,
    after_of: Indices,
    order: Indices,
    position: Indices,
    backup: Indices,
    dice: Dice,
    op: int,
) -> tuple[int, int]:
    """Put an op at another position that its neighbours allow -> the range of positions that changed (empty: none)."""
    at = position[op]
    low, high = 0, len(order) - 1
    for e in range(before_ptr[op], before_ptr[op + 1]):
        low = max(low, position[before_of[e]] + 1)
    for e in range(after_ptr[op], after_ptr[op + 1]):
        high = min(high, position[after_of[e]] - 1)
    if low >= high:
        return 0, 0
    if unit(dice) < 0.5:
        to = low + below(dice, high - low)
        if to >= at:
            to += 1
    elif at == low or (at < high and unit(dice) < 0.5):
        to = at + log_size(dice, high - at)
    else:
        to = at - log_size(dice, at - low)
    begin, stop = min(at, to), max(at, to) + 1
    for p in range(begin, stop):
        backup[p] = order[p]
    if to > at:
        for p in range(at, to):
            order[p] = order[p + 1]
            position[order[p]] = p
    else:
        for p in range(at, to, -1):
            order[p] = order[p - 1]
            position[order[p]] = p
    order[to] = op
    position[op] = to
    return begin, stop


@part
def gather(
    before_ptr: Indices,
    before_of: Indices,
    after_ptr: Indices,
    after_of: Indices,
    tree: Indices,
    order: Indices,
    position: Indices,
    device: Indices,
    mark: Indices,
    backup: Indices,
    spare: Indices,
    dice: Dice,
    stamp: int,
) -> tuple[int, int]:
    """Pull a device's ops, or those of a subtree, to one side of a window -> the range of positions."""
    n = len(order)
    low = below(dice, n)
    high = min(n, low + 1 + log_size(dice, min(n, MOST_IN_GATHER)))
    leader = order[low + below(dice, high - low)]
    by_device, side = unit(dice) < 0.5, below(dice, 2)
    begin, size = tree[side, PLACE, leader], tree[side, SIZE, leader]
    forward = unit(dice) < 0.5
    taken = 0
    for i in range(low, high):
        op = order[i if forward else high - 1 - (i - low)]
        wanted = device[op] == device[leader] if by_device else 0 <= tree[side, PLACE, op] - begin < size
        if wanted and forward:
            for e in range(before_ptr[op], before_ptr[op + 1]):
                wanted = wanted and (position[before_of[e]] < low or mark[OPS, before_of[e]] == stamp)
        elif wanted:
            for e in range(after_ptr[op], after_ptr[op + 1]):
                wanted = wanted and (position[after_of[e]] >= high or mark[OPS, after_of[e]] == stamp)
        if wanted:
            mark[OPS, op] = stamp
            taken += 1
    if taken == 0 or taken == high - low:
        return 0, 0
    front = low if forward else high - taken
    back = low + taken if forward else low
    for p in range(low, high):
        op = order[p]
        backup[p] = op
        if mark[OPS, op] == stamp:
            spare[front] = op
            front += 1
        else:
            spare[back] = op
            back += 1
    first, last = high, low
    for p in range(low, high):
        if spare[p] != order[p]:
            first, last = min(first, p), p + 1
            order[p] = spare[p]
            position[order[p]] = p
    return (first, last) if first < last else (0, 0)


@part
def choose_ball(
    before_ptr: Indices,
    before_of: Indices,
    after_ptr: Indices,
    after_of: Indices,
    device: Indices,
    mark: Indices,
    chosen: Indices,
    dice: Dice,
    stamp: int,
) -> int:
    """Neighbours of neighbours on one device, breadth first -> how many."""
    op = below(dice, len(device))
    most = log_size(dice, MOST_IN_BALL)
    chosen[0] = op
    mark[OPS, op] = stamp
    count, next_ = 1, 0
    while next_ < count < most:
        here = chosen[next_]
        next_ += 1
        for e in range(after_ptr[here], after_ptr[here + 1]):
            other = after_of[e]
            if count < most and device[other] == device[op] and mark[OPS, other] != stamp:
                mark[OPS, other] = stamp
                chosen[count] = other
                count += 1
        for e in range(before_ptr[here], before_ptr[here + 1]):
            other = before_of[e]
            if count < most and device[other] == device[op] and mark[OPS, other] != stamp:
                mark[OPS, other] = stamp
                chosen[count] = other
                count += 1
    return count


@part
def choose_subtree(tree: Indices, chosen: Indices, dice: Dice) -> int:
    """An op and all it dominates (or post-dominates), perhaps without a part of that -> how many."""
    n, side = tree.shape[2], below(dice, 2)
    op = below(dice, n)
    begin, size = tree[side, PLACE, op], tree[side, SIZE, op]
    hole, length = begin + size, 0
    if size > 1 and unit(dice) < LESS:
        step = log_size(dice, size - 1) if unit(dice) < 0.5 else 1 + below(dice, size - 1)
        member = tree[side, MEMBER, begin + step]
        hole, length = tree[side, PLACE, member], tree[side, SIZE, member]
    count = int(size - length)
    if count > max(1, n // 2):
        return 0
    for i in range(begin, hole):
        chosen[i - begin] = tree[side, MEMBER, i]
    for i in range(hole + length, begin + size):
        chosen[i - begin - length] = tree[side, MEMBER, i]
    return count


@part
def choose_window(order: Indices, device: Indices, chosen: Indices, dice: Dice) -> int:
    """The ops of one device in a window of the order -> how many."""
    n = len(order)
    low = below(dice, n)
    here, count = device[order[low]], 0
    for p in range(low, min(n, low + log_size(dice, max(1, n // 4)))):
        if device[order[p]] == here:
            chosen[count] = order[p]
            count += 1
    return count
