"""Clusters of ops that send each other much, and the short annealing that moves them."""

import numpy as np
import pytest

from weftline import latency as place
from weftline.cost import CostTable
from weftline.errors import InfeasibleError
from weftline.graph import Graph
from weftline.latency.list.favourites import clusters, mean_times
from weftline.latency.policy.instances import draw_cluster, fresh_problem
from weftline.latency.policy.policy import PolishParameters, anneal_clusters, polish
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import simulate_latency
from weftline.testing.generate import KINDS, placement_problems
from weftline.zoo import synthetic


def _dear(seed: int) -> Problem:
    """A widely connected graph on which a transfer takes several times as long as an op."""
    problem = draw_cluster(np.random.default_rng(seed), synthetic("watts_strogatz", ops=200, seed=seed), 4)
    cost = problem.cost
    ratio = 4.0 * np.median(cost.time[cost.time > 0]) / np.median(cost.transfer[cost.transfer > 0])
    transfer = np.where(cost.transfer > 0, np.ceil(cost.transfer * ratio), cost.transfer).astype(np.int64)
    everywhere = np.where(cost.time < 0, cost.time.max(axis=1, keepdims=True), cost.time)
    linked = np.where(transfer < 0, transfer.max(), transfer)
    return Problem(
        problem.graph, problem.devices, CostTable(everywhere, linked, cost.transfer_row, cost.source), problem.rules
    )


@pytest.mark.parametrize("kind", KINDS)
def test_sets_stay_together_and_have_a_device(kind: str) -> None:
    """Tests tiny problems of every kind: forbidden devices, sets, tight memory."""
    for problem in placement_problems(kind, 8, 90_000):
        found = clusters(problem, 2)
        assert len(found) == len(problem.group)
        for group in np.unique(problem.group):
            assert len(np.unique(found[problem.group == group])) == 1
        able = problem.cost.time >= 0
        alone = [able[problem.group == group].all(axis=0).any() for group in np.unique(problem.group)]
        if all(alone):
            assert all(able[found == number].all(axis=0).any() for number in np.unique(found))


@pytest.mark.parametrize("kind", KINDS)
def test_a_polish_keeps_every_limit(kind: str) -> None:
    """Tests that steps with clusters never lose a plan or offer a worse one, whatever is tight or missing."""
    for problem in placement_problems(kind, 6, 91_000):
        search = Search(problem)
        try:
            place.solvers()["policy"].solve(search)
        except InfeasibleError:
            continue
        assert search.best is not None
        before = search.best.value
        polish(search, 50)
        assert search.best.value <= before
        assert np.all(search.best.peak <= problem.capacity)


@pytest.mark.parametrize("seed", range(4))
def test_clusters_are_connected_and_no_larger_than_their_share(seed: int) -> None:
    """Tests that only ops with an edge between them are joined, and none beyond the limit."""
    problem = fresh_problem(np.random.default_rng(seed), 3, 120)
    found = clusters(problem)
    work = mean_times(problem)
    parts = np.bincount(found, work)
    ones = np.array([len(np.unique(problem.group[found == number])) == 1 for number in range(len(parts))])
    assert np.all(ones | (parts <= work.sum() / PolishParameters().cluster_shares * 1.001))
    assert len(parts) < len(found)
    for number in np.flatnonzero(~ones):
        assert _connected(problem.graph, set(np.flatnonzero(found == number).tolist()))


def _connected(graph: Graph, ops: set[int]) -> bool:
    near: dict[int, set[int]] = {op: set() for op in ops}
    for tensor in graph.tensors:
        ends = ops & {tensor.producer, *tensor.consumers}
        if tensor.producer in ends:
            for other in ends - {tensor.producer}:
                near[other].add(tensor.producer)
                near[tensor.producer].add(other)
    reached, fresh = set(), {min(ops)}
    while fresh:
        reached |= fresh
        fresh = set().union(*(near[op] for op in fresh)) - reached
    return reached == ops


@pytest.mark.parametrize("seed", range(3))
def test_few_steps_leave_one_device_where_transfers_are_dear(seed: int) -> None:
    """Tests that clusters alone find a plan that uses several devices, and that a polish begins there."""
    problem = _dear(seed)
    search = Search(problem, seed=seed)
    single = min((simulate_latency(problem, np.full(200, d, np.int32)) for d in range(4)), key=lambda each: each.value)
    search.offer(single.placement)
    found = anneal_clusters(search, [single.placement], 400)
    assert found is not None
    timeline = simulate_latency(problem, found[0], order=found[1])
    assert timeline.value < 0.9 * single.value
    polish(search, 2_000)
    assert search.best is not None
    assert search.best.value <= timeline.value
