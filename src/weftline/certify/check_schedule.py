"""Checks a schedule file with the standard library alone: `python check.pyz sched.json` (exit 0, 3 or 6).

It re-computes starts, makespan, spans, bubbles and memory from the orders of the actions, the period from the repetend
(or from the makespan where nothing repeats), and bounds: loads and what must lie before and after them always, others
from the witnesses that the file may hold. It knows nothing about how a schedule was found. A kind of witness has a
line in `BOUND_WITNESSES` or below it, and a file that holds its theorem.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NamedTuple

from weftline.certify.allowance import Allowance
from weftline.certify.bound_memory import area_bound, memory_bound
from weftline.certify.bound_orders import orders_bound
from weftline.certify.bound_pattern import refute_shorter_patterns
from weftline.certify.bound_ramp import load_bound, ramp_bound
from weftline.certify.problem import Refusal, flag, need, read_strictly, rows, run_checker, whole
from weftline.certify.schedule_blocks import NO_LIMIT, ScheduleBlocks, only_fields

__all__ = [
    "ScheduleVerdict",
    "bound_of",
    "check_schedule",
    "has_least_period",
    "main",
    "period_bound_of",
    "read_schedule",
]

MAX_OPERATIONS = 20_000_000
MAX_TIME = 2**60
CHECKS = ("blocks hash", "order and exclusivity", "earliest starts", "memory", "makespan", "repetend", "bound")
VALUES = {"makespan": "makespan", "device-span": "device_span", "latency": "latency"}
"""Objective -> field that holds the value."""
FIELDS = {
    *("format", "version", "name", "objective", "micro_batches", "makespan", "bound", "bound_by", "gap", "proof"),
    *("period", "period_exact", "repetend", "period_bound", "period_bound_exact", "period_bound_by", "period_proved"),
    *("period_proof", "bubble", "device_span", "device_span_bubble", "peak_memory", "memory_limit", "latency"),
    *("robust", "solver", "seconds", "period_seconds", "stopped_by", "reached", "actions", "provenance", "blocks"),
}
REPETEND = {"micro_batches", "length", "lags", "orders", "scale", "scaled_length", "scaled_starts"}
PROVENANCE = {"version", "blocks_sha256", "inputs", "argv", "seed", "time_limit", "work_limit", "gap"}
ACTION = {"block", "micro_batch", "start", "end"}
FRACTION = re.compile(r"(0|[1-9][0-9]{0,40})(/[1-9][0-9]{0,40})?")


class ScheduleVerdict(NamedTuple):
    """What was re-computed."""

    objective: str
    value: int
    proved_bound: int
    proved_period_bound: str
    checks: tuple[str, ...]
    least_period: bool = False
    """No pattern of so many micro-batches as the repetend has is faster: re-computed."""


_Bound = Callable[[ScheduleBlocks, int, dict[str, Any], Allowance, bool], int]
BOUND_WITNESSES: dict[str, _Bound] = {
    "load": load_bound,
    "ramp": ramp_bound,
    "area": area_bound,
    "orders": orders_bound,
}
"""Kinds that prove a makespan or device span: blocks, micro-batches, witness, allowance, is it a device span?"""
WITNESSES = {"bound", "period_bound", "period"}
"""What a witness may be for: the value, the period of every pattern, that of patterns as large as the repetend."""


def bound_of(schedule: dict[str, Any], allowance: Allowance | None = None) -> int:
    """The bound on the value that can be re-computed."""
    return _value_bound(schedule, ScheduleBlocks(schedule["blocks"]), _left(allowance))


def _value_bound(schedule: dict[str, Any], blocks: ScheduleBlocks, allowance: Allowance) -> int:
    objective, count = schedule["objective"], schedule["micro_batches"]
    simple, witness = blocks.bound(objective, count), _witness(schedule, "bound")
    if witness is None:
        return simple
    kind = witness["kind"]
    need(kind in BOUND_WITNESSES, "witness-kind", f"unknown kind of witness {kind!r:.60}")
    need(objective != "latency", "witness", "latencies have no witness")
    return max(simple, BOUND_WITNESSES[kind](blocks, count, witness, allowance, objective == "device-span"))


def period_bound_of(schedule: dict[str, Any], allowance: Allowance | None = None) -> Fraction:
    """The bound of every period that can be re-computed: the largest load, or memory."""
    return _period_bound(schedule, ScheduleBlocks(schedule["blocks"]), _left(allowance))


def _period_bound(schedule: dict[str, Any], blocks: ScheduleBlocks, allowance: Allowance) -> Fraction:
    load, witness = Fraction(max(blocks.load)), _witness(schedule, "period_bound")
    if witness is None:
        return load
    need(witness["kind"] == "memory", "witness-kind", f"unknown kind of witness {witness['kind']!r:.60}")
    return max(load, memory_bound(blocks, witness, allowance))


def has_least_period(schedule: dict[str, Any], allowance: Allowance | None = None) -> bool:
    """Whether it can be re-computed that no pattern of so many micro-batches as the repetend is faster than it."""
    blocks, allowance = ScheduleBlocks(schedule["blocks"]), _left(allowance)
    return _is_least(schedule, blocks, _period_bound(schedule, blocks, allowance), allowance)


def _is_least(schedule: dict[str, Any], blocks: ScheduleBlocks, bound: Fraction, allowance: Allowance) -> bool:
    if schedule["repetend"] is None:
        return False
    size, period = schedule["repetend"]["micro_batches"], Fraction(schedule["period_exact"])
    witness = _witness(schedule, "period")
    if period <= bound or witness is None:
        return period <= bound
    return refute_shorter_patterns(blocks, period, size, bound, witness, allowance)


def _witness(schedule: dict[str, Any], what: str) -> dict[str, Any] | None:
    found: dict[str, Any] | None = schedule.get("witnesses", {}).get(what)
    need(found is None or isinstance(found, dict), "type", f"the witness for {what} must be an object")
    return found


def _left(allowance: Allowance | None) -> Allowance:
    return Allowance() if allowance is None else allowance


def read_schedule(path: str) -> dict[str, Any]:
    """Parse as strictly as a plan."""
    return read_strictly(path, "schedule")


def check_schedule(schedule: dict[str, Any]) -> ScheduleVerdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(schedule)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise Refusal(
            "structure", f"the schedule's structure is broken: {type(error).__name__} {error!s:.200}"
        ) from error


def _check(schedule: dict[str, Any]) -> ScheduleVerdict:
    _check_form(schedule)
    _check_hash(schedule)
    blocks = ScheduleBlocks(schedule["blocks"])
    count = whole(schedule["micro_batches"], "micro_batches", 1, MAX_OPERATIONS // blocks.n)
    start = _read_actions(schedule, blocks, count)
    _check_starts(schedule, blocks, count, start)
    _check_memory(schedule, blocks)
    value = _check_value(schedule, blocks, count, start)
    period = _check_repetend(schedule, blocks, count)
    allowance = Allowance()
    proved = _check_bounds(schedule, blocks, value, period, allowance)
    period_bound = _period_bound(schedule, blocks, allowance)
    least = _is_least(schedule, blocks, period_bound, allowance)
    need(schedule["repetend"] is None or period >= period_bound, "period", f"no period can be below {period_bound}")
    told = "period" not in schedule.get("witnesses", {}) or (least and schedule["period_proved"])
    need(told, "witness", "it does not show that no pattern of so many micro-batches is faster")
    return ScheduleVerdict(schedule["objective"], value, proved, str(period_bound), CHECKS, least)


def _check_form(schedule: dict[str, Any]) -> None:
    """What is not re-computed still has its form: every field, no other, of the right type."""
    known = schedule["format"] == "weftline-schedule" and type(schedule["version"]) is int and schedule["version"] == 1
    need(known, "format", "not a weftline schedule of version 1")
    only_fields("schedule", schedule, FIELDS, {"advice", "witnesses"})
    if "witnesses" in schedule:
        only_fields("witnesses", schedule["witnesses"], set(), WITNESSES)
    made_by = schedule["provenance"]
    only_fields("provenance", made_by, PROVENANCE)
    texts = (
        "name",
        "bound_by",
        "period_bound_by",
        "period_proof",
        "solver",
        "stopped_by",
        *(schedule.keys() & {"advice"}),
    )
    for name, text in [(name, schedule[name]) for name in texts] + [("version", made_by["version"])]:
        need(isinstance(text, str), "type", f"{name} must be text")
    need(schedule["objective"] in VALUES, "objective", f"{schedule['objective']!r:.60} is no objective")
    need(schedule["proof"] in ("proved", "claimed"), "proof", f"{schedule['proof']!r:.60} is no kind of proof")
    flag(schedule, "period_proved")
    for name in ("seconds", "period_seconds"):
        need(schedule[name] is None or _is_number(schedule[name]), "type", f"{name} must be a time or null")
    for method, makespan in _table(schedule["reached"], "reached"):
        need(makespan is None or whole(makespan, f"what {method} reached") >= 0, "reached", "no time")
    for name, number in _table({} if schedule["robust"] is None else schedule["robust"], "robust"):
        need(_is_number(number), "robust", f"robust: {name} is no number")
    whole(made_by["seed"], "seed")
    need(made_by["work_limit"] is None or whole(made_by["work_limit"], "work_limit") >= 0, "type", "work_limit")
    need(
        made_by["time_limit"] is None or _is_number(made_by["time_limit"]), "type", "time_limit must be a time or null"
    )
    need(_is_number(made_by["gap"]), "type", "gap must be a number")
    texts_given = [*rows(made_by["argv"], "argv"), *(text for _, text in _table(made_by["inputs"], "inputs"))]
    need(all(isinstance(text, str) for text in texts_given), "type", "argv and inputs hold texts")


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value < float("inf")


def _table(value: Any, what: str) -> list[tuple[str, Any]]:
    need(isinstance(value, dict), "type", f"{what} must be an object, not {value!r:.60}")
    return list(value.items())


def _check_hash(schedule: dict[str, Any]) -> None:
    text = json.dumps(schedule["blocks"], separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    same = hashlib.sha256(text).hexdigest() == schedule["provenance"]["blocks_sha256"]
    need(same, "hash", "the blocks are not those that the schedule was made for")


def _read_actions(schedule: dict[str, Any], blocks: ScheduleBlocks, count: int) -> list[int]:
    """Start of every operation, micro-batch * blocks + block; each stands once on each of its devices."""
    table = rows(schedule["actions"], "actions")
    need(len(table) == len(blocks.link), "actions", "needs a row for every device")
    start = [-1] * (count * blocks.n)
    for device, row in enumerate(table):
        seen = set()
        for action in rows(row, "actions"):
            only_fields("action", action, ACTION)
            number = action["block"]
            need(type(number) is int and number in blocks.place, "actions", f"no block has the id {number!r:.60}")
            block, micro = blocks.place[number], whole(action["micro_batch"], "micro_batch", 0, count - 1)
            need(device in blocks.memory[block], "actions", f"{action!s:.200} is not of this device")
            begin, end = whole(action["start"], "start", 0, MAX_TIME), whole(action["end"], "end", 0, MAX_TIME)
            need(end == begin + blocks.span[block], "actions", f"{action!s:.200} has not the span of its block")
            op = micro * blocks.n + block
            need(op not in seen, "actions", f"{action!s:.200} is done twice")
            need(start[op] in (-1, begin), "actions", f"{action!s:.200} starts at several times")
            seen.add(op)
            start[op] = begin
        need(len(row) == len(blocks.on[device]) * count, "actions", f"device {device} leaves something out")
    return start


def _check_starts(schedule: dict[str, Any], blocks: ScheduleBlocks, count: int, start: list[int]) -> None:
    """Everything starts when its inputs are there and its devices are free, and not later."""
    earliest = [0] * len(start)
    for device, row in enumerate(schedule["actions"]):
        before = 0
        for action in row:
            op = action["micro_batch"] * blocks.n + blocks.place[action["block"]]
            need(action["start"] >= before, "exclusivity", f"device {device}: {action!s:.200} begins before it is free")
            earliest[op] = max(earliest[op], before)
            before = action["end"]
    for first in range(0, len(start), blocks.n):
        for a, b, lag in blocks.edges:
            there = start[first + a] + blocks.span[a] + lag
            need(start[first + b] >= there, "order", f"operation {first + b} starts before its input is there")
            earliest[first + b] = max(earliest[first + b], there)
    for op, begin in enumerate(start):
        need(begin == earliest[op], "earliest", f"operation {op} starts at {begin}, but could at {earliest[op]}")


def _check_memory(schedule: dict[str, Any], blocks: ScheduleBlocks) -> None:
    limits = list(rows(schedule["memory_limit"], "memory_limit"))
    need(all(limit is None or type(limit) is int for limit in limits), "type", "a memory limit is a number or null")
    need(limits == blocks.limit, "memory_limit", "is not that of the blocks")
    peaks = [whole(peak, "peak_memory") for peak in rows(schedule["peak_memory"], "peak_memory")]
    need(len(peaks) == len(limits), "memory", "needs a peak for every device")
    for device, row in enumerate(schedule["actions"]):
        level, limit = blocks.reserved[device], limits[device]
        peak = level
        for action in row:
            level += blocks.memory[blocks.place[action["block"]]][device]
            peak = max(peak, level)
        need(peak == peaks[device], "memory", f"device {device} has a peak of {peak}")
        need(limit is None or peak <= limit, "memory", f"device {device} needs {peak} of {limit}")


def _check_value(schedule: dict[str, Any], blocks: ScheduleBlocks, count: int, start: list[int]) -> int:
    """Makespan, spans, bubbles and latency from the starts -> what was minimised."""
    n, table = blocks.n, schedule["actions"]
    makespan = max(begin + blocks.span[op % n] for op, begin in enumerate(start))
    spans = [row[-1]["end"] - row[0]["start"] if row else 0 for row in table]
    devices = [d for d, link in enumerate(blocks.link) if not link]
    idle = [0] * any(blocks.link)  # links count as never idle
    latencies = []
    for first in range(0, len(start), n):
        own = start[first : first + n]
        begin = own[-1] + blocks.span[-1] if schedule["objective"] == "latency" else min(own)
        latencies.append(max(b + s for b, s in zip(own, blocks.span, strict=True)) - begin)
    again = {
        "makespan": makespan,
        "device_span": max(spans[d] for d in devices),
        "device_span_bubble": max(idle + [spans[d] - count * blocks.load[d] for d in devices]),
        "bubble": max(idle + [makespan - count * blocks.load[d] for d in devices]),
        "latency": max(latencies),
    }
    for name, expected in again.items():
        given = whole(schedule[name], name, 0, MAX_TIME)
        need(given == expected, name, f"is {given}, re-computed {expected}")
    value: int = again[VALUES[schedule["objective"]]]
    return value


def _check_repetend(schedule: dict[str, Any], blocks: ScheduleBlocks, count: int) -> Fraction:
    """The period: makespan / N, or of a repetend that keeps every edge, every device's order, and the memory."""
    form = schedule["repetend"]
    if form is None:
        return Fraction(schedule["makespan"], count)
    only_fields("repetend", form, REPETEND)
    n = blocks.n
    copies = whole(form["micro_batches"], "micro_batches of the repetend", 1, MAX_OPERATIONS // n)
    scale = whole(form["scale"], "scale", 1)
    length = whole(form["scaled_length"], "scaled_length", 1)
    _check_exact("length", form["length"], Fraction(length, scale))
    lags = [whole(lag, "lag", -MAX_OPERATIONS, MAX_OPERATIONS) for lag in rows(form["lags"], "lags")]
    starts = [whole(begin, "scaled_start", -NO_LIMIT) for begin in rows(form["scaled_starts"], "scaled_starts")]
    orders = rows(form["orders"], "orders")
    need(len(orders) == len(blocks.link), "repetend", "needs an order for every device")
    need(len(starts) == len(lags) == n * copies, "repetend", "needs a start and a lag for every copy")
    for first in range(0, n * copies, n):
        for a, b, lag in blocks.edges:
            there = starts[first + a] + scale * (blocks.span[a] + lag)
            need(starts[first + b] >= there, "repetend", f"copy {first + b} starts before its input is there")
    # in window k, copy c starts at start - lag * length + k * length
    begins = [begin - lag * length for begin, lag in zip(starts, lags, strict=True)]
    for device, mine in enumerate(blocks.on):
        order = [whole(c, "copy", 0, n * copies - 1) for c in rows(orders[device], "orders")]
        need(sorted(order) == [first + i for first in range(0, n * copies, n) for i in mine], "repetend", "copies")
        for place, c in enumerate(order):
            last = place + 1 == len(order)
            follows = begins[order[0]] + length if last else begins[order[place + 1]]
            free = begins[c] + scale * blocks.span[c % n]
            need(follows >= free, "repetend", f"device {device} would do two blocks at once")
        _check_balance(blocks, device, order, lags)
    return Fraction(length, scale * copies)


def _check_balance(blocks: ScheduleBlocks, device: int, order: list[int], lags: list[int]) -> None:
    """A window gives back what it takes, and stays within memory."""
    changes = [blocks.memory[c % blocks.n][device] for c in order]
    need(sum(changes) == 0, "repetend", f"device {device} would need more and more memory, or less and less")
    level = blocks.reserved[device] - sum(change * lags[c] for change, c in zip(changes, order, strict=True))
    peak = level
    for change in changes:
        level += change
        peak = max(peak, level)
    limit = blocks.limit[device]
    need(limit is None or peak <= limit, "repetend", f"device {device} would need {peak} of {limit} memory")


def _check_bounds(
    schedule: dict[str, Any], blocks: ScheduleBlocks, value: int, period: Fraction, allowance: Allowance
) -> int:
    """No value lies below a bound, re-computed or given -> the bound that was re-computed."""
    for name, expected in (("period", period), ("period_bound", _fraction(schedule, "period_bound_exact"))):
        need(_fraction(schedule, f"{name}_exact") == expected, name, f"is {expected}")
        _check_exact(name, schedule[name], expected)
    load, given = max(blocks.load), _fraction(schedule, "period_bound_exact")
    need(period >= load, "period", f"no period can be below {load}")
    need(given <= period or schedule["repetend"] is None, "period", "the period is below its bound")
    if schedule["period_proved"]:
        need(schedule["repetend"] is not None, "period_proved", "nothing repeats, so there is no period to prove")
        need(bool(schedule["period_proof"]), "period_proved", "nobody says why")
    bound, proved = whole(schedule["bound"], "bound"), _value_bound(schedule, blocks, allowance)
    need(value >= proved, "value", f"no schedule can be below {proved}")
    need(bound <= value, "bound", "the bound is above the value")
    gap = (value - bound) / value if value else 0.0
    need(_is_number(schedule["gap"]) and abs(schedule["gap"] - gap) < 1e-9, "gap", "is not that of value and bound")
    need(schedule["proof"] != "proved" or proved >= bound, "proof", f"only {proved} can be re-computed")
    return proved


def _fraction(schedule: dict[str, Any], name: str) -> Fraction:
    text = schedule[name]
    need(isinstance(text, str) and bool(FRACTION.fullmatch(text)), name, f"{text!r:.60} is not a whole number or a/b")
    number = Fraction(text)
    need(str(number) == text, name, f"{text:.60} is not in lowest terms")
    return number


def _check_exact(name: str, given: Any, exact: Fraction) -> None:
    """A whole number as such, anything else as the nearest float."""
    expected: int | float = int(exact) if exact.denominator == 1 else float(exact)
    need(type(given) is type(expected) and given == expected, name, f"is not its exact value {exact}")


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    return run_checker("sched.json", lambda path: check_schedule(read_schedule(path)), arguments)
