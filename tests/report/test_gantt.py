"""Tests of a schedule for a terminal and in a trace."""

from __future__ import annotations

import json

import msgspec

from weftline.ask.scheduling import make_schedule
from weftline.plans.schedule_story import schedule_words
from weftline.report.tables import gantt
from weftline.report.trace import schedule_trace
from weftline.schedule.make_blocks import make_shape

SCHEDULE = make_schedule(make_shape("vshape", 2), 3, solver="1f1b", work_limit=5)


def test_every_unit_is_drawn_when_there_is_room() -> None:
    """Tests the picture of a schedule that fits the width, letter by letter."""
    lines = [line.plain for line in gantt(SCHEDULE, 80)]
    assert lines[:2] == ["0 01...0002111.222", "1 .000011112222..."]
    assert lines[-1] == "   forward   backward  0-9a-z micro-batch; . idle; width 16"


def test_a_picture_without_colour() -> None:
    """Tests that kinds of blocks are letters where there is no colour."""
    lines = [line.plain for line in gantt(SCHEDULE, 80, colour=False)]
    assert lines[:4] == ["0 01...0002111.222", "  FF   BBBFBBB BBB", "1 .000011112222...", "   FBBBFBBBFBBB   "]
    assert lines[-1] == "  F forward; B backward; 0-9a-z micro-batch; . idle; width 16"
    assert not any(line.spans for line in gantt(SCHEDULE, 80, colour=False))


def test_a_long_schedule_is_drawn_coarser() -> None:
    """Tests that no line is wider than asked."""
    *lines, legend = gantt(SCHEDULE, 12)
    assert max(len(line.plain) for line in lines) <= 12
    assert "width 16" in legend.plain


def test_words_name_value_bound_and_period() -> None:
    """Tests that the sentences hold the numbers of the file."""
    text = " ".join(schedule_words(SCHEDULE))
    assert str(SCHEDULE.makespan) in text
    assert str(SCHEDULE.bound) in text


def test_schedules_of_plans_have_units() -> None:
    """Tests that blocks from a plan are shown in ns and bytes, others in their own units; and a met bound is said."""
    inputs = {"plan": "0" * 64}
    given = msgspec.structs.replace(SCHEDULE.provenance, inputs=inputs)
    with_units = " ".join(schedule_words(msgspec.structs.replace(SCHEDULE, provenance=given)))
    assert f"take {SCHEDULE.makespan} ns" in with_units
    assert " ns" not in " ".join(schedule_words(SCHEDULE))
    best = msgspec.structs.replace(SCHEDULE, bound=SCHEDULE.value, gap=0.0)
    assert "Nothing shorter is possible" in schedule_words(best)[0]


def test_proved_is_what_the_checker_sees() -> None:
    """Tests that periods at the load, or at a bound by memory with a witness, are proved; without witness claimed."""
    for memory, proof, word in (
        (4, None, "no pattern can be faster: proved (load of device"),
        (3, None, "no pattern can be faster: proved (memory of device"),
        (3, 0.0, "no pattern can be faster: claimed (memory of device"),
    ):
        found = make_schedule(make_shape("vshape", 4).with_memory(memory), 6, time_limit=5, proof=proof)
        assert found.period_proved
        assert word in schedule_words(found)[1]


def test_the_trace_has_every_action_and_memory() -> None:
    """Tests that spans are the actions and that counters follow the memory."""
    events = json.loads(schedule_trace(SCHEDULE))["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    assert len(spans) == sum(map(len, SCHEDULE.actions))
    peaks = [max(e["args"]["held"] for e in events if e["ph"] == "C" and e["name"] == f"memory {d}") for d in (0, 1)]
    assert tuple(peaks) == SCHEDULE.peak_memory
