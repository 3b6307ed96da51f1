"""A schedule for a terminal: what each device does when, a table of memory and bubbles, a sentence about the bound."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

import msgspec

from weftline.certify import check_schedule
from weftline.plans.schedule import Schedule
from weftline.report.tables import Rows, text_table
from weftline.units import format_bytes, format_name, format_time

if TYPE_CHECKING:
    from rich.table import Table
    from rich.text import Text

__all__ = ["NAMES", "gantt", "schedule_table", "schedule_words"]

COLOURS = {"F": "blue", "B": "green", "W": "yellow", "C": "white"}
NAMES = {"F": "forward", "B": "backward", "W": "weights", "C": "sends"}
"""Kind of block -> what it does, for people."""
DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
IDLE = "."


def gantt(schedule: Schedule, width: int = 100) -> list[Text]:
    """One line per device; a letter is the micro-batch (modulo 36), its colour the kind of block.

    A long schedule is drawn coarser: a column shows what the device does in the middle of its time.
    """
    from rich.text import Text

    kinds = [block.kind for block in schedule.blocks.blocks]
    names = _names(schedule)
    margin = max(map(len, names)) + 1
    columns = max(10, min(width - margin, schedule.makespan))
    lines = []
    for name, row in zip(names, schedule.actions, strict=True):
        line = Text(name.ljust(margin), no_wrap=True)
        place = 0
        for column in range(columns):
            time = ((2 * column + 1) * schedule.makespan) // (2 * columns)
            while place < len(row) and row[place].end <= time:
                place += 1
            if place < len(row) and row[place].start <= time:
                action = row[place]
                line.append(DIGITS[action.micro_batch % len(DIGITS)], style=f"black on {COLOURS[kinds[action.block]]}")
            else:
                line.append(IDLE)
        lines.append(line)
    return [*lines, _legend(schedule, kinds, margin)]


def _legend(schedule: Schedule, kinds: list[str], margin: int) -> Text:
    """What colours and letters mean."""
    from rich.text import Text

    time, _ = _units(schedule)
    legend = Text(" " * margin)
    for kind in (kind for kind in COLOURS if kind in kinds):
        legend.append(f" {NAMES[kind]} ", style=f"black on {COLOURS[kind]}")
        legend.append(" ")
    legend.append(f"by colour; 0-9a-z micro-batch; {IDLE} idle; width {time(schedule.makespan)}")
    return legend


def schedule_table(schedule: Schedule) -> Table:
    """What each device does and holds."""
    rows: Rows = []
    time, size = _units(schedule)
    for number, (name, row) in enumerate(zip(_names(schedule), schedule.actions, strict=True)):
        busy = sum(action.end - action.start for action in row)
        limit = schedule.memory_limit[number]
        rows.append(
            (
                name,
                time(busy),
                f"{busy / schedule.makespan:.1%}",
                time(row[0].start) if row else "",
                time(row[-1].end) if row else "",
                size(schedule.peak_memory[number]),
                "" if limit is None else size(limit),
            )
        )
    return text_table("Devices", ("device", "busy", "of makespan", "first start", "last end", "memory", "limit"), rows)


def schedule_words(schedule: Schedule) -> list[str]:
    """Value, bound and period in words."""
    what = schedule.objective.replace("-", " ")
    time, _ = _units(schedule)
    words = [
        f"{what} {time(schedule.value)} for {schedule.micro_batches} micro-batches; {_how_good(schedule)} "
        f"(bound {time(schedule.bound)}, {schedule.proof} by {schedule.bound_by})."
    ]
    if schedule.repetend is None:
        words.append("no pattern repeats for ever: the blocks do not take back all their memory, or none was found.")
    else:
        count = schedule.repetend.micro_batches
        period, least = (_exact(schedule, n) for n in (schedule.period_exact, schedule.period_bound_exact))
        known = schedule.period_proof or f"bound {least} by {schedule.period_bound_by}"
        several = "es" if count > 1 else ""
        words.append(
            f"period {period} per micro-batch, a repetend of {count} micro-batch{several}; {_word(schedule)}{known}."
        )
    words.append(
        f"bubble {time(schedule.bubble)}, between first and last block of a device "
        f"{time(schedule.device_span_bubble)}; latency of a micro-batch at most {time(schedule.latency)}."
    )
    if schedule.robust is not None:
        words.append(
            f"under noise (sigma {schedule.robust['sigma']}, straggler x{schedule.robust['straggler']}) the 95th "
            f"percentile of the makespan is {time(round(schedule.robust['p95']))}."
        )
    return words


def _units(schedule: Schedule) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """How times and sizes are written: blocks from a plan are in ns and bytes, others in units of their own."""
    return (format_time, format_bytes) if "plan" in schedule.provenance.inputs else (str, str)


def _exact(schedule: Schedule, number: str) -> str:
    return format_time(round(Fraction(number))) if "plan" in schedule.provenance.inputs else number


def _how_good(schedule: Schedule) -> str:
    if schedule.value == schedule.bound:
        return "nothing shorter is possible"
    more = max(schedule.value / schedule.bound - 1, 0.0001) if schedule.bound else float("inf")
    return f"at most {more:.2%} longer than the best possible"


def _word(schedule: Schedule) -> str:
    """Proved is what the checker re-computes: loads. A bound by memory or a search is a claim."""
    if not schedule.period_proved:
        return ""
    seen = check_schedule.period_bound_of(msgspec.to_builtins(schedule))
    return "proved: " if Fraction(schedule.period_exact) <= seen else "claimed: "


def _names(schedule: Schedule) -> list[str]:
    lanes = schedule.blocks.devices
    if isinstance(lanes, int):
        return [str(number) for number in range(lanes)]
    return [format_name(lane.id) for lane in lanes]
