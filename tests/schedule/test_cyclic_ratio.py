"""Tests of the period of a cyclic order against long unrolled schedules, and of the orders' memory."""

from __future__ import annotations

from fractions import Fraction
from random import Random

import numpy as np
import pytest

from weftline.problem.blocks import Blocks
from weftline.schedule.cyclic.anneal import SETTINGS, anneal
from weftline.schedule.cyclic.exact import exact_period
from weftline.schedule.cyclic.order import CyclicOrder, CyclicPattern, make_pattern, order_of_starts, repeated
from weftline.schedule.cyclic.starts import compaction, modulo_placement
from weftline.schedule.make_blocks import make_shape
from weftline.schedule.repetend import repetend_of_starts, repetend_peaks, unroll
from weftline.simulate import simulate_schedule
from weftline.testing.schedules import random_blocks

CASES = [("vshape", 3), ("kshape", 4), ("nnshape", 2), ("xshape", 2), ("zigzag", 2), ("finetune", 3)]


def some_order(blocks: Blocks, copies: int, seed: int) -> tuple[CyclicPattern, CyclicOrder]:
    dice, length = Random(seed), max(blocks.loads) * copies
    make = compaction if seed % 2 else modulo_placement
    pattern = make_pattern(blocks, copies)
    return pattern, order_of_starts(pattern, make(blocks, copies, length, dice), length)


def instances() -> list[Blocks]:
    found = [make_shape(name, devices) for name, devices in CASES]
    return found + [blocks for seed in range(40) if (blocks := random_blocks(seed)).balanced]


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_period_is_the_rate_of_the_unrolled_order(copies: int) -> None:
    """Tests that far from its ends the unrolled order needs exactly the period for every repetition."""
    for number, blocks in enumerate(instances()):
        pattern, order = some_order(blocks, copies, number)
        exact = exact_period(pattern, order)
        assert exact is not None
        repetend = repetend_of_starts(blocks, copies, *exact)
        repetitions = 12 * exact[0].denominator
        spans = [
            simulate_schedule(blocks, count * copies, unroll(blocks, repetend, count * copies)).makespan
            for count in (60, 60 + repetitions)
        ]
        assert spans[1] - spans[0] == repetitions * exact[0]


def test_starts_keep_every_constraint() -> None:
    """Tests that edges and devices are kept by the starts of the exact period, around the window too."""
    for number, blocks in enumerate(instances()):
        pattern, order = some_order(blocks, 2, number)
        exact = exact_period(pattern, order)
        assert exact is not None
        length, starts = exact
        for source, target, lag in blocks.edges:
            for shift in (0, blocks.n):
                wait = starts[target + shift] - starts[source + shift]
                assert wait >= blocks.blocks[source].span + lag
        for device in range(len(blocks.devices)):
            items = [i for i in range(2 * blocks.n) if device in blocks.blocks[i % blocks.n].devices]
            rows = sorted((starts[i] % length, blocks.blocks[i % blocks.n].span) for i in items)
            for (a, span), (b, _) in zip(rows, [*rows[1:], (rows[0][0] + length, 0)] if rows else [], strict=True):
                assert a + span <= b


def test_search_kernel_agrees_with_exact_period() -> None:
    """Tests that the floating-point ratio of a start is the exact one."""
    stop = np.zeros(1, np.int64)
    for number, blocks in enumerate(instances()):
        free = blocks.with_memory(10**6)
        pattern, order = some_order(free, 2, number)
        exact = exact_period(pattern, order)
        assert exact is not None
        run = anneal(pattern, order, SETTINGS[0], 2.0 * max(blocks.loads), trials=1, seed=0, stop=stop)
        assert run.ratio == pytest.approx(float(exact[0]), rel=1e-6)


def test_deadlocks_are_seen() -> None:
    """Tests that an order in which a block waits for itself has no period."""
    blocks = make_shape("vshape", 2)
    pattern = make_pattern(blocks, 1)
    backward_first = order_of_starts(pattern, [2.0, 3.0, 0.0, 1.0], 8.0)
    assert exact_period(pattern, backward_first) is None


def test_large_numbers_stay_exact() -> None:
    """Tests that spans beyond what 64 bits can hold in sums give the same period, scaled."""
    small = make_shape("vshape", 4)
    factor = 2**44
    blocks = [type(b)(b.kind, b.span * factor, b.devices, b.memory, b.name, b.stage) for b in small.blocks]
    large = Blocks.of("large", small.devices, blocks, small.edges)
    for seed in range(6):
        pattern, order = some_order(small, 3, seed)
        huge = make_pattern(large, 3)
        exact, scaled = exact_period(pattern, order), exact_period(huge, order)
        assert exact is not None
        assert scaled is not None
        assert scaled[0] == exact[0] * factor


def test_repeated_repetends_are_the_same_schedule() -> None:
    """Tests that a repetend repeated for 2 and 3 copies keeps its period and its memory."""
    blocks = make_shape("nnshape", 4)
    pattern, order = some_order(blocks, 1, 1)
    exact = exact_period(pattern, order)
    assert exact is not None
    once = repetend_of_starts(blocks, 1, *exact)
    for copies in (2, 3):
        more = make_pattern(blocks, copies)
        again = exact_period(more, repeated(more, once))
        assert again is not None
        found = repetend_of_starts(blocks, copies, *again)
        assert found.period == once.period
        assert repetend_peaks(blocks, found) == repetend_peaks(blocks, once)


def test_annealing_keeps_memory() -> None:
    """Tests that what a run calls its best is within memory and as fast as it says."""
    stop = np.zeros(1, np.int64)
    for name, devices, memory, best in [("vshape", 4, 4, 4), ("kshape", 4, 3, 6), ("zigzag", 2, 6, 6)]:
        blocks = make_shape(name, devices).with_memory(memory)
        pattern, order = some_order(blocks, 1, 0)
        run = anneal(pattern, order, SETTINGS[1], float(max(blocks.loads)), trials=60_000, seed=3, stop=stop)
        assert run.order is not None
        exact = exact_period(pattern, run.order)
        assert exact is not None
        assert exact[0] == Fraction(best)
        repetend = repetend_of_starts(blocks, 1, *exact)
        assert max(repetend_peaks(blocks, repetend)) <= memory
