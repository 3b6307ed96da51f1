"""The search over convex sets by dynamic programming along a tree decomposition.

Is there a convex S with f(S) < target and pi(S) >= least? Each state of the tree keeps a front of (cost, weight) pairs,
none better than another in both. What the rest of the graph costs at least, for a few prices of weight, throws most of
them away. Fronts that grow long are thinned: two pairs become one with the lower cost and the higher weight, so that a
proof still holds. In: `Tree`, weights, target. Out: the last front, from which the bound and sets are read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import FINE_UNITS, Bits
from weftline.pipeline.convex.tree import ABOVE_ALL, MOST_VALUES, Tree, best_price, downwards, upwards
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["ABOVE_ALL", "PRICE_FACTORS", "Fronts", "best_price", "downwards", "last_front", "make_fronts", "upwards"]

PRICE_FACTORS = np.array([1.0, 0.8, 1.25, 0.6, 1.6])
"""Of weight, relative to the best one, at which the rest of the graph is bounded."""
MOST_FRONT_PAIRS = 2**20
"""Pairs in all fronts that are alive."""


FRONT_TARGET, FRONT_LEAST, FRONT_PAIRS, FRONT_LIMIT, FRONT_PRICE = 0, 1, 2, 3, 4
"""`box`: target, least weight, pairs looked at so far, their limit, first price (later: the best)."""
BOUND_PRICE, BOUND_SLACK = 0, 1
"""Rows of `bound`: the prices, and how much FINE_UNITS * cost - price * weight may be."""
STATE_BUCKETS, PART_BUCKETS = 0, 1
"""Rows of buckets: for the front of a state, and for a part of a row."""
_Place = tuple[int, int, int]
"""A row of the tree, where its children begin, how many it has."""
_Grid = tuple[int, int]
"""The lowest cost in buckets, the width of each."""


class Fronts(NamedTuple):
    """Space for one search at a time."""

    up: Ints
    """(prices, states): least of FINE_UNITS * cost - price * weight below a state."""
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
    live: Ints
    """Rows of a state that may be part of a set that is wanted."""


def make_fronts(tree: Tree, words: int, buckets: int) -> Fronts:
    """Empty."""
    states = int(tree.state_ptr[-1])
    return Fronts(
        np.zeros((len(PRICE_FACTORS), states), np.int64),
        np.zeros((len(PRICE_FACTORS), states), np.int64),
        np.zeros(states, np.int64),
        np.zeros(states, np.int64),
        np.zeros(states, np.int64),
        np.zeros(MOST_FRONT_PAIRS, np.int64),
        np.zeros(MOST_FRONT_PAIRS, np.int64),
        np.zeros((MOST_FRONT_PAIRS, words), np.uint64),
        np.full((2, buckets), ABOVE_ALL),
        np.full((2, buckets), -ABOVE_ALL),
        np.zeros((2, buckets, words), np.uint64),
        np.zeros((2, buckets), np.int64),
        np.zeros((2, buckets), np.int64),
        np.zeros((2, buckets, words), np.uint64),
        np.zeros(MOST_VALUES, np.int64),
    )


@part
def _spread(
    fronts: Fronts, side: int, count: int, state: int, into: int, grid: _Grid, target: int, bound: Ints
) -> None:
    """Each pair of a part, added to each of a state's front (-1: as it is), into the bucket of its cost."""
    floor, width = grid
    begin = fronts.begin[state] if state >= 0 else 0
    end = fronts.end[state] if state >= 0 else 1
    cost, weight, members = fronts.part_cost[side], fronts.part_weight[side], fronts.part_members[side]
    more_cost, more_weight, more_members = fronts.cost, fronts.weight, fronts.members
    bucket_cost, bucket_weight = fronts.bucket_cost[into], fronts.bucket_weight[into]
    bucket_members = fronts.bucket_members[into]
    words, prices, price, slack = members.shape[1], bound.shape[1], bound[BOUND_PRICE, 0], bound[BOUND_SLACK, 0]
    for i in range(count):
        for j in range(begin, end):
            c, w = cost[i], weight[i]
            if state >= 0:
                c += more_cost[j]
                w += more_weight[j]
            if c >= target:
                break
            if FINE_UNITS * c - price * w > slack:
                continue
            b = (c - floor) // width
            if bucket_weight[b] >= w and bucket_cost[b] <= c:
                continue
            alive = True
            for p in range(1, prices):
                alive = alive and FINE_UNITS * c - bound[BOUND_PRICE, p] * w <= bound[BOUND_SLACK, p]
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
    best, count, words = -ABOVE_ALL, 0, members.shape[1]
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
        bucket_weight[b] = -ABOVE_ALL
        bucket_cost[b] = ABOVE_ALL
    return count


@part
def _range(tree: Tree, fronts: Fronts, at: int, many: int, row: int) -> tuple[int, int]:
    """Lowest and highest cost of a row's pairs; the lowest is ABOVE_ALL where it has none."""
    low = high = tree.cost[row]
    for c in range(at, at + many):
        begin, end = fronts.begin[tree.child[c]], fronts.end[tree.child[c]]
        if begin == end:
            return ABOVE_ALL, -1
        low += fronts.cost[begin]
        high += fronts.cost[end - 1]
    return low, high


@part
def _may_do(tree: Tree, pi: Ints, up: Ints, at: int, many: int, row: int, bound: Ints) -> bool:
    """Can a row be part of a set that is wanted, for all that the prices tell?"""
    weight = pi[tree.piece[row]] if tree.piece[row] >= 0 else 0
    for p in range(len(up)):
        value = FINE_UNITS * tree.cost[row] - bound[BOUND_PRICE, p] * weight
        for c in range(at, at + many):
            value += up[p, tree.child[c]]
        if value > bound[BOUND_SLACK, p]:
            return False
    return True


@part
def _row(tree: Tree, pi: Ints, fronts: Fronts, place: _Place, grid: _Grid, box: Ints, bound: Ints) -> bool:
    """All pairs of a row into the buckets of its state -> False if there is too much to do.

    The slack in `bound` is that of the state; what the children cost at least goes off it until they come in.
    """
    row, at, many = place
    part_cost, part_weight, part_members = fronts.part_cost, fronts.part_weight, fronts.part_members
    begin, end, up, child = fronts.begin, fronts.end, fronts.up, tree.child
    target, buckets, prices = box[FRONT_TARGET], part_cost.shape[1], bound.shape[1]
    side, count, piece = 0, 1, tree.piece[row]
    part_cost[0, 0] = tree.cost[row]
    part_weight[0, 0] = pi[piece] if piece >= 0 else 0
    part_members[0, 0, :] = np.uint64(0)
    if piece >= 0:
        part_members[0, 0, piece >> 6] = np.uint64(1) << np.uint64(piece & 63)
    if many == 0:
        _spread(fronts, side, count, -1, STATE_BUCKETS, grid, target, bound)
        return True
    for p in range(prices):
        for c in range(at, at + many):
            bound[BOUND_SLACK, p] -= up[p, child[c]]
    for c in range(at, at + many):
        below = child[c]
        for p in range(prices):
            bound[BOUND_SLACK, p] += up[p, below]
        if count == 0:
            continue
        box[FRONT_PAIRS] += count * (end[below] - begin[below])
        if c == at + many - 1:
            _spread(fronts, side, count, below, STATE_BUCKETS, grid, target, bound)
            break
        low = part_cost[side, 0] + fronts.cost[begin[below]]
        high = min(part_cost[side, count - 1] + fronts.cost[end[below] - 1], target - 1)
        if low > high:
            count = 0
            continue
        step = (high - low) // buckets + 1
        _spread(fronts, side, count, below, PART_BUCKETS, (low, step), target, bound)
        side = 1 - side
        used = (high - low) // step + 1
        count = _gather(fronts, PART_BUCKETS, used, part_cost[side], part_weight[side], part_members[side], 0)
    return bool(box[FRONT_PAIRS] <= box[FRONT_LIMIT])


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


@part
def _slacks(bound: Ints, limit: int, least: int, rest: Ints, state: int) -> None:
    """What a state's pairs may cost beside the rest of the graph, at each price."""
    for p in range(bound.shape[1]):
        bound[BOUND_SLACK, p] = limit - bound[BOUND_PRICE, p] * least - rest[p, state]


@kernel
def last_front(tree: Tree, pi: Ints, fronts: Fronts, box: Ints, stop: Ints) -> int:
    """Fronts of all states, step by step -> number of pairs in the last one, at the start of the arrays; -1 = no.

    Below each state its front has a pair at least as good as every set that can still be wanted. Tests compare with the
    enumeration of all convex sets.
    """
    row_ptr, first_row = tree.row_ptr, tree.first_row
    up, rest, begin, end = fronts.up, fronts.rest, fronts.begin, fronts.end
    target, least, prices, buckets = box[FRONT_TARGET], box[FRONT_LEAST], len(up), fronts.bucket_cost.shape[1]
    limit, bound = FINE_UNITS * (target - 1), np.zeros((2, prices), np.int64)
    box[FRONT_PRICE] = best_price(tree, pi, least, max(1, box[FRONT_PRICE]), up[0], fronts.heavy)
    for p in range(prices):
        bound[BOUND_PRICE, p] = max(1, int(box[FRONT_PRICE] * PRICE_FACTORS[p]))
        if upwards(tree, pi, bound[BOUND_PRICE, p], up[p], fronts.heavy) + bound[BOUND_PRICE, p] * least > limit:
            return 0
        downwards(tree, pi, bound[BOUND_PRICE, p], up[p], rest[p])
    fronts.bucket_cost[:] = ABOVE_ALL
    fronts.bucket_weight[:] = -ABOVE_ALL
    live, bases = fronts.live, np.zeros(len(tree.children) + 1, np.int64)
    waiting = top = 0
    for step in range(len(tree.children)):
        many, fresh = tree.children[step], top
        for state in range(tree.state_ptr[step], tree.state_ptr[step + 1]):
            begin[state], end[state] = top, top
            # Which rows may be part of a set that is wanted?
            _slacks(bound, limit, least, rest, state)
            alive = True
            for p in range(prices):
                alive = alive and up[p, state] <= bound[BOUND_SLACK, p]
            floor, highest, rows = ABOVE_ALL, -1, 0
            for row in range(first_row[state], first_row[state + 1] if alive else first_row[state]):
                at = tree.child_ptr[step] + (row - row_ptr[step]) * many
                low, high = _range(tree, fronts, at, many, row)
                if low < target and _may_do(tree, pi, up, at, many, row, bound):
                    floor = min(floor, low)
                    highest = max(highest, min(high, target - 1))
                    live[rows] = row
                    rows += 1
            if rows == 0:
                continue
            # Their pairs go into buckets, and the best of these are the front.
            width = (highest - floor) // buckets + 1
            for r in range(rows):
                place = (live[r], tree.child_ptr[step] + (live[r] - row_ptr[step]) * many, many)
                _slacks(bound, limit, least, rest, state)
                if stop[0] != 0 or not _row(tree, pi, fronts, place, (floor, width), box, bound):
                    return -1
            used = (highest - floor) // width + 1
            count = _gather(fronts, STATE_BUCKETS, used, fronts.cost, fronts.weight, fronts.members, top)
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
