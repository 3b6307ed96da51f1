"""Tests of filling and the simple partition heuristics, on examples worked out by hand."""

import pytest

from weftline import pipeline as partition
from weftline.errors import InfeasibleError
from weftline.pipeline.pieces import make_pieces
from weftline.pipeline.simple import fill_stages, stage_devices
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import Loads
from weftline.testing.generate import Feed, problem_of


def _chain(time: list[list[int]], length: int = 0, **options: object) -> Problem:
    wires = [Feed(i, (i + 1,), length) for i in range(len(time) - 1)]
    return problem_of(time, wires, objective="throughput", **options)  # type: ignore[arg-type]


def _best(name: str, problem: Problem) -> Loads:
    search = Search(problem, solver=name)
    partition.solvers()[name].solve(search)
    assert isinstance(search.best, Loads)
    return search.best


def test_stage_devices_are_the_fastest_that_are_no_hosts() -> None:
    """Tests the choice of devices where fewer stages than devices are allowed."""
    problem = _chain([[9, 1, 2, 3]] * 2, hosts=[1], stages=2)
    assert stage_devices(problem) == [2, 3]


def test_filling_goes_forward_and_falls_back_to_hosts() -> None:
    """Tests that memory and absent times move on to later devices, then to a host, never back."""
    problem = _chain([[1, 1, 9]] * 4, weights=[2, 2, 2, 2], capacity=[3, 4, None], hosts=[2])
    chosen = fill_stages(problem, make_pieces(problem), [0, 1], problem.capacity, lambda stage, piece: False)
    assert chosen.tolist() == [0, 1, 1, 2]
    blocked = _chain([[1, 1], [-1, 1], [1, -1]])
    with pytest.raises(InfeasibleError):
        fill_stages(blocked, make_pieces(blocked), [0, 1], blocked.capacity, lambda stage, piece: False)


def test_even_split_by_count() -> None:
    """Tests stages of equal op count."""
    best = _best("even-split", _chain([[1, 1, 1]] * 6))
    assert (best.placement.tolist(), best.value) == ([0, 0, 1, 1, 2, 2], 2)


def test_greedy_balances_work() -> None:
    """Tests the smallest target that works, with equal devices and with one that is twice as fast."""
    equal = _best("greedy", _chain([[t, t] for t in (6, 1, 1, 1, 1, 2)]))
    assert (equal.placement.tolist(), equal.value) == ([0, 1, 1, 1, 1, 1], 6)
    faster = _best("greedy", _chain([[1, 2]] * 6))
    assert (faster.placement.tolist(), faster.value) == ([0, 0, 0, 0, 1, 1], 4)


def test_single_device_is_the_baseline() -> None:
    """Tests that one stage on the best device is found, and that it beats a pipeline with expensive transfers."""
    problem = _chain([[3, 2], [3, 2]], length=50)
    assert _best("single-device", problem).value == 4
    assert _best("auto", problem).placement.tolist() == [1, 1]


def test_auto_proves_that_there_is_no_pipeline() -> None:
    """Tests a chain that would have to come back to its first device: a cycle of stages, so infeasible, with proof."""
    problem = _chain([[1, 1]] * 2, weights=[2, 2], capacity=[1, 5], together=())
    assert _best("auto", problem).placement.tolist() == [1, 1]
    with pytest.raises(InfeasibleError, match="no pipeline satisfies the limits") as caught:
        _best("auto", _chain([[1, -1], [-1, 1], [1, -1]]))
    assert caught.value.proved


def test_pack_finds_the_order_of_devices_that_fits() -> None:
    """Tests a chain whose large first op fits only the second device: the pipeline must run through it first."""
    problem = _chain([[1, 1], [1, 1]], weights=[5, 2], capacity=[2, 5])
    greedy = Search(problem)
    partition.solvers()["greedy"].solve(greedy)
    assert greedy.best is None
    assert _best("auto", problem).placement.tolist() == [1, 0]


def test_pack_counts_tied_weights() -> None:
    """Tests that two cheap ops with a large shared weight are split where the fast device cannot hold all."""
    shared = _chain([[1, 9]] * 2, weights=[1, 1], capacity=[4, 9], tied=[(3, (0, 1))])
    assert _best("pack", shared).value == 9


def test_pack_leaves_room_for_activations() -> None:
    """Tests that a tensor too large to stand beside both weights makes it pack again."""
    problem = problem_of(
        [[1, 5], [1, 5]], [Feed(0, (1,), 0, bytes=4)], weights=[3, 3], capacity=[9, 20], objective="throughput"
    )
    assert _best("pack", problem).value == 5
