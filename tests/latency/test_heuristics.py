"""Tests of the simple placement heuristics, on examples worked out by hand."""

import numpy as np
import pytest

from weftline import latency as place
from weftline.errors import InfeasibleError
from weftline.latency.list.memory_left import RoomLeft
from weftline.problem import Problem
from weftline.search import Search
from weftline.testing.generate import Feed, problem_of


def _solve(name: str, problem: Problem) -> Search:
    search = Search(problem, solver=name)
    place.solvers()[name].solve(search)
    return search


def _placement(name: str, problem: Problem) -> list[int]:
    best = _solve(name, problem).best
    assert best is not None
    return list(best.placement.tolist())


CHAIN = [Feed(i, (i + 1,), 0) for i in range(5)]


def test_single_device_takes_the_best_one() -> None:
    """Tests that every device is tried and the fastest one that fits wins."""
    assert _placement("single-device", problem_of([[3, 2, 1], [3, 2, 1]], CHAIN[:1])) == [2, 2]
    problem = problem_of([[3, 2, 1], [3, 2, 1]], CHAIN[:1], weights=[2, 2], capacity=[None, None, 3])
    assert _placement("single-device", problem) == [1, 1]
    assert _solve("single-device", problem_of([[1, -1], [-1, 1]])).best is None


def test_greedy_ignores_transfers() -> None:
    """Tests that every op goes where it is fastest, the first device on a tie, as long as memory lasts."""
    problem = problem_of([[1, 2], [2, 1], [1, 1]], [Feed(0, (1,), 100), Feed(1, (2,), 100)])
    assert _placement("greedy", problem) == [0, 1, 0]
    full = problem_of([[1, 9]] * 3, weights=[2] * 3, capacity=[4, None])
    assert _placement("greedy", full) == [0, 0, 1]


def test_even_split_by_count() -> None:
    """Tests pieces of equal length, and the nearest device where an op cannot go to its own."""
    assert _placement("even-split", problem_of([[1, 1, 1]] * 6, CHAIN)) == [0, 0, 1, 1, 2, 2]
    assert _placement("even-split", problem_of([[1, 1], [-1, 1], [1, 1], [1, -1]], CHAIN[:3])) == [0, 1, 1, 0]


def test_round_robin_goes_around() -> None:
    """Tests op after op to the next device."""
    assert _placement("round-robin", problem_of([[1, 1, 1]] * 5, CHAIN[:4])) == [0, 1, 2, 0, 1]


@pytest.mark.parametrize("name", ["greedy", "even-split", "round-robin"])
def test_together_goes_with_its_first_op(name: str) -> None:
    """Tests that a `together` set is placed as one."""
    placement = _placement(name, problem_of([[1, 2], [5, 1], [5, 1], [1, 1]], CHAIN[:3], together=((0, 1, 2),)))
    assert len(set(placement[:3])) == 1


def test_room_left_counts_tied_weights_once() -> None:
    """Tests that the second user of a tied weight needs no more room on a device that holds it."""
    problem = problem_of([[1, 1]] * 3, weights=[1, 1, 1], tied=[(5, (0, 1))], capacity=[7, 6])
    room = RoomLeft(problem)
    assert room.choices(0) == [0, 1]
    room.put(0, 0)
    assert room.choices(1) == [0, 1]
    room.put(1, 0)
    assert room.choices(2) == [1]
    room.put(2, 1)
    assert room.placement().tolist() == [0, 0, 1]


def test_pack_finds_what_the_others_walk_past() -> None:
    """Tests a packing that only one split of the weights solves, and the least work of its two ways round."""
    # 2, 3, 3, 2, 2 into 6 and 6: {2, 2, 2} and {3, 3}. Op by op, 2 + 3 blocks a device. Work: 3 x 1 + 2 x 2.
    problem = problem_of([[1, 2]] * 5, weights=[2, 3, 3, 2, 2], capacity=[6, 6])
    for name in ("greedy", "even-split", "round-robin", "heft"):
        with pytest.raises(InfeasibleError):
            _solve(name, problem)
    assert _placement("pack", problem) == [0, 1, 1, 0, 0]
    assert _placement("auto", problem) == [0, 1, 1, 0, 0]


def test_pack_proves_that_nothing_fits() -> None:
    """Tests that the proof is marked as one, and that the default passes it on."""
    problem = problem_of([[1, 1]] * 3, weights=[3, 3, 3], capacity=[5, 5])
    for name in ("pack", "auto"):
        with pytest.raises(InfeasibleError, match="cannot be packed") as caught:
            _solve(name, problem)
        assert caught.value.proved


def test_auto_says_what_each_heuristic_met() -> None:
    """Tests the reasons when weights fit but activations do not: not a proof."""
    problem = problem_of([[1], [1]], [Feed(0, (1,), 0, 50)], capacity=[10])
    with pytest.raises(InfeasibleError) as caught:
        _solve("auto", problem)
    assert not caught.value.proved
    assert "device d0 needs 50 B but holds 10 B" in caught.value.conflicts


def test_auto_is_as_good_as_each_heuristic() -> None:
    """Tests that the default keeps the best of all on a larger problem."""
    rng = np.random.default_rng(0)
    problem = problem_of(rng.integers(1, 100, (30, 3)).tolist(), [Feed(i, (i + 1, i + 2), 5) for i in range(28)])
    best = _solve("auto", problem).best
    assert best is not None
    for name in ("single-device", "even-split", "round-robin", "greedy", "heft"):
        other = _solve(name, problem).best
        assert other is not None
        assert best.value <= other.value
