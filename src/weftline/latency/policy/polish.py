"""Ops that send each other much, in clusters, and a short annealing that moves whole clusters.

In: a problem and plans. Out: a placement and an order from which a search of single ops may begin. Where transfers cost
more than ops, no single move out of a device pays, so that few steps of single ops end where they began. Clusters come
from a few rounds of matching, the dearest transfers (per work of the smaller end) first. Simplified: memory is not
looked at; what does not fit is no start.

`policy+polish`: what the policy finds, then annealing from there for the time that is left.

In: a Search. Out: what annealing finds from the policy's plan and its usual starts, never anything worse. With the
setting `steps` it makes so many steps from the plans of the policy alone, the first of them with whole clusters of ops,
and a few looks back follow (`place.look_back`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.anneal import SOLVER as ANNEAL
from weftline.latency.anneal.anneal import anneal_from
from weftline.latency.anneal.annealer import Annealer, Start
from weftline.latency.list.decoder import Decoder
from weftline.latency.list.favourites import Floats, edge_costs, mean_times
from weftline.latency.policy.forward_backward import booked_again, look_back
from weftline.latency.policy.policy import DECODES, MOST_DECODES, asked_weights, offer_policy, prepare
from weftline.latency.policy.settings import read_whole
from weftline.problem import Problem
from weftline.search import Search, Solver, alarm
from weftline.simulate import Timeline
from weftline.simulate.tables import tables

__all__ = ["SHARES", "SOLVER", "anneal_clusters", "clusters", "polish"]

SHARES = 16
"""What is joined holds no more than one of so many parts of the work."""
ROUNDS = 12


def clusters(problem: Problem, shares: int = SHARES) -> Indices:
    """(n,): the cluster of every op; what is joined has a device in common, and no `together` set is torn."""
    group = np.unique(problem.group, return_inverse=True)[1]
    count = int(group.max()) + 1
    work: Floats = np.bincount(group, mean_times(problem), minlength=count).astype(np.float64)
    able = np.ones((count, len(problem.devices)), np.bool_)
    np.logical_and.at(able, group, problem.cost.time >= 0)
    most = work.sum() / shares
    source, target, cost = edge_costs(problem)
    source, target = group[source], group[target]
    for _ in range(ROUNDS):
        joined = _match(source, target, cost, work, able, most)
        merged = np.unique(joined, return_inverse=True)[1]
        if merged.max() + 1 == len(work):
            break
        work, old = np.bincount(merged, work).astype(np.float64), able
        able = np.ones((len(work), old.shape[1]), np.bool_)
        np.logical_and.at(able, merged, old)
        group, source, target = merged[group], merged[source], merged[target]
    return group.astype(np.int32)


def _match(
    source: Ints, target: Ints, cost: Floats, work: Floats, able: NDArray[np.bool_], most: float
) -> NDArray[np.int64]:
    """Cluster -> the one that it joins: each joins at most one other."""
    low, high = np.minimum(source, target).astype(np.int64), np.maximum(source, target)
    apart = low != high
    pairs, number = np.unique((low * len(work) + high)[apart], return_inverse=True)
    total = np.bincount(number, cost[apart], minlength=len(pairs))
    a, b = pairs // len(work), pairs % len(work)
    fits = (work[a] + work[b] <= most) & (able[a] & able[b]).any(axis=1)
    rank = total / (np.minimum(work[a], work[b]) + 1.0)
    joins, free = np.arange(len(work)), np.ones(len(work), np.bool_)
    for pair in np.flatnonzero(fits)[np.argsort(-rank[fits], kind="stable")].tolist():
        if free[a[pair]] and free[b[pair]]:
            free[a[pair]] = free[b[pair]] = False
            joins[b[pair]] = a[pair]
    return joins


def anneal_clusters(search: Search, placements: Iterable[Indices], steps: int) -> Start | None:
    """The best of so many steps, from single devices and from plans in which every cluster goes with its majority."""
    problem = search.problem
    group = clusters(problem)
    n, k = problem.cost.time.shape
    starts: list[Start] = [(np.full(n, d, np.int32), None) for d in range(k) if (problem.cost.time[:, d] >= 0).all()]
    for placement in placements:
        votes = np.zeros((int(group.max()) + 1, k), np.int64)
        np.add.at(votes, (group, placement), 1)
        starts.append((votes.argmax(axis=1)[group].astype(np.int32), None))
    with alarm(search) as stop:
        annealer = Annealer(
            tables(problem), capacity=problem.capacity, group=group, seed=search.seed, start=starts, cycle=steps
        )
        annealer.run(steps, stop)
    best = annealer.best
    return None if best is None else best[:2]


LOOKS = 8
"""Back at what annealing found."""
OF_CLUSTERS, MOST_OF_CLUSTERS = 5, 4_000
"""One of so many steps moves clusters of ops, up to MOST_OF_CLUSTERS."""


def polish(search: Search, steps: int, others: Sequence[Timeline] = ()) -> None:
    """So many steps of annealing from the best plan so far, or a better start among others; then some looks back.

    What is better is offered. (A plan with its gaps filled may be a worse start than another one is.)
    """
    best, problem = search.best, search.problem
    if not isinstance(best, Timeline) or search.is_over:
        return
    inner = Search(problem, seed=search.seed, time_limit=search.seconds_left)
    starts: list[Start] = [(each.placement, order) for each in (best, *others) for order in (each.order, None)]
    of_clusters = min(steps // OF_CLUSTERS, MOST_OF_CLUSTERS)
    if of_clusters:
        first = anneal_clusters(inner, [each.placement for each in (best, *others)], of_clusters)
        starts += [] if first is None else [first]
    anneal_from(inner, starts, steps=steps - of_clusters)
    decoder, now = Decoder(problem), inner.best
    if isinstance(now, Timeline):
        _offer(search, now)
        _offer(search, now := booked_again(problem, now))
    for _ in range(0 if problem.rules.runtime == "sequential" else LOOKS):
        if not isinstance(now, Timeline) or search.is_over:
            return
        now = look_back(problem, decoder, now)
        if now is not None:
            _offer(search, now)


def _offer(search: Search, timeline: Timeline) -> None:
    if not search.is_over and (search.best is None or timeline.value < search.best.value):
        search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))


def _solve(search: Search) -> None:
    options = search.options
    others = offer_policy(search, asked_weights(options), read_whole(options, "decodes", DECODES, 1, MOST_DECODES))
    if search.is_over:
        return
    if "steps" in options:
        polish(search, read_whole(options, "steps", 1, 1, 10**8), others)
    else:
        ANNEAL.solve(search)


SOLVER = Solver(
    "policy+polish",
    "the policy, then annealing from its plan for the time left",
    _solve,
    options=("decodes", "weights", "steps"),
    learned=True,
    prepare=prepare,
)
