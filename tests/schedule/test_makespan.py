"""Tests of the lower bounds of makespan and device span."""

from __future__ import annotations

import pytest

from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.bounds.makespan import device_span_bound, find_paths, makespan_bound, most_work
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.testing.schedules import optimum, random_blocks


@pytest.mark.parametrize("first", range(0, 400, 50))
def test_bounds_are_never_above_the_optimum(first: int) -> None:
    """Tests both bounds against brute force on random blocks of every kind."""
    for seed in range(first, first + 50):
        blocks = random_blocks(seed, max_blocks=4, tight=None if seed % 3 else True)
        count = min(1 + seed % 3, 8 // blocks.n)
        for device_span, bound in ((False, makespan_bound), (True, device_span_bound)):
            least = optimum(blocks, count, device_span=device_span)
            assert least is None or bound(blocks, count)[0] <= least, (seed, count, device_span)


def test_bounds_are_often_the_optimum() -> None:
    """Tests that the bounds are strong: equal to brute force in nine of ten small cases."""
    met = total = 0
    for seed in range(60):
        blocks = random_blocks(seed, max_blocks=3)
        count = min(3, 8 // blocks.n)
        least = optimum(blocks, count)
        if least is not None:
            total, met = total + 1, met + (makespan_bound(blocks, count)[0] == least)
    assert met >= 0.9 * total


@pytest.mark.parametrize(("devices", "count", "best"), [(4, 8, 27), (4, 16, 51), (8, 32, 103)])
def test_zero_bubble_schedules_meet_the_bound(devices: int, count: int, best: int) -> None:
    """Tests that ZB-H1 at its memory is proved optimal: its makespan is the bound."""
    assert makespan_bound(make_shape("linear", devices).with_memory(2 * devices), count)[0] == best


def test_less_memory_never_lowers_the_bound() -> None:
    """Tests that bounds rise when memory gets tighter, and say that memory is the reason."""
    blocks = chunked("V", [0, 1, 2, 2, 1, 0], [9, 10, 11] * 2, [12, 9, 10] * 2, [8, 9, 7] * 2, latency=1)
    bounds = [makespan_bound(blocks.with_memory(m), 12) for m in (40, 12, 10, 8, 6, 5, 4)]
    assert [b for b, _ in bounds] == sorted(b for b, _ in bounds)
    assert bounds[0][0] < bounds[-1][0]
    assert bounds[-1][1] in ("ramp", "area")


def test_blocks_of_one_device_wait_for_each_other() -> None:
    """Tests that the head of a block counts all that must run before it on one device."""
    lanes = [Lane("0"), Lane("1")]
    blocks = [Block("F", 3, (0,), (0,)), Block("F", 4, (0,), (0,)), Block("F", 1, (1,), (0,))]
    made = Blocks.of("join", lanes, blocks, [(0, 2, 2), (1, 2, 5)])
    assert find_paths(made).head.tolist() == [0, 0, 9]
    assert makespan_bound(made, 1) == (10, "path")


def test_work_within_memory_by_hand() -> None:
    """Tests the most work of closed sets: three chains of 5 then 1, of which room allows two and a half."""
    assert most_work([5, 1], [2, 2], [[], [0]], 100, 3) == 18
    assert most_work([5, 1], [2, 2], [[], [0]], 4, 3) == 10
    assert most_work([5, 1], [2, 2], [[], [0]], 7, 3) == 15
    assert most_work([5, 9], [2, -2], [[], [0]], 2, 3) == 42
