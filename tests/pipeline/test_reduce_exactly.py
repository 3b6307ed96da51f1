"""Tests that exact reductions and threshold contraction keep what they say, against brute force on tiny problems."""

from dataclasses import replace

import numpy as np
import pytest

from weftline.pipeline.pieces import Pieces, make_pieces, merge
from weftline.pipeline.reduce import contract_uncuttable, reduce_exactly
from weftline.problem import Problem
from weftline.simulate import INFEASIBLE, evaluate
from weftline.testing.conformance import brute_force_throughput
from weftline.testing.generate import Feed, problem_of, random_problem

KINDS: list[dict[str, object]] = [
    {"communication": "added"},
    {"communication": "added", "memory": "static"},
    {"communication": "overlapped"},
    {"communication": "added", "limits": False},
]


def _problems(kind: dict[str, object], count: int = 120) -> list[Problem]:
    return [random_problem(seed, "throughput", max_ops=7, max_devices=3, **kind) for seed in range(count)]  # type: ignore[arg-type]


def _best_of_pieces(pieces: Pieces) -> int | None:
    """The best value over every device of every piece, by the simulator."""
    problem = pieces.problem
    count, devices = pieces.time.shape
    rows = np.stack(np.meshgrid(*[np.arange(devices)] * count, indexing="ij"), -1).reshape(-1, count).astype(np.int32)
    found = evaluate(problem, np.array([pieces.lift(row) for row in rows]), memory=True)
    assert found.peak is not None
    fits = (found.value < INFEASIBLE) & (found.peak <= problem.capacity).all(axis=1)
    for members in problem.together:
        placed = np.array([pieces.lift(row) for row in rows])[:, list(members)]
        fits &= (placed == placed[:, :1]).all(axis=1)
    return int(found.value[fits].min()) if fits.any() else None


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_pieces_keep_the_optimum(kind: dict[str, object]) -> None:
    """Tests that pieces which say they are exact hold a best pipeline, and that split pieces always do."""
    for problem in _problems(kind):
        best = brute_force_throughput(problem)
        for pieces in (make_pieces(problem), make_pieces(problem, split=True)):
            if pieces.exact and len(pieces.time) <= 7:
                assert _best_of_pieces(pieces) == best


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_reductions_keep_the_optimum(kind: dict[str, object]) -> None:
    """Tests that some best pipeline survives R1 and R2, and that bounds pass through unchanged."""
    smaller = 0
    for problem in _problems(kind):
        pieces = make_pieces(problem)
        reduced = reduce_exactly(pieces)
        smaller += len(reduced.time) < len(pieces.time)
        assert reduced.lift_bound(5) == (5 if pieces.exact else 0)
        if pieces.exact:
            assert _best_of_pieces(reduced) == brute_force_throughput(problem)
    assert smaller > 0 or kind["communication"] == "overlapped"


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_contraction_keeps_what_is_below_the_target(kind: dict[str, object]) -> None:
    """Tests every target near the optimum: a better pipeline is kept, and the lifted bound never exceeds it."""
    smaller = 0
    for problem in _problems(kind, 60):
        best = brute_force_throughput(problem)
        if best is None:
            continue
        pieces = make_pieces(problem, split=True)
        for target in (best, best + 1, best + 5):
            contracted = contract_uncuttable(pieces, target)
            smaller += len(contracted.time) < len(pieces.time)
            value = _best_of_pieces(contracted)
            if target > best:
                assert value == best
            assert contracted.lift_bound(10**9 if value is None else value) <= best
    assert smaller > 0


def test_first_rule_by_hand() -> None:
    """Tests that a cheap op with an expensive output joins its reader, and stays apart when its input is expensive."""
    cheap = problem_of([[1, 1], [9, 9]], [Feed(0, (1,), 5)], objective="throughput")
    assert len(reduce_exactly(make_pieces(cheap)).time) == 1
    costly = problem_of([[5, 5], [5, 5], [9, 9]], [Feed(0, (1,), 4), Feed(1, (2,), 4)], objective="throughput")
    assert len(reduce_exactly(make_pieces(costly)).time) == 3


def test_threshold_by_hand() -> None:
    """Tests that an edge is uncuttable from the target on that its cheaper side reaches."""
    problem = problem_of([[3, 3], [2, 2]], [Feed(0, (1,), 4)], objective="throughput")
    pieces = make_pieces(problem)
    assert len(contract_uncuttable(pieces, 8).time) == 2  # 3 + 4 and 2 + 4 are both below 8
    assert len(contract_uncuttable(pieces, 7).time) == 1  # the first op would cost 7
    assert contract_uncuttable(pieces, 7).lift_bound(100) == 7


def test_flat_tensors_of_the_same_kind_are_added_up() -> None:
    """Tests that two tensors between the same pieces count as one with the sum of their times."""
    wires = [Feed(0, (1,), 4), Feed(0, (1,), 3)]
    pieces = make_pieces(problem_of([[1, 1], [1, 1]], wires, objective="throughput"))
    assert (len(pieces.maker), pieces.transfer_time.tolist()) == (1, [7])


def test_merging_for_the_search_alone() -> None:
    """Tests that pieces which may have lost good plans keep the order and give up every bound."""
    problem = problem_of([[1, 1]] * 50, [Feed(i, (i + 1,), 1) for i in range(49)], objective="throughput")
    coarse = merge(make_pieces(problem), np.arange(50) // 5, exact=False)
    assert len(coarse.time) == 10
    assert not coarse.exact
    assert coarse.lift_bound(7) == 0
    assert (np.diff(coarse.of) >= 0).all()


def test_merging_keeps_totals() -> None:
    """Tests that time, size and weight are sums over what was merged."""
    problem = random_problem(3, "throughput", max_ops=7, max_devices=3)
    pieces = make_pieces(problem)
    whole = merge(pieces, np.zeros(len(pieces.time), np.int64))
    assert whole.size.sum() == len(problem.graph.ops)
    assert whole.weight.sum() == pieces.weight.sum()
    assert len(whole.maker) == 0


def test_lowering_a_lifted_placement_gives_it_back() -> None:
    """Tests lift and lower."""
    problem = replace(random_problem(5, "throughput", max_ops=7, max_devices=3))
    pieces = reduce_exactly(make_pieces(problem))
    device = np.arange(len(pieces.time), dtype=np.int32) % len(problem.devices)
    lowered = pieces.lower(pieces.lift(device))
    assert lowered is not None
    assert lowered.tolist() == device.tolist()


@pytest.mark.parametrize(
    ("times", "wires"),
    [
        ((8, 0, 10, 1, 0), [Feed(0, (1,), 0), Feed(0, (3,), 9), Feed(2, (3,), 0), Feed(1, (4,), 3)]),
        ((1, 10, 0, 8, 0), [Feed(0, (3,), 9), Feed(0, (1,), 0), Feed(2, (3,), 0), Feed(1, (4,), 3)]),
    ],
)
def test_a_backward_tensor_orders_nothing(times: tuple[int, ...], wires: list[Feed]) -> None:
    """Tests two training graphs in which merging along a backward tensor would lose the optimum of 13."""
    problem = problem_of([[t, t] for t in times], wires, backward=[4], together=((2, 4),), objective="throughput")
    assert brute_force_throughput(problem) == 13
    assert _best_of_pieces(reduce_exactly(make_pieces(problem))) == 13
