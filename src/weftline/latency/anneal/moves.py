"""Moves of the latency annealer: which ops a trial is about, how their devices change, and how the order does.

Order moves change a range of positions and keep it topological: a shift puts one op elsewhere between the ops it reads
from and those that read from it; a gather pulls some ops of a window together at its front or its back. Device moves
take one op, a ball of neighbours on one device, a dominator (or post-dominator) subtree, perhaps without a subtree of
it, a device's ops in a window of the order, or two ops that swap their devices. Whole `together` sets move, and their
weights are carried along. A trial writes the ops that moved and the devices they had, so that it can be taken back.
Orders made anew are by descending path to the end (with transfers), or depth first. Parts of one kernel.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.state import (
    MARK_GROUP,
    MARK_OP,
    NOW_EXCESS,
    RUN_TIME,
    TREE_MEMBER,
    TREE_PLACE,
    TREE_SIZE,
    AnnealProblem,
    PlacementState,
)
from weftline.simulate.kernels.jit import part, uncounted_part
from weftline.simulate.kernels.random import RandomGenerator, below, log_size, unit

__all__ = ["MOVE_SWAP", "carry", "depth_first", "excess_of", "list_order", "make_move"]

MOVE_SHIFT, MOVE_GATHER, MOVE_ONE, MOVE_BALL, MOVE_SUBTREE, MOVE_WINDOW, MOVE_SWAP = 0, 1, 2, 3, 4, 5, 6
MOST_IN_BALL = 60
MOST_IN_GATHER = 400
HOLE_SHARE = 0.6
"""How often a subtree is taken without a subtree of it."""
SHIFT_SHARE = 0.3
"""How often an op that changes its device is shifted too."""
SWAP_TRIES = 16
"""Partners that an op looks at for a swap."""


@uncounted_part
def make_move(
    problem: AnnealProblem, state: PlacementState, kind: int, stamp: int, rebuild: float
) -> tuple[int, int, int]:
    """Make a move -> the range of positions that changed, and how many ops are on other devices."""
    random, n = state.random, len(state.order)
    low, high, moved, count = 0, 0, 0, 1
    if kind == MOVE_SHIFT:
        low, high = _shift_op(problem, state, below(random, n))
    elif kind == MOVE_GATHER:
        low, high = _gather(problem, state, stamp)
    elif kind == MOVE_SWAP:
        moved = _swap_devices(problem, state)
    else:
        if kind == MOVE_ONE:
            state.chosen[0] = below(random, n)
        elif kind == MOVE_BALL:
            count = _choose_ball(problem, state, stamp)
        elif kind == MOVE_SUBTREE:
            count = _choose_subtree(problem, state)
        else:
            count = _choose_window(state)
        if count > 0:
            moved = _move_chosen(problem, state, count, stamp)
        if moved > 0 and kind == MOVE_ONE:
            if unit(random) < SHIFT_SHARE:
                low, high = _shift_op(problem, state, state.chosen[0])
        elif moved > 1 and unit(random) < rebuild:
            low, high = _rebuild_order(problem, state)
    return low, high, moved


@part
def list_order(problem: AnnealProblem, device: Indices, level: Ints, order: Indices) -> None:
    """Fill `order`: ops by descending `level`, the longest path from an op to the end; equals keep their order."""
    n, after_ptr, after_of = len(order), problem.after_ptr, problem.after_of
    for op in range(n - 1, -1, -1):
        longest, here = 0, device[op]
        for e in range(after_ptr[op], after_ptr[op + 1]):
            reader = after_of[e]
            longest = max(longest, level[reader] + problem.transfer[problem.after_row[e], here, device[reader]])
        level[op] = longest + problem.cost[op, here, RUN_TIME]
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
def depth_first(problem: AnnealProblem, random: RandomGenerator, order: Indices) -> None:
    """Fill `order`: reverse postorder of a depth-first search; the readers of an op come in a random rotation."""
    n, before_ptr, after_ptr, after_of = len(order), problem.before_ptr, problem.after_ptr, problem.after_of
    stack, turn, seen = np.empty(n, np.int32), np.zeros(n, np.int32), np.full(n, -1, np.int32)
    free = n
    start = below(random, n)
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
                turn[op] = below(random, count)
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


@uncounted_part
def _shift_op(problem: AnnealProblem, state: PlacementState, op: int) -> tuple[int, int]:
    """Put an op at another position that its neighbours allow -> the range of positions that changed (empty: none)."""
    order, position, random = state.order, state.position, state.random
    at = position[op]
    low, high = 0, len(order) - 1
    for e in range(problem.before_ptr[op], problem.before_ptr[op + 1]):
        low = max(low, position[problem.before_of[e]] + 1)
    for e in range(problem.after_ptr[op], problem.after_ptr[op + 1]):
        high = min(high, position[problem.after_of[e]] - 1)
    if low >= high:
        return 0, 0
    if unit(random) < 0.5:
        to = low + below(random, high - low)
        if to >= at:
            to += 1
    elif at == low or (at < high and unit(random) < 0.5):
        to = at + log_size(random, high - at)
    else:
        to = at - log_size(random, at - low)
    begin, stop = min(at, to), max(at, to) + 1
    for p in range(begin, stop):
        state.backup[p] = order[p]
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


@uncounted_part
def _gather(problem: AnnealProblem, state: PlacementState, stamp: int) -> tuple[int, int]:
    """Pull a device's ops, or those of a subtree, to one end of a window -> the range of positions."""
    order, position, device = state.order, state.position, state.device
    mark, spare, random, tree = state.mark, state.spare, state.random, problem.tree
    n = len(order)
    low = below(random, n)
    high = min(n, low + 1 + log_size(random, min(n, MOST_IN_GATHER)))
    leader = order[low + below(random, high - low)]
    by_device, which = unit(random) < 0.5, below(random, 2)
    begin, size = tree[which, TREE_PLACE, leader], tree[which, TREE_SIZE, leader]
    forward = unit(random) < 0.5
    taken = 0
    for i in range(low, high):
        op = order[i if forward else high - 1 - (i - low)]
        wanted = device[op] == device[leader] if by_device else 0 <= tree[which, TREE_PLACE, op] - begin < size
        if wanted and forward:
            for e in range(problem.before_ptr[op], problem.before_ptr[op + 1]):
                maker = problem.before_of[e]
                wanted = wanted and (position[maker] < low or mark[MARK_OP, maker] == stamp)
        elif wanted:
            for e in range(problem.after_ptr[op], problem.after_ptr[op + 1]):
                reader = problem.after_of[e]
                wanted = wanted and (position[reader] >= high or mark[MARK_OP, reader] == stamp)
        if wanted:
            mark[MARK_OP, op] = stamp
            taken += 1
    if taken == 0 or taken == high - low:
        return 0, 0
    front = low if forward else high - taken
    back = low + taken if forward else low
    for p in range(low, high):
        op = order[p]
        state.backup[p] = op
        if mark[MARK_OP, op] == stamp:
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


@uncounted_part
def _choose_ball(problem: AnnealProblem, state: PlacementState, stamp: int) -> int:
    """Neighbours of neighbours on one device, breadth first -> how many."""
    device, mark, chosen, random = state.device, state.mark, state.chosen, state.random
    op = below(random, len(device))
    most = log_size(random, MOST_IN_BALL)
    chosen[0] = op
    mark[MARK_OP, op] = stamp
    count, next_ = 1, 0
    while next_ < count < most:
        here = chosen[next_]
        next_ += 1
        for e in range(problem.after_ptr[here], problem.after_ptr[here + 1]):
            other = problem.after_of[e]
            if count < most and device[other] == device[op] and mark[MARK_OP, other] != stamp:
                mark[MARK_OP, other] = stamp
                chosen[count] = other
                count += 1
        for e in range(problem.before_ptr[here], problem.before_ptr[here + 1]):
            other = problem.before_of[e]
            if count < most and device[other] == device[op] and mark[MARK_OP, other] != stamp:
                mark[MARK_OP, other] = stamp
                chosen[count] = other
                count += 1
    return count


@uncounted_part
def _choose_subtree(problem: AnnealProblem, state: PlacementState) -> int:
    """An op and all it dominates (or post-dominates), perhaps without a part of that -> how many."""
    tree, chosen, random = problem.tree, state.chosen, state.random
    n, which = tree.shape[2], below(random, 2)
    op = below(random, n)
    begin, size = tree[which, TREE_PLACE, op], tree[which, TREE_SIZE, op]
    hole, length = begin + size, 0
    if size > 1 and unit(random) < HOLE_SHARE:
        step = log_size(random, size - 1) if unit(random) < 0.5 else 1 + below(random, size - 1)
        member = tree[which, TREE_MEMBER, begin + step]
        hole, length = tree[which, TREE_PLACE, member], tree[which, TREE_SIZE, member]
    count = int(size - length)
    if count > max(1, n // 2):
        return 0
    for i in range(begin, hole):
        chosen[i - begin] = tree[which, TREE_MEMBER, i]
    for i in range(hole + length, begin + size):
        chosen[i - begin - length] = tree[which, TREE_MEMBER, i]
    return count


@uncounted_part
def _choose_window(state: PlacementState) -> int:
    """The ops of one device in a window of the order -> how many."""
    order, device, chosen, random = state.order, state.device, state.chosen, state.random
    n = len(order)
    low = below(random, n)
    here, count = device[order[low]], 0
    for p in range(low, min(n, low + log_size(random, max(1, n // 4)))):
        if device[order[p]] == here:
            chosen[count] = order[p]
            count += 1
    return count


@uncounted_part
def excess_of(held: Ints, room: Ints) -> int:
    """Bytes above the limits."""
    total = 0
    for d in range(len(held)):
        total += max(0, held[d] - room[d])
    return total


@uncounted_part
def carry(problem: AnnealProblem, state: PlacementState, op: int, device: int, sign: int) -> None:
    """Bring the weights of an op to a device (sign 1) or take them away (-1); a tied one counts once per device."""
    held, users = state.held, state.users
    held[device] += sign * problem.static_bytes[op]
    for e in range(problem.tied_ptr[op], problem.tied_ptr[op + 1]):
        weight = problem.tied_of[e]
        if sign < 0:
            users[weight, device] -= 1
        if users[weight, device] == 0:
            held[device] += sign * problem.tied_bytes[weight]
        if sign > 0:
            users[weight, device] += 1


@uncounted_part
def _send_group(problem: AnnealProblem, state: PlacementState, moved: int, which: int, target: int) -> int:
    """Put a `together` set (or a single op) on a device -> number of ops that have moved so far."""
    device = state.device
    for e in range(problem.group_ptr[which], problem.group_ptr[which + 1]):
        op = problem.group_of[e]
        if device[op] != target:
            state.changed[moved] = op
            state.was[moved] = device[op]
            device[op] = target
            moved += 1
    return moved


@uncounted_part
def _target(problem: AnnealProblem, state: PlacementState, op: int) -> int:
    """Another device: any, or that of a neighbour."""
    devices, here = problem.cost.shape[1], state.device[op]
    if unit(state.random) < 0.5:
        before, after = problem.before_ptr[op], problem.after_ptr[op]
        reads, read = problem.before_ptr[op + 1] - before, problem.after_ptr[op + 1] - after
        if reads + read > 0:
            pick = below(state.random, reads + read)
            other = state.device[
                problem.before_of[before + pick] if pick < reads else problem.after_of[after + pick - reads]
            ]
            if other != here:
                return int(other)
    target = below(state.random, devices - 1)
    return target + 1 if target >= here else target


@uncounted_part
def _move_chosen(problem: AnnealProblem, state: PlacementState, count: int, stamp: int) -> int:
    """Send the chosen ops (with their sets) to one device, those that can run there -> how many moved."""
    chosen = state.chosen
    target = _target(problem, state, chosen[below(state.random, count)])
    moved = 0
    for i in range(count):
        which = problem.group[chosen[i]]
        if problem.allowed[which, target] and state.mark[MARK_GROUP, which] != stamp:
            state.mark[MARK_GROUP, which] = stamp
            moved = _send_group(problem, state, moved, which, target)
    return moved


@uncounted_part
def _swap_devices(problem: AnnealProblem, state: PlacementState) -> int:
    """Two ops (with their sets) exchange their devices, if both can run there and memory allows -> how many moved."""
    n, device = len(state.device), state.device
    a = below(state.random, n)
    first, here = problem.group[a], device[a]
    for _ in range(SWAP_TRIES):
        b = below(state.random, n)
        other, there = problem.group[b], device[b]
        if here == there or not problem.allowed[first, there] or not problem.allowed[other, here]:
            continue
        more = _group_bytes(problem, first) - _group_bytes(problem, other)
        fits = max(0, state.held[there] + more - state.room[there]) + max(0, state.held[here] - more - state.room[here])
        if fits <= state.now[NOW_EXCESS]:
            moved = _send_group(problem, state, 0, first, there)
            return _send_group(problem, state, moved, other, here)
    return 0


@uncounted_part
def _group_bytes(problem: AnnealProblem, which: int) -> int:
    total = 0
    for e in range(problem.group_ptr[which], problem.group_ptr[which + 1]):
        total += problem.static_bytes[problem.group_of[e]]
    return total


@part
def _rebuild_order(problem: AnnealProblem, state: PlacementState) -> tuple[int, int]:
    """Another order for the devices as they are now -> the range of positions that changed."""
    order, spare, position = state.order, state.spare, state.position
    if unit(state.random) < 0.5:
        depth_first(problem, state.random, spare)
    else:
        list_order(problem, state.device, state.level, spare)
    first, last = len(order), 0
    for p in range(len(order)):
        state.backup[p] = order[p]
        if order[p] != spare[p]:
            first, last = min(first, p), p + 1
            order[p] = spare[p]
            position[spare[p]] = p
    return (first, last) if first < last else (0, 0)
