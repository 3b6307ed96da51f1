"""Tests of the lower bounds of the period."""

from __future__ import annotations

from fractions import Fraction

import pytest

from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.bounds.period import gives_back_later, period_bound
from weftline.schedule.cyclic.cyclic import cyclic_starts
from weftline.schedule.cyclic.exact import fraction_below
from weftline.schedule.cyclic.order import make_pattern
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.testing.schedules import random_blocks


@pytest.mark.parametrize(
    ("memory", "least"), [(4, Fraction(4)), (3, Fraction(16, 3)), (2, Fraction(8)), (1, Fraction(16))]
)
def test_plain_pipelines(memory: int, least: Fraction) -> None:
    """Tests the memory bound of 4 stages: it is reached by patterns of 1 or 3 micro-batches."""
    bound, by = period_bound(make_shape("vshape", 4).with_memory(memory))
    assert bound == least
    assert by.startswith("load" if memory == 4 else "memory")


@pytest.mark.parametrize("copies", [1, 2])
@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_faster(seed: int, copies: int) -> None:
    """Tests that CP-SAT refutes periods just below the bound, for repetends of one and two micro-batches."""
    blocks = random_blocks(seed, max_blocks=4, tight=True)
    if not blocks.balanced:
        return
    bound, _ = period_bound(blocks)
    below = fraction_below(bound * copies, 3)
    answer = cyclic_starts(blocks, make_pattern(blocks, copies), below, seconds=5)
    assert answer.starts is None


def test_what_stays_empty_counts() -> None:
    """Tests by hand: F 2, B 1, W 1 on one device with room for one micro-batch: it must run alone, with no overlap."""
    blocks = chunked("one", [0], [2], [1], [1]).with_memory(2)
    # held: 2 + 1 after B has begun = 2*2 + 1*1; empty: 1 while B runs, 2 while W (the block before F) runs
    assert period_bound(blocks)[0] == Fraction(2 * 2 + 1 + 1 + 2, 2) == 4


def test_latency_and_several_devices_count() -> None:
    """Tests that a tensor-parallel block holds memory on all its devices for the longest path, with latency."""
    blocks = Blocks.of(
        "two",
        [Lane("a", 1), Lane("b", 5)],
        [Block("F", 1, (0, 1), (1, 1)), Block("B", 1, (1,), (-1,)), Block("W", 1, (0,), (-1,))],
        [(0, 1, 3), (1, 2, 4)],
    )
    # on device a: 9 from the start of F to that of W, and 1 empty while W runs
    assert period_bound(blocks) == (Fraction(10), "memory of device a")


def test_large_numbers_do_not_overflow() -> None:
    """Tests nanoseconds and bytes as large as they may be: the bound scales exactly."""
    small = chunked("s", [0, 1, 1, 0], [1, 2, 3, 1], [2, 1, 1, 2], [1, 1, 2, 2]).with_memory(5)
    factor, unit = 2**40 + 1, 2**40 + 3
    large = Blocks.of(
        "l",
        [Lane(d.id, d.memory * unit) for d in small.devices],
        [
            Block(b.kind, b.span * factor, b.devices, tuple(m * unit for m in b.memory), b.name, b.stage)
            for b in small.blocks
        ],
        small.edges,
    )
    assert period_bound(large)[0] == period_bound(small)[0] * factor


def test_unbalanced_and_unlimited_memory_leave_the_load() -> None:
    """Tests that memory says nothing where it is unlimited, or where micro-batches keep some."""
    assert period_bound(make_shape("zigzag", 4))[1].startswith("load")
    kept = Blocks.of("kept", [Lane("a", 3)], [Block("F", 2, (0,), (1,))], [])
    assert period_bound(kept) == (Fraction(2), "load of device a")


def test_who_gives_back_later() -> None:
    """Tests that what is given back must have been taken on a path before."""
    assert all(gives_back_later(make_shape("kshape", 4), device) for device in range(4))
    free = [Block("F", 1, (0,), (1,)), Block("B", 1, (0,), (-1,))]
    assert not gives_back_later(Blocks.of("free", [Lane("a", 3)], free, []), 0)
