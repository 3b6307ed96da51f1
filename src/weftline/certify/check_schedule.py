"""Checks a schedule file with the standard library alone: `python check_schedule.py sched.json` (exit 0, 3 or 6).

It re-computes starts, makespan, bubbles and memory from the actions, the repetend from its starts, and the part of the
bounds that needs no solver: loads, and what must lie before and after them. It knows nothing about how it was found.
"""

from __future__ import annotations

import hashlib
import json
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["ScheduleRefusal", "ScheduleVerdict", "UnreadableSchedule", "bound_of", "check", "main", "period_bound_of"]

MAX_BYTES = 1 << 30
MAX_BLOCKS, MAX_DEVICES = 20_000, 4_096
CHECKS = ("blocks hash", "order and exclusivity", "memory", "makespan", "repetend", "bound")
VALUES = {"makespan": "makespan", "device-span": "device_span", "latency": "latency"}
"""Objective -> field that holds the value."""
KINDS = ("F", "B", "W", "C")


class ScheduleRefusal(Exception):
    """The schedule does not hold. `code` is one word for programs."""

    exit_code = 6

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message:.2000}")


class UnreadableSchedule(ScheduleRefusal):
    """It cannot even be read as a schedule."""

    exit_code = 3


class ScheduleVerdict(NamedTuple):
    """What was re-computed."""

    objective: str
    value: int
    proved_bound: int
    proved_period_bound: str
    checks: tuple[str, ...]


def need(condition: bool, code: str, message: str) -> None:
    """Refuse unless."""
    if not condition:
        raise ScheduleRefusal(code, message)


class _Question:
    """The embedded blocks; block = place in the order of ids."""

    def __init__(self, file: dict[str, Any]) -> None:
        rows = sorted(file["blocks"], key=lambda block: block["id"])
        self.place = {row["id"]: i for i, row in enumerate(rows)}
        need(len(self.place) == len(rows) > 0, "blocks", "ids of blocks must differ")
        self.n = len(rows)
        lanes = file["devices"]
        count = lanes if isinstance(lanes, int) else len(lanes)
        need(1 <= count <= MAX_DEVICES and self.n <= MAX_BLOCKS, "blocks", "too many blocks or devices, or none")
        self.lanes: list[dict[str, Any]] = [{"id": str(d)} for d in range(lanes)] if isinstance(lanes, int) else lanes
        self.span = [row["span"] for row in rows]
        self.devices = [list(row["devices"]) for row in rows]
        self.memory: list[dict[int, int]] = []
        for row in rows:
            change = row.get("memory", 0)
            each = [change] * len(row["devices"]) if isinstance(change, int) else change
            self.memory.append(dict(zip(row["devices"], each, strict=True)))
            need(row["kind"] in KINDS and row["span"] >= 1, "blocks", "a block has a kind and a positive span")
            need(
                all(0 <= d < len(self.lanes) for d in row["devices"]),
                "blocks",
                "a block is on a device that is not there",
            )
        need(all(len(edge) in (2, 3) for edge in file.get("edges", [])), "blocks", "an edge has two or three numbers")
        self.edges = [
            (self.place[edge[0]], self.place[edge[1]], edge[2] if len(edge) > 2 else 0)
            for edge in file.get("edges", [])
        ]
        need(all(lag >= 0 for _, _, lag in self.edges), "blocks", "an edge has a negative latency")
        self.link = [bool(lane.get("link", False)) for lane in self.lanes]
        self.limit = [None if lane.get("link") else lane.get("memory") for lane in self.lanes]
        self.head, self.tail = self._paths()

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

    def load(self, device: int) -> int:
        return sum(self.span[i] for i in range(self.n) if device in self.devices[i])


def bound_of(schedule: dict[str, Any]) -> int:
    """What can be said about every schedule: the longest path, and work with what must lie before and after it."""
    question, count = _Question(schedule["blocks"]), schedule["micro_batches"]
    if schedule["objective"] == "latency":
        arrival = question.n - 1
        longest = max(h + s for h, s in zip(question.head, question.span, strict=True))
        return int(longest - question.span[arrival])
    whole = schedule["objective"] == "makespan"
    bound = max(h + s + t for h, s, t in zip(question.head, question.span, question.tail, strict=True)) if whole else 0
    for device in range(len(question.lanes)):
        mine = [i for i in range(question.n) if device in question.devices[i]]
        if not mine or (question.link[device] and not whole):
            continue
        ends = min(question.head[i] for i in mine) + min(question.tail[i] for i in mine) if whole else 0
        bound = max(bound, count * question.load(device) + ends)
    return bound


def period_bound_of(schedule: dict[str, Any]) -> Fraction:
    """The largest load."""
    question = _Question(schedule["blocks"])
    return Fraction(max(question.load(device) for device in range(len(question.lanes))))


def check(schedule: dict[str, Any]) -> ScheduleVerdict:
    """The verdict, or a ScheduleRefusal."""
    try:
        need(
            schedule["format"] == "weftline-schedule" and schedule["version"] == 1, "format", "not a weftline schedule"
        )
        question = _Question(schedule["blocks"])
        _check_hash(schedule)
        _check_actions(schedule, question)
        _check_repetend(schedule, question)
        bound, period = bound_of(schedule), period_bound_of(schedule)
        value = schedule[VALUES[schedule["objective"]]]
        for field in ("period", "period_bound"):
            need(_same(schedule[field], Fraction(schedule[f"{field}_exact"])), field, "is not its exact value")
        need(list(schedule["memory_limit"]) == question.limit, "memory_limit", "is not that of the blocks")
        need(bool(schedule["period_proof"]) or not schedule["period_proved"], "period_proved", "nobody says why")
        need(schedule["bound"] <= value, "bound", "the bound is above the value")
        need(abs(schedule["gap"] - (value - schedule["bound"]) / value) < 1e-9, "gap", "is not that of value and bound")
        need(schedule["proof"] != "proved" or bound >= schedule["bound"], "proof", f"only {bound} can be re-computed")
        need(
            Fraction(schedule["period_bound_exact"]) <= Fraction(schedule["period_exact"])
            or schedule["repetend"] is None,
            "period",
            "the period is below its bound",
        )
    except ScheduleRefusal:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, ZeroDivisionError) as error:
        raise UnreadableSchedule("format", f"a field is missing or has another form: {error!r}") from error
    return ScheduleVerdict(schedule["objective"], value, min(bound, value), str(period), CHECKS)


def _same(number: float | int, exact: Fraction) -> bool:
    return number == (int(exact) if exact.denominator == 1 else float(exact))


def _check_hash(schedule: dict[str, Any]) -> None:
    text = json.dumps(schedule["blocks"], separators=(",", ":"), ensure_ascii=False).encode()
    same = hashlib.sha256(text).hexdigest() == schedule["provenance"]["blocks_sha256"]
    need(same, "hash", "the blocks are not those that the schedule was made for")


def _check_actions(schedule: dict[str, Any], question: _Question) -> None:
    count, n = schedule["micro_batches"], question.n
    need(count >= 1 and len(schedule["actions"]) == len(question.lanes), "actions", "needs a row for every device")
    start: dict[tuple[int, int], int] = {}
    for device, row in enumerate(schedule["actions"]):
        before, level, peak, seen = 0, 0, 0, set()
        for action in row:
            block, micro, begin = question.place[action["block"]], action["micro_batch"], action["start"]
            need(0 <= micro < count and device in question.devices[block], "actions", f"{action} is not of this device")
            need((block, micro) not in seen, "actions", f"{action} is done twice")
            seen.add((block, micro))
            need(action["end"] == begin + question.span[block], "actions", f"{action} has not the span of its block")
            need(begin >= before, "exclusivity", f"{action} begins before the device is free")
            need(start.setdefault((block, micro), begin) == begin, "actions", f"{action} starts at several times")
            before = action["end"]
            level += question.memory[block][device]
            peak = max(peak, level)
        mine = sum(device in devices for devices in question.devices)
        need(len(row) == mine * count, "actions", f"device {device} leaves something out")
        need(peak == schedule["peak_memory"][device], "memory", f"device {device} has a peak of {peak}")
        limit = question.limit[device]
        need(limit is None or peak <= limit, "memory", f"device {device} needs {peak} of {limit}")
    need(len(start) == n * count, "actions", "something is left out")
    for micro in range(count):
        for a, b, lag in question.edges:
            early = start[b, micro] < start[a, micro] + question.span[a] + lag
            need(not early, "order", f"block {b} of micro-batch {micro} starts before its input is there")
    begin = [start[n - 1, m] + question.span[-1] for m in range(count)]
    if schedule["objective"] != "latency":
        begin = [min(start[i, m] for i in range(n)) for m in range(count)]
    latency = max(max(start[i, m] + question.span[i] for i in range(n)) - begin[m] for m in range(count))
    need(latency == schedule["latency"], "latency", f"is {latency}")
    _check_spans(schedule, question)


def _check_spans(schedule: dict[str, Any], question: _Question) -> None:
    makespan = max(row[-1]["end"] for row in schedule["actions"] if row)
    need(makespan == schedule["makespan"], "makespan", f"is {makespan}")
    count = schedule["micro_batches"]
    spans = (
        [
            (row[-1]["end"] - row[0]["start"], count * question.load(device))
            for device, row in enumerate(schedule["actions"])
            if not question.link[device]
        ]
        if all(row for d, row in enumerate(schedule["actions"]) if not question.link[d])
        else []
    )
    if spans:
        need(max(span for span, _ in spans) == schedule["device_span"], "device_span", "is another")
        need(max(s - b for s, b in spans) == schedule["device_span_bubble"], "device_span_bubble", "is another")
        need(max(makespan - b for _, b in spans) == schedule["bubble"], "bubble", "is another")


def _check_repetend(schedule: dict[str, Any], question: _Question) -> None:
    """Starts keep every edge, every device's order (also from one repetition to the next) and the memory."""
    file = schedule["repetend"]
    if file is None:
        return
    copies, scale, length = file["micro_batches"], file["scale"], file["scaled_length"]
    need(copies >= 1 and scale >= 1 and length >= 1, "repetend", "has no length")
    need(_same(file["length"], Fraction(length, scale)), "repetend", "its length is not its exact length")
    need(len(file["orders"]) == len(question.lanes), "repetend", "needs an order for every device")
    need(Fraction(length, scale * copies) == Fraction(schedule["period_exact"]), "period", "is not the repetend's")
    n, starts, lags = question.n, file["scaled_starts"], file["lags"]
    need(len(starts) == len(lags) == n * copies, "repetend", "needs a start and a lag for every copy")
    for copy in range(copies):
        for a, b, lag in question.edges:
            early = starts[copy * n + b] < starts[copy * n + a] + scale * (question.span[a] + lag)
            need(not early, "repetend", f"block {b} starts before its input is there")
    for device, order in enumerate(file["orders"]):
        wanted = sorted(c * n + i for c in range(copies) for i in range(n) if device in question.devices[i])
        need(sorted(order) == wanted, "repetend", f"device {device} leaves something out")
        if not order:
            continue
        level = -sum(question.memory[c % n][device] * lags[c] for c in order)
        peak = level
        # what window k does: copy c starts at start - lag * length + k * length
        for place, c in enumerate(order):
            follower, window = (order[place + 1], 0) if place + 1 < len(order) else (order[0], length)
            end = starts[c] - lags[c] * length + scale * question.span[c % n]
            begin = starts[follower] - lags[follower] * length + window
            need(begin >= end, "repetend", f"device {device} would do two blocks at once")
            level += question.memory[c % n][device]
            peak = max(peak, level)
        limit = question.limit[device]
        need(limit is None or peak <= limit, "repetend", f"device {device} would need {peak} of {limit} memory")


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    if len(arguments) != 1:
        print("usage: check_schedule.py sched.json", file=sys.stderr)  # noqa: T201
        return 2
    try:
        verdict = check(_read(Path(arguments[0])))
    except ScheduleRefusal as refusal:
        print(json.dumps({"ok": False, "code": refusal.code, "message": str(refusal)}))  # noqa: T201
        return refusal.exit_code
    print(json.dumps({"ok": True, **verdict._asdict()}))  # noqa: T201
    return 0


def _read(path: Path) -> dict[str, Any]:
    try:
        if not path.is_file() or path.stat().st_size > MAX_BYTES:
            raise UnreadableSchedule("size", "no file, or more than 1 GiB, is not a schedule")
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise UnreadableSchedule("file", f"cannot be read: {error}") from error
    if not isinstance(found, dict):
        raise UnreadableSchedule("format", "is not a JSON object")
    return found


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
