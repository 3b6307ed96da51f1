"""Tests of cyclic scheduling in CP-SAT against brute force over starts."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.cyclic.cyclic import cyclic_starts, most_repetitions
from weftline.schedule.cyclic.exact import exact_period
from weftline.schedule.cyclic.order import make_pattern, order_of_starts
from weftline.schedule.make_blocks import make_shape
from weftline.schedule.repetend import repetend_of_starts, repetend_peaks
from weftline.testing.schedules import random_blocks


def is_possible(blocks: Blocks, length: int, turns: int = 3) -> bool:
    """Whether whole starts within some turns keep edges, devices and memory."""
    limits = blocks.table.limit.tolist()
    for starts in product(range(turns * length), repeat=blocks.n):
        if any(starts[b] - starts[a] < blocks.blocks[a].span + lag for a, b, lag in blocks.edges):
            continue
        busy: set[tuple[int, int]] = set()
        cells = [
            (d, (start + t) % length)
            for start, block in zip(starts, blocks.blocks, strict=True)
            for d in block.devices
            for t in range(block.span)
        ]
        busy.update(cells)
        if len(busy) < len(cells):
            continue
        pattern = repetend_of_starts(blocks, 1, Fraction(length), [Fraction(s) for s in starts])
        if all(peak <= limit for peak, limit in zip(repetend_peaks(blocks, pattern), limits, strict=True)):
            return True
    return False


@pytest.mark.parametrize("seed", range(30))
def test_answers_are_those_of_brute_force(seed: int) -> None:
    """Tests feasibility of short lengths on tiny random blocks: same answer, and starts that are what they claim."""
    blocks = random_blocks(seed, max_blocks=3, max_devices=2)
    if not blocks.balanced:
        blocks = blocks.with_memory(10**6)
        blocks = Blocks.of(
            "free",
            blocks.devices,
            [Block(b.kind, b.span, b.devices, (0,) * len(b.devices), b.name, b.stage) for b in blocks.blocks],
            blocks.edges,
        )
    load = max(blocks.loads)
    pattern = make_pattern(blocks, 1)
    for length in range(max(1, load - 1), load + 3):
        answer = cyclic_starts(blocks, pattern, Fraction(length))
        possible = length >= load and is_possible(blocks, length)
        assert (answer.starts is not None) == possible
        assert answer.refuted == (not possible)
        if answer.starts is not None:
            exact = exact_period(pattern, order_of_starts(pattern, answer.starts, Fraction(length)))
            assert exact is not None
            assert exact[0] <= length


@pytest.mark.parametrize(
    ("name", "memory", "copies", "least"),
    [("vshape", 3, 1, 8), ("vshape", 3, 2, 12), ("mshape", 4, 1, 7), ("finetune", 4, 1, 5)],
)
def test_known_least_lengths(name: str, memory: int, copies: int, least: int) -> None:
    """Tests lengths that are known to be the least: possible there, refuted one below."""
    blocks = make_shape(name, 4).with_memory(memory)
    pattern = make_pattern(blocks, copies)
    assert cyclic_starts(blocks, pattern, Fraction(least)).starts is not None
    assert cyclic_starts(blocks, pattern, Fraction(least - 1)).refuted


def test_no_refutation_where_micro_batches_free_memory() -> None:
    """Tests that turns are not called enough when part of a micro-batch gives back before it takes."""
    blocks = Blocks.of(
        "backwards", [Lane("d", 0)], [Block("F", 1, (0,), (-1,)), Block("B", 1, (0,), (1,))], [(0, 1, 0)]
    )
    answer = cyclic_starts(blocks, make_pattern(blocks, 1), Fraction(1))
    assert answer.starts is None
    assert not answer.refuted


def test_repetitions_of_a_cycle() -> None:
    """Tests the limit of denominators: all work and latency, in units of the bound."""
    blocks = make_shape("vshape", 4)
    assert most_repetitions(make_pattern(blocks, 1), Fraction(4)) == 4
    assert most_repetitions(make_pattern(blocks, 2), Fraction(8)) == 4
