"""A schedule in words: how long, how far from the best, what repeats, what binds; and two schedules side by side.

In: Schedules. Out: sentences, and frozen records of them. Simplified: nothing is searched again; what binds is read
from the bounds and from how full memory is.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import msgspec

from weftline.certify.check import Refusal
from weftline.certify.check_schedule import has_least_period, period_bound_of
from weftline.plans.bound_words import PERIOD_WITNESSES, explain_schedule_bound, told_bound
from weftline.plans.schedule import Schedule
from weftline.plans.summary import gap_words
from weftline.units import format_bytes, format_name, format_time

__all__ = [
    "DeviceRow",
    "ScheduleDifference",
    "ScheduleStory",
    "binds_by_memory",
    "device_names",
    "diff_schedules",
    "explain_schedule",
    "schedule_advice",
    "schedule_units",
    "schedule_words",
]

NEARLY_FULL = 0.95
"""Share of its limit above which memory counts as full."""
_VALUES = {
    "makespan": "All {count} micro-batches take {value} from the first start to the last end",
    "device-span": "No device takes longer than {value} from its first start to its last end ({count} micro-batches)",
    "latency": "The slowest of {count} requests takes {value} from its arrival to its end",
}


def schedule_units(schedule: Schedule) -> tuple[Callable[[int], str], Callable[[int], str]]:
    """How times and sizes are written: blocks from a plan are in ns and bytes, others in units of their own."""
    return (format_time, format_bytes) if "plan" in schedule.provenance.inputs else (str, str)


def device_names(schedule: Schedule) -> list[str]:
    """Devices and links, in order."""
    lanes = schedule.blocks.devices
    if isinstance(lanes, int):
        return [str(number) for number in range(lanes)]
    return [format_name(lane.id) for lane in lanes]


def schedule_words(schedule: Schedule) -> list[str]:
    """Value and bound, what repeats, how much devices wait, and noise where it was asked for."""
    time, _ = schedule_units(schedule)
    value = _VALUES[schedule.objective].format(value=time(schedule.value), count=schedule.micro_batches)
    words = [f"{value}. {_how_good(schedule)}", _pattern(schedule)]
    waits = f"The device that waits most is idle for {time(schedule.bubble)}"
    if schedule.makespan:
        waits += f" ({schedule.bubble / schedule.makespan:.0%} of the time)"
    words.append(
        f"{waits}; between its first and its last block no device waits longer than "
        f"{time(schedule.device_span_bubble)}. One micro-batch takes at most {time(schedule.latency)}."
    )
    if schedule.robust is not None:
        words.append(
            f"Where times vary (sigma {schedule.robust['sigma']}, one device {schedule.robust['straggler']}x slower), "
            f"95 of 100 runs end within {time(round(schedule.robust['p95']))}."
        )
    return words


def _how_good(schedule: Schedule) -> str:
    time, _ = schedule_units(schedule)
    by = told_bound(schedule.bound_by, explain_schedule_bound(schedule.bound_by))
    if schedule.value == schedule.bound:
        return f"Nothing shorter is possible: {schedule.proof} ({by})."
    least = f"No schedule can be more than {gap_words(schedule.gap)} shorter, or below {time(schedule.bound)}"
    return f"{least}: {schedule.proof} ({by})."


def _pattern(schedule: Schedule) -> str:
    if schedule.repetend is None:
        return "No pattern repeats for ever: the blocks do not give back all their memory, or none was found."
    count = schedule.repetend.micro_batches
    several = f"{count} micro-batches" if count > 1 else "one micro-batch"
    period, least = (_exact(schedule, n) for n in (schedule.period_exact, schedule.period_bound_exact))
    by = told_bound(schedule.period_bound_by, explain_schedule_bound(schedule.period_bound_by))
    begin = f"In the middle a micro-batch ends every {period} (its period), by a pattern of {several} that repeats"
    if not schedule.period_proved:
        return f"{begin}; no pattern can be below {least}: {_word(schedule, least=False)} ({by})."
    if schedule.period_proof.startswith("equals the bound"):
        return f"{begin}; no pattern can be faster: {_word(schedule)} ({by})."
    known = schedule.period_proof.replace("repetends", "patterns").replace("least", "fastest")
    word = _word(schedule)
    shown = _period_witness(schedule) if word == "proved" else ""
    return f"{begin}; {word}: {known}{f': {shown}' if shown else ''}."


def _period_witness(schedule: Schedule) -> str:
    """How the checker sees that no pattern of the same size is faster."""
    found = {} if isinstance(schedule.witnesses, msgspec.UnsetType) else schedule.witnesses.get("period", {})
    return PERIOD_WITNESSES.get(str(found.get("kind")), "")


def _exact(schedule: Schedule, number: str) -> str:
    return format_time(round(Fraction(number))) if "plan" in schedule.provenance.inputs else number


def _word(schedule: Schedule, *, least: bool = True) -> str:
    """Proved is what the checker re-computes, by loads or from a witness: the least period, or the bound of periods."""
    form = msgspec.to_builtins(msgspec.structs.replace(schedule, actions=()))
    try:
        proved = has_least_period(form) if least else period_bound_of(form) >= Fraction(schedule.period_bound_exact)
    except Refusal:
        proved = False
    return "proved" if proved else "claimed"


@dataclass(frozen=True)
class DeviceRow:
    """What one device or link does and holds."""

    device: str
    link: bool
    busy: int
    share: float
    """Of the makespan."""
    memory: int
    limit: int | None


@dataclass(frozen=True)
class ScheduleStory:
    """What decides how long a schedule takes."""

    value: int
    bound: int
    words: tuple[str, ...]
    binding: tuple[str, ...]
    devices: tuple[DeviceRow, ...]


def explain_schedule(schedule: Schedule) -> ScheduleStory:
    """Value and bound in words, what binds, and every device, the busiest first."""
    rows = _rows(schedule)
    words = (*filter(None, (schedule_advice(schedule),)), *schedule_words(schedule))
    return ScheduleStory(schedule.value, schedule.bound, words, tuple(_binding(schedule, rows)), rows)


def binds_by_memory(schedule: Schedule) -> bool:
    """Whether memory is in the way: some device has no room for what one more micro-batch would take there."""
    blocks = schedule.load_blocks()
    for device, (peak, limit) in enumerate(zip(schedule.peak_memory, schedule.memory_limit, strict=True)):
        taken = [b.memory[b.devices.index(device)] for b in blocks.blocks if device in b.devices]
        if limit is not None and peak + sum(change for change in taken if change > 0) > limit:
            return True
    return False


def schedule_advice(schedule: Schedule) -> str:
    """What to do instead, where the file says so."""
    return "" if isinstance(schedule.advice, msgspec.UnsetType) else schedule.advice


def _rows(schedule: Schedule) -> tuple[DeviceRow, ...]:
    lanes = schedule.blocks.devices
    links = [False] * lanes if isinstance(lanes, int) else [lane.link for lane in lanes]
    rows = []
    for number, (name, actions) in enumerate(zip(device_names(schedule), schedule.actions, strict=True)):
        busy = sum(action.end - action.start for action in actions)
        share = busy / schedule.makespan if schedule.makespan else 0.0
        limit = schedule.memory_limit[number]
        rows.append(DeviceRow(name, links[number], busy, share, schedule.peak_memory[number], limit))
    return tuple(sorted(rows, key=lambda row: (row.link, -row.busy)))


def _full(rows: tuple[DeviceRow, ...]) -> list[DeviceRow]:
    return [row for row in rows if row.limit and row.memory >= NEARLY_FULL * row.limit]


def _binding(schedule: Schedule, rows: tuple[DeviceRow, ...]) -> list[str]:
    time, size = schedule_units(schedule)
    found = []
    if rows:
        busiest = rows[0]
        found.append(f"{busiest.device} works most: {time(busiest.busy)}, {busiest.share:.0%} of the time")
    for row in _full(rows)[:6]:
        found.append(f"memory of {row.device} is full: {size(row.memory)} of {size(row.limit or 0)}")
    for what, by in (("schedule", schedule.bound_by), ("repeating pattern", schedule.period_bound_by)):
        if words := explain_schedule_bound(by):
            found.append(f"what keeps the {what} from being shorter: {words} ({by})")
    return found


@dataclass(frozen=True)
class ScheduleDifference:
    """Two schedules side by side."""

    identical: bool
    same_blocks: bool
    rows: tuple[tuple[str, str, str], ...]
    """What, of the first, of the second; only what can be compared."""

    def __str__(self) -> str:
        wide = [max(len(row[i]) for row in self.rows) for i in range(3)]
        lines = [f"{a:<{wide[0]}}  {x:>{wide[1]}}  {y:>{wide[2]}}".rstrip() for a, x, y in self.rows]
        note = [] if self.same_blocks else ["The schedules are of different blocks: times compare, reasons may differ."]
        return "\n".join([*lines, *note])


def diff_schedules(a: Schedule, b: Schedule) -> ScheduleDifference:
    """Value, bound, period, waits, and each device's work and memory."""
    rows: list[tuple[str, str, str]] = [("", "first", "second")]

    def both(what: str, told: Callable[[Schedule], str]) -> None:
        rows.append((what, told(a), told(b)))

    def timed(what: str, value: Callable[[Schedule], int]) -> None:
        both(what, lambda s: schedule_units(s)[0](value(s)))

    both("blocks", lambda s: format_name(s.name))
    both("micro-batches", lambda s: str(s.micro_batches))
    both("solver", lambda s: s.solver)
    timed("makespan", lambda s: s.makespan)
    timed("lower bound", lambda s: s.bound)
    both("gap", lambda s: f"{s.gap:.2%}")
    both("bound by", lambda s: f"{s.bound_by} ({s.proof})")
    both("period", lambda s: _exact(s, s.period_exact))
    timed("longest wait", lambda s: s.bubble)
    timed("one micro-batch", lambda s: s.latency)
    stories = [{row.device: (s, row) for row in _rows(s) if not row.link} for s in (a, b)]
    for name in dict.fromkeys([*stories[0], *stories[1]]):
        x, y = (story.get(name) for story in stories)
        rows.append((f"{name}: busy", _told(x, _busy), _told(y, _busy)))
        rows.append((f"{name}: memory", _told(x, _held), _told(y, _held)))
    same = a.provenance.blocks_sha256 == b.provenance.blocks_sha256
    return ScheduleDifference(same and a.actions == b.actions, same, tuple(rows))


def _busy(schedule: Schedule, row: DeviceRow) -> str:
    return f"{row.share:.1%}"


def _held(schedule: Schedule, row: DeviceRow) -> str:
    _, size = schedule_units(schedule)
    return size(row.memory) if row.limit is None else f"{size(row.memory)} of {size(row.limit)}"


def _told(found: tuple[Schedule, DeviceRow] | None, tell: Callable[[Schedule, DeviceRow], str]) -> str:
    return "" if found is None else tell(*found)
