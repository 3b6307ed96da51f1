"""Tests of the exact period of linear pipelines against CP-SAT."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from random import Random

import pytest

from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.bounds.period import period_bound
from weftline.schedule.cyclic.cyclic import cyclic_starts, most_repetitions
from weftline.schedule.cyclic.exact import fraction_below, least_linear_period, linear_pipeline
from weftline.schedule.cyclic.order import make_pattern
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.repetend import repetend_peaks


def random_pipeline(seed: int) -> Blocks:
    dice = Random(seed)
    p = dice.randint(1, 4)
    spans = [[dice.randint(1, 6) for _ in range(p)] for _ in range(3)]
    whole = dice.random() < 0.3
    blocks = chunked("p", range(p), spans[0], spans[1], None if whole else spans[2], latency=dice.choice((0, 0, 1, 2)))
    return blocks.with_memory([dice.randint(max(2, p), 2 * p + 1) for _ in range(p)])


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
    dice, linear = Random(5), make_shape("linear", 3).with_memory(6)
    place = list(range(linear.n))
    dice.shuffle(place)
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
