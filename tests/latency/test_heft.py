"""Tests of HEFT on examples worked out by hand."""

import numpy as np
import pytest

from weftline import latency as place
from weftline.errors import InfeasibleError
from weftline.latency.list.schedulers import heft
from weftline.search import Search
from weftline.simulate import replay
from weftline.testing.generate import Feed, problem_of, random_problem


def test_three_ops_by_hand() -> None:
    """Tests ranks, choices and times of two ops that feed a third."""
    # Ranks: op2 3; op0 2 + 1 + 3 = 6; op1 3 + 1 + 3 = 7. op1 ends first on d1 (2), op0 on d0 (2).
    # op2 on d0 waits for op1's tensor (2..3) and ends at 6; on d1 for op0's (2..3), ends at 6: the first one wins.
    problem = problem_of([[2, 3], [4, 2], [3, 3]], [Feed(0, (2,), 1), Feed(1, (2,), 1)])
    timeline = heft(Search(problem))
    assert timeline.placement.tolist() == [0, 1, 0]
    assert (timeline.start.tolist(), timeline.end.tolist()) == ([0, 0, 3], [2, 2, 6])
    assert timeline.transfers.tolist() == [[1, 1, 0, -1, 2, 3]]


def test_insertion_into_a_gap() -> None:
    """Tests that a late op of low rank fills the time in which a device waits for a tensor."""
    # op0 (d0) 0..2, its tensor 2..5, op1 (d1) 5..10; op2 (d1 only, 4 ns) comes last by rank and fits before op1.
    problem = problem_of([[2, -1], [-1, 5], [-1, 4]], [Feed(0, (1,), 3)])
    search = Search(problem)
    timeline = heft(search)
    assert (timeline.start.tolist(), timeline.end.tolist()) == ([0, 5, 0], [2, 10, 4])
    place.solvers()["heft"].solve(search)
    assert search.best is not None
    assert search.best.value == 10
    # One ns more does not fit: it goes behind.
    longer = heft(Search(problem_of([[2, -1], [-1, 7], [-1, 6]], [Feed(0, (1,), 3)])))
    assert longer.start.tolist() == [0, 5, 12]


def test_gap_between_two_ops() -> None:
    """Tests that the gap must lie behind the inputs of the op, and that a gap is used up."""
    # d1: op1 5..15 waits for t0, so 0..5 is free. op2 and op3 take 3 each: one fits in front, the other does not.
    problem = problem_of([[2, -1], [-1, 10], [-1, 3], [-1, 3]], [Feed(0, (1,), 3)])
    timeline = heft(Search(problem))
    assert sorted(timeline.start.tolist()[2:]) == [0, 15]


def test_contention_is_seen() -> None:
    """Tests that ports are booked: the second tensor from d0 leaves after the first."""
    problem = problem_of([[1, -1, -1], [-1, 9, -1], [-1, -1, 1]], [Feed(0, (1,), 3), Feed(0, (2,), 3)])
    timeline = heft(Search(problem))
    assert timeline.end.tolist() == [1, 13, 8]


def test_memory_and_together() -> None:
    """Tests that weights, a tied weight counted once, and `together` decide the device."""
    problem = problem_of([[1, 9], [1, 9], [1, 9]], weights=[2, 2, 2], capacity=[5, None], tied=[(1, (0, 1))])
    assert heft(Search(problem)).placement.tolist() == [0, 0, 1]
    joined = problem_of([[1, 5], [9, 1]], together=((0, 1),))
    assert len(set(heft(Search(joined)).placement.tolist())) == 1
    full = problem_of([[1], [1]], weights=[2, 2], capacity=[3])
    with pytest.raises(InfeasibleError, match="HEFT finds no device for op 'op1'") as caught:
        heft(Search(full))
    assert not caught.value.proved


def test_replaying_never_ends_later() -> None:
    """Tests on generated problems that the simulator needs at most the time that HEFT planned with."""
    earlier = 0
    for seed in range(300):
        problem = random_problem(seed, "latency", max_ops=12, max_devices=4, runtime="parallel")
        try:
            planned = heft(Search(problem))
        except InfeasibleError:
            continue
        again = replay(problem, planned.placement, planned.actions(problem.graph.arrays.producer))
        assert np.all(again.end <= planned.end), seed
        earlier += again.value <= planned.value
    assert earlier > 150
