"""Tests of memory peaks worked out by hand, and of the steps over time."""

from typing import Any

import numpy as np
import pytest

from weftline.problem import Problem
from weftline.simulate import memory_over_time, simulate_latency, violations
from weftline.testing.generate import Feed, SeededChooser, make_order, make_placement, make_problem, problem_of

TIME = [[2, 2], [1, 1], [2, 2]]
WIRES = [
    Feed(-1, (0,), 0, 6),  # read by op0
    Feed(0, (1, 2), 3, 4),  # op0 on d0 -> op1 on d1 and op2 on d0
    Feed(1, (), 0, 5, output=True),
    Feed(2, (), 0, 7),  # nobody reads it
]


def _by_hand(**rules: Any) -> Problem:
    return problem_of(TIME, WIRES, weights=[10, 20, 1], workspace=[1, 2, 3], tied=[(100, (0, 2))], **rules)


def test_peak_by_hand() -> None:
    """Tests every kind of interval: input, output, copy, result, workspace, weights, a tied weight."""
    # op0 d0 0..2, t1 to d1 2..5, op1 d1 5..6, op2 d0 2..4. Always on d0: 10 + 1 + 100 (tied, once).
    problem = _by_hand()
    timeline = simulate_latency(problem, np.array([0, 1, 0], np.int32), np.array([0, 1, 2], np.int32))
    assert timeline.start.tolist() == [0, 5, 2]
    # d0: 0..2 input 6 + t1 4 + workspace 1; 2..4 t1 4 + t3 7 + workspace 3; 4..5 t1 4 (being sent); then nothing.
    # d1: 2..5 the copy 4; 5..6 the copy 4 + result 5 + workspace 2.
    assert memory_over_time(problem, timeline) == [
        [(0, 122), (2, 125), (4, 115), (5, 111)],
        [(0, 20), (2, 24), (5, 31), (6, 20)],
    ]
    assert timeline.peak.tolist() == [125, 31]


def test_static_sum_by_hand() -> None:
    """Tests that the static rule adds weights and workspace of all ops, whatever the schedule."""
    problem = _by_hand(memory="static")
    timeline = simulate_latency(problem, np.array([0, 1, 0], np.int32))
    assert timeline.peak.tolist() == [10 + 1 + 1 + 3 + 100, 20 + 2]
    assert memory_over_time(problem, timeline) == [[(0, 115)], [(0, 22)]]


def test_tied_weight_on_two_devices_is_held_twice() -> None:
    """Tests that every device with a user of a tied weight holds it once."""
    problem = problem_of([[1, 1]] * 3, tied=[(100, (0, 1, 2))])
    assert simulate_latency(problem, np.array([0, 1, 0], np.int32)).peak.tolist() == [100, 100]
    assert simulate_latency(problem, np.array([1, 1, 1], np.int32)).peak.tolist() == [0, 100]


@pytest.mark.parametrize(("rule", "peak"), [("per-tensor", 4), ("per-edge", 8)])
def test_per_edge_holds_a_copy_for_every_consumer(rule: str, peak: int) -> None:
    """Tests that what is sent twice is held twice."""
    # Both copies are there while op1 (which takes long) has not ended and the second one arrives.
    problem = problem_of([[1, 1], [9, 9], [1, 1]], [Feed(0, (1, 2), 2, 4)], transfers=rule)
    assert simulate_latency(problem, np.array([0, 1, 1], np.int32)).peak.tolist()[1] == peak


def test_what_ends_is_gone_before_what_starts() -> None:
    """Tests a chain on one device: only neighbours are held at the same time."""
    problem = problem_of([[1]] * 3, [Feed(0, (1,), 0, 5), Feed(1, (2,), 0, 7), Feed(2, (), 0, 4)])
    assert simulate_latency(problem, np.array([0, 0, 0], np.int32)).peak.tolist() == [12]


def test_results_are_held_to_the_end() -> None:
    """Tests that a tensor the caller receives stays, and another one does not."""
    for output, peak in ((True, 9), (False, 5)):
        problem = problem_of([[1], [1], [1]], [Feed(0, (), 0, 5, output=output), Feed(2, (), 0, 4)])
        timeline = simulate_latency(problem, np.zeros(3, np.int32), np.arange(3, dtype=np.int32))
        assert timeline.peak.tolist() == [peak]


def test_steps_reach_exactly_the_peak() -> None:
    """Tests that the largest step of each device is its peak, on generated problems."""
    checked = 0
    for seed in range(200):
        choose = SeededChooser(seed)
        problem = make_problem(choose, "latency", limits=False)
        timeline = simulate_latency(problem, make_placement(choose, problem), make_order(choose, problem))
        steps = memory_over_time(problem, timeline)
        assert [max(level for _, level in profile) for profile in steps] == timeline.peak.tolist()
        checked += max(map(len, steps)) > 3
    assert checked > 50


def test_violations_in_words() -> None:
    """Tests that memory and `together` are named, and that a good plan has none."""
    problem = problem_of([[1, 1], [1, 1]], weights=[2048, 0], capacity=[1024, 4096], together=((0, 1),))
    bad = simulate_latency(problem, np.array([0, 1], np.int32))
    assert violations(problem, bad) == (
        "device d0 needs 2 KiB but holds 1 KiB",
        "ops ['op0', 'op1'] must share a device but stand on ['d0', 'd1']",
    )
    assert violations(problem, simulate_latency(problem, np.array([1, 1], np.int32))) == ()
