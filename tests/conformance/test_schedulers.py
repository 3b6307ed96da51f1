"""Every scheduler through the one conformance suite."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from weftline.problem.blocks import Blocks
from weftline.schedule import schedulers
from weftline.testing.schedules import block_dags, check_scheduler, optimum, random_blocks
from weftline.testing.strategies import patient

COUNT, TINY = 200, 140
"""Random block DAGs, shared by all schedulers; the first of them are tiny: brute force knows their optimum."""
EVERY = {"tessel-lazy": 10, "tessel-fast": 10, "auto": 12, "cyclic": 4}
"""Slow methods take every so-manieth; which one differs from method to method."""


@cache
def _cases() -> list[tuple[Blocks, int]]:
    found = []
    for seed in range(COUNT):
        is_tiny = seed < TINY
        blocks = random_blocks(
            seed, max_blocks=4 if is_tiny else 8, max_devices=3 if is_tiny else 4, tight=True if seed % 3 == 0 else None
        )
        if seed % 4 == 1:
            blocks = _with_reserved(blocks, seed)
        found.append((blocks, min(1 + seed % 3, 8 // blocks.n) if is_tiny else 1 + seed % 6))
    return found


def _with_reserved(blocks: Blocks, seed: int) -> Blocks:
    """The same question: every device has as much more memory as is reserved there."""
    lanes = [
        lane if lane.link else replace(lane, memory=lane.memory + more, reserved=more)
        for lane, more in zip(blocks.devices, ((seed + d) % 4 for d in range(len(blocks.devices))), strict=True)
    ]
    return Blocks.of(blocks.name, lanes, blocks.blocks, blocks.edges)


@pytest.mark.parametrize("name", schedulers())
def test_conforms(name: str) -> None:
    """Tests limits, precedence, value, bound, optimum, seed and stop rules on random blocks of every kind."""
    step = EVERY.get(name, 1)
    for number, (blocks, count) in enumerate(_cases()):
        if number % step == len(name) % step:
            check_scheduler(
                schedulers()[name],
                blocks,
                count,
                device_span=number % 5 == 4,
                tiny=number < TINY,
                same_seed=number % 8 == len(name) % 8,
            )


@pytest.mark.parametrize("name", ["list", "sequence"])
@patient
@given(blocks=block_dags(max_blocks=6, max_devices=4), count=st.integers(1, 5))
def test_drawn_blocks(name: str, blocks: Blocks, count: int) -> None:
    """Tests the same on blocks that hypothesis draws, and can make smaller when they fail."""
    check_scheduler(schedulers()[name], blocks, count, same_seed=False)


def test_cases_hold_what_they_are_for() -> None:
    """Tests that the random blocks have every option, and that some have no order within memory."""
    cases = _cases()
    assert sum(optimum(blocks, count) is None for blocks, count in cases[:TINY]) >= 8
    assert sum(any(len(b.devices) > 1 for b in blocks.blocks) for blocks, _ in cases) >= 30
    assert sum(any(lane.link for lane in blocks.devices) for blocks, _ in cases) >= 20
    assert sum(any(lane.reserved for lane in blocks.devices) for blocks, _ in cases) >= 40
    assert sum(not blocks.balanced for blocks, _ in cases) >= 20
    assert sum(any(lag for _, _, lag in blocks.edges) for blocks, _ in cases) >= 60
    assert sum(count == 1 for _, count in cases) >= 30
    assert sum(not blocks.edges and blocks.n > 1 for blocks, _ in cases) >= 5
