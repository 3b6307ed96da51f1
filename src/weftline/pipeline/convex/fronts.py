"""The search over convex sets by dynamic programming along a tree decomposition.

Is there a convex S with f(S) < target and pi(S) >= least? Each state of the tree keeps a front of (cost, weight) pairs,
none better than another in both. What the rest of the graph costs at least, for a few prices of weight, throws most of
them away: the least of FINE_UNITS * cost - price * weight, one pass up the tree for what lies below each state, one
down for all the rest. Fronts that grow long are thinned: two pairs become one with the lower cost and the higher
weight, so that a proof still holds. In: `Tree`, weights, target. Out: the last front, from which the bound and sets are
read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import FINE, Bits
from weftline.pipeline.convex.tree import VALUES, Tree
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["NONE", "PRICES", "Fronts", "best_price", "downwards", "last_front", "make_fronts", "upwards"]

NONE = 2**60
"""Above every sum."""
MOST_PRICED = 2**56
"""Price times all weight, at most: sums stay far below NONE."""
STRETCH = 1.05
SEARCHES = 25


@part
def upwards(tree: Tree, pi: Ints, price: int, up: Ints, heavy: Ints) -> int:
    """Least of FINE * cost - price * weight below every state, and the weight where it is -> the least of all."""
    row_ptr, first_row, state_ptr = tree.row_ptr, tree.first_row, tree.state_ptr
    cost, piece, child, children, child_ptr = tree.cost, tree.piece, tree.child, tree.children, tree.child_ptr
    for step in range(len(children)):
        many = children[step]
        for state in range(state_ptr[step], state_ptr[step + 1]):
            best, weight = NONE, 0
            for row in range(first_row[state], first_row[state + 1]):
                value, mine = FINE * cost[row], 0
                if piece[row] >= 0:
                    mine = pi[piece[row]]
                    value -= price * mine
                at = child_ptr[step] + (row - row_ptr[step]) * many
                for c in range(many):
                    value += up[child[at + c]]
                    mine += heavy[child[at + c]]
                if value < best:
                    best, weight = value, mine
            up[state] = best
            heavy[state] = weight
    return int(up[len(up) - 1])


@part
def downwards(tree: Tree, pi: Ints, price: int, up: Ints, rest: Ints) -> None:
    """Least of the same over all that is not below a state."""
    row_ptr, first_row, state_ptr = tree.row_ptr, tree.first_row, tree.state_ptr
    cost, piece, child, children, child_ptr = tree.cost, tree.piece, tree.child, tree.children, tree.child_ptr
    for state in range(len(rest)):
        rest[state] = NONE
    rest[len(rest) - 1] = 0
    for step in range(len(children) - 1, -1, -1):
        many = children[step]
        for state in range(state_ptr[step], state_ptr[step + 1]):
            for row in range(first_row[state], first_row[state + 1]):
                value = FINE * cost[row] + rest[state]
                if piece[row] >= 0:
                    value -= price * pi[piece[row]]
                at = child_ptr[step] + (row - row_ptr[step]) * many
                for c in range(many):
                    value += up[child[at + c]]
                for c in range(many):
                    below = child[at + c]
                    rest[below] = min(rest[below], value - up[below])


@part
def best_price(tree: Tree, pi: Ints, least: int, price: int, up: Ints, heavy: Ints) -> int:
    """The price of weight at which all costs most: a concave function, each price gives one line of it."""
    low = high = -1
    low_value = high_value = low_weight = high_weight = 0
    best, best_value = price, -NONE
    stretch, total = STRETCH, 1
    for piece in range(len(pi)):
        total += abs(pi[piece])
    for _ in range(SEARCHES):
        value = upwards(tree, pi, price, up, heavy) + price * least
        weight = heavy[len(heavy) - 1]
        if value > best_value:
            best, best_value = price, value
        if weight < least:
            low, low_value, low_weight = price, value, weight
        else:
            high, high_value, high_weight = price, value, weight
        if low < 0:
            if high <= 1:
                break
            price = max(1, int(high / stretch))
        elif high < 0:
            price = int(low * stretch) + 1
            if price * total > MOST_PRICED:
                break
        else:
            # value + (x - price) * (least - weight) of both lines, where they meet
            step = (high_value - low_value + (low - high) * (least - high_weight)) / max(1, high_weight - low_weight)
            other = low + int(step)
            if other <= low or other >= high:
                break
            price = other
        stretch = min(4.0, stretch * stretch)
    return best


PRICES = np.array([1.0, 0.8, 1.25, 0.6, 1.6])
"""Of weight, relative to the best one, at which the rest of the graph is bounded."""
LONGEST = 2**20
"""Pairs in all fronts that are alive."""


class Fronts(NamedTuple):
    """Space for one search at a time."""

    up: Ints
    """(prices, states): least of FINE * cost - price * weight below a state."""
    rest: Ints
    """(prices, states): the same of all that is not below it."""
    heavy: Ints
    """(states,): the weight below a state where that is least."""
    begin: Ints
    end: Ints
    """State -> its front in `cost`, `weight` and `members`, cost and weight rising."""
    cost: Ints
    weight: Ints
    members: Bits
    bucket_cost: Ints
    bucket_weight: Ints
    bucket_members: Bits
    """(2, buckets): pairs by cost; the first row for the front of a state, the second for a part of a row."""
    part_cost: Ints
    part_weight: Ints
    part_members: Bits
    """(2, buckets): the product of some of the fronts of a row."""


def make_fronts(tree: Tree, words: int, buckets: int) -> Fronts:
    """Empty."""
    states = int(tree.state_ptr[-1])
    return Fronts(
        np.zeros((len(PRICES), states), np.int64),
        np.zeros((len(PRICES), states), np.int64),
        np.zeros(states, np.int64),
        np.zeros(states, np.int64),
        np.zeros(states, np.int64),
        np.zeros(LONGEST, np.int64),
        np.zeros(LONGEST, np.int64),
        np.zeros((LONGEST, words), np.uint64),
        np.full((2, buckets), NONE),
        np.full((2, buckets), -NONE),
        np.zeros((2, buckets, words), np.uint64),
        np.zeros((2, buckets), np.int64),
        np.zeros((2, buckets), np.int64),
        np.zeros((2, buckets, words), np.uint64),
    )


@part
def _spread(
    fronts: Fronts, side: int, count: int, state: int, into: int, floor: int, width: int, target: int, bound: Ints
) -> None:
    """Each pair of a part, added to each of a state's front (-1: as it is), into the bucket of its cost.

    `bound` is (2, prices): the prices, and how much FINE * cost - price * weight may be.
    """
    begin = fronts.begin[state] if state >= 0 else 0
    end = fronts.end[state] if state >= 0 else 1
    cost, weight, members = fronts.part_cost[side], fronts.part_weight[side], fronts.part_members[side]
    more_cost, more_weight, more_members = fronts.cost, fronts.weight, fronts.members
    bucket_cost, bucket_weight = fronts.bucket_cost[into], fronts.bucket_weight[into]
    bucket_members = fronts.bucket_members[into]
    words, prices, price, slack = members.shape[1], bound.shape[1], bound[0, 0], bound[1, 0]
    for i in range(count):
        for j in range(begin, end):
            c, w = cost[i], weight[i]
            if state >= 0:
                c += more_cost[j]
                w += more_weight[j]
            if c >= target:
                break
            if FINE * c - price * w > slack:
                continue
            b = (c - floor) // width
            if bucket_weight[b] >= w and bucket_cost[b] <= c:
                continue
            alive = True
            for p in range(1, prices):
                alive = alive and FINE * c - bound[0, p] * w <= bound[1, p]
            if not alive:
                continue
            bucket_cost[b] = min(bucket_cost[b], c)
            if w > bucket_weight[b]:
                bucket_weight[b] = w
                for q in range(words):
                    bucket_members[b, q] = members[i, q]
                    if state >= 0:
                        bucket_members[b, q] |= more_members[j, q]


@part
def _gather(fronts: Fronts, into: int, used: int, cost: Ints, weight: Ints, members: Bits, at: int) -> int:
    """The best pairs of the first buckets, in order, to a place -> how many, -1 = no space; empties the buckets."""
    best, count, words = -NONE, 0, members.shape[1]
    bucket_cost, bucket_weight = fronts.bucket_cost[into], fronts.bucket_weight[into]
    bucket_members = fronts.bucket_members[into]
    for b in range(used):
        if bucket_weight[b] > best:
            if at + count >= len(cost):
                return -1
            best = bucket_weight[b]
            cost[at + count] = bucket_cost[b]
            weight[at + count] = best
            for q in range(words):
                members[at + count, q] = bucket_members[b, q]
            count += 1
        bucket_weight[b] = -NONE
        bucket_cost[b] = NONE
    return count


@part
def _range(tree: Tree, fronts: Fronts, at: int, many: int, row: int) -> tuple[int, int]:
    """Lowest and highest cost of a row's pairs; the lowest is NONE where it has none."""
    low = high = tree.cost[row]
    for c in range(at, at + many):
        begin, end = fronts.begin[tree.child[c]], fronts.end[tree.child[c]]
        if begin == end:
            return NONE, -1
        low += fronts.cost[begin]
        high += fronts.cost[end - 1]
    return low, high


@part
def _may_do(tree: Tree, pi: Ints, up: Ints, at: int, many: int, row: int, bound: Ints) -> bool:
    """Can a row be part of a set that is wanted, for all that the prices tell?"""
    weight = pi[tree.piece[row]] if tree.piece[row] >= 0 else 0
    for p in range(len(up)):
        value = FINE * tree.cost[row] - bound[0, p] * weight
        for c in range(at, at + many):
            value += up[p, tree.child[c]]
        if value > bound[1, p]:
            return False
    return True


@part
def _row(
    tree: Tree, pi: Ints, fronts: Fronts, at: int, many: int, row: int, floor: int, width: int, box: Ints, bound: Ints
) -> bool:
    """All pairs of a row into the buckets of its state -> False if there is too much to do.

    The slack in `bound` is that of the state; what the children cost at least goes off it until they come in.
    """
    part_cost, part_weight, part_members = fronts.part_cost, fronts.part_weight, fronts.part_members
    begin, end, up, child = fronts.begin, fronts.end, fronts.up, tree.child
    target, buckets, prices = box[0], part_cost.shape[1], bound.shape[1]
    side, count, piece = 0, 1, tree.piece[row]
    part_cost[0, 0] = tree.cost[row]
    part_weight[0, 0] = pi[piece] if piece >= 0 else 0
    part_members[0, 0, :] = np.uint64(0)
    if piece >= 0:
        part_members[0, 0, piece >> 6] = np.uint64(1) << np.uint64(piece & 63)
    if many == 0:
        _spread(fronts, side, count, -1, 0, floor, width, target, bound)
        return True
    for p in range(prices):
        for c in range(at, at + many):
            bound[1, p] -= up[p, child[c]]
    for c in range(at, at + many):
        below = child[c]
        for p in range(prices):
            bound[1, p] += up[p, below]
        if count == 0:
            continue
        box[2] += count * (end[below] - begin[below])
        if c == at + many - 1:
            _spread(fronts, side, count, below, 0, floor, width, target, bound)
            break
        low = part_cost[side, 0] + fronts.cost[begin[below]]
        high = min(part_cost[side, count - 1] + fronts.cost[end[below] - 1], target - 1)
        if low > high:
            count = 0
            continue
        step = (high - low) // buckets + 1
        _spread(fronts, side, count, below, 1, low, step, target, bound)
        side = 1 - side
        used = (high - low) // step + 1
        count = _gather(fronts, 1, used, part_cost[side], part_weight[side], part_members[side], 0)
    return bool(box[2] <= box[3])


@part
def _free(tree: Tree, fronts: Fronts, step: int, base: int, fresh: int, top: int) -> None:
    """The children of a step are done: its fronts move to where theirs began."""
    cost, weight, members = fronts.cost, fronts.weight, fronts.members
    for i in range(fresh, top):
        cost[base + i - fresh] = cost[i]
        weight[base + i - fresh] = weight[i]
        for q in range(members.shape[1]):
            members[base + i - fresh, q] = members[i, q]
    for state in range(tree.state_ptr[step], tree.state_ptr[step + 1]):
        fronts.begin[state] -= fresh - base
        fronts.end[state] -= fresh - base


@kernel
def last_front(tree: Tree, pi: Ints, fronts: Fronts, box: Ints, stop: Ints) -> int:
    """Fronts of all states, step by step -> number of pairs in the last one, at the start of the arrays; -1 = no.

    `box`: target, least weight, pairs looked at so far, their limit, first price (later: the best).
    """
    row_ptr, first_row, state_ptr = tree.row_ptr, tree.first_row, tree.state_ptr
    up, rest, begin, end = fronts.up, fronts.rest, fronts.begin, fronts.end
    target, least, prices, buckets = box[0], box[1], len(up), fronts.bucket_cost.shape[1]
    limit = FINE * (target - 1)
    box[4] = best_price(tree, pi, least, max(1, box[4]), up[0], fronts.heavy)
    bound = np.zeros((2, prices), np.int64)
    for p in range(prices):
        bound[0, p] = max(1, int(box[4] * PRICES[p]))
        if upwards(tree, pi, bound[0, p], up[p], fronts.heavy) + bound[0, p] * least > limit:
            return 0
        downwards(tree, pi, bound[0, p], up[p], rest[p])
    fronts.bucket_cost[:] = NONE
    fronts.bucket_weight[:] = -NONE
    live = np.zeros(VALUES, np.int64)
    bases = np.zeros(len(tree.children) + 1, np.int64)
    waiting = top = 0
    for step in range(len(tree.children)):
        many, fresh = tree.children[step], top
        for state in range(state_ptr[step], state_ptr[step + 1]):
            begin[state] = top
            end[state] = top
            floor, highest, alive = NONE, -1, True
            for p in range(prices):
                bound[1, p] = limit - bound[0, p] * least - rest[p, state]
                alive = alive and up[p, state] <= bound[1, p]
            if not alive:
                continue
            rows = 0
            for row in range(first_row[state], first_row[state + 1]):
                at = tree.child_ptr[step] + (row - row_ptr[step]) * many
                low, high = _range(tree, fronts, at, many, row)
                if low < target and _may_do(tree, pi, up, at, many, row, bound):
                    floor = min(floor, low)
                    highest = max(highest, min(high, target - 1))
                    live[rows] = row
                    rows += 1
            if rows == 0:
                continue
            width = (highest - floor) // buckets + 1
            for r in range(rows):
                at = tree.child_ptr[step] + (live[r] - row_ptr[step]) * many
                for p in range(prices):
                    bound[1, p] = limit - bound[0, p] * least - rest[p, state]
                if stop[0] != 0 or not _row(tree, pi, fronts, at, many, live[r], floor, width, box, bound):
                    return -1
            used = (highest - floor) // width + 1
            count = _gather(fronts, 0, used, fronts.cost, fronts.weight, fronts.members, top)
            if count < 0:
                return -1
            top += count
            end[state] = top
        waiting -= many
        base = bases[waiting] if many > 0 else fresh
        _free(tree, fronts, step, base, fresh, top)
        top -= fresh - base
        bases[waiting] = base
        waiting += 1
    return int(top)
