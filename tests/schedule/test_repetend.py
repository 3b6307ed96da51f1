"""Tests of repetends: order from starts, memory, unrolling."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise
from random import Random

import pytest

from weftline.schedule.make_blocks import make_shape
from weftline.schedule.repetend import repetend_of_starts, repetend_peaks, unroll
from weftline.simulate import simulate_schedule

STARTS = [Fraction(s) for s in (0, 1, 2, 5)]


def test_order_lags_and_memory() -> None:
    """Tests the pattern of two stages that was worked out on paper: 1F1B with a period equal to the load."""
    blocks = make_shape("vshape", 2)
    found = repetend_of_starts(blocks, 1, Fraction(4), STARTS)
    assert found.orders == ((0, 3), (1, 2))
    assert found.lags == (0, 0, 0, 1)
    assert found.period == 4
    assert repetend_peaks(blocks, found) == (2, 1)


def test_unrolled_pattern_keeps_period_and_memory() -> None:
    """Tests that every more micro-batch costs one period, and that memory never exceeds that of the pattern."""
    blocks = make_shape("vshape", 2)
    pattern = repetend_of_starts(blocks, 1, Fraction(4), STARTS)
    found = [simulate_schedule(blocks, count, unroll(blocks, pattern, count)) for count in range(1, 9)]
    assert [b.makespan - a.makespan for a, b in pairwise(found[1:])] == [4] * 6
    assert max(max(each.peak_memory) for each in found) == 2
    assert all(len(order) == 2 * 8 for order in found[-1].orders)


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_windows_follow_one_another(copies: int) -> None:
    """Tests random lags against the definition: by window, then by place; what lies beyond the last is left out."""
    blocks, random, count = make_shape("vshape", 2), Random(copies), 7
    for _ in range(30):
        starts = [Fraction(random.randrange(40)) for _ in range(4 * copies)]
        found = repetend_of_starts(blocks, copies, Fraction(8), starts)
        for order, row in zip(found.orders, unroll(blocks, found, count), strict=True):
            pairs = [(k, t, c) for k in range(-(-count // copies)) for t, c in enumerate(order)]
            wanted = sorted((k + found.lags[c], t, copies * k + c // 4, c % 4) for k, t, c in pairs)
            assert row.tolist() == [4 * micro + block for *_, micro, block in wanted if micro < count]


def test_long_lags_cost_nothing() -> None:
    """Tests that a pattern whose blocks lie far apart is unrolled without room for the windows between."""
    blocks = make_shape("vshape", 2)
    far = repetend_of_starts(blocks, 1, Fraction(4), [*STARTS[:3], STARTS[3] + 4 * 10**12])
    assert unroll(blocks, far, 3)[0].tolist() == [0, 4, 8, 3, 7, 11]


def test_patterns_of_several_micro_batches() -> None:
    """Tests that two copies take turns, and that a number of micro-batches that is no multiple is unrolled too."""
    blocks = make_shape("vshape", 2)
    twice = repetend_of_starts(blocks, 2, Fraction(8), [*STARTS, *(start + 4 for start in STARTS)])
    assert twice.period == 4
    assert repetend_peaks(blocks, twice) == (2, 1)
    once = repetend_of_starts(blocks, 1, Fraction(4), STARTS)
    for count in (1, 2, 5):
        rows = [[order.tolist() for order in unroll(blocks, each, count)] for each in (once, twice)]
        assert rows[0] == rows[1]
