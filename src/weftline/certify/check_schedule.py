"""Checks a schedule file with the standard library alone: `python check.pyz sched.json` (exit 0, 3 or 6).

It re-computes starts, makespan, spans, bubbles and memory from the orders of the actions, the period from the repetend
(or from the makespan where nothing repeats), and the part of the bounds that needs no solver: loads, and what must lie
before and after them. It knows nothing about how a schedule was found. `problem.py` holds its reader.
"""

from __future__ import annotations

import hashlib
import json
import re
from fractions import Fraction
from typing import Any, NamedTuple

from weftline.certify.problem import Refusal, flag, need, read_strictly, rows, run_checker, whole

__all__ = ["ScheduleVerdict", "bound_of", "check_schedule", "main", "period_bound_of", "read_schedule"]

MAX_BLOCKS, MAX_DEVICES, MAX_EDGES, MAX_OPERATIONS = 20_000, 4_096, 200_000, 20_000_000
MAX_SPAN = 2**46
MAX_TIME = 2**60
NO_LIMIT = 2**62
"""A memory limit that says that there is none."""
CHECKS = ("blocks hash", "order and exclusivity", "earliest starts", "memory", "makespan", "repetend", "bound")
VALUES = {"makespan": "makespan", "device-span": "device_span", "latency": "latency"}
"""Objective -> field that holds the value."""
KINDS = ("F", "B", "W", "C")
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


class ScheduleBlocks:
    """The embedded blocks as plain lists, checked; block = place in the order of ids."""

    def __init__(self, form: dict[str, Any]) -> None:
        _fields("blocks", form, {"name", "devices", "blocks"}, {"edges"})
        need(isinstance(form["name"], str), "blocks", "the name of the blocks must be text")
        self._read_lanes(form["devices"])
        self._read_blocks(form["blocks"])
        edges = rows(form.get("edges", []), "edges")
        need(len(edges) <= MAX_EDGES, "blocks", "too many edges")
        self.edges = [self._edge(edge) for edge in edges]
        self.head, self.tail = self._paths()

    def _read_lanes(self, given: Any) -> None:
        if type(given) is int:
            given = [{"id": str(d)} for d in range(whole(given, "devices", 1, MAX_DEVICES))]
        need(1 <= len(rows(given, "devices")) <= MAX_DEVICES, "blocks", "too many devices, or none")
        for lane in given:
            _fields("device", lane, {"id"}, {"memory", "link", "reserved"})
            need(isinstance(lane["id"], str), "blocks", "the id of a device must be text")
        need(len({lane["id"] for lane in given}) == len(given), "blocks", "ids of devices must differ")
        self.link = [flag(lane, "link") for lane in given]
        need(not all(self.link), "blocks", "all devices are links")
        self.reserved = [whole(lane.get("reserved", 0), "reserved", 0, MAX_SPAN) for lane in given]
        """Device -> memory that is kept free beside all changes."""
        need(not any(r for r, link in zip(self.reserved, self.link, strict=True) if link), "blocks", "a link has none")
        memory = [lane.get("memory") for lane in given]
        limits = [NO_LIMIT if limit is None else whole(limit, "memory", 0, NO_LIMIT) for limit in memory]
        self.limit = [
            None if link or limit == NO_LIMIT else limit for limit, link in zip(limits, self.link, strict=True)
        ]

    def _read_blocks(self, given: Any) -> None:
        for row in rows(given, "blocks"):
            _fields("block", row, {"id", "kind", "span", "devices"}, {"memory", "name", "stage"})
            whole(row["id"], "id of a block", -(2**63), 2**63)
        found = sorted(given, key=lambda row: row["id"])
        self.place = {row["id"]: i for i, row in enumerate(found)}
        need(1 <= len(found) <= MAX_BLOCKS, "blocks", "too many blocks, or none")
        need(len(self.place) == len(found), "blocks", "ids of blocks must differ")
        self.n = len(found)
        self.span = [whole(row["span"], "span", 1, MAX_SPAN) for row in found]
        self.memory: list[dict[int, int]] = []
        """Block -> change of memory on each of its devices."""
        self.on: list[list[int]] = [[] for _ in self.link]
        """Device -> its blocks."""
        for i, row in enumerate(found):
            need(row["kind"] in KINDS, "blocks", f"{row['kind']!r:.60} is no kind of block")
            need(isinstance(row.get("name", ""), str), "blocks", "the name of a block must be text")
            whole(row.get("stage", -1), "stage", -1, MAX_BLOCKS - 1)
            lanes = [whole(d, "device", 0, len(self.link) - 1) for d in rows(row["devices"], "devices")]
            need(0 < len(lanes) == len(set(lanes)), "blocks", "a block has devices, each once")
            change = row.get("memory", 0)
            each = [change] * len(lanes) if type(change) is int else rows(change, "memory")
            need(len(each) == len(lanes), "blocks", "memory is one change, or one for each device")
            self.memory.append({d: whole(m, "memory", -MAX_SPAN, MAX_SPAN) for d, m in zip(lanes, each, strict=True)})
            for d in lanes:
                need(not (self.link[d] and self.memory[i][d]), "blocks", "a link holds no memory")
                self.on[d].append(i)
        self.load = [sum(self.span[i] for i in mine) for mine in self.on]
        """Device -> work per micro-batch."""

    def _edge(self, edge: Any) -> tuple[int, int, int]:
        need(len(rows(edge, "edge")) in (2, 3), "blocks", "an edge has two or three numbers")
        for end in edge[:2]:
            need(type(end) is int and end in self.place, "blocks", f"no block has the id {end!r:.60} of an edge")
        need(edge[0] != edge[1], "blocks", "an edge joins a block with itself")
        lag = whole(edge[2], "latency of an edge", 0, MAX_SPAN) if len(edge) == 3 else 0
        return self.place[edge[0]], self.place[edge[1]], lag

    def _paths(self) -> tuple[list[int], list[int]]:
        """Longest path to the start of a block, and from its end to the end of all."""
        after: list[list[tuple[int, int]]] = [[] for _ in range(self.n)]
        waits = [0] * self.n
        for a, b, lag in self.edges:
            after[a].append((b, lag))
            waits[b] += 1
        ready = [i for i in range(self.n) if waits[i] == 0]
        order, head, tail = [], [0] * self.n, [0] * self.n
        while ready:
            a = ready.pop()
            order.append(a)
            for b, lag in after[a]:
                head[b] = max(head[b], head[a] + self.span[a] + lag)
                waits[b] -= 1
                if waits[b] == 0:
                    ready.append(b)
        need(len(order) == self.n, "blocks", "the edges form a circle")
        for a in reversed(order):
            tail[a] = max((lag + self.span[b] + tail[b] for b, lag in after[a]), default=0)
        return head, tail

    def bound(self, objective: str, count: int) -> int:
        """What can be said about every schedule: the longest path, and work with what must lie before and after it."""
        if objective == "latency":
            return self.tail[-1]  # of the last block, which is the arrival
        if objective == "device-span":
            return max(count * load for load, link in zip(self.load, self.link, strict=True) if not link)
        bound = max(h + s + t for h, s, t in zip(self.head, self.span, self.tail, strict=True))
        for device, mine in enumerate(self.on):
            if mine:
                ends = min(self.head[i] for i in mine) + min(self.tail[i] for i in mine)
                bound = max(bound, count * self.load[device] + ends)
        return bound


def bound_of(schedule: dict[str, Any]) -> int:
    """The bound on the value that can be re-computed."""
    return ScheduleBlocks(schedule["blocks"]).bound(schedule["objective"], schedule["micro_batches"])


def period_bound_of(schedule: dict[str, Any]) -> Fraction:
    """The largest load."""
    return Fraction(max(ScheduleBlocks(schedule["blocks"]).load))


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
    proved = _check_bounds(schedule, blocks, count, value, period)
    return ScheduleVerdict(schedule["objective"], value, proved, str(max(blocks.load)), CHECKS)


def _fields(name: str, form: Any, wanted: set[str], more: frozenset[str] | set[str] = frozenset()) -> None:
    need(isinstance(form, dict), "type", f"{name} must be an object, not {form!r:.60}")
    wrong = (form.keys() ^ wanted) - more
    need(not wrong, "fields", f"{name}: wrong fields {sorted(wrong)!s:.200}")


def _check_form(schedule: dict[str, Any]) -> None:
    """What is not re-computed still has its form: every field, no other, of the right type."""
    known = schedule["format"] == "weftline-schedule" and type(schedule["version"]) is int and schedule["version"] == 1
    need(known, "format", "not a weftline schedule of version 1")
    _fields("schedule", schedule, FIELDS, {"advice"})
    made_by = schedule["provenance"]
    _fields("provenance", made_by, PROVENANCE)
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
            _fields("action", action, ACTION)
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
    _fields("repetend", form, REPETEND)
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


def _check_bounds(schedule: dict[str, Any], blocks: ScheduleBlocks, count: int, value: int, period: Fraction) -> int:
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
    bound, proved = whole(schedule["bound"], "bound"), blocks.bound(schedule["objective"], count)
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
