"""Tests of slicing: exact for its order, on any devices, and a solver like the others."""

from itertools import combinations

import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import make_piece_arrays, merge_freely, reduce_exactly
from weftline.pipeline.slice import SOLVER, Slicer, slice_again, slice_order
from weftline.pipeline.slice.orders import following_order, keyed_order, several_orders
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import Loads, simulate_throughput, violations
from weftline.simulate.sentinels import NEVER
from weftline.testing.conformance import check_solver
from weftline.testing.generate import Feed, problem_of, random_problem


def _equal_problem(seed: int, *, training: bool = False, overlapped: bool = False, memory: bool = False) -> Problem:
    """A random graph on three equal devices."""
    generator = np.random.default_rng(seed)
    n = int(generator.integers(3, 9))
    wires = []
    for i in range(n - 1):
        readers = np.unique(generator.integers(i + 1, n, int(generator.integers(1, 4))))
        wires.append(Feed(i, tuple(readers.tolist()), int(generator.integers(0, 9))))
    together = ((0, n - 1), (1, n - 2)) if training and n >= 5 else ()
    backward = [n - 2, n - 1] if training and n >= 5 else []
    weights = generator.integers(0, 9, n).tolist()
    return problem_of(
        [[int(time)] * 3 for time in generator.integers(0, 20, n)],
        wires,
        weights=weights if memory else [],
        capacity=[max(9, sum(weights) // 2)] * 3 if memory else [],
        together=together,
        backward=backward,
        objective="throughput",
        memory="static",
        communication="overlapped" if overlapped else "added",
    )


def _value(problem: Problem, pieces: Pieces, device: np.ndarray) -> int | None:
    try:
        result = simulate_throughput(problem, pieces.lift(device))
    except InfeasibleError:
        return None
    return None if violations(problem, result) else result.value


def _best_cut(problem: Problem, pieces: Pieces, order: np.ndarray) -> int | None:
    """The best contiguous cut by enumeration."""
    n, values = len(order), []
    for cuts in range(min(3, n)):
        for places in combinations(range(1, n), cuts):
            device = np.zeros(n, np.int32)
            for place in places:
                device[order[place:]] += 1
            values.append(_value(problem, pieces, device))
    return min((value for value in values if value is not None), default=None)


@pytest.mark.parametrize("kind", ["plain", "training", "overlapped", "memory"])
def test_slice_is_the_best_cut_of_its_order(kind: str) -> None:
    """Tests that no contiguous cut of the same order is better, by enumeration."""
    options = {} if kind == "plain" else {kind: True}
    for seed in range(40):
        problem = _equal_problem(seed, **options)
        pieces = make_pieces(problem)
        order = keyed_order(make_piece_arrays(pieces), np.random.default_rng(seed).random(len(pieces.time)))
        least = _best_cut(problem, pieces, order)
        device = slice_order(pieces, order)
        assert (None if device is None else _value(problem, pieces, device)) == least
        if least is not None:
            found = Slicer(pieces).cut(order)
            assert found is not None
            assert found[1] == least


def test_classes_agree_with_the_program_for_equal_devices() -> None:
    """Tests that a fixed sequence of equal devices gives the same value as the special program."""
    for seed in range(40):
        pieces = make_pieces(_equal_problem(seed, overlapped=seed % 2 == 1))
        slicer, order = Slicer(pieces), np.arange(len(pieces.time), dtype=np.int32)
        one, other = slicer.cut(order), slicer.cut(order, sequence=[2, 0, 1])
        assert one is not None
        assert other is not None
        assert one[1] == other[1]


def test_unequal_devices_are_chosen_by_the_program() -> None:
    """Tests that each half of a chain stands on the device that is fast for it."""
    problem = problem_of(
        [[9, 1], [9, 1], [1, 9], [1, 9]], [Feed(i, (i + 1,), 1) for i in range(3)], objective="throughput"
    )
    device = slice_order(make_pieces(problem), np.arange(4, dtype=np.int32))
    assert device is not None
    assert device.tolist() == [1, 1, 0, 0]


def test_upper_value_prunes() -> None:
    """Tests that a cut is found just below an upper value and nothing below the optimum."""
    pieces = make_pieces(_equal_problem(3))
    order = np.arange(len(pieces.time), dtype=np.int32)
    found = Slicer(pieces).cut(order)
    assert found is not None
    again = Slicer(pieces).cut(order, found[1] + 1)
    assert again is not None
    assert again[1] == found[1]
    assert Slicer(pieces).cut(order, found[1]) is None


def test_host_takes_what_no_stage_can_run() -> None:
    """Tests that an op for the host alone splits the stage that would close a cycle around it."""
    time = [[1, 1, 5], [-1, -1, 5], [1, 1, 5]]
    problem = problem_of(time, [Feed(0, (1,), 1), Feed(1, (2,), 1)], hosts=[2], objective="throughput")
    device = slice_order(make_pieces(problem), np.arange(3, dtype=np.int32))
    assert device is not None
    assert device[1] == 2
    assert device[0] != device[2]


def test_few_places_still_give_a_cut() -> None:
    """Tests that a coarse cut is one of the cuts, so no better than the full program."""
    time = [[int(t)] * 4 for t in np.random.default_rng(1).integers(1, 9, 60)]
    problem = problem_of(time, [Feed(i, (i + 1,), 1) for i in range(59)], objective="throughput")
    slicer, order = Slicer(make_pieces(problem)), np.arange(60, dtype=np.int32)
    full, coarse = slicer.cut(order, NEVER), slicer.cut(order, NEVER, windows=12)
    assert full is not None
    assert coarse is not None
    assert full[1] <= coarse[1] <= 2 * full[1]


def test_orders_are_topological_and_different() -> None:
    """Tests that every forward edge goes up in every order."""
    for seed in range(20):
        board = make_piece_arrays(make_pieces(random_problem(seed, "throughput", max_ops=12)))
        orders = several_orders(board, seed, 4)
        assert len({order.tobytes() for order in orders}) == len(orders)
        for order in orders:
            place = np.empty(len(order), np.int64)
            place[order] = np.arange(len(order))
            source = np.repeat(np.arange(len(order)), np.diff(board.next_ptr))
            assert (place[source] < place[board.next_of]).all()


def test_order_follows_the_stages() -> None:
    """Tests that the stages of a partition are contiguous in an order made from it, and that a cycle has none."""
    problem = problem_of([[1, 1]] * 4, [Feed(0, (1,)), Feed(2, (3,))], objective="throughput")
    board = make_piece_arrays(make_pieces(problem))
    order = following_order(board, np.array([1, 0, 1, 0], np.int32), 5)
    assert order is not None
    assert sorted(order[:2].tolist()) == [0, 2]
    chain = problem_of([[1, 1]] * 3, [Feed(0, (1,)), Feed(1, (2,))], objective="throughput")
    assert following_order(make_piece_arrays(make_pieces(chain)), np.array([0, 1, 0], np.int32), 0) is None


def test_slicing_again_does_not_make_it_worse() -> None:
    """Tests that a partition sliced again keeps its value or improves it."""
    for seed in range(20):
        problem = _equal_problem(seed)
        pieces = make_pieces(problem)
        slicer, order = Slicer(pieces), np.arange(len(pieces.time), dtype=np.int32)
        found = slicer.cut(order)
        assert found is not None
        device, value = slice_again(slicer, *found, 0)
        assert _value(problem, pieces, device) == value <= found[1]


def test_free_merging_ignores_hosts_and_memory() -> None:
    """Tests that a cheap op with an expensive output joins its reader, and that what a host alone runs stays apart."""
    time = [[1, 1, 9], [9, 9, 9], [-1, -1, 9], [9, 9, 9]]
    wires = [Feed(0, (1,), 20), Feed(1, (2,), 1), Feed(2, (3,), 20)]
    problem = problem_of(time, wires, weights=[1] * 4, capacity=[3, 3, None], hosts=[2], objective="throughput")
    pieces = reduce_exactly(make_pieces(problem))
    coarse = merge_freely(pieces)
    assert len(pieces.time) == 4
    assert coarse is not None
    assert coarse.of.tolist() == [0, 0, 1, 2]
    assert not coarse.exact


def test_solver_conforms() -> None:
    """Tests the conformance suite on problems of all kinds."""
    for seed in range(30):
        check_solver(SOLVER, random_problem(seed, "throughput", max_ops=6))


def test_solver_reaches_the_optimum_of_a_chain() -> None:
    """Tests that a chain, which has one order, is cut optimally."""
    problem = problem_of(
        [[3] * 3, [5] * 3, [2] * 3, [6] * 3], [Feed(i, (i + 1,), 1) for i in range(3)], objective="throughput"
    )
    search = Search(problem)
    SOLVER.solve(search)
    assert isinstance(search.best, Loads)
    assert search.best.value == 9
    assert len(reduce_exactly(make_pieces(problem)).time) == 4
