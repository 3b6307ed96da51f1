"""Tests of the time-optimal search over all operations, and of inference at a given rate."""

from __future__ import annotations

import pytest

from weftline.ask.scheduling import make_schedule
from weftline.errors import InfeasibleError
from weftline.schedule.bounds.makespan import makespan_bound
from weftline.schedule.cp_sat import FULL, FullParameters
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.search import ScheduleSearch
from weftline.testing.schedules import optimum, random_blocks, schedule_search


@pytest.mark.parametrize("first", range(0, 120, 30))
def test_equals_brute_force(first: int) -> None:
    """Tests that value and bound are the optimum on tiny cases, and that `infeasible` is proved where it is true."""
    for seed in range(first, first + 30):
        blocks = random_blocks(seed, max_blocks=4, tight=True if seed % 2 else None)
        count = min(1 + seed % 3, 8 // blocks.n)
        least = optimum(blocks, count)
        search, error = schedule_search(FULL, blocks, count)
        if least is None:
            assert error is not None, seed
            assert error.proved, seed
        else:
            assert search.best is not None, seed
            assert search.best.makespan == search.bound == least, seed


def test_device_span_is_at_most_that_of_brute_force() -> None:
    """Tests that the bound of the device span is valid and the value nearly always the optimum."""
    met = total = 0
    for seed in range(40):
        blocks = random_blocks(seed, max_blocks=4)
        count = min(2, 8 // blocks.n)
        least = optimum(blocks, count, device_span=True)
        search = schedule_search(FULL, blocks, count, device_span=True)[0]
        if least is not None and search.best is not None:
            assert search.bound is not None
            assert search.bound <= least <= search.best.device_span
            total, met = total + 1, met + (search.best.device_span == least)
    assert met >= 0.95 * total


@pytest.mark.parametrize(("shape", "devices", "memory", "least"), [("mshape", 3, 2, 30), ("kshape", 4, 2, 26)])
def test_proves_what_the_general_bound_cannot(shape: str, devices: int, memory: int, least: int) -> None:
    """Tests three micro-batches with tight memory, where the general bound is below the optimum."""
    blocks = make_shape(shape, devices).with_memory(memory)
    search = ScheduleSearch(blocks, 3, work_limit=100)
    search.run(FULL)
    assert search.best is not None
    assert makespan_bound(blocks, 3)[0] < least
    assert search.best.makespan == search.bound == least


def test_large_cases_are_left_to_others() -> None:
    """Tests that above the limit there is a list schedule and the general bound, or a sentence that says why not."""
    blocks = make_shape("linear", 4).with_memory(8)
    count = FullParameters().most_operations // blocks.n + 1
    search = ScheduleSearch(blocks, count, work_limit=100)
    search.run(FULL)
    assert search.best is not None
    assert search.bound is not None
    assert search.bound <= search.best.makespan
    with pytest.raises(InfeasibleError, match="at most 400 operations"):
        ScheduleSearch(blocks.with_memory(1), count, work_limit=100).run(FULL)


def test_a_pipeline_with_room_has_no_waiting() -> None:
    """Tests that requests at the greatest rate pass a plain pipeline in the time of its longest chain."""
    found = make_schedule(make_shape("vshape", 4, train=False), 6, arrivals=1, time_limit=5)
    assert (found.objective, found.latency, found.bound, found.period) == ("latency", 4, 4, 1)


def test_latency_depends_on_the_rate() -> None:
    """Tests a device that serves twice, worked out on paper: visits collide modulo 5, need a wait at 4, none at 9."""
    blocks = chunked("round", [0, 1, 0], [2, 3, 2], [1] * 3, train=False)
    latencies = [make_schedule(blocks, 8, arrivals=period, time_limit=5).latency for period in (4, 5, 9)]
    assert latencies == [8, 9, 7]


def test_too_many_requests_are_infeasible() -> None:
    """Tests that a rate above what a device can serve names the device."""
    with pytest.raises(InfeasibleError, match="requests come every 1"):
        make_schedule(make_shape("mshape", 4, train=False), 6, arrivals=1)
