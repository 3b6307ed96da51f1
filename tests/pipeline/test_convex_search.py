"""The branch and bound over convex sets against enumeration of all of them."""

from __future__ import annotations

import random
from dataclasses import replace

import numba
import numpy as np
import pytest
from numpy.typing import NDArray

from weftline.cost import CostTable
from weftline.graph.arrays import Ints
from weftline.pipeline.convex.columns import Drawing, draw_sets
from weftline.pipeline.convex.graph import Bits, ConvexGraph, make_graph, pack
from weftline.pipeline.convex.search import SearchQuery, _candidates, find_conflicts, search
from weftline.pipeline.convex.state import PLANE_IN, PLANE_OUT, make_state
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.problem import Problem
from weftline.testing import random_problem
from weftline.testing.generate import problem_of

STOP = np.zeros(1, np.int64)


def equal_problem(seed: int, *, max_ops: int = 8, scales: tuple[int, ...] = (1, 7, 10**9)) -> Problem:
    """A random problem (now and then a training graph) made one of equal devices without limits."""
    problem = random_problem(
        seed, "throughput", max_ops=max_ops, max_devices=3, limits=False, communication="added", stages=0
    )
    chooser = random.Random(seed)
    n, k = problem.cost.time.shape
    scale = chooser.choice(scales)
    time = np.repeat([[chooser.randint(0, 9) * scale] for _ in range(n)], k, axis=1).astype(np.int64)
    flat = np.array([chooser.randint(0, 9) * scale for _ in problem.cost.transfer], np.int64)
    transfer = flat[:, None, None] * (1 - np.eye(k, dtype=np.int64))
    return replace(problem, cost=CostTable(time, transfer, problem.cost.transfer_row, "equal"))


def convex_sets(pieces: Pieces) -> NDArray[np.bool_]:
    """Every convex set but the empty one, a row each."""
    n = len(pieces.time)
    reach = np.eye(n, dtype=np.bool_)
    for piece in reversed(range(n)):
        for later in pieces.next_of[pieces.next_ptr[piece] : pieces.next_ptr[piece + 1]]:
            reach[piece] |= reach[later]
    rows = ((np.arange(1, 2**n)[:, None] >> np.arange(n)) & 1).astype(np.bool_)
    between = (rows @ reach) & (rows @ reach.T)
    return rows[~(between & ~rows).any(axis=1)]


def costs(pieces: Pieces, sets: NDArray[np.bool_], divisor: int = 1) -> NDArray[np.int64]:
    """f of each row, from its definition."""
    time, transfer = pieces.time[:, 0] // divisor, pieces.transfer_time // divisor
    total = (sets * time).sum(axis=1)
    for tensor, maker in enumerate(pieces.maker):
        readers = sets[:, pieces.reader_of[pieces.reader_ptr[tensor] : pieces.reader_ptr[tensor + 1]]]
        crosses = np.where(sets[:, maker], ~readers.all(axis=1), readers.any(axis=1))
        total += transfer[tensor] * crosses
    return np.asarray(total, np.int64)


@pytest.mark.parametrize("start", range(0, 240, 60))
def test_search_is_exact(start: int) -> None:
    """Tests that a set is found exactly when there is one, and that the cheapest is the cheapest."""
    met = 0
    for seed in range(start, start + 60):
        pieces = make_pieces(equal_problem(seed, max_ops=9, scales=(1, 1000)))
        graph, random = make_graph(pieces, 1), np.random.default_rng(seed)
        n, words = len(graph.work), graph.before.shape[1]
        sets, state = convex_sets(pieces), make_state(graph, n + 3)
        cost = costs(pieces, sets)
        for trial in range(3):
            pi = random.integers(-20, 100, n)
            least = max(1, -(-int(pi.sum()) // int(random.integers(2, 5))))
            target = int(np.quantile(cost, random.uniform(0, 0.7))) + int(random.integers(0, 2))
            conflict = np.zeros((n, words), np.uint64)
            if trial:
                assert find_conflicts(graph, target, state, conflict, STOP)
            good = (cost < target) & (sets @ pi >= least)
            for minimise in (0, 1):
                box = np.array([target, least, 0, 0, 10**6, minimise, 3000, 4096], np.int64)
                found = np.zeros((30, words), np.uint64)
                nothing = np.zeros(words, np.uint64)
                search(graph, SearchQuery(pi, conflict, box, found, np.full(n, 0.3)), nothing, state, STOP)
                assert (box[3] > 0) == good.any()
                if minimise and good.any():
                    assert box[0] == cost[good].min()
                for row in found[: box[3]]:
                    where = np.flatnonzero((pack(sets) == row).all(axis=1))
                    assert len(where) == 1
                    assert good[where[0]]
            met += int(good.any())
    assert 20 < met < 160


@pytest.mark.parametrize("start", range(0, 60, 30))
def test_conflicts_are_true(start: int) -> None:
    """Tests that no cheap convex set holds a pair that was marked, and that pairs are marked at all."""
    marked = alone = 0
    for seed in range(start, start + 30):
        pieces = make_pieces(equal_problem(seed, max_ops=9, scales=(1, 1000)))
        graph = make_graph(pieces, 1)
        n = len(graph.work)
        sets = convex_sets(pieces)
        cost = costs(pieces, sets)
        target = int(np.quantile(cost, 0.3)) + 1
        conflict = np.zeros((n, graph.before.shape[1]), np.uint64)
        find_conflicts(graph, target, make_state(graph, n + 3), conflict, STOP)
        cheap = sets[cost < target].astype(np.int64)
        together = cheap.T @ cheap > 0
        pairs = (conflict[:, np.arange(n) >> 6] >> (np.arange(n) & 63).astype(np.uint64)) & np.uint64(1)
        assert not (together & (pairs > 0)).any()
        assert (pairs == pairs.T).all()
        costly = np.flatnonzero(graph.work >= target)
        assert (pairs[costly, costly] > 0).all()
        marked += int((pairs > 0).sum())
        alone += len(costly)
    assert marked > 50
    assert alone > 1


@numba.njit  # type: ignore[untyped-decorator]
def candidates(
    graph: ConvexGraph,
    pi: Ints,
    box: Ints,
    decided: Bits,
    block: Bits,
    gap: Bits,
    chosen: Ints,
    gain: NDArray[np.float64],
) -> int:
    """A function that Python can call."""
    return _candidates(graph, pi, box, decided, block, gap, chosen, gain)


def test_candidates_are_the_most_promising_pieces() -> None:
    """Tests that those of the highest score come first, and that none is decided already."""
    short = 0
    for seed in range(40):
        graph, random = make_graph(make_pieces(equal_problem(seed, max_ops=9)), 1), np.random.default_rng(seed)
        n, state = len(graph.work), make_state(graph, len(graph.work) + 3)
        pi, gain, inside = random.integers(-20, 100, n), random.random(n), random.random(n) < 0.4
        side = random.integers(0, 4, n)
        decided = state.bits[0]
        decided[:] = 0
        decided[PLANE_OUT], decided[PLANE_IN] = pack((side == 2)[None])[0], pack((side == 3)[None])[0]
        box, chosen = np.array([50, 30, 0, 0, 0, 0, 0, 0], np.int64), np.zeros(4, np.int64)
        block, nothing = pack(inside[None])[0], np.zeros(graph.before.shape[1], np.uint64)
        count = candidates(graph, pi, box, decided, block, nothing, chosen, gain)
        near = [side[graph.near_of[graph.near_ptr[p] : graph.near_ptr[p + 1]]] == 3 for p in range(n)]
        score = (0.02 + graph.work / 50.0 + np.abs(pi) / 30.0) * np.where(inside, 2.0, 1.0)
        score *= np.where([beside.any() for beside in near], 1.5, 1.0) * (0.1 + gain)
        best = [piece for piece in np.argsort(-score, kind="stable").tolist() if side[piece] < 2]
        assert chosen[:count].tolist() == best[:4]
        short += len(best) > 4
    assert short > 5


def test_sets_are_drawn_from_every_single_piece() -> None:
    """Tests that a drawing may begin at any of four equal pieces: one step finds a pair from one of its own."""
    graph = make_graph(make_pieces(problem_of([[5, 5]] * 4, objective="throughput")), 1)
    assert len(graph.work) == 4
    for pair in ((1, 3), (0, 2), (0, 1)):
        wanted = np.isin(np.arange(4), pair)
        found, nothing = np.zeros((1, 1), np.uint64), np.zeros((0, 1), np.uint64)
        drawn = [
            draw_sets(graph, Drawing(10 * wanted.astype(np.int64), 11, 20, 1, 1), nothing, seed, found, STOP)
            for seed in range(200)
        ]
        assert 0 < sum(drawn) < 200
        assert (found == pack(wanted[None])).all()


def test_search_stops_when_told() -> None:
    """Tests that a search that may not go on says so and proves nothing."""
    pieces = make_pieces(equal_problem(4, max_ops=9))
    graph = make_graph(pieces, 1)
    n, words = len(graph.work), graph.before.shape[1]
    box = np.array([int(graph.work.sum()) + 1, 1, 0, 0, 10**6, 0, 3000, 4096], np.int64)
    conflict, found = np.zeros((n, words), np.uint64), np.zeros((1, words), np.uint64)
    stop = np.ones(1, np.int64)
    pi = np.ones(n, np.int64)
    state = make_state(graph, n + 3)
    query = SearchQuery(pi, conflict, box, found, np.full(n, 0.3))
    assert search(graph, query, conflict[0].copy(), state, stop) == 1
    assert not find_conflicts(graph, int(box[0]), state, conflict, stop)
