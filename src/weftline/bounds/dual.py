"""Messages that prove much: the flow of a minimum cut for two devices, dual ascent for more.

In: LabelCosts. Out: labels and messages (see `label_costs`). Two devices: the cheapest labelling is a minimum cut, and
its flow is the proof. Device 0 is the side of the source; a pair of groups is two arcs, a star is two gates, one for
each direction in which its tensor may be sent. What cannot be has a capacity above every possible cost.

More devices: sweeps over the groups, forwards and backwards (sequential reweighted message passing). At each group
everything that its pairs and stars can give is collected, and shared out again among those that reach groups still to
come. All in integers, at a scale that leaves room for fractions. What cannot be costs more than every labelling here,
so that nothing overflows. It ends where sweeps no longer gain; that need not be the best bound.
"""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.label_costs import (
    IMPOSSIBLE_COST,
    MOST_DEVICES,
    LabelCosts,
    Messages,
    message_bound,
    no_messages,
    star_sums,
    worst_cost,
)
from weftline.graph.arrays import Ints
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["Ascended", "Cut", "ascend", "minimum_cut"]

LARGEST_FLOW = 2.0**62


class Cut(NamedTuple):
    """The best labelling, and the messages that its flow stands for."""

    value: int
    labels: Ints
    messages: Messages


def minimum_cut(costs: LabelCosts) -> Cut | None:
    """None where nothing is possible, or where the numbers are too large for the flow."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    groups, stars = len(costs.unary), len(costs.star_home)
    star = np.repeat(np.arange(stars), np.diff(costs.star_ptr))
    source, sink = groups + 2 * stars, groups + 2 * stars + 1
    leaves, enters = groups + np.arange(stars), groups + stars + np.arange(stars)
    never = int(worst_cost(costs)) + 1
    least = costs.unary.min(axis=1)
    above = np.where(costs.unary < IMPOSSIBLE_COST, costs.unary - least[:, None], never)
    same = costs.pair_cost[:, [0, 1], [0, 1]]
    if np.any(least >= IMPOSSIBLE_COST) or np.any(same != 0):
        return None
    there, back = _length(costs.pair_cost[:, 0, 1], never), _length(costs.pair_cost[:, 1, 0], never)
    out, into = _length(costs.star_cost[:, 0, 1], never), _length(costs.star_cost[:, 1, 0], never)
    first, second = costs.pair.T
    every = np.arange(groups)
    parts = [
        (np.full(groups, source), every, above[:, 1]),
        (every, np.full(groups, sink), above[:, 0]),
        (first, second, there),
        (second, first, back),
        (costs.star_home, leaves, out),
        (leaves[star], costs.star_of, out[star]),
        (costs.star_of, enters[star], into[star]),
        (enters, costs.star_home, into),
    ]
    tail, head, room = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    if never * float(len(room)) > LARGEST_FLOW:
        return None
    network = SimpleMaxFlow()
    arcs = network.add_arcs_with_capacity(tail, head, room)
    if network.solve(source, sink) != network.OPTIMAL or network.optimal_flow() >= never:
        return None
    ends = np.cumsum([len(part[0]) for part in parts])
    flow = np.split(np.asarray(network.flows(arcs), np.int64), ends[:-1])
    labels = np.ones(groups + 2 * stars + 2, np.int64)
    labels[network.get_source_side_min_cut()] = 0
    return Cut(int(least.sum()) + network.optimal_flow(), labels[:groups], _messages(costs, flow))


def _length(table: Ints, never: int) -> Ints:
    return np.where(table < IMPOSSIBLE_COST, table, never)


def _messages(costs: LabelCosts, flow: list[Ints]) -> Messages:
    """What flows from one group to another is cost that moves between them, on device 1."""
    messages = no_messages(costs)
    _, _, there, back, out, to_readers, from_readers, into = flow
    messages.pair[:, 0, 1] = back - there
    messages.pair[:, 1, 1] = there - back
    place = costs.star_ptr[:-1] + np.arange(len(costs.star_home))
    messages.star[place, 1] = into - out
    readers = np.ones(len(messages.star), np.bool_)
    readers[place] = False
    messages.star[readers, 1] = to_readers - from_readers
    return messages


LARGEST_SUM = 2.0**61
FINEST_SCALE = 2**16
ROUNDS_PER_CHECK = 10
"""Rounds between two looks at the bound."""


class Ascended(NamedTuple):
    """Messages, the costs at the scale they belong to, and what they prove."""

    costs: LabelCosts
    messages: Messages
    bound: int
    """ns"""
    labels: Ints
    """The cheapest that were read off the messages so far."""


class LabelGraph(NamedTuple):
    """The costs as the kernel reads them: nothing is infinite."""

    pair: Ints
    pair_cost: Ints
    star_ptr: Ints
    star_cost: Ints
    member: Ints
    """Row of the star messages -> group."""
    near_ptr: Ints
    near: Ints
    """Group -> its pairs (2 * pair + side), then its rows of star messages (2 * P + row)."""
    star: Ints
    """Row of the star messages -> star."""


def ascend(costs: LabelCosts, *, rounds: int, seconds: float | None = None) -> Ascended | None:
    """None where there are too many devices, or numbers too large; `seconds` is looked at between rounds."""
    begun, k = perf_counter(), costs.unary.shape[1]
    if len(costs.star_home) and k > MOST_DEVICES:
        return None
    count = len(costs.unary) + len(costs.pair) + k * len(costs.star_home)
    scale = int(min(FINEST_SCALE, LARGEST_SUM / count / (worst_cost(costs) + 2.0)))
    if scale < 1:
        return None
    costs = costs.scaled(scale)
    graph, unary = _graph(costs)
    able = np.ones((len(graph.member), k), np.bool_)
    messages = no_messages(costs)
    best, kept, answer, cheapest, stale, look = -1, messages, unary.argmin(axis=1), 2**63, 0, 1
    for turn in range(1, rounds + 1):
        _sweep(graph, able, unary, messages.pair, messages.star, False)
        _sweep(graph, able, unary, messages.pair, messages.star, True)
        late = seconds is not None and perf_counter() - begun > seconds
        if turn < min(look, rounds) and not late:
            continue
        look = turn * 2 if turn < ROUNDS_PER_CHECK else turn + ROUNDS_PER_CHECK
        value = message_bound(costs, messages)
        stale = 0 if value > best + costs.scale // 4 else stale + 1
        if value > best:
            best, kept = value, Messages(messages.pair.copy(), messages.star.copy())
        labels = _decide(graph, able.copy(), unary, messages.pair, messages.star)
        cost = costs.cost(labels)
        if cost < cheapest:
            answer, cheapest = labels, cost
        if late or stale > 2 or costs.bound(cheapest) <= costs.bound(best):
            break
    return Ascended(costs, kept, costs.bound(best), answer.astype(np.int64))


def _graph(costs: LabelCosts) -> tuple[LabelGraph, Ints]:
    never = int(worst_cost(costs)) + 1
    pairs, stars = len(costs.pair), len(costs.star_home)
    member = np.insert(costs.star_of, costs.star_ptr[:-1], costs.star_home)
    star = np.repeat(np.arange(stars), np.diff(costs.star_ptr) + 1)
    groups = np.concatenate([costs.pair.ravel(), member])
    pointer = np.zeros(len(costs.unary) + 1, np.int64)
    np.cumsum(np.bincount(groups, minlength=len(costs.unary)), out=pointer[1:])
    graph = LabelGraph(
        costs.pair,
        np.minimum(costs.pair_cost, never),
        costs.star_ptr + np.arange(stars + 1),
        np.minimum(costs.star_cost, never),
        member.astype(np.int64),
        pointer,
        np.argsort(groups, kind="stable").astype(np.int64),
        star.astype(np.int64),
    )
    assert len(groups) == 2 * pairs + len(member)
    return graph, np.minimum(costs.unary, never)


@part
def _pull_pair(graph: LabelGraph, message: Ints, place: int, got: Ints) -> None:
    """The least that a pair costs for each device of one of its two groups."""
    pair, side = place // 2, place % 2
    k = len(got)
    for d in range(k):
        least = np.int64(IMPOSSIBLE_COST)
        for e in range(k):
            cost = graph.pair_cost[pair, d, e] if side == 0 else graph.pair_cost[pair, e, d]
            least = min(least, cost - message[pair, 1 - side, e])
        got[d] = least - message[pair, side, d]


@part
def _pull_star(
    graph: LabelGraph, able: NDArray[np.bool_], message: Ints, row: int, got: Ints, reach: Ints, base: Ints
) -> None:
    """The least that a star costs for each device of its home or of one reader."""
    star = graph.star[row]
    first, last = graph.star_ptr[star], graph.star_ptr[star + 1]
    length = graph.star_cost[star]
    star_sums(length, message, able, first, last, reach, base)
    k = len(got)
    for d in range(k):
        got[d] = IMPOSSIBLE_COST
    for chosen in range(1, 1 << k):
        if row == first:
            for home in range(k):
                if chosen >> home & 1:
                    cost = reach[chosen]
                    for d in range(k):
                        if chosen >> d & 1:
                            cost += length[home, d]
                    got[home] = min(got[home], cost)
        else:
            own = np.int64(IMPOSSIBLE_COST)
            for d in range(k):
                if chosen >> d & 1:
                    own = min(own, -message[row, d])
            cost = base[chosen] + reach[chosen] - own
            for d in range(k):
                if chosen >> d & 1:
                    got[d] = min(got[d], cost)
    for d in range(k):
        got[d] -= message[row, d]


@part
def _reaches(graph: LabelGraph, place: int, group: int, back: bool) -> tuple[bool, bool]:
    """Does this pair or star hold groups that are still to come, and groups that have been?"""
    later, earlier = False, False
    pairs2 = 2 * len(graph.pair)
    if place < pairs2:
        other = graph.pair[place // 2, 1 - place % 2]
        later, earlier = other > group, other < group
    else:
        star = graph.star[place - pairs2]
        for row in range(graph.star_ptr[star], graph.star_ptr[star + 1]):
            later = later or graph.member[row] > group
            earlier = earlier or graph.member[row] < group
    return (earlier, later) if back else (later, earlier)


@kernel
def _sweep(graph: LabelGraph, able: NDArray[np.bool_], unary: Ints, pair: Ints, star: Ints, back: bool) -> None:
    """One pass over all groups; `unary` is kept as cost + messages."""
    groups, k = unary.shape
    pairs2 = 2 * len(graph.pair)
    got, reach, base = np.zeros(k, np.int64), np.zeros(1 << min(k, 10), np.int64), np.zeros(1 << min(k, 10), np.int64)
    for step in range(groups):
        group = groups - 1 - step if back else step
        ahead, behind = 0, 0
        for i in range(graph.near_ptr[group], graph.near_ptr[group + 1]):
            place = graph.near[i]
            if place < pairs2:
                _pull_pair(graph, pair, place, got)
                for d in range(k):
                    pair[place // 2, place % 2, d] += got[d]
                    unary[group, d] += got[d]
            else:
                _pull_star(graph, able, star, place - pairs2, got, reach, base)
                for d in range(k):
                    star[place - pairs2, d] += got[d]
                    unary[group, d] += got[d]
            later, earlier = _reaches(graph, place, group, back)
            ahead += later
            behind += earlier
        if ahead == 0:
            continue
        for d in range(k):
            got[d] = unary[group, d] // max(ahead, behind)
        for i in range(graph.near_ptr[group], graph.near_ptr[group + 1]):
            place = graph.near[i]
            if _reaches(graph, place, group, back)[0]:
                for d in range(k):
                    unary[group, d] -= got[d]
                    if place < pairs2:
                        pair[place // 2, place % 2, d] -= got[d]
                    else:
                        star[place - pairs2, d] -= got[d]


@kernel
def _decide(graph: LabelGraph, able: NDArray[np.bool_], unary: Ints, pair: Ints, star: Ints) -> Ints:
    """Labels one after another, each the cheapest given those before it, and those to come at their best."""
    groups, k = unary.shape
    pairs2 = 2 * len(graph.pair)
    got, reach, base = np.zeros(k, np.int64), np.zeros(1 << min(k, 10), np.int64), np.zeros(1 << min(k, 10), np.int64)
    labels, score = np.zeros(groups, np.int64), np.zeros(k, np.float64)
    for group in range(groups):
        for d in range(k):
            score[d] = unary[group, d]
        for i in range(graph.near_ptr[group], graph.near_ptr[group + 1]):
            place = graph.near[i]
            if place >= pairs2:
                _pull_star(graph, able, star, place - pairs2, got, reach, base)
            elif place % 2 == 1:  # the first of the pair has its label
                before = labels[graph.pair[place // 2, 0]]
                for d in range(k):
                    got[d] = graph.pair_cost[place // 2, before, d] - pair[place // 2, 1, d]
            else:
                _pull_pair(graph, pair, place, got)
            for d in range(k):
                score[d] += got[d]
        best = 0
        for d in range(1, k):
            if score[d] < score[best]:
                best = d
        labels[group] = best
        for i in range(graph.near_ptr[group], graph.near_ptr[group + 1]):
            if graph.near[i] >= pairs2:
                for d in range(k):
                    able[graph.near[i] - pairs2, d] = d == best
    return labels
