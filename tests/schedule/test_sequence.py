"""Tests of annealing over explicit sequences."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.list.priority import one_after_another
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.sequence.sequence import SCHEDULER, improve
from weftline.schedule.sequence.sequences import Sequences, in_order_of_numbers
from weftline.simulate import schedule_violations, simulate_schedule
from weftline.testing.schedules import optimum, random_blocks, schedule_search

STOP = np.zeros(1, np.int64)


@pytest.mark.parametrize("by_span", [False, True])
def test_state_stays_what_the_simulator_says(by_span: bool) -> None:
    """Tests that starts, value and memory of the annealed state are those of its orders, on blocks of every kind."""
    moved = 0
    for seed in range(200):
        blocks, count = random_blocks(seed, max_blocks=6, max_devices=4), 1 + seed % 5
        first = one_after_another(blocks, count)
        if schedule_violations(simulate_schedule(blocks, count, first)):
            continue
        sequences = Sequences(blocks, count, seed, by_span=by_span)
        sequences.load(first)
        for _ in range(3):
            sequences.run(150, 3.0, 0.3, 0, STOP)
            orders, starts = sequences.current()
            now = simulate_schedule(blocks, count, orders)
            assert np.array_equal(now.start, starts), seed
            assert sequences.value == (now.device_span if by_span else now.makespan), seed
            assert not schedule_violations(now), seed
        best = simulate_schedule(blocks, count, sequences.orders())
        rank = (best.makespan, best.device_span)
        assert sequences.best_rank == (rank[::-1] if by_span else rank), seed
        moved += not all(np.array_equal(a, b) for a, b in zip(first, orders, strict=True))
    assert moved >= 60


def test_micro_batches_of_a_block_stay_in_order() -> None:
    """Tests that no move changes the order of the micro-batches of one block (what torch needs on the last stage)."""
    blocks = make_shape("zigzag", 3).with_memory(9)
    sequences = Sequences(blocks, 6, 0)
    sequences.load(one_after_another(blocks, 6))
    sequences.run(20_000, 2.0, 0.1, 0, STOP)
    for order in sequences.orders():
        for block in range(blocks.n):
            mine = order[order % blocks.n == block] // blocks.n
            assert np.array_equal(mine, np.sort(mine))


def test_renumbering_keeps_times() -> None:
    """Tests that orders of any numbering cost the same when micro-batches are renumbered."""
    blocks = make_shape("mshape", 3)
    random = np.random.default_rng(0)
    for _ in range(20):
        new = random.permutation(5)
        orders = tuple(new[order // blocks.n] * blocks.n + order % blocks.n for order in one_after_another(blocks, 5))
        sorted_orders = in_order_of_numbers(blocks, 5, orders)
        before, after = simulate_schedule(blocks, 5, orders), simulate_schedule(blocks, 5, sorted_orders)
        assert (before.makespan, before.peak_memory) == (after.makespan, after.peak_memory)


def test_reaches_the_optimum_of_tiny_cases() -> None:
    """Tests against brute force: nearly always optimal, never better."""
    met = total = 0
    for seed in range(60):
        blocks = random_blocks(seed, max_blocks=4)
        count = min(2, 8 // blocks.n)
        least = optimum(blocks, count)
        best = schedule_search(SCHEDULER, blocks, count)[0].best
        if least is not None and best is not None:
            assert best.makespan >= least
            total, met = total + 1, met + (best.makespan == least)
    assert total >= 45
    assert met >= total - 1


@pytest.mark.parametrize("device_span", [False, True])
def test_improves_a_start(device_span: bool) -> None:
    """Tests that `improve` makes a poor start much better, and that a seed repeats it exactly."""
    spans = [101, 93, 110, 97]
    blocks = chunked("L", range(4), spans, spans[::-1], [80, 85, 77, 90], latency=5).with_memory(8)
    start = one_after_another(blocks, 8)
    found = []
    for _ in range(2):
        search = ScheduleSearch(blocks, 8, work_limit=10, seed=3, device_span=device_span)
        first = search.offer(start)
        improve(search, start, None)
        assert search.best is not None
        assert first is not None
        assert search.value(search.best) < 0.6 * first
        found.append([order.tolist() for order in search.best.orders])
    assert found[0] == found[1]


def test_a_start_beyond_memory_is_left_alone() -> None:
    """Tests that nothing is offered from a start that breaks memory."""
    blocks = make_shape("vshape", 2).with_memory(0)
    search = ScheduleSearch(blocks, 2, work_limit=10)
    improve(search, one_after_another(blocks, 2), None)
    assert search.offered == 0


def test_a_single_operation() -> None:
    """Tests one block and one micro-batch: no moves, no crash."""
    blocks = Blocks.of("one", [Lane("0"), Lane("1")], [Block("F", 7, (1,), (0,))], [])
    search = ScheduleSearch(blocks, 1, work_limit=5)
    search.run(SCHEDULER)
    assert search.best is not None
    assert search.best.makespan == search.bound == 7


def test_zero_bubble_v_with_unequal_times() -> None:
    """Tests (10, 11, 8) on four devices there and back: at most what ZB-V needs (its device-span bubble is 18)."""
    blocks = chunked("V", [0, 1, 2, 3, 3, 2, 1, 0], [10] * 8, [11] * 8, [8] * 8).with_memory(16)
    search = ScheduleSearch(blocks, 8, work_limit=40)
    search.run(SCHEDULER)
    assert search.best is not None
    assert search.best.device_span_bubble <= 18
