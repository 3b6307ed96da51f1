"""Which ops should stand together, by what they send each other: favourite children, and clusters.

`favourite_children` (m-SCT, after Hanen and Munier): which consumer should stand beside its producer; at most one child
per op, and at most one parent per child. A linear program says how far each edge is worth to be without communication
(mean times over devices, mean transfers over links, the tensors of an edge added up); what it puts near 0 becomes a
favourite. Among equal optima it prefers costly edges. Where the program is too large or does not finish within what is
left of the search's time, each edge is taken by descending communication while both its ends are free. With a work
limit the size alone decides, so that the answer does not depend on the machine.

`clusters`: a few rounds of matching, the costliest transfers (per work of the smaller end) first.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.search import Search
from weftline.search.lp import Floats, Program, minimise

__all__ = [
    "Floats",
    "Program",
    "clusters",
    "costliest_pairs",
    "edge_costs",
    "favourite_children",
    "pair_up",
    "sct_program",
    "solve_within",
]

MOST_SECONDS = 20.0
"""No program gets more, and none more than half of the time that is left."""
ROWS_WITHIN_WORK, ROWS_WITHIN_TIME = 12_000, 60_000
SECONDS_WITHIN_WORK = 600.0


def solve_within(search: Search, rows: int, make: Callable[[], Program]) -> Floats | None:
    """(columns,), or None. The program, of that many rows, is only made where it may be solved."""
    if search.work_limit is not None:
        return _solution(make(), SECONDS_WITHIN_WORK) if rows <= ROWS_WITHIN_WORK else None
    left = MOST_SECONDS if search.time_limit is None else min(MOST_SECONDS, (search.time_limit - search.seconds) / 2)
    return _solution(make(), left) if rows <= ROWS_WITHIN_TIME and left > 0 else None


def _solution(program: Program, seconds: float) -> Floats | None:
    solution = minimise(program, seconds=seconds).solution
    return solution if len(solution) else None


FAVOURED_BELOW = 0.1
PREFERENCE_WEIGHT = 1e-3
"""How much all communication counts beside the length of the longest chain."""


def favourite_children(search: Search) -> Indices:
    """(n,): the favourite child of each op, -1 = none."""
    problem = search.problem
    source, target, cost = edge_costs(problem)
    if not len(source):
        return np.full(len(problem.group), -1, np.int32)
    mean = mean_times(problem)
    rows = len(source) + 3 * len(mean)
    found = solve_within(search, rows, lambda: sct_program(source, target, cost, mean))
    if found is None:
        search.tell("m-SCT: the linear program did not finish; costly edges are paired instead")
        return costliest_pairs(source, target, cost, len(mean))
    return pair_up(source, target, found[: len(source)] <= FAVOURED_BELOW, len(mean))


def mean_times(problem: Problem) -> Floats:
    """(n,): over devices that can run the op."""
    can = problem.cost.time >= 0
    mean: Floats = np.where(can, problem.cost.time, 0).sum(axis=1) / np.maximum(can.sum(axis=1), 1)
    return mean


def edge_costs(problem: Problem) -> tuple[Ints, Ints, Floats]:
    """Edges between ops by (source, target), each once, and their mean transfer times."""
    k = len(problem.devices)
    links = problem.cost.transfer.reshape(len(problem.cost.transfer), k * k)
    usable = (links >= 0) & ~np.eye(k, dtype=np.bool_).ravel()
    mean = np.where(usable, links, 0).sum(axis=1) / np.maximum(usable.sum(axis=1), 1)
    source, target, tensor = problem.graph.arrays.edges()
    n = len(problem.group)
    key, inverse = np.unique(source.astype(np.int64) * n + target, return_inverse=True)
    cost = np.bincount(inverse, mean[problem.cost.transfer_row[tensor]], len(key))
    return key // n, key % n, cost.astype(np.float64)


def sct_program(source: Ints, target: Ints, cost: Floats, mean: Floats) -> Program:
    """Columns: f per edge (0 = favourite), start per op, length. Times are divided by the mean time of an op."""
    edges, n = len(source), len(mean)
    unit = max(float(mean.mean()), float(cost.mean()), 1e-9)
    time, cost = mean / unit, cost / unit
    edge, op = np.arange(edges), np.arange(n)
    # start(i) + time(i) + cost(e) f(e) <= start(j); at most one favourite out of and into each op; start + time <= w.
    entries = [
        (edge, edges + source, np.ones(edges)),
        (edge, edges + target, -np.ones(edges)),
        (edge, edge, cost),
        (edges + source, edge, np.ones(edges)),
        (edges + n + target, edge, np.ones(edges)),
        (edges + 2 * n + op, edges + op, np.ones(n)),
        (edges + 2 * n + op, np.full(n, edges + n), -np.ones(n)),
    ]
    out, into = np.bincount(source, minlength=n), np.bincount(target, minlength=n)
    endless = np.full(2 * n, np.inf)
    preference = PREFERENCE_WEIGHT * cost / max(float(cost.sum()), 1e-9) * float(time.mean())
    return Program(
        cost=np.concatenate([preference, np.zeros(n), [1.0]]),
        low=np.zeros(edges + n + 1),
        high=np.concatenate([np.ones(edges), np.full(n + 1, np.inf)]),
        rows=np.concatenate([rows for rows, _, _ in entries]),
        columns=np.concatenate([columns for _, columns, _ in entries]),
        values=np.concatenate([values for _, _, values in entries]),
        row_low=np.concatenate([np.full(edges, -np.inf), out - 1.0, into - 1.0, np.full(n, -np.inf)]),
        row_high=np.concatenate([-time[source], endless, -time]),
    )


def pair_up(source: Ints, target: Ints, favoured: np.ndarray[tuple[int], np.dtype[np.bool_]], n: int) -> Indices:
    """Take favoured edges in order: a later one takes the place of earlier ones at either end."""
    child, parent = np.full(n, -1, np.int32), np.full(n, -1, np.int32)
    for a, b in zip(source[favoured].tolist(), target[favoured].tolist(), strict=True):
        if child[a] >= 0:
            parent[child[a]] = -1
        if parent[b] >= 0:
            child[parent[b]] = -1
        child[a], parent[b] = b, a
    return child


def costliest_pairs(source: Ints, target: Ints, cost: Floats, n: int) -> Indices:
    """Edges by descending communication, while both ends are free."""
    child, taken = np.full(n, -1, np.int32), np.zeros(n, np.bool_)
    for e in np.argsort(-cost, kind="stable").tolist():
        a, b = int(source[e]), int(target[e])
        if child[a] < 0 and not taken[b] and cost[e] > 0:
            child[a], taken[b] = b, True
    return child


MATCHING_ROUNDS = 12


def clusters(problem: Problem, shares: int = 16) -> Indices:
    """(n,): the cluster of every op; what is joined has a device in common, and no `together` set is torn."""
    group = np.unique(problem.group, return_inverse=True)[1]
    count = int(group.max()) + 1
    work: Floats = np.bincount(group, mean_times(problem), minlength=count).astype(np.float64)
    able = np.ones((count, len(problem.devices)), np.bool_)
    np.logical_and.at(able, group, problem.cost.time >= 0)
    most = work.sum() / shares
    source, target, cost = edge_costs(problem)
    source, target = group[source], group[target]
    for _ in range(MATCHING_ROUNDS):
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
