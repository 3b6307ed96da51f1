"""The convex-set bound: never above the optimum, and its witness holds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.pipeline.test_convex_search import convex_sets, costs, equal_problem

from weftline.pipeline.convex import tree as convex_tree
from weftline.pipeline.convex.convex_set import convex_set_bound
from weftline.pipeline.convex.prove import ProofBudget, ProofOutcome, Prover
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import reduce_exactly
from weftline.testing import brute_force_throughput

Found = list[tuple[int, dict[str, object]]]


def bounds_of(pieces: Pieces, stages: int, upper: int, *, stop: int = 0, work: int = 20_000, seed: int = 0) -> Found:
    """Everything that `on_bound` was told."""
    found: Found = []
    convex_set_bound(
        pieces,
        stages,
        lambda: upper,
        stop=np.array([stop]),
        work=work,
        seed=seed,
        on_bound=lambda value, witness: found.append((value, witness)),
    )
    return found


def holds(pieces: Pieces, value: int, witness: dict[str, object]) -> bool:
    """Check a witness by enumeration."""
    sets, pi = convex_sets(pieces), np.array(witness["weights"])
    scale, target, stages = int(str(witness["scale"])), int(str(witness["target"])), int(str(witness["stages"]))
    least = -(-int(pi.sum()) // stages)
    cheap = costs(pieces, sets, scale) < target
    return value == scale * target and pi.sum() > 0 and not (cheap & (sets @ pi >= least)).any()


@pytest.mark.parametrize("rows", [0, convex_tree.MOST_ROWS])
@pytest.mark.parametrize("start", range(0, 80, 20))
def test_never_above_the_optimum(start: int, rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests bound <= optimum, rising bounds, and witnesses by enumeration, with a loose and a tight known value.

    With branch and bound (no rows are allowed for a tree) and along trees.
    """
    monkeypatch.setattr(convex_tree, "MOST_ROWS", rows)
    close = 0
    for seed in range(start, start + 20):
        problem = equal_problem(seed, max_ops=7)
        best = brute_force_throughput(problem)
        pieces = reduce_exactly(make_pieces(problem))
        assert best is not None
        for upper in (best, best + best // 3 + 1):
            found = bounds_of(pieces, len(problem.devices), upper)
            values = [value for value, _ in found]
            assert values == sorted(set(values))
            assert all(value <= best for value in values)
            assert all(holds(pieces, value, witness) for value, witness in found)
        close += bool(values) and values[-1] >= 0.9 * best
    assert close > 4


def least_cost_of_a_share(pieces: Pieces, stages: int, upper: int) -> tuple[int, int]:
    """Bisect with the prover: the least cost of a stage with 1/stages of the work, and the number of proofs."""
    told: list[int] = []
    stop = np.zeros(1, np.int64)
    budget = ProofBudget(10**6, None, stop)
    prover = Prover(pieces, stages, lambda: upper, stop, budget, lambda value, _: told.append(value))
    weights = prover.graph.work.copy()
    least = -(-int(weights.sum()) // stages)
    low, high = least, prover.upper()
    while 0 < low < high:
        target = (low + high + 1) // 2
        prover.aim(target)
        outcome, found = prover.prove(weights, least, target, budget.nodes_of(0.25))
        assert outcome in (ProofOutcome.PROVED, ProofOutcome.FOUND)
        low = target if outcome == ProofOutcome.PROVED else low
        high = min(prover.cost(members) for members in found) if outcome == ProofOutcome.FOUND else high
    return max([-(-int(pieces.time[:, 0].sum()) // stages), *told]), len(told)


def test_the_prover_is_exact() -> None:
    """Tests that bisection ends at the cheapest convex set with a stage's share of the work."""
    told = 0
    for seed in range(40):
        problem = equal_problem(seed)
        pieces, stages = make_pieces(problem), max(2, len(problem.devices))
        sets = convex_sets(pieces)
        cost, share = costs(pieces, sets), stages * (sets @ pieces.time[:, 0]) >= pieces.time[:, 0].sum()
        upper = int(costs(pieces, np.ones((1, len(pieces.time)), np.bool_))[0])
        best, proofs = least_cost_of_a_share(pieces, stages, upper)
        exact = int(cost[share].min())
        assert best <= exact
        if upper < 2**23:  # not scaled down
            assert best == exact
            told += proofs > 0
    assert told > 5


def test_work_limit_repeats() -> None:
    """Tests that the same seed and work limit give the same bounds and weights."""
    pieces = make_pieces(equal_problem(23))
    upper = int(pieces.time[:, 0].sum())
    assert bounds_of(pieces, 2, upper, seed=5) == bounds_of(pieces, 2, upper, seed=5)


def test_pieces_without_work() -> None:
    """Tests that costs of tensors alone give bounds that hold."""
    for seed in range(12):
        problem = equal_problem(seed, max_ops=6)
        problem = replace(problem, cost=replace(problem.cost, time=np.zeros_like(problem.cost.time)))
        best, pieces = brute_force_throughput(problem), make_pieces(problem)
        assert best is not None
        assert all(value <= best for value, _ in bounds_of(pieces, len(problem.devices), best + 5))


def test_nothing_when_stopped() -> None:
    """Tests that nothing is told after the stop."""
    assert not bounds_of(make_pieces(equal_problem(23)), 2, 100, stop=1)
