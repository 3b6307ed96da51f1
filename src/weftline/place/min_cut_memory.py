"""What the cheapest labelling becomes where it does not fit memory.

In: a Search, its LabelCosts, and the labels that were refused. Out: offers, and bounds that know memory. First prices
per byte (their labellings may fit, their bounds are valid), each also with groups moved until the weights fit; where
activations overflow, with less room for weights. Then small problems try labellings in the order of their costs, and
at last the weights are packed exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush

import numpy as np

from weftline.bounds import Bound
from weftline.bounds.label_costs import FAR, LabelCosts, placement_of
from weftline.bounds.labelling import Labelled, best_labelling
from weftline.bounds.memory_prices import priced_labellings
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.place.pack import SOLVER as PACK
from weftline.place.room_left import RoomLeft
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.search import Search
from weftline.simulate import simulate_latency

__all__ = ["offer_bound", "offer_labels", "offer_within_memory"]

BY_COST = 300
"""Labellings that are tried in the order of their costs."""
MOST_GROUPS = 60
"""So many groups at most, since each labelling needs as many others."""
SHRINKS = 5
"""How often room is left for activations."""
TRIED = 3
"""Labellings of each set of prices that are offered."""


def offer_bound(search: Search, found: Labelled) -> None:
    """It holds for the sequential runtime alone."""
    if search.problem.rules.runtime == "sequential":
        search.offer_bound(Bound(found.bound, "labelling", found.witness))


def offer_labels(search: Search, labels: Ints) -> bool:
    """In the usual order; where memory refuses it, in the order of the graph."""
    placement = placement_of(search.problem, labels)
    if search.offer(placement) is not None:
        return True
    if search.problem.rules.memory == "static" or search.stopped_by:
        return False
    return search.offer(placement, order=np.arange(len(placement), dtype=np.int32)) is not None


def offer_within_memory(search: Search, costs: LabelCosts, labels: Ints, seconds: float | None) -> None:
    """`seconds` is for each search of prices; see the head of this file."""
    problem, need, room = search.problem, least_memory(search.problem), search.problem.capacity.copy()
    for attempt in range(SHRINKS):
        found = _priced(search, costs, need, room, labels, seconds if attempt == 0 else 0.0, proof=attempt == 0)
        for tried in found[:TRIED]:
            if offer_labels(search, tried) or search.stopped_by:
                break
        if search.best is not None or not found or search.stopped_by:
            break
        room = room - _overflow(problem, found[0])
    if not search.stopped_by and len(costs.unary) <= MOST_GROUPS:
        _offer_by_cost(search, costs)
    if search.best is None and not search.stopped_by:
        PACK.solve(search)


def _priced(
    search: Search, costs: LabelCosts, need: Ints, room: Ints, labels: Ints, seconds: float | None, *, proof: bool
) -> list[Ints]:
    """Labellings whose weights fit, the cheapest first."""
    begun, fitting = search.seconds, list[Ints]()
    moved = moved_to_fit(search.problem, costs, labels, room)
    for found in priced_labellings(costs, need, room, seconds=seconds):
        if proof:
            offer_bound(search, found)
        if np.all(np.bincount(found.labels, need, minlength=len(room)) <= room):
            fitting.append(found.labels)
        else:
            moved += moved_to_fit(search.problem, costs, found.labels, room)
        if search.stopped_by or (seconds is not None and search.seconds > begun + seconds):
            break
    distinct = {one.tobytes(): one for one in fitting + moved}
    return sorted(distinct.values(), key=costs.cost)


def moved_to_fit(problem: Problem, costs: LabelCosts, labels: Ints, room: Ints) -> list[Ints]:
    """One by one in the order of the graph: where the labels say if there is memory left, else where it costs least.

    Groups to come are taken to be where their labels say, unless that device has refused one. Empty: one fits nowhere.
    """
    left, group = RoomLeft(problem, room), problem.group.tolist()
    unary, near = costs.unary.tolist(), _neighbours(costs)
    place: list[int] = labels.tolist()
    done, full = [False] * len(place), set[int]()
    for op, g in enumerate(group):
        if done[g]:
            continue
        try:
            choices = left.choices(op)
        except InfeasibleError:
            return []
        if place[g] not in choices:
            full.add(place[g])
        known = [(place[v], table) for v, table in near[g] if done[v] or place[v] not in full]
        if place[g] not in choices or any(place[v] != labels[v] for v, _ in near[g] if done[v]):
            place[g] = min(choices, key=lambda d: unary[g][d] + sum(int(table[d, at]) for at, table in known))
        left.put(op, place[g])
        done[g] = True
    return [np.array(place, np.int64)]


def _neighbours(costs: LabelCosts) -> list[list[tuple[int, Ints]]]:
    """Group -> other groups, with the cost by its own device and theirs; readers of a star only know its home."""
    near: list[list[tuple[int, Ints]]] = [[] for _ in costs.unary]
    star = np.repeat(np.arange(len(costs.star_home)), np.diff(costs.star_ptr))
    pairs = np.concatenate([costs.pair, np.stack([costs.star_home[star], costs.star_of], axis=1)])
    for (a, b), table in zip(pairs.tolist(), (*costs.pair_cost, *costs.star_cost[star]), strict=True):
        near[a].append((b, table))
        near[b].append((a, table.T))
    return near


def _overflow(problem: Problem, labels: Ints) -> Ints:
    try:
        peak = simulate_latency(problem, placement_of(problem, labels)).peak
    except InfeasibleError:
        return np.zeros(len(problem.capacity), np.int64)
    over: Ints = np.maximum(peak - problem.capacity, 0)
    return over


def _offer_by_cost(search: Search, costs: LabelCosts) -> None:
    """The first that fits is the best there is, if all its orders are as good as the two that are tried."""
    for tried, labels in enumerate(_by_cost(search, costs)):
        dearer = search.best is not None and costs.cost(labels) >= search.best.value
        if search.stopped_by or tried == BY_COST or dearer or offer_labels(search, labels):
            return


def _by_cost(search: Search, costs: LabelCosts) -> Iterator[Ints]:
    """Labellings, the cheapest first: what is left after one is split into parts that each forbid a choice of it."""
    first = best_labelling(costs)
    if first is None or not first.exact:
        return
    number = 0
    waiting = [(costs.cost(first.labels), number, first.labels, costs.unary < FAR)]
    while waiting:
        _, _, labels, allowed = heappop(waiting)
        yield labels
        allowed = allowed.copy()
        for group in np.flatnonzero(allowed.sum(axis=1) > 1).tolist():
            if search.stopped_by:
                return
            rest = allowed.copy()
            rest[group, labels[group]] = False
            found = best_labelling(costs.restricted(rest))
            if found is not None:
                number += 1
                heappush(waiting, (costs.cost(found.labels), number, found.labels, rest))
            allowed[group] = False
            allowed[group, labels[group]] = True
