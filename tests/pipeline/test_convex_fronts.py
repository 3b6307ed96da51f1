"""The search over convex sets along a tree decomposition against enumeration of all of them."""

from __future__ import annotations

import numpy as np
import pytest
from tests.pipeline.test_convex_search import STOP, convex_sets, costs, equal_problem

from weftline.graph.arrays import Ints
from weftline.pipeline.convex import tree as convex_tree
from weftline.pipeline.convex.fronts import last_front, make_fronts
from weftline.pipeline.convex.graph import make_graph, pack
from weftline.pipeline.convex.tree import HALF_UNITS, make_tree
from weftline.pipeline.pieces import make_pieces


def draw(seed: int, trial: int, cost: Ints) -> tuple[np.random.Generator, int]:
    """A generator for one trial and a target somewhere among the costs."""
    random = np.random.default_rng([seed, trial])
    return random, int(np.quantile(cost, random.uniform(0, 0.9))) + int(random.integers(0, 2))


@pytest.mark.parametrize("buckets", [4096, 8])
def test_fronts_are_exact_or_optimistic(buckets: int) -> None:
    """Tests that the cheapest set that is heavy enough is found, and that thinned fronts only err below it."""
    met = exact = 0
    for seed in range(120):
        pieces = make_pieces(equal_problem(seed, max_ops=9, scales=(1, 1000)))
        graph = make_graph(pieces, 1)
        sets = convex_sets(pieces)
        cost, tree = costs(pieces, sets), make_tree(pieces, graph)
        assert tree is not None
        fronts = make_fronts(tree, graph.before.shape[1], buckets)
        for trial in range(3):
            random, target = draw(seed, trial, cost)
            pi = random.integers(-20, 100, len(graph.work))
            least = max(1, -(-int(pi.sum()) // int(random.integers(2, 5))))
            weight = sets @ pi
            good = (cost < target) & (weight >= least)
            box = np.array([HALF_UNITS * target, least, 0, 10**9, 4096], np.int64)
            count = last_front(tree, pi, fronts, box, STOP)
            heavy = np.flatnonzero(fronts.weight[:count] >= least)
            met += int(good.any())
            if HALF_UNITS * int(cost.max()) < buckets:  # no front is thinned
                assert bool(len(heavy)) == good.any()
                for i in heavy:
                    where = np.flatnonzero((pack(sets) == fronts.members[i]).all(axis=1))
                    assert (HALF_UNITS * cost[where]).tolist() == [fronts.cost[i]]
                    assert weight[where].tolist() == [fronts.weight[i]]
            if not good.any():
                exact += not len(heavy)
            else:
                exact += fronts.cost[heavy[0]] == HALF_UNITS * cost[good].min()
                assert fronts.cost[heavy[0]] <= HALF_UNITS * cost[good].min()
                assert fronts.weight[heavy[-1]] >= weight[good].max()
    assert 200 < met < 350
    assert exact >= (0.99 if buckets > 1000 else 0.6) * 360


def test_a_limit_of_pairs_ends_it() -> None:
    """Tests that a search that may not go on says so."""
    pieces = make_pieces(equal_problem(4, max_ops=9))
    graph = make_graph(pieces, 1)
    tree = make_tree(pieces, graph)
    assert tree is not None
    pi, fronts = np.ones(len(graph.work), np.int64), make_fronts(tree, graph.before.shape[1], 64)
    for most, stop in ((0, STOP), (10**9, np.ones(1, np.int64))):
        box = np.array([HALF_UNITS * (int(graph.work.sum()) + 1), 1, 0, most, 4096], np.int64)
        assert last_front(tree, pi, fronts, box, stop) == -1


def test_no_tree_where_rows_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a graph that does not fall apart is left to branch and bound."""
    pieces = make_pieces(equal_problem(4, max_ops=9))
    graph = make_graph(pieces, 1)
    assert make_tree(pieces, graph) is not None
    monkeypatch.setattr(convex_tree, "MOST_ROWS", 5)
    assert make_tree(pieces, graph) is None
