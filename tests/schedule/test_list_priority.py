"""Tests of list scheduling: its rules, its kernel, annealing over its parameters."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.list.priority import SCHEDULER, ListRun, ListSearch, one_after_another, usual_rules
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.search import ScheduleSearch
from weftline.simulate import schedule_violations, simulate_schedule
from weftline.testing.schedules import random_blocks


def _solved(blocks: Blocks, count: int, *, device_span: bool = False) -> ScheduleSearch:
    search = ScheduleSearch(blocks, count, work_limit=50, device_span=device_span)
    search.run(SCHEDULER)
    return search


@pytest.mark.parametrize(
    ("shape", "devices", "memory", "count", "makespan", "bubble"),
    [
        ("linear", 4, 8, 8, 27, 3),
        ("linear", 4, 8, 16, 51, 3),
        ("linear", 8, 16, 32, 103, 7),
        ("linear", 4, 14, 8, 27, 0),
        ("linear", 8, 30, 32, 103, 0),
        ("zigzag", 4, 16, 8, 51, 0),
        ("zigzag", 4, 16, 16, 99, 0),
        ("zigzag", 8, 32, 32, 199, 0),
    ],
)
def test_reaches_the_zero_bubble_schedules(
    shape: str, devices: int, memory: int, count: int, makespan: int, bubble: int
) -> None:
    """Tests ZB-H1, ZB-H2 and ZB-V with equal times: makespan and device-span bubble."""
    best = _solved(make_shape(shape, devices).with_memory(memory), count).best
    assert best is not None
    assert (best.makespan, best.device_span_bubble) == (makespan, bubble)


@pytest.mark.parametrize(
    ("shape", "memory", "most"), [("vshape", 3, 180), ("mshape", 6, 204), ("kshape", 6, 196), ("xshape", 4, 265)]
)
def test_blocks_on_several_devices_do_not_starve(shape: str, memory: int, most: int) -> None:
    """Tests that devices keep themselves free for blocks on all devices."""
    best = _solved(make_shape(shape, 4).with_memory(memory), 32).best
    assert best is not None
    assert best.makespan <= most


@pytest.mark.parametrize("memory", [4, 5, 6, 7, 9])
def test_ends_wherever_one_after_another_fits(memory: int) -> None:
    """Tests that tight memory never stops it where one micro-batch after another fits."""
    blocks = chunked("V", [0, 1, 1, 0], [3, 2, 3, 2], [4, 3, 2, 3], [1, 2, 2, 1]).with_memory(memory)
    best = _solved(blocks, 6).best
    assert best is not None
    assert not schedule_violations(best)


def test_bankers_reserve_never_blocks() -> None:
    """Tests that the banker's rule ends on random blocks wherever one micro-batch after another fits."""
    tried = 0
    for seed in range(300):
        blocks, count = random_blocks(seed, max_blocks=6, tight=True), 1 + seed % 4
        if schedule_violations(simulate_schedule(blocks, count, one_after_another(blocks, count))):
            continue
        usual = usual_rules(blocks, count)
        banker = usual._replace(banker=True, reserve=np.zeros_like(usual.reserve))
        run = ListRun(blocks, count)
        assert run.run(banker) > 0, seed
        assert not schedule_violations(simulate_schedule(blocks, count, run.orders())), seed
        tried += 1
    assert tried >= 100


def test_times_of_the_kernel_are_those_of_the_simulator() -> None:
    """Tests that without waits the kernel's makespan and device span are what the simulator says."""
    for seed in range(200):
        blocks, count = random_blocks(seed, max_blocks=6), 1 + seed % 5
        run = ListRun(blocks, count)
        makespan = run.run(usual_rules(blocks, count))
        if makespan >= 0:
            timetable = simulate_schedule(blocks, count, run.orders())
            assert (timetable.makespan, timetable.device_span) == (makespan, run.span()), seed


def test_nothing_fits() -> None:
    """Tests that an answer is refused where one block alone needs too much memory."""
    blocks = Blocks.of("large", [Lane("0", 3)], [Block("F", 1, (0,), (4,))], [])
    with pytest.raises(InfeasibleError, match="memory"):
        _solved(blocks, 2)


def test_annealed_rules_are_better() -> None:
    """Tests that annealing over the parameters improves the usual rules, the same way for the same seed."""
    spans = [101, 93, 110, 97, 88, 105, 99, 95]
    blocks = chunked("V", [0, 1, 2, 3, 3, 2, 1, 0], spans, spans[::-1], [s - 20 for s in spans], latency=5)
    search = ScheduleSearch(blocks.with_memory(12), 16)
    results = []
    for _ in range(2):
        lists = ListSearch(search, 1)
        lists.begin()
        before = lists.best
        orders = lists.run()
        assert orders is not None
        assert before is not None
        assert lists.best is not None
        assert lists.best[0] < before[0]
        assert simulate_schedule(search.blocks, 16, orders).makespan <= lists.best[0]
        results.append(lists.best)
    assert results[0] == results[1]
