"""Tests of a schedule's pictures: where it repeats, what each device holds."""

from __future__ import annotations

import itertools

import msgspec
import numpy as np
import pytest
from tests.report.page_samples import schedule_sample

from weftline.ask.scheduling import make_schedule
from weftline.plans.schedule import Schedule
from weftline.report.html.pack import PageBudget
from weftline.report.html.schedule import repeats, schedule_data
from weftline.schedule.make_blocks import make_shape


@pytest.fixture(scope="module")
def steady() -> Schedule:
    """A schedule with a repetend."""
    return make_schedule(make_shape("vshape", 3).with_memory(3), 12, time_limit=4)


def test_the_repetend_repeats(steady: Schedule) -> None:
    """Tests that between the marks every start comes back one length later, U micro-batches further."""
    table = steady.timetable()
    assert steady.repetend is not None
    found = repeats(steady, table)
    assert found is not None
    begin, end, times = found
    length = steady.repetend.scaled_length // steady.repetend.scale
    assert (end - begin) == times * length
    assert times >= 2
    n, step = table.blocks.n, steady.repetend.micro_batches
    inside = np.flatnonzero((table.start >= begin) & (table.start < end - length))
    assert len(inside)
    for operation in inside.tolist():
        assert table.start[operation + step * n] == table.start[operation] + length


def test_marks_cover_the_schedule(steady: Schedule) -> None:
    """Tests that warm-up, repetend and cool-down follow each other from 0 to the end."""
    marks = schedule_data(steady, PageBudget())["timeline"]["marks"]
    assert [mark["name"].split(" ")[0] for mark in marks] == ["warm-up", "repeats", "cool-down"]
    assert marks[0]["from"] == 0
    assert marks[-1]["to"] == steady.makespan
    assert all(a["to"] == b["from"] for a, b in itertools.pairwise(marks))


def test_without_a_repetend_nothing_is_marked(steady: Schedule) -> None:
    """Tests a schedule without a pattern, and one whose pattern is not in it."""
    assert repeats(msgspec.structs.replace(steady, repetend=None), steady.timetable()) is None
    assert steady.repetend is not None
    other = msgspec.structs.replace(steady.repetend, scaled_length=steady.repetend.scaled_length * 7 + 1)
    assert repeats(msgspec.structs.replace(steady, repetend=other), steady.timetable()) is None


def test_memory_peaks_are_those_of_the_file() -> None:
    """Tests that the picture's peaks are what the simulator says."""
    schedule = schedule_sample()
    lanes = schedule_data(schedule, PageBudget())["memory"]["lanes"]
    assert tuple(lane["peak"] for lane in lanes) == schedule.peak_memory
    assert [lane["limit"] for lane in lanes] == list(schedule.memory_limit)


def test_every_action_is_a_span() -> None:
    """Tests that lanes hold each device's operations at their times."""
    schedule = schedule_sample()
    n = len(schedule.blocks.blocks)
    for lane, actions in zip(schedule_data(schedule, PageBudget())["timeline"]["lanes"], schedule.actions, strict=True):
        starts = np.cumsum(lane["start"]).tolist()
        spans = list(zip(starts, lane["length"], lane["item"], strict=True))
        assert spans == [(a.start, a.end - a.start, a.micro_batch * n + a.block) for a in actions]
