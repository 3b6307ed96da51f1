"""Tests of the simulator of schedules."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from weftline.errors import InfeasibleError, UsageError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.simulate import Orders, schedule_violations, simulate_schedule


def rows(blocks: Blocks, *devices: str) -> Orders:
    """`F0.1 B0.0` -> operations: block name, dot, micro-batch."""
    name = {block.name: i for i, block in enumerate(blocks.blocks)}
    split = [[word.split(".") for word in device.split()] for device in devices]
    return tuple(np.array([int(m) * blocks.n + name[b] for b, m in row], np.int64) for row in split)


def slow_starts(blocks: Blocks, orders: Orders, count: int) -> np.ndarray:
    """The same by repeated relaxation, straight from the rules."""
    start = np.zeros(count * blocks.n, np.int64)
    for _ in range(len(start) + 1):
        for m in range(count):
            for a, b, lag in blocks.edges:
                end = start[m * blocks.n + a] + blocks.blocks[a].span + lag
                start[m * blocks.n + b] = max(start[m * blocks.n + b], end)
        for row in orders:
            for a, b in pairwise(row):
                start[b] = max(start[b], start[a] + blocks.blocks[a % blocks.n].span)
    return start


def test_two_stages_by_hand() -> None:
    """Tests start times, bubbles, memory and latency of a schedule that was worked out on paper."""
    blocks = chunked("two", [0, 1], [2, 2], [4, 4], latency=1, memory=(1, 0, -1))
    orders = rows(blocks, "F0.0 F0.1 B0.0 B0.1", "F1.0 B1.0 F1.1 B1.1")
    found = simulate_schedule(blocks, 2, orders)
    at = {f"{blocks.blocks[o % 4].name}.{o // 4}": int(t) for o, t in enumerate(found.start)}
    assert at == {"F0.0": 0, "F0.1": 2, "F1.0": 3, "B1.0": 5, "F1.1": 9, "B0.0": 10, "B1.1": 11, "B0.1": 16}
    assert (found.makespan, found.bubble, found.device_span, found.device_span_bubble) == (20, 8, 20, 8)
    assert found.peak_memory == (2, 1)
    assert found.longest_latency == 18


@pytest.mark.parametrize("name", ["vshape", "xshape", "mshape", "kshape", "nnshape", "zigzag"])
def test_starts_agree_with_relaxation(name: str) -> None:
    """Tests the kernel against plain relaxation of the rules, micro-batch after micro-batch and shuffled in windows."""
    blocks, count = make_shape(name, 4), 3
    random, compared = np.random.default_rng(0), 0
    for trial in range(20):
        key = random.random(count * blocks.n) * trial / 4
        rank = np.argsort(blocks.table.order)
        key += np.tile(rank, count) + blocks.n * np.repeat(np.arange(count), blocks.n)
        orders = tuple(
            np.array(sorted((m * blocks.n + i for m in range(count) for i in on), key=lambda o: key[o]), np.int64)
            for on in [[i for i, b in enumerate(blocks.blocks) if d in b.devices] for d in range(4)]
        )
        try:
            found = simulate_schedule(blocks, count, orders)
        except InfeasibleError:
            continue
        assert found.start.tolist() == slow_starts(blocks, orders, count).tolist()
        compared += 1
    assert compared >= 3


def test_deadlock_is_an_error() -> None:
    """Tests that orders that wait for each other end with an error, not with a loop."""
    blocks = chunked("two", [0, 1], [1, 1], [1, 1])
    with pytest.raises(InfeasibleError, match="deadlock"):
        simulate_schedule(blocks, 1, rows(blocks, "B0.0 F0.0", "F1.0 B1.0"))


def test_orders_must_hold_every_operation_once() -> None:
    """Tests that a missing, doubled or foreign operation is refused."""
    blocks = chunked("two", [0, 1], [1, 1], [1, 1])
    for wrong in ("F0.0", "F0.0 F0.0", "F0.0 B0.0 F1.0"):
        with pytest.raises(UsageError, match="exactly once"):
            simulate_schedule(blocks, 1, rows(blocks, wrong, "F1.0 B1.0"))


def test_memory_and_links() -> None:
    """Tests that memory over the limit is named, and that links have neither limits nor bubbles."""
    lanes = [Lane("a", 1), Lane("a:b", link=True), Lane("b", 5)]
    blocks = Blocks.of(
        "link",
        lanes,
        [Block("F", 3, (0,), (1,), "F"), Block("C", 5, (1,), (0,), "C"), Block("F", 1, (2,), (0,), "G")],
        [(0, 1), (1, 2)],
    )
    found = simulate_schedule(blocks, 2, rows(blocks, "F.0 F.1", "C.0 C.1", "G.0 G.1"))
    assert found.makespan == 14
    assert found.bubbles == (8, 0, 12)
    assert found.device_span == 6
    assert schedule_violations(found) == ("device 'a' needs 2 of 1 memory",)
