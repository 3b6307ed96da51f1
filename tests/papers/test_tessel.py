"""Tests of Tessel's own algorithms: the published periods, limits, and what they refuse."""

from __future__ import annotations

from itertools import product
from math import comb

import pytest

from weftline.errors import InfeasibleError, MissingExtra
from weftline.papers.tessel import z3 as tessel_z3
from weftline.papers.tessel.tessel import (
    SCHEDULER_FAST,
    SCHEDULER_LAZY,
    backward_indices,
    compact,
    index_vectors,
    lazy_search,
)
from weftline.papers.tessel.z3 import cooldown, held_memory, warmup
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.search import Scheduler, ScheduleSearch


def test_index_vectors() -> None:
    """Tests that all vectors of cut points come, each with every index, none growing along an edge."""
    blocks = make_shape("kshape", 4)
    vectors = list(index_vectors(blocks, 3))
    assert len(set(vectors)) == len(vectors) == comb(blocks.n - 1, 2)
    for vector in vectors:
        assert set(vector) == {0, 1, 2}
        assert all(vector[source] >= vector[target] for source, target, _ in blocks.edges)
    assert list(index_vectors(make_shape("mshape", 4, train=False), 6)) == []


@pytest.mark.parametrize(
    ("shape", "count", "memory", "period", "makespan"),
    [
        ("vshape", 4, 4, 4, 149),
        ("vshape", 4, 3, 8, 262),
        ("vshape", 2, 2, 8, 264),
        ("vshape", 1, 1, 16, 512),
        ("xshape", 3, 4, 8, 270),
        ("kshape", 3, 6, 6, 199),
        ("finetune", 4, 4, 5, 170),
    ],
)
def test_lazy_reaches_the_published_rows(shape: str, count: int, memory: int, period: int, makespan: int) -> None:
    """Tests that the lazy search has the published period, and no longer a schedule of 32 micro-batches."""
    search = ScheduleSearch(make_shape(shape, 4).with_memory(memory), 32)
    found = lazy_search(search, [count])
    assert found is not None
    assert found.period == period
    assert search.best is not None
    assert search.best.makespan <= makespan


@pytest.mark.parametrize(("shape", "count", "period"), [("vshape", 4, 1), ("xshape", 3, 2), ("kshape", 2, 2)])
def test_lazy_for_inference(shape: str, count: int, period: int) -> None:
    """Tests the published periods of inference."""
    search = ScheduleSearch(make_shape(shape, 4, train=False), 32)
    found = lazy_search(search, [count])
    assert found is not None
    assert found.period == period


@pytest.mark.parametrize("memory", [1, 2])
def test_lazy_equals_brute_force(memory: int) -> None:
    """Tests the least period of two devices against all starts of all vectors with at most two indices."""
    blocks = make_shape("vshape", 2).with_memory(memory)
    search = ScheduleSearch(blocks, 8)
    found = lazy_search(search, [1, 2])
    assert found is not None
    assert found.period == brute_force(blocks, [1, 2])


def brute_force(blocks: Blocks, counts: list[int]) -> int:
    best = 10**9
    for count in counts:
        for index in index_vectors(blocks, count):
            for start in product(range(9), repeat=blocks.n):
                best = min(best, period_of(blocks, index, start))
    return best


def period_of(blocks: Blocks, index: tuple[int, ...], start: tuple[int, ...]) -> int:
    """The least period of these starts, or a large number if they break something."""
    end = [s + b.span for s, b in zip(start, blocks.blocks, strict=True)]
    period, held = 1, held_memory(blocks, index)
    for device, lane in enumerate(blocks.devices):
        mine = sorted((i for i, b in enumerate(blocks.blocks) if device in b.devices), key=lambda i: start[i])
        level = held[device]
        for k, i in enumerate(mine):
            level += blocks.blocks[i].memory[0]
            if level > lane.memory or (k and start[i] < end[mine[k - 1]]):
                return 10**9
        period = max(period, end[mine[-1]] - start[mine[0]])
    for source, target, _ in blocks.edges:
        back = index[source] - index[target]
        if not back and start[target] < end[source]:
            return 10**9
        if back:
            period = max(period, -(-(end[source] - start[target]) // back))
    return period


@pytest.mark.parametrize("shape", ["vshape", "xshape", "kshape", "mshape", "nnshape", "mllm", "finetune"])
def test_fast_reaches_the_load(shape: str) -> None:
    """Tests that compaction has the published period, which is the load, where memory does not matter."""
    blocks = make_shape(shape, 4).with_memory(20)
    search = ScheduleSearch(blocks, 32)
    SCHEDULER_FAST.solve(search)
    assert search.repetend is not None
    assert search.repetend.period == max(blocks.loads)


def test_compaction_and_indices() -> None:
    """Tests that compacted blocks do not overlap, and that indices keep every edge at the period."""
    for shape in ("mshape", "kshape", "alphafold"):
        blocks = make_shape(shape, 6)
        start = compact(blocks)
        period = max(s + b.span for s, b in zip(start, blocks.blocks, strict=True))
        assert period == max(blocks.loads)
        index = backward_indices(blocks, start, period)
        for source, target, lag in blocks.edges:
            back = index[source] - index[target]
            assert start[target] + back * period >= start[source] + blocks.blocks[source].span + lag


def test_fast_does_not_repair_memory() -> None:
    """Tests that what compaction needs is refused afterwards, with the limit as reason."""
    with pytest.raises(InfeasibleError, match="does not fit"):
        SCHEDULER_FAST.solve(ScheduleSearch(make_shape("vshape", 4).with_memory(1), 8))


def test_phases_hold_every_operation_once() -> None:
    """Tests that warmup, one repetend and cooldown are all operations of as many micro-batches as indices."""
    index = [2, 1, 1, 0]
    once = list(enumerate(index))
    assert sorted(warmup(index) + once + cooldown(index)) == list(product(range(4), range(3)))


@pytest.mark.parametrize("scheduler", [SCHEDULER_LAZY, SCHEDULER_FAST], ids=lambda s: s.name)
def test_limits_and_odd_inputs(scheduler: Scheduler) -> None:
    """Tests one micro-batch, latency, links, an own limit per device, no time, and memory that is not taken back."""
    search = ScheduleSearch(make_shape("kshape", 4).with_memory(6), 1)
    scheduler.solve(search)
    assert search.best is not None
    late = chunked("late", [0, 1], [2, 3], [3, 5], latency=2).with_memory([8, 6])
    search = ScheduleSearch(late, 6)
    scheduler.solve(search)
    assert search.best is not None
    assert all(peak <= lane.memory for peak, lane in zip(search.best.peak_memory, late.devices, strict=True))
    lanes = [Lane("0", 3), Lane("1", 3), Lane("link", link=True)]
    row = [
        Block("F", 2, (0,), (1,)),
        Block("C", 1, (2,), (0,)),
        Block("F", 2, (1,), (0,)),
        Block("F", 1, (0, 1), (0, 0)),
    ]
    search = ScheduleSearch(Blocks.of("links", lanes, row[:3], [(0, 1), (1, 2)]), 5)
    with pytest.raises(InfeasibleError, match="take back"):
        scheduler.solve(search)
    row[0] = Block("F", 2, (0,), (0,))
    search = ScheduleSearch(Blocks.of("links", lanes, row, [(0, 1), (1, 2)]), 5)
    scheduler.solve(search)
    assert search.best is not None
    with pytest.raises(InfeasibleError):
        SCHEDULER_LAZY.solve(ScheduleSearch(make_shape("vshape", 4), 8, time_limit=0.0))


def test_same_seed_same_schedule() -> None:
    """Tests that without a time limit a search gives the same orders again."""
    found = []
    for _ in range(2):
        search = ScheduleSearch(make_shape("vshape", 3).with_memory(2), 7, seed=3, work_limit=50)
        SCHEDULER_LAZY.solve(search)
        assert search.best is not None
        found.append([order.tolist() for order in search.best.orders])
    assert found[0] == found[1]


def test_missing_z3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that without z3 an error says what to install."""

    def absent(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(tessel_z3, "import_module", absent)
    for scheduler in (SCHEDULER_LAZY, SCHEDULER_FAST):
        with pytest.raises(MissingExtra, match="z3-solver"):
            scheduler.solve(ScheduleSearch(make_shape("vshape", 4), 8))
