"""Tests of the repetend search: periods of the shapes, proofs, limits; its CP-SAT model against brute force."""

from __future__ import annotations

from fractions import Fraction
from itertools import product

import pytest

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.cyclic.cyclic import SCHEDULER, cyclic_starts, most_repetitions, prove_size
from weftline.schedule.cyclic.exact import exact_period
from weftline.schedule.cyclic.order import make_pattern, order_of_starts
from weftline.schedule.cyclic.rounds import PeriodSearch
from weftline.schedule.make_blocks import chunked, make_shape
from weftline.schedule.repetend import repetend_of_starts, repetend_peaks
from weftline.schedule.search import ScheduleSearch
from weftline.testing.schedules import random_blocks

SHAPES = [
    ("vshape", 4, 4, 4),
    ("vshape", 16, 16, 4),
    ("xshape", 4, 4, 8),
    ("xshape", 16, 16, 8),
    ("kshape", 4, 6, 6),
    ("kshape", 16, 20, 6),
    ("mshape", 4, 5, 6),
    ("mshape", 16, 40, 6),
    ("nnshape", 4, 6, 8),
    ("nnshape", 16, 40, 8),
    ("nnshape-eager", 4, 6, 8),
    ("mllm", 4, 6, 8),
    ("finetune", 4, 20, 4),
    ("alphafold", 4, 4, 4),
    ("alphafold", 16, 40, 4),
]


def search(blocks: Blocks, work: int = 20, count: int = 12, seed: int = 0) -> ScheduleSearch:
    return ScheduleSearch(blocks=blocks, micro_batches=count, work_limit=work, seed=seed, wants_period=True)


@pytest.mark.parametrize(("name", "devices", "memory", "least"), SHAPES)
def test_periods_of_shapes_are_proved(name: str, devices: int, memory: int, least: int) -> None:
    """Tests the published periods: they equal the bound."""
    found = search(make_shape(name, devices).with_memory(memory))
    SCHEDULER.solve(found)
    assert found.repetend is not None
    assert found.repetend.period == least
    assert found.period_proved
    assert found.best is not None


@pytest.mark.parametrize(("name", "memory", "least"), [("mshape", 4, 7), ("mshape", 3, 10), ("finetune", 4, 5)])
def test_one_micro_batch_is_proved_above_the_bound(name: str, memory: int, least: int) -> None:
    """Tests that CP-SAT proves the best of one micro-batch where memory is tight."""
    blocks = make_shape(name, 4).with_memory(memory)
    found = PeriodSearch(search(blocks), Fraction(max(blocks.loads)))
    found.try_serial()
    assert prove_size(found, 1, None, None)
    assert found.best[1].period == least
    assert "CP-SAT" in found.proved[1]


def test_three_micro_batches_beat_one() -> None:
    """Tests 4 stages with memory 3: 16/3 with repetends of 3 micro-batches, equal to the bound."""
    found = search(make_shape("vshape", 4).with_memory(3), work=120)
    SCHEDULER.solve(found)
    assert found.repetend is not None
    assert found.repetend.period == Fraction(16, 3)
    assert found.repetend.micro_batches == 3
    assert found.period_proved


@pytest.mark.parametrize("latency", [0, 50])
def test_split_backward_passes_reach_the_load(latency: int) -> None:
    """Tests unequal stages in two chunks per device within the memory of 1.5 activations each."""
    spans = [[480 + 37 * (7 * i + k) % 190 for i in range(8)] for k in (1, 3, 4)]
    blocks = chunked("v", [0, 1, 2, 3, 3, 2, 1, 0], *spans, latency=latency).with_memory(12)
    found = search(blocks, work=16)
    SCHEDULER.solve(found)
    assert found.repetend is not None
    assert found.repetend.period == max(blocks.loads)
    assert max(repetend_peaks(blocks, found.repetend)) <= 12


def test_same_seed_same_result() -> None:
    """Tests that a work limit alone gives the same answer every time, and that it is kept."""
    blocks = make_shape("vshape", 3).with_memory(2)
    pairs = []
    for _ in range(2):
        found = search(blocks, work=8, seed=7)
        SCHEDULER.solve(found)
        assert found.repetend is not None
        assert found.best is not None
        assert found.offered <= 8 + 2
        pairs.append((found.repetend.orders, found.repetend.starts, found.best.makespan))
    assert pairs[0] == pairs[1]


def test_random_blocks_keep_everything() -> None:
    """Tests random blocks: a period at or above the bound within memory, or nothing where nothing can repeat."""
    for seed in range(60):
        blocks = random_blocks(seed)
        found = search(blocks, work=6, count=3, seed=seed)
        if not blocks.balanced:
            with pytest.raises(InfeasibleError):
                SCHEDULER.solve(found)
            continue
        try:
            SCHEDULER.solve(found)
        except InfeasibleError:
            continue
        assert found.repetend is not None
        assert found.period_bound is not None
        assert found.repetend.period >= found.period_bound
        peaks = zip(repetend_peaks(blocks, found.repetend), blocks.devices, strict=True)
        assert all(lane.link or peak <= lane.memory for peak, lane in peaks)


def test_one_block_and_disconnected_blocks() -> None:
    """Tests the smallest pattern, and blocks that nothing joins, one of them on a link."""
    one = search(Blocks.of("one", [Lane("a", 0)], [Block("F", 3, (0,), (0,))], []), count=1)
    SCHEDULER.solve(one)
    assert one.repetend is not None
    assert one.repetend.period == 3
    loose = [Block("F", 3, (0,), (0,)), Block("F", 2, (0, 1), (0, 0)), Block("C", 4, (2,), (0,))]
    free = search(Blocks.of("loose", [Lane("a", 0), Lane("b", 0), Lane("l", link=True)], loose, []))
    SCHEDULER.solve(free)
    assert free.repetend is not None
    assert free.repetend.period == 5


def test_time_limit_is_kept_with_an_answer() -> None:
    """Tests that a short limit still gives a pattern where the bound is out of reach."""
    found = ScheduleSearch(
        blocks=make_shape("finetune", 8).with_memory(8), micro_batches=16, time_limit=0.5, wants_period=True
    )
    SCHEDULER.solve(found)
    assert found.is_over
    assert found.repetend is not None
    assert max(repetend_peaks(found.blocks, found.repetend)) <= 8
    assert 4 <= found.repetend.period < sum(block.span for block in found.blocks.blocks)


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
