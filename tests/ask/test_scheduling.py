"""Tests of the whole way from blocks to a certified schedule."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from weftline.ask import scheduling as room
from weftline.ask.scheduling import make_schedule, read_limits, sweep_memory
from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.plans.schedule import Schedule, schedule_to_json
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.make_blocks import make_shape
from weftline.schedule.noise import Noise


def test_memory_that_is_given_first_can_be_taken() -> None:
    """Tests that a block larger than the limit is possible where another gives memory before it, and not otherwise."""
    blocks = [Block("F", 1, (0,), (-1,), "F"), Block("B", 1, (0,), (1,), "B")]
    found = make_schedule(Blocks.of("x", [Lane("a", 0)], blocks, [(0, 1)]), 6, work_limit=20)
    assert (found.makespan, found.peak_memory) == (12, (0,))
    with pytest.raises(InfeasibleError, match="'B' needs 1 memory") as refused:
        make_schedule(Blocks.of("x", [Lane("a", 0)], blocks, [(1, 0)]), 6, work_limit=20)
    assert refused.value.proved


def test_blocks_on_links_alone() -> None:
    """Tests that devices that do nothing have a span of 0, of which nothing is divided."""
    blocks = Blocks.of("x", [Lane("a"), Lane("wire", link=True)], [Block("C", 3, (1,), (0,), "C")], [])
    found = make_schedule(blocks, 2, device_span=True, work_limit=20)
    assert (found.value, found.bound, found.gap, found.makespan) == (0, 0, 0.0, 6)


def test_sums_that_do_not_fit_are_refused() -> None:
    """Tests that spans or counts that would overflow are a usage error."""
    huge = Blocks.of("x", [Lane("a")], [Block("F", 2**46, (0,), (0,))], [])
    with pytest.raises(UsageError, match="2\\^60"):
        make_schedule(huge, 140_000, work_limit=5)
    with pytest.raises(UsageError, match="micro-batches"):
        make_schedule(huge, 10**9, work_limit=5)


def test_noise_chooses_among_the_best(tmp_path: Path) -> None:
    """Tests that a robust schedule names its percentile, and that a file survives being written and read."""
    found = make_schedule(make_shape("linear", 3).with_memory(6), 6, work_limit=60, robust=Noise(draws=20))
    assert found.robust is not None
    assert found.robust["p95"] >= found.makespan
    found.save(tmp_path / "s.json")
    assert schedule_to_json(Schedule.load(tmp_path / "s.json")) == schedule_to_json(found)


def test_actions_that_make_no_sense_are_bad_input() -> None:
    """Tests that a time before 0, an operation twice and one that is missing are refused, each in its words."""
    found = make_schedule(make_shape("linear", 2), 2, work_limit=10)
    first, *others = found.actions
    early = msgspec.structs.replace(first[0], start=-1)
    for row, says in (
        ((early, *first[1:]), "before time 0"),
        ((*first, first[0]), "exactly once"),
        (first[1:], "exactly once"),
    ):
        with pytest.raises(InputError, match=says):
            msgspec.structs.replace(found, actions=(row, *others)).timetable()


def test_a_sweep_ends_when_it_is_interrupted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that Ctrl-C keeps the rows so far and begins no other."""
    make_schedule = room.make_schedule

    def interrupted(*arguments: object, **options: object) -> Schedule:
        return msgspec.structs.replace(make_schedule(*arguments, **options), stopped_by="interrupted")  # type: ignore[arg-type]

    monkeypatch.setattr(room, "make_schedule", interrupted)
    found = sweep_memory(make_shape("vshape", 2), 3, "1,2,3", work_limit=5, solver="list")
    assert [row.memory for row in found.rows] == [1]


def test_limits_of_a_sweep() -> None:
    """Tests the two ways to write limits, and what is refused."""
    assert read_limits("2..4") == [2, 3, 4]
    assert read_limits("8,2,2") == [2, 8]
    assert read_limits("1KiB,300 B,4", in_bytes=True) == [4, 300, 1024]
    assert read_limits("2..4", in_bytes=True) == [2, 3, 4]
    for wrong in ("4..2", "a", "1..100000", ""):
        with pytest.raises(UsageError):
            read_limits(wrong)
