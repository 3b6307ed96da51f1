"""Tests of exact periods: of cyclic orders against long unrolled schedules, of linear pipelines against CP-SAT."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import numpy as np
import pytest

from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.bounds.period import period_bound
from weftline.schedule.cyclic.anneal import SETTINGS, anneal
from weftline.schedule.cyclic.cyclic import cyclic_starts, most_repetitions
from weftline.schedule.cyclic.exact import exact_period, fraction_below, least_linear_period, linear_pipeline
from weftline.schedule.cyclic.order import CyclicOrder, CyclicPattern, make_pattern, order_of_starts, repeated
from weftline.schedule.cyclic.starts import compaction, modulo_placement
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.repetend import repetend_of_starts, repetend_peaks, unroll
from weftline.simulate import simulate_schedule
from weftline.testing.schedules import random_blocks

CASES = [("vshape", 3), ("kshape", 4), ("nnshape", 2), ("xshape", 2), ("zigzag", 2), ("finetune", 3)]


def some_order(blocks: Blocks, copies: int, seed: int) -> tuple[CyclicPattern, CyclicOrder]:
    random, length = Random(seed), max(blocks.loads) * copies
    make = compaction if seed % 2 else modulo_placement
    pattern = make_pattern(blocks, copies)
    return pattern, order_of_starts(pattern, make(blocks, copies, length, random), length)


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


def random_pipeline(seed: int) -> Blocks:
    random = Random(seed)
    p = random.randint(1, 4)
    spans = [[random.randint(1, 6) for _ in range(p)] for _ in range(3)]
    whole = random.random() < 0.3
    blocks = chunked(
        "p", range(p), spans[0], spans[1], None if whole else spans[2], latency=random.choice((0, 0, 1, 2))
    )
    return blocks.with_memory([random.randint(max(2, p), 2 * p + 1) for _ in range(p)])


@pytest.mark.parametrize("seed", range(30))
def test_least_period_is_proved_by_cp_sat(seed: int) -> None:
    """Tests that the repetend keeps memory, and that CP-SAT refutes the next smaller ratio of all cycles."""
    blocks = random_pipeline(seed)
    pipeline = linear_pipeline(blocks)
    assert pipeline is not None
    bound = period_bound(blocks)[0]
    found = least_linear_period(pipeline, bound)
    assert found is not None
    peaks = zip(repetend_peaks(blocks, found), blocks.devices, strict=True)
    assert all(peak <= lane.memory for peak, lane in peaks)
    pattern = make_pattern(blocks, 1)
    below = fraction_below(found.length, most_repetitions(pattern, bound))
    assert below < bound or cyclic_starts(blocks, pattern, below).refuted


@pytest.mark.parametrize(("memory", "least"), [(4, 4), (3, 8), (2, 8), (1, 16)])
def test_known_periods(memory: int, least: int) -> None:
    """Tests the published periods of a plain pipeline of 4 stages."""
    blocks = make_shape("vshape", 4).with_memory(memory)
    pipeline = linear_pipeline(blocks)
    assert pipeline is not None
    found = least_linear_period(pipeline, period_bound(blocks)[0])
    assert found is not None
    assert found.period == least


def test_too_little_memory_has_no_period() -> None:
    """Tests that memory for less than one micro-batch is an answer, not a loop."""
    blocks = make_shape("linear", 3).with_memory(1)
    pipeline = linear_pipeline(blocks)
    assert pipeline is not None
    assert least_linear_period(pipeline, period_bound(blocks)[0]) is None


def test_only_linear_pipelines_are_recognised() -> None:
    """Tests shapes that look alike: several chunks, blocks on all devices, no backward pass, links, another edge."""
    for name in ("zigzag", "xshape", "mshape", "kshape", "interleaved", "alphafold", "finetune"):
        assert linear_pipeline(make_shape(name, 4)) is None
    assert linear_pipeline(make_shape("linear", 4, train=False)) is None
    linear = make_shape("linear", 4)
    assert linear_pipeline(linear) is not None
    names = {block.name: i for i, block in enumerate(linear.blocks)}
    for extra in ((names["W3"], names["B2"], 0), (names["F0"], names["F2"], 0), (names["F1"], names["B1"], 9)):
        assert linear_pipeline(Blocks.of("x", linear.devices, linear.blocks, [*linear.edges, extra])) is None
    lanes = [*linear.devices[:3], Lane("3", link=True)]
    blocks = [replace(block, memory=(0,)) if 3 in block.devices else block for block in linear.blocks]
    assert linear_pipeline(Blocks.of("x", lanes, blocks, linear.edges)) is None


def test_names_and_numbers_do_not_matter() -> None:
    """Tests that a pipeline is recognised with its blocks shuffled, its kinds unknown and a device unused."""
    random, linear = Random(5), make_shape("linear", 3).with_memory(6)
    place = list(range(linear.n))
    random.shuffle(place)
    blocks = [Block("F", 1, (0,), (0,))] * linear.n
    for i, block in enumerate(linear.blocks):
        blocks[place[i]] = Block("F", block.span, (block.devices[0] + 1,), block.memory)
    edges = [(place[a], place[b], lag) for a, b, lag in linear.edges]
    shuffled = Blocks.of("s", [Lane("unused"), *linear.devices], blocks, edges)
    found = linear_pipeline(shuffled)
    assert found is not None
    least = least_linear_period(found, period_bound(shuffled)[0])
    assert least is not None
    assert least.period == 3


def test_fractions_below() -> None:
    """Tests the next smaller fraction with a limited denominator."""
    assert fraction_below(Fraction(8), 1) == 7
    assert fraction_below(Fraction(8), 3) == Fraction(23, 3)
    assert fraction_below(Fraction(16, 3), 3) == 5
    assert fraction_below(Fraction(16, 3), 4) == Fraction(21, 4)
