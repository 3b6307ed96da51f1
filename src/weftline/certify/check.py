"""Checks a plan file with the standard library alone: `python check.py plan.json` (exit 0, 3 unreadable, 6 refused).

It re-computes the value from placement and timeline, memory from the intervals, and each proved bound from its witness.
It knows the rules of time and memory (docs/concepts.md) and nothing about how a plan was found.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from operator import add
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["PlanProblem", "Refusal", "Unreadable", "Verdict", "bound_of", "check_plan", "main", "read_plan"]

MAX_NUMBER = 2**62
NO_WAY = 2**200
"""The length of a transfer that cannot be made: longer than any sum."""
FIELDS = {
    "format",
    "version",
    "objective",
    "value_ns",
    "bound_ns",
    "gap",
    "proof",
    "bound_by",
    "solver",
    "seconds",
    "stopped_by",
    "baselines",
    "devices",
    "placement",
    "stages",
    "timeline",
    "bounds",
    "provenance",
    "problem",
}
MEASURED = {"backend", "count", "failures", "reference", "ratio", "spread", "rounds", "seconds", "reference_seconds"}
PROVENANCE = {"version", "problem_sha256", "inputs", "argv", "seed", "time_limit", "work_limit", "gap"}
MAX_FILE_BYTES = 2 * 2**30
RULES = {
    "objective": ("latency", "throughput"),
    "runtime": ("parallel", "sequential"),
    "transfers": ("per-tensor", "per-edge"),
    "communication": ("added", "overlapped"),
    "memory": ("dynamic", "static"),
}
CHECKS = ("problem hash", "placement", "order and exclusivity", "memory", "value", "bound")

Interval = tuple[int, int, int]
"""start, end, bytes"""


class Refusal(Exception):
    """The plan does not hold. `code` is one word for programs."""

    exit_code = 6

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message:.2000}")


class Unreadable(Refusal):
    """It cannot even be read as a plan."""

    exit_code = 3


class Verdict(NamedTuple):
    """What was re-computed."""

    objective: str
    value_ns: int
    proved_bound_ns: int
    bound_ns: int
    """The plan's own; where it lies above the proved one it is a claim, which was not checked."""
    checks: tuple[str, ...]
    guessed_ops: int = 0
    """Ops whose costs are a guess: where there are any, value and bounds hold for these guessed costs."""


def need(condition: bool, code: str, message: str) -> None:
    """Refuse unless."""
    if not condition:
        raise Refusal(code, message)


# Reading: strict JSON, then values of the right type within limits.


def read_plan(path: str) -> dict[str, Any]:
    """Parse strictly: one JSON object, no NaN or infinity, no duplicate keys."""
    return read_strictly(path, "plan")


def read_strictly(path: str, kind: str) -> dict[str, Any]:
    """The same for any kind of file that weftline writes."""
    try:
        text = _read_bytes(path).decode("utf-8")
        found = json.loads(text, object_pairs_hook=_once, parse_constant=_finite, parse_float=_finite)
    except json.JSONDecodeError as error:
        raise Unreadable("json", f"not valid JSON, or cut off: {error}") from error
    except UnicodeDecodeError as error:
        raise Unreadable(
            "encoding", f"not a weftline {kind}, which is UTF-8 text (byte {error.start} is not)"
        ) from error
    except (RecursionError, MemoryError) as error:
        raise Unreadable("nesting", "nested too deeply, or too large") from error
    except ValueError as error:
        raise Unreadable("digits", f"a number has absurdly many digits: {error}") from error
    except OSError as error:
        raise Unreadable("file", f"cannot be read: {error.strerror}") from error
    if not isinstance(found, dict):
        raise Unreadable("object", "not a JSON object")
    if found.get("format") != f"weftline-{kind}":
        raise Unreadable("format", f"not a weftline {kind}: format is {found.get('format')!r:.60}")
    if type(found.get("version")) is not int or found["version"] != 1:
        raise Unreadable("version", f"version {found.get('version')!r:.60} of the format is not known, only 1 is")
    return found


def _read_bytes(path: str) -> bytes:
    """Of a regular file; whoever opens a pipe without asking may wait for ever."""
    if "\0" in path or not Path(path).exists():
        raise Unreadable("file", "no such file")
    with os.fdopen(
        os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)), "rb"
    ) as file:
        about = os.fstat(file.fileno())
        if not stat.S_ISREG(about.st_mode):
            raise Unreadable("file", "not a regular file")
        if not 0 < about.st_size <= MAX_FILE_BYTES:
            raise Unreadable(*(("size", "more than 2 GiB") if about.st_size else ("empty", "it is empty")))
        return file.read()


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    table = dict(pairs)
    if len(table) < len(pairs):
        raise Unreadable("duplicate-key", "a key stands twice in one object")
    return table


def _finite(word: str) -> float:
    if not math.isfinite(number := float(word)):
        raise Unreadable("not-finite", f"{word:.60} is not a number that a plan may hold")
    return number


def whole(value: Any, what: str, low: int = 0, high: int = MAX_NUMBER) -> int:
    """An integer within limits (True and 1.0 are not integers)."""
    if type(value) is not int:
        raise Refusal("type", f"{what} must be a whole number, not {value!r:.60}")
    if not low <= value <= high:
        code = "negative" if value < min(low, 0) else "range"
        raise Refusal(code, f"{what} = {value!s:.30} is not in {low}..{high}")
    return value


def rows(value: Any, what: str) -> Sequence[Any]:
    """A list."""
    if not isinstance(value, list | tuple):
        raise Refusal("type", f"{what} must be a list, not {value!r:.60}")
    return value


def flag(form: dict[str, Any], name: str) -> bool:
    """True or false, false if missing."""
    value = form.get(name, False)
    need(isinstance(value, bool), "type", f"{name} must be true or false, not {value!r:.60}")
    return bool(value)


def members(value: Any, what: str, count: int, code: str = "problem") -> list[int]:
    """Numbers in 0..count-1, ascending, each once."""
    found = [whole(i, what, 0, count - 1) for i in rows(value, what)]
    need(found == sorted(set(found)), code, f"{what} numbers must be ascending, each once")
    return found


def same(given: dict[str, Any], again: dict[str, int | None], prefix: str, what: str) -> None:
    """Every re-computed number stands in the plan; each field has a code of its own."""
    for key, expected in again.items():
        value = given[key] if expected is None else whole(given[key], f"{what}: {key}")
        code = f"{prefix}-{key.removesuffix('_ns').replace('_', '-')}"
        need(value == expected, code, f"{what}: {key} is {value}, re-computed {expected}")


class PlanProblem:
    """The embedded problem as plain lists, checked."""

    def __init__(self, form: dict[str, Any]) -> None:
        need(form["format"] == "weftline-problem", "problem", "the embedded problem has another format")
        whole(form["version"], "version of the problem", 1, 1)
        self.rules = form["rules"]
        for name, words in RULES.items():
            need(self.rules[name] in words, "rules", f"rule {name} = {self.rules[name]!r:.60} is not one of {words}")
        self._read_graph(form["graph"])
        self._read_devices(form)
        n, m, k = len(self.names), len(self.tensors), len(self.ids)
        self.time = _table(form, "time", n, k)
        self.transfer = _table(form, "transfer", m, k * k)
        self.together = [members(group, "together", n) for group in rows(form["together"], "together")]
        inside = [op for group in self.together for op in group]
        need(len(set(inside)) == len(inside), "problem", "an op stands in two sets of `together`")

    def _read_graph(self, graph: dict[str, Any]) -> None:
        ops, tensors = rows(graph["ops"], "ops"), rows(graph["tensors"], "tensors")
        self.names, self.tensors = [op["name"] for op in ops], [tensor["name"] for tensor in tensors]
        n = len(ops)
        need(0 < n == len(set(self.names)), "problem", "op names must exist and be unique")
        self.guessed = [(op["name"], op.get("kind", "")) for op in ops if flag(op, "guessed")]
        self.forward = [not flag(op, "backward") for op in ops]
        self.weight = [whole(op.get("weight_bytes", 0), "weight_bytes") for op in ops]
        self.workspace = [whole(op.get("workspace_bytes", 0), "workspace_bytes") for op in ops]
        self.producer = [whole(tensor["producer"], "producer", -1, n - 1) for tensor in tensors]
        self.consumers = [members(tensor.get("consumers", []), "consumer", n) for tensor in tensors]
        self.bytes = [whole(tensor.get("bytes", 0), "tensor bytes") for tensor in tensors]
        self.output = [flag(tensor, "output") for tensor in tensors]
        tied = rows(graph.get("tied", []), "tied")
        self.tied = [(whole(weight["bytes"], "tied"), members(weight["ops"], "tied", n)) for weight in tied]
        self.inputs: list[list[int]] = [[] for _ in ops]
        """Op -> tensors it reads that other ops make."""
        for t, readers in enumerate(self.consumers):
            need(not readers or self.producer[t] < readers[0], "problem", "the ops are not in topological order")
            for op in readers if self.producer[t] >= 0 else ():
                self.inputs[op].append(t)

    def _read_devices(self, form: dict[str, Any]) -> None:
        devices = rows(form["devices"], "devices")
        k = len(devices)
        self.ids = [device["id"] for device in devices]
        need(0 < k == len(set(self.ids)), "problem", "device ids must exist and be unique")
        self.host = [flag(device, "host") for device in devices]
        limits = [device.get("capacity") for device in devices]
        self.capacity = [None if limit is None else whole(limit, "capacity") for limit in limits]
        self.stage_limit = whole(self.rules["stages"], "stages", 0, k) or k
        self.bus = {(whole(a, "bus", 0, k - 1), whole(b, "bus", 0, k - 1)): name for a, b, name in form["buses"]}
        need(len(self.bus) == len(form["buses"]), "problem", "a link stands on two buses")
        need(all(isinstance(name, str) for name in self.bus.values()), "problem", "the name of a bus must be text")

    def rule(self, name: str, value: str) -> bool:
        """Does this rule have that value?"""
        return bool(self.rules[name] == value)

    def length(self, tensor: int, source: int, target: int) -> int:
        """Time of a transfer; 0 inside a device, -1 without a link."""
        return 0 if source == target else self.transfer[tensor][source * len(self.ids) + target]


def _table(form: dict[str, Any], name: str, count: int, width: int) -> list[list[int]]:
    """Times that are stored as distinct rows and the number of the row for each op or tensor; -1 = absent."""
    distinct = [_times(row, name) for row in rows(form[f"{name}_rows"], name)]
    need(all(len(row) == width for row in distinct), "problem", f"{name}_rows do not fit the devices")
    picked = rows(form[f"{name}_row"], name)
    need(len(picked) == count, "problem", f"{name}_row does not fit the graph")
    return [distinct[whole(i, f"{name}_row", 0, len(distinct) - 1)] for i in picked]


def _times(given: Any, name: str) -> list[int]:
    """Whole numbers from -1 on. Tables are long, so only a row with something wrong is looked at number by number."""
    row = list(rows(given, name))
    if set(map(type, row)) == {int} and min(row) >= -1 and max(row) <= MAX_NUMBER:
        return row
    return [whole(t, name, -1) for t in row]


# The plan as a whole.


def check_plan(plan: dict[str, Any]) -> Verdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(plan)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError) as error:
        raise Refusal("structure", f"the plan's structure is broken: {type(error).__name__} {error!s:.200}") from error


def _check(plan: dict[str, Any]) -> Verdict:
    text = json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    digest, given = hashlib.sha256(text.encode()).hexdigest(), plan["provenance"]["problem_sha256"]
    shown = f"its sha256 is {digest:.8}..., not {given!s:.8}..."
    need(digest == given, "hash", f"the embedded problem is not the one that was planned: {shown}")
    _check_form(plan)
    problem = PlanProblem(plan["problem"])
    _check_guessed(problem, plan.get("guessed"))
    objective = plan["objective"]
    need(problem.rule("objective", objective), "objective", "the plan answers another question than its problem")
    placement = _placement(problem, plan["placement"])
    if objective == "latency":
        stages = len(rows(plan["stages"], "stages"))
        need(stages == 0, "parts", f"a latency plan has no stages, this one has {stages}")
        need(isinstance(plan["timeline"], dict), "parts", "a latency plan has a timeline")
        timeline = PlanTimeline(problem, placement, plan["timeline"])
        value, load, held = max(timeline.end), timeline.loads(), timeline.intervals()
    else:
        need(plan["timeline"] is None, "parts", "a throughput plan has no timeline")
        load = _check_stages(problem, placement, rows(plan["stages"], "stages"))
        value, held = max(load), _stage_intervals(problem, placement)
    _check_devices(problem, plan["devices"], load, _peaks(problem, placement, held))
    need(whole(plan["value_ns"], "value_ns") == value, "value", f"value_ns is {plan['value_ns']}, re-computed {value}")
    return Verdict(
        objective, value, _check_bounds(problem, plan, value), plan["bound_ns"], CHECKS, len(problem.guessed)
    )


def _check_form(plan: dict[str, Any]) -> None:
    """What is not re-computed still has its form: every field, no other, baselines that are times or null."""
    forms = [
        ("plan", plan, FIELDS | (plan.keys() & {"measured", "progress", "guessed", "advice"})),
        ("provenance", plan["provenance"], PROVENANCE),
    ]
    if "measured" in plan:
        forms.append(("measured", plan["measured"], MEASURED))
    for name, form, fields in forms:
        need(form.keys() == fields, "fields", f"{name}: wrong fields {sorted(form.keys() ^ fields)!s:.200}")
    if "measured" in plan:
        _check_measured(plan["measured"], plan["devices"])
    if "progress" in plan:
        _check_progress(plan["progress"])
    for name in ("solver", "stopped_by", "bound_by", *(plan.keys() & {"advice"})):
        need(isinstance(plan[name], str), "fields", f"{name} must be text")
    for name, value in plan["baselines"].items():
        need(value is None or whole(value, f"baseline {name}") >= 0, "baselines", f"baseline {name} is no time")
    whole(plan["provenance"]["seed"], "seed")
    seconds = plan["seconds"]
    need(
        seconds is None or (type(seconds) in (int, float) and seconds >= 0), "fields", "seconds must be a time or null"
    )
    timeline = plan["timeline"]
    need(timeline is None or timeline.keys() == {"ops", "transfers"}, "fields", "timeline: only ops and transfers")


def _check_guessed(problem: PlanProblem, said: object) -> None:
    """A plan whose costs are partly guessed says so, and no other does."""
    found = problem.guessed
    true = {"ops": len(found), "first": found[0][0], "kind": found[0][1]} if found else None
    need(said == true, "guessed", f"the plan says {said!s:.80} about guessed costs, its problem {true!s:.200}")


def _check_measured(found: dict[str, Any], devices: dict[str, Any]) -> None:
    """Nobody can measure again here; but counts are counts, times are times, and the reference is a device."""
    need(isinstance(found["backend"], str) and found["reference"] in devices, "measured", "measured: by whom?")
    count, failures = whole(found["count"], "measured count"), whole(found["failures"], "measured failures")
    need(0 <= failures < count and whole(found["rounds"], "rounds") > 0, "measured", "measured: wrong counts")
    for name in ("ratio", "spread", "seconds", "reference_seconds"):
        value = found[name]
        good = type(value) in (int, float) and 0 <= value < float("inf")
        need(good, "measured", f"measured {name} is no number that was measured")


def _check_progress(found: Any) -> None:
    """How the search went cannot be repeated; but seconds go up, and values and bounds are times."""
    before = 0.0
    for seconds, value, bound in rows(found, "progress"):
        good = type(seconds) in (int, float) and before <= seconds < float("inf")
        need(good, "progress", "progress: seconds must not go down")
        for known in (value, bound):
            need(known is None or whole(known, "progress") >= 0, "progress", "progress: no time")
        before = seconds


def _placement(problem: PlanProblem, given: dict[str, str]) -> list[int]:
    """Device number of every op: it exists, it can run the op, and sets stay together."""
    number = {name: i for i, name in enumerate(problem.ids)}
    placement = []
    for op, name in enumerate(problem.names):
        need(name in given, "missing-op", f"op {name!r} has no device")
        need(given[name] in number, "unknown-device", f"op {name!r} stands on unknown device {given[name]!r:.80}")
        device = number[given[name]]
        need(problem.time[op][device] >= 0, "forbidden", f"device {given[name]} cannot run op {name!r}")
        placement.append(device)
    need(len(given) == len(placement), "unknown-op", "the placement holds ops that the graph does not have")
    for group in problem.together:
        names = [problem.names[op] for op in group[:4]]
        need(len({placement[op] for op in group}) <= 1, "together", f"ops that must share a device do not: {names}")
    return placement


# Latency: the timeline is taken as it is, and every rule is tested on it.


class PlanTimeline:
    """When everything happens; `arrived`: (tensor, device) or (tensor, consumer) -> start and end of its transfer."""

    def __init__(self, problem: PlanProblem, placement: list[int], form: dict[str, Any]) -> None:
        self.problem, self.placement = problem, placement
        self.per_edge, self.sequential = problem.rule("transfers", "per-edge"), problem.rule("runtime", "sequential")
        self.start, self.end = [-1] * len(placement), [-1] * len(placement)
        self.arrived: dict[tuple[int, int], tuple[int, int]] = {}
        self.held: list[tuple[str, list[tuple[str, str]], int, int, int]] = []
        """What happens: name, (code, resource) pairs it holds, start, end, and when all it needs is there."""
        for row in rows(form["ops"], "timeline.ops"):
            self._run(row)
        idle = next((name for name, begin in zip(problem.names, self.start, strict=True) if begin < 0), None)
        need(idle is None, "never-runs", f"op {idle!r} is not in the timeline")
        for row in rows(form["transfers"], "timeline.transfers"):
            self._send(row)
        for op, tensors in enumerate(problem.inputs):
            ready = max((self._check_input(t, op) for t in tensors), default=0)
            lanes = [("overlap", f"device {problem.ids[placement[op]]}")]
            self._hold(f"op {problem.names[op]!r}", lanes, self.start[op], self.end[op], ready)
        self._check_exclusive()

    def _run(self, row: Sequence[Any]) -> None:
        number, begin, finish = row
        op = whole(number, "op of the timeline", 0, len(self.start) - 1)
        name, device = self.problem.names[op], self.placement[op]
        need(self.start[op] < 0, "runs-twice", f"op {name!r} stands in the timeline twice")
        self.start[op], self.end[op] = whole(begin, f"start of op {name!r}"), whole(finish, f"end of op {name!r}")
        took, expected = finish - begin, self.problem.time[op][device]
        need(took == expected, "op-duration", f"op {name!r} takes {took} ns, not {expected}")

    def _send(self, row: Sequence[Any]) -> None:
        tensor, source, target, consumer, begin, finish = row
        problem, k = self.problem, len(self.problem.ids)
        t = whole(tensor, "tensor of the timeline", 0, len(problem.tensors) - 1)
        a, b = whole(source, "source", 0, k - 1), whole(target, "target", 0, k - 1)
        name, maker = problem.tensors[t], problem.producer[t]
        need(maker >= 0 and self.placement[maker] == a, "wrong-source", f"{name!r} is not made on {problem.ids[a]}")
        reader = whole(consumer, "consumer", -1, len(self.start) - 1)
        readers = [op for op in problem.consumers[t] if self.placement[op] == b and (not self.per_edge or op == reader)]
        wanted = bool(readers) and (self.per_edge or reader == -1)
        need(wanted, "useless-transfer", f"nobody on {problem.ids[b]} needs this transfer of {name!r}")
        took, length = whole(finish, "end") - whole(begin, "start"), problem.length(t, a, b)
        need(took == length > 0, "transfer-duration", f"the transfer of {name!r} takes {took} ns, not {length}")
        need(begin >= self.end[maker], "sent-early", f"{name!r} is sent before it is made")
        key = (t, reader if self.per_edge else b)
        need(key not in self.arrived, "sent-twice", f"{name!r} is sent twice to one place")
        self.arrived[key] = (begin, finish)
        lanes = [("send-port", f"send port of {problem.ids[a]}"), ("receive-port", f"receive port of {problem.ids[b]}")]
        if (a, b) in problem.bus:
            lanes.append(("bus", f"bus {problem.bus[a, b]}"))
        self._hold(f"the transfer of {name!r}", lanes, begin, finish, self.end[maker])

    def _hold(self, what: str, lanes: list[tuple[str, str]], begin: int, finish: int, ready: int) -> None:
        lanes = [("sequential", "the sequential runtime")] if self.sequential else lanes
        self.held.append((what, lanes, begin, finish, ready))

    def _check_exclusive(self) -> None:
        """Nothing is used twice at a time, and nothing waits on purpose: a plan is an order, times follow from it."""
        busy: dict[tuple[str, str], list[tuple[int, int]]] = {}
        for _, lanes, begin, finish, _ in self.held:
            for lane in lanes if begin < finish else ():
                busy.setdefault(lane, []).append((begin, finish))
        free: dict[tuple[tuple[str, str], int], int] = {}
        """(resource, start of a use) -> end of the use before it."""
        for (code, what), spans in busy.items():
            spans.sort()
            for before, after in pairwise(spans):
                need(before[1] <= after[0], code, f"{what} is used twice at {after[0]} ns")
                free[(code, what), after[0]] = before[1]
        over = {0, *(finish for _, _, begin, finish, _ in self.held if begin < finish)}
        for what, lanes, begin, finish, ready in self.held:
            if begin == finish and self.sequential:  # takes no time: at the beginning, or when something else has ended
                need(begin in over, "waits", f"{what} takes no time at {begin} ns, but inside or after everything else")
                continue
            earliest = 0 if self.sequential else ready
            if begin < finish:
                earliest = max([earliest, *(free.get((lane, begin), 0) for lane in lanes)])
            need(begin == earliest, "waits", f"{what} could start at {earliest} ns, but waits until {begin}")

    def _check_input(self, t: int, op: int) -> int:
        """When the tensor is on the op's device."""
        maker, name, reader = self.problem.producer[t], self.problem.tensors[t], self.problem.names[op]
        length = self.problem.length(t, self.placement[maker], self.placement[op])
        need(length >= 0, "link", f"there is no link to bring {name!r} to op {reader!r}")
        ready = self.end[maker]
        if length > 0:
            key = (t, op if self.per_edge else self.placement[op])
            need(key in self.arrived, "no-transfer", f"{name!r} never reaches the device of op {reader!r}")
            ready = self.arrived[key][1]
        code = "starts-early" if length > 0 else "precedence"
        need(self.start[op] >= ready, code, f"op {reader!r} starts before its input {name!r} is there")
        return ready

    def loads(self) -> list[int]:
        """Busy time of each device."""
        load = [0] * len(self.problem.ids)
        for op, device in enumerate(self.placement):
            load[device] += self.end[op] - self.start[op]
        return load

    def intervals(self) -> list[list[Interval]]:
        """What each device holds from when to when."""
        problem, end, finish = self.problem, self.end, max(self.end)
        held: list[list[Interval]] = [[] for _ in problem.ids]
        last_send: dict[int, int] = {}
        for (t, _), (_, done) in self.arrived.items():
            last_send[t] = max(last_send.get(t, 0), done)
        for op, device in enumerate(self.placement):
            held[device].append((self.start[op], end[op], problem.workspace[op]))
        for t, readers in enumerate(problem.consumers):
            maker, size = problem.producer[t], problem.bytes[t]
            home = self.placement[maker] if maker >= 0 else -1
            if maker >= 0:
                until = max([end[maker], last_send.get(t, 0), *(end[c] for c in readers if self.placement[c] == home)])
                held[home].append((self.start[maker], finish if problem.output[t] else until, size))
            copies: dict[tuple[int, int], int] = {}  # one per device, or one per consumer
            for c in readers:
                if self.placement[c] != home:
                    key = (self.placement[c], c if self.per_edge and maker >= 0 else -1)
                    copies[key] = max(copies.get(key, 0), end[c])
            for (device, c), until in copies.items():
                sent = (0, 0) if maker < 0 else self.arrived.get((t, c if self.per_edge else device), (end[maker], 0))
                held[device].append((sent[0], until, size))
        return held


# Throughput: everything is re-computed from the placement.


def _check_stages(problem: PlanProblem, placement: list[int], stages: Sequence[dict[str, Any]]) -> list[int]:
    """The load of every device."""
    k = len(problem.ids)
    count, compute, entering, leaving = [0] * k, [0] * k, [0] * k, [0] * k
    for op, device in enumerate(placement):
        compute[device] += problem.time[op][device]
        count[device] += 1
    for t, readers in enumerate(problem.consumers):
        if problem.producer[t] < 0:
            continue
        home = placement[problem.producer[t]]
        lengths = {placement[c]: problem.length(t, home, placement[c]) for c in readers if placement[c] != home}
        need(min(lengths.values(), default=0) >= 0, "link", f"there is no link for {problem.tensors[t]!r}")
        for device, length in lengths.items():
            entering[device] += 0 if problem.host[device] else length
        leaving[home] += 0 if problem.host[home] else max(lengths.values(), default=0)
    used, most = k - count.count(0), problem.stage_limit
    need(used <= most, "too-many-stages", f"{used} devices are used, {most} stages are allowed")
    order = _quotient_order(problem, placement)
    combine: Callable[[Iterable[int]], int] = max if problem.rule("communication", "overlapped") else sum
    load = [combine(parts) for parts in zip(compute, entering, leaving, strict=True)]
    inside, devices = {problem.ids[d] for d in order}, [stage["device"] for stage in stages]
    need(sorted(devices) == sorted(inside), "stage-devices", "the stages are not the devices that hold ops")
    need(devices == [problem.ids[d] for d in order], "stage-order", "the stages are not in pipeline order")
    for d, stage in zip(order, stages, strict=True):
        again = {"ops": count[d], "compute_ns": compute[d], "in_ns": entering[d], "out_ns": leaving[d]}
        same(stage, {**again, "load_ns": load[d]}, "stage", f"stage on {problem.ids[d]}")
    return load


def _quotient_order(problem: PlanProblem, placement: list[int]) -> list[int]:
    """Devices by the first time their node is removed in a breadth-first topological sort of the quotient graph.

    A node is a device, or an op on a host device (K + op); only forward ops count.
    """
    k = len(problem.ids)
    node = [k + op if problem.host[device] else device for op, device in enumerate(placement)]
    outputs: list[list[int]] = [[] for _ in placement]
    for t, maker in enumerate(problem.producer):
        if maker >= 0:
            outputs[maker].append(t)
    edges: dict[int, list[int]] = {node[op]: [] for op in range(len(node)) if problem.forward[op]}
    waiting = dict.fromkeys(edges, 0)
    for op, v in enumerate(node):
        if problem.forward[op]:
            readers = (c for t in outputs[op] for c in problem.consumers[t])
            edges[v] += [node[c] for c in readers if problem.forward[c] and node[c] != v]
    for target in (target for targets in edges.values() for target in targets):
        waiting[target] += 1
    queue = [v for v in sorted(waiting) if waiting[v] == 0]
    rank: dict[int, int] = {}
    for position, v in enumerate(queue):  # grows while it is read
        rank.setdefault(v if v < k else placement[v - k], position)
        for target in edges[v]:
            waiting[target] -= 1
            if waiting[target] == 0:
                queue.append(target)
    need(len(queue) == len(waiting), "cycle", "the stages depend on each other in a cycle")
    return sorted(set(placement), key=lambda d: (rank.get(d, MAX_NUMBER), d))


def _stage_intervals(problem: PlanProblem, placement: list[int]) -> list[list[Interval]]:
    """What each stage holds; time is the position of an op among the ops of its stage."""
    copies = 2 if problem.rule("communication", "overlapped") else 1
    held: list[list[Interval]] = [[] for _ in problem.ids]
    place, count = [0] * len(placement), [0] * len(problem.ids)
    for op, device in enumerate(placement):
        place[op] = count[device]
        count[device] += 1
        held[device].append((place[op], place[op] + 1, problem.workspace[op]))
    for t, readers in enumerate(problem.consumers):
        maker, size = problem.producer[t], problem.bytes[t]
        last: dict[int, int] = {}
        for c in readers:
            last[placement[c]] = max(last.get(placement[c], 0), place[c] + 1)
        if maker >= 0:
            home = placement[maker]
            until = max(last.pop(home, 0), place[maker] + 1)
            leaves = bool(last) or problem.output[t]
            held[home].append((place[maker], count[home] if leaves else until, size * copies if leaves else size))
        for device, until in last.items():
            held[device].append((0, until, size * copies))
    return held


# Memory, devices, bounds.


def _peaks(problem: PlanProblem, placement: list[int], held: list[list[Interval]]) -> list[int]:
    static = problem.rule("memory", "static")
    base = [0] * len(problem.ids)
    for op, device in enumerate(placement):
        base[device] += problem.weight[op] + (problem.workspace[op] if static else 0)
    for size, users in problem.tied:
        for device in {placement[op] for op in users}:
            base[device] += size
    return base if static else [b + _peak(intervals) for b, intervals in zip(base, held, strict=True)]


def _peak(intervals: Iterable[Interval]) -> int:
    """Largest sum of bytes at one time; what ends at t is gone before what starts at t."""
    steps = [step for a, b, size in intervals if a < b for step in ((a, 1, size), (b, 0, -size))]
    level = best = 0
    for _, _, change in sorted(steps):
        level += change
        best = max(best, level)
    return best


def _check_devices(problem: PlanProblem, given: dict[str, Any], load: list[int], peak: list[int]) -> None:
    need(set(given) == set(problem.ids), "devices", f"the devices {list(given)[:9]} are not those of the problem")
    for d, name in enumerate(problem.ids):
        limit = problem.capacity[d]
        need(limit is None or peak[d] <= limit, "memory", f"device {name} needs {peak[d]} bytes but holds {limit}")
        again = {"load_ns": load[d], "memory_bytes": peak[d], "memory_limit": limit}
        same(given[name], again, "device", f"device {name}")


def _check_bounds(problem: PlanProblem, plan: dict[str, Any], value: int) -> int:
    """Every proved bound again; -> the best proved one."""
    best, proved, by = 0, 0, {""}
    for bound in rows(plan["bounds"], "bounds"):
        claim, name, proof = whole(bound["value_ns"], "bound"), bound["by"], bound["proof"]
        need(claim <= value, "bound-too-high", f"bound {name} = {claim} lies above the value {value}")
        need(proof in ("proved", "claimed"), "bound-proof", f"bound {name}: unknown proof {proof!r:.60}")
        if proof == "proved":
            need(isinstance(bound["witness"], dict), "no-witness", f"bound {name} is called proved without a witness")
            again = bound_of(problem, bound["witness"])
            need(again >= claim, "bound-unproved", f"the witness of bound {name} proves {again}, not {claim}")
            proved = max(proved, claim)
        by = {name} if claim > best else by | {name} if claim == best else by
        best = max(best, claim)
    given = whole(plan["bound_ns"], "bound_ns")
    need(given == best, "best-bound", f"bound_ns is {given}, the best of the bounds is {best}")
    proof = "none" if best == 0 else "proved" if proved == best else "claimed"
    need(plan["proof"] == proof, "proof", f"the plan says {plan['proof']!r:.60}, but its bound is {proof}")
    need(plan["bound_by"] in by, "bound-by", f"the best bound is not by {plan['bound_by']!r:.60}")
    gap = (value - best) / value if value else 0.0
    close = isinstance(plan["gap"], float) and abs(plan["gap"] - gap) < 1e-9
    need(close, "gap", f"gap is {plan['gap']!r:.60}, re-computed {gap}")
    return proved


def bound_of(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """What a witness proves, in exact integers."""
    kind = witness["kind"]
    need(kind in WITNESSES, "witness-kind", f"unknown kind of witness {kind!r:.60}")
    return WITNESSES[kind](problem, witness)


def _groups(problem: PlanProblem) -> list[list[int]]:
    inside = {op for group in problem.together for op in group}
    return problem.together + [[op] for op in range(len(problem.names)) if op not in inside]


def _group_times(problem: PlanProblem, group: Iterable[int]) -> list[int]:
    """Total time on each device, -1 where some op cannot run."""
    columns = zip(*(problem.time[op] for op in group), strict=True)
    return [-1 if min(column) < 0 else sum(column) for column in columns]


def _load_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    weights = [whole(weight, "weight") for weight in rows(witness["weights"], "weights")]
    need(len(weights) == len(problem.ids) and sum(weights) > 0, "witness", "one weight per device, not all 0")
    # What is on a device fits its memory, so a price on every byte beyond the capacity never adds to a plan's cost.
    prices = [whole(price, "price") for price in rows(witness.get("prices", [0] * len(weights)), "prices")]
    limits = zip(prices, problem.capacity, strict=True)
    need(all(limit is not None or price == 0 for price, limit in limits), "witness", "a price without a memory limit")
    static = problem.rule("memory", "static")
    total = -sum(price * (limit or 0) for price, limit in zip(prices, problem.capacity, strict=True))
    for group in _groups(problem):
        size = sum(problem.weight[op] + (problem.workspace[op] if static else 0) for op in group)
        times = _group_times(problem, group)
        total += min(w * t + p * size for w, p, t in zip(weights, prices, times, strict=True) if t >= 0)
    # A plan uses at most so many devices, so the weights of those it uses sum to this at most.
    used = problem.stage_limit if problem.rule("objective", "throughput") else len(weights)
    return -(-total // sum(sorted(weights)[-used:]))


def _work_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    sequential = problem.rule("objective", "latency") and problem.rule("runtime", "sequential")
    need(sequential, "witness", "work bounds the sequential runtime alone")
    return sum(min(t for t in _group_times(problem, group) if t >= 0) for group in _groups(problem))


def _witness_ops(problem: PlanProblem, witness: dict[str, Any]) -> list[int]:
    ops = members(witness["ops"], "op of the witness", len(problem.names), "witness")
    need(bool(ops), "witness", "it names no op")
    return ops


def _group_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    ops = _witness_ops(problem, witness)
    shared = len(ops) == 1 or any(set(ops) <= set(group) for group in problem.together)
    need(shared, "witness", f"ops {ops[:6]} need not share a device")
    return min(t for t in _group_times(problem, ops) if t >= 0)


def _path_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    need(problem.rule("objective", "latency"), "witness", "a path bounds latency alone")
    k, earliest = len(problem.ids), dict[int, list[int]]()
    columns: dict[
        int, list[list[int]]
    ] = {}  # of each distinct row of transfer times: target -> length from each source
    for op in _witness_ops(problem, witness):
        ends = [t if t >= 0 else MAX_NUMBER for t in problem.time[op]]
        known = [(t, earliest[problem.producer[t]]) for t in problem.inputs[op] if problem.producer[t] in earliest]
        for t, _ in known:
            if id(problem.transfer[t]) not in columns:
                columns[id(problem.transfer[t])] = [_lengths_to(problem, t, d) for d in range(k)]
        for d in range(k):
            arrivals = [min(map(add, before, columns[id(problem.transfer[t])][d])) for t, before in known]
            ends[d] += max([MAX_NUMBER if arrival >= NO_WAY else arrival for arrival in arrivals], default=0)
        earliest[op] = ends
    return max(min(ends) for ends in earliest.values())


def _lengths_to(problem: PlanProblem, tensor: int, target: int) -> list[int]:
    """Of the transfers from each device."""
    lengths = [problem.length(tensor, source, target) for source in range(len(problem.ids))]
    return [length if length >= 0 else NO_WAY for length in lengths]


def _cut_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The cheapest set of ops around one op: a minimum cut, by augmenting paths."""
    added = problem.rule("objective", "throughput") and problem.rule("communication", "added")
    need(added, "witness", "a cut bounds throughput with added communication alone")
    op = whole(witness["op"], "op of the witness", 0, len(problem.names) - 1)
    hosts = any(problem.host)
    groups = [[op] for op in range(len(problem.names))] if hosts else _groups(problem)
    node = {op: number for number, group in enumerate(groups) for op in group}
    times = [_group_times(problem, group) for group in groups]
    sink, room = len(groups), dict[int, dict[int, int]]()
    for v, row in enumerate(times):
        able = [t for t, host in zip(row, problem.host, strict=True) if t >= 0 and not host]
        _join(room, v, sink, min(able, default=MAX_NUMBER), 0)
    least: dict[int, int] = {}  # of each distinct row of transfer times
    for row in {id(row): row for row in problem.transfer}.values():
        lengths = [x for i, x in enumerate(row) if x >= 0 and i % (len(problem.ids) + 1)]
        least[id(row)] = min(lengths, default=MAX_NUMBER)
    for t, maker in enumerate(problem.producer):
        readers = {node[reader] for reader in problem.consumers[t]} - {node.get(maker)}
        if maker >= 0 and readers and least[id(problem.transfer[t])] > 0:
            _join_tensor(room, node[maker], sorted(readers), least[id(problem.transfer[t])])
    on_host = [t for t, host in zip(times[node[op]], problem.host, strict=True) if t >= 0 and host]
    return min([_largest_flow(room, node[op], sink), *on_host])


def _join(room: dict[int, dict[int, int]], a: int, b: int, there: int, back: int) -> None:
    for tail, head, more in ((a, b, there), (b, a, back)):
        arcs = room.setdefault(tail, {})
        arcs[head] = arcs.get(head, 0) + more


def _join_tensor(room: dict[int, dict[int, int]], maker: int, readers: list[int], cost: int) -> None:
    """Maker inside and a reader outside cost a transfer, and so does a reader inside and the maker outside."""
    if len(readers) == 1:
        _join(room, maker, readers[0], cost, cost)
        return
    leaves, enters = -2 * len(room) - 1, -2 * len(room) - 2  # new nodes: every call adds some
    _join(room, maker, leaves, cost, 0)
    _join(room, enters, maker, cost, 0)
    for reader in readers:
        _join(room, leaves, reader, MAX_NUMBER, 0)
        _join(room, reader, enters, MAX_NUMBER, 0)


def _largest_flow(room: dict[int, dict[int, int]], source: int, sink: int) -> int:
    total = 0
    while total < MAX_NUMBER:
        came, queue = {source: source}, [source]
        for v in queue:
            for head, left in room[v].items():
                if left > 0 and head not in came:
                    came[head] = v
                    queue.append(head)
            if sink in came:
                break
        if sink not in came:
            break
        path = [sink]
        while path[-1] != source:
            path.append(came[path[-1]])
        most = min(room[b][a] for a, b in pairwise(path))
        for a, b in pairwise(path):
            room[b][a] -= most
            room[a][b] = room[a].get(b, 0) + most
        total += most
    return total


# The sequential runtime as a labelling: a device per group; costs per group, per pair of groups, and per tensor with
# several readers. What cannot be costs TOO_MUCH, which is more than all sums of times.

TOO_MUCH = 2**200
MOST_ENTRIES = 2**24
Table = tuple[list[int], list[int]]
"""Variables, and a cost for each choice of their labels, the last variable fastest."""


class Labelling:
    """What a placement costs in the sequential runtime, in 1 / scale ns, with prices on memory; minus the rebate."""

    def __init__(self, problem: PlanProblem, witness: dict[str, Any]) -> None:
        sequential = problem.rule("objective", "latency") and problem.rule("runtime", "sequential")
        need(sequential, "witness", "a labelling bounds the sequential runtime alone")
        self.problem, self.scale, self.k = problem, whole(witness.get("scale", 1), "scale", 1), len(problem.ids)
        # What is on a device fits its memory, so a price on every byte beyond the capacity never adds to a plan's cost.
        prices = [whole(price, "price") for price in rows(witness.get("prices", [0] * self.k), "prices")]
        limits = list(zip(prices, problem.capacity, strict=True))
        need(all(limit is not None or p == 0 for p, limit in limits), "witness", "a price without a memory limit")
        self.rebate = sum(price * (limit or 0) for price, limit in limits)
        groups, static = _groups(problem), problem.rule("memory", "static")
        self.unary: list[list[int]] = []
        for group in groups:
            size = sum(problem.weight[op] + (problem.workspace[op] if static else 0) for op in group)
            times = zip(_group_times(problem, group), prices, strict=True)
            self.unary.append([self.scale * t + price * size if t >= 0 else TOO_MUCH for t, price in times])
        self.pairs: dict[tuple[int, int], list[int]] = {}
        """(smaller group, larger group) -> cost by device of the one and device of the other."""
        self.stars: dict[int, tuple[int, list[int]]] = {}
        """Tensor with several readers -> group that makes it, groups that read it."""
        node = {op: number for number, group in enumerate(groups) for op in group}
        self._known: dict[tuple[int, bool], list[int]] = {}
        """Of each distinct row of transfer times, and turned round: one table for all pairs that use it."""
        for t, maker in enumerate(problem.producer):
            readers = [node[op] for op in problem.consumers[t] if maker >= 0 and node[op] != node[maker]]
            if problem.rule("transfers", "per-tensor"):
                readers = sorted(set(readers))
                if len(readers) > 1:
                    self.stars[t] = (node[maker], readers)
                    continue
            for reader in readers:
                self._join(t, node[maker], reader)
        self._drop(rows(witness.get("dropped", []), "dropped"))

    def table(self, tensor: int, turned: bool = False) -> list[int]:
        """Cost of sending a tensor, by source and target, or by target and source."""
        key, k = (id(self.problem.transfer[tensor]), turned), self.k
        if key not in self._known:
            pairs = ((b, a) if turned else (a, b) for a in range(k) for b in range(k))
            found = [self.problem.length(tensor, a, b) for a, b in pairs]
            self._known[key] = [self.scale * length if length >= 0 else TOO_MUCH for length in found]
        return self._known[key]

    def lengths(self, tensor: int, home: int) -> list[int]:
        """Cost of sending a tensor from a device to each."""
        return self.table(tensor)[home * self.k : (home + 1) * self.k]

    def _join(self, tensor: int, maker: int, reader: int) -> None:
        table = self.table(tensor, maker > reader)
        pair = (min(maker, reader), max(maker, reader))
        known = self.pairs.get(pair)
        self.pairs[pair] = table if known is None else [x + y for x, y in zip(known, table, strict=True)]

    def _drop(self, dropped: Sequence[Any]) -> None:
        """Leave out devices, each with another that is never worse: all that is on the one may go to the other."""
        k, kept = self.k, list(range(self.k))
        sent = [self.table(tensor) for tensor in self.stars]
        tables = {id(table): table for table in (*sent, *self.pairs.values())}
        for row in dropped:
            need(len(rows(row, "dropped")) == 2, "witness", "a dropped device and the one instead of it")
            b, a = (whole(d, "dropped device", 0, k - 1) for d in row)
            need(a in kept and b in kept and a != b, "witness", f"device {b} cannot be dropped for {a}")
            kept.remove(b)
            others = [d for d in kept if d != a]
            worse = any(costs[a] > costs[b] for costs in self.unary) or any(
                table[a * k + d] > table[b * k + d] or table[d * k + a] > table[d * k + b]
                for table in tables.values()
                for d in others
            )
            need(not worse, "witness", f"device {b} is sometimes better than {a}")
        if len(kept) < k:
            self.unary = [[costs[d] for d in kept] for costs in self.unary]
            small = {key: [table[a * k + b] for a in kept for b in kept] for key, table in tables.items()}
            self.pairs = {pair: small[id(table)] for pair, table in self.pairs.items()}
            self._known = {key: small[id(table)] for key, table in self._known.items() if id(table) in small}
            self.k = len(kept)

    def bound(self, total: int) -> int:
        """A sum that no labelling is below, as a bound in ns."""
        need(total < TOO_MUCH // 2, "witness", "no placement is possible at all")
        return max(0, -((self.rebate - total) // self.scale))


def _messages_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """Messages move cost between groups and what joins them: the sum of the least costs stays a lower bound."""
    model = Labelling(problem, witness)
    k, unary = model.k, [list(row) for row in model.unary]
    total = 0
    sent = _messages(witness["pairs"], k, {pair: list(pair) for pair in model.pairs}, 2)
    for (a, b), table in model.pairs.items():
        if (a, b) not in sent and any(
            max(costs) < TOO_MUCH for costs in zip(model.unary[a], model.unary[b], strict=True)
        ):
            continue  # both on one device: nothing
        first, second = sent.get((a, b)) or ([0] * k, [0] * k)
        able = [e for e in range(k) if model.unary[b][e] < TOO_MUCH]
        rests = [
            min(table[d * k + e] - second[e] for e in able) - first[d] for d in range(k) if model.unary[a][d] < TOO_MUCH
        ]
        total += min(rests)
        for group, message in ((a, first), (b, second)):
            unary[group] = [x + y for x, y in zip(unary[group], message, strict=True)]
    need(k <= 10 or not model.stars, "witness", "too many devices for tensors with several readers")
    sent = _messages(witness["stars"], k, {(t,): [home, *readers] for t, (home, readers) in model.stars.items()}, 1)
    sums: dict[tuple[int, int], list[int]] = {}
    for t, (home, readers) in model.stars.items():
        if (t,) not in sent and any(
            max(costs) < TOO_MUCH for costs in zip(*(model.unary[v] for v in (home, *readers)), strict=True)
        ):
            continue  # all on one device: nothing
        messages = sent.get((t,)) or [[0] * k] * (1 + len(readers))
        reach = [0] * (1 << k)
        for reader, message in zip(readers, messages[1:], strict=True):
            best = [TOO_MUCH]
            for m, own in zip(message, model.unary[reader], strict=True):
                here = -m if own < TOO_MUCH else TOO_MUCH
                best += [min(x, here) for x in best]
            reach = [x + y for x, y in zip(reach, best, strict=True)]
        least = TOO_MUCH
        for d in range(k):
            if model.unary[home][d] < TOO_MUCH:
                key = (id(problem.transfer[t]), d)
                if key not in sums:
                    sums[key] = _subset_sums(model.lengths(t, d))
                least = min(least, min(map(int.__add__, reach, sums[key])) - messages[0][d])
        total += least
        for group, message in zip((home, *readers), messages, strict=True):
            unary[group] = [x + y for x, y in zip(unary[group], message, strict=True)]
    able_rows = zip(unary, model.unary, strict=True)
    return model.bound(
        total + sum(min(x for x, own in zip(*pair, strict=True) if own < TOO_MUCH) for pair in able_rows)
    )


def _subset_sums(lengths: list[int]) -> list[int]:
    """Of every set of devices, by its bits."""
    sums = [0]
    for length in lengths:
        sums += [x + length for x in sums]
    return sums


def _messages(given: Any, k: int, parts: dict[Any, list[int]], keys: int) -> dict[tuple[int, ...], list[list[int]]]:
    """[numbers that name a part ..., a message per participant], each part at most once; a message has K numbers."""
    found: dict[tuple[int, ...], list[list[int]]] = {}
    for row in rows(given, "messages"):
        need(len(rows(row, "messages")) > keys, "witness", "messages without a place")
        key = tuple(whole(i, "place of messages") for i in row[:keys])
        need(key in parts and key not in found, "witness", f"messages for {key}, which do not exist or stand twice")
        found[key] = [
            [whole(m, "message", -MAX_NUMBER, MAX_NUMBER) for m in rows(one, "message")] for one in row[keys:]
        ]
        fits = len(found[key]) == len(parts[key]) and all(len(one) == k for one in found[key])
        need(fits, "witness", f"messages for {key} do not fit")
    return found


def _elimination_bound(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The cheapest labelling, exactly: one variable after another is minimised away, in the order of the witness.

    Variables are the groups, then the tensors with several readers: where each is made, and which devices hold it.
    """
    model = Labelling(problem, witness)
    return model.bound(
        _least_cost(model, [[d for d in range(model.k) if row[d] < TOO_MUCH] for row in model.unary], witness)
    )


def _least_cost(model: Labelling, devices: list[list[int]], witness: dict[str, Any]) -> int:
    """Over all labellings that use these devices."""
    need(all(devices), "witness", "a group has no device left")
    sizes = [len(able) for able in devices]
    tables: list[Table] = [([v], [model.unary[v][d] for d in able]) for v, able in enumerate(devices)]
    for (a, b), costs in model.pairs.items():
        tables.append(([a, b], [costs[d * model.k + e] for d in devices[a] for e in devices[b]]))
    for t, (home, readers) in model.stars.items():
        labels = _star_labels(model, t, devices[home], [devices[reader] for reader in readers])
        v = len(sizes)
        sizes.append(len(labels))
        tables.append(([v], [cost for _, _, cost in labels]))
        tables.append(([home, v], [0 if at == d else TOO_MUCH for d in devices[home] for at, _, _ in labels]))
        for reader in readers:
            held = [0 if held >> d & 1 else TOO_MUCH for d in devices[reader] for _, held, _ in labels]
            tables.append(([reader, v], held))
    order = [whole(v, "variable", 0, len(sizes) - 1) for v in rows(witness["order"], "order")]
    need(sorted(order) == [v for v, size in enumerate(sizes) if size > 1], "witness", "the order has other variables")
    waiting: dict[int, list[Table]] = {v: [] for v in order}
    place = {v: i for i, v in enumerate(order)}
    total, left = 0, MOST_ENTRIES
    for scope, table in tables:
        open_ones = [v for v in scope if sizes[v] > 1]
        if open_ones:
            waiting[min(open_ones, key=place.__getitem__)].append((open_ones, table))
        else:
            total += table[0]
    for v in order:
        mine = waiting.pop(v)
        scope = sorted({u for own, _ in mine for u in own} - {v})
        left -= math.prod(sizes[u] for u in scope) * sizes[v]
        need(left >= 0, "witness", "this order of elimination takes too long")
        least = _minimised(mine, v, scope, sizes)
        if scope:
            waiting[min(scope, key=place.__getitem__)].append((scope, least))
        else:
            total += least[0]
    return total


def _minimised(mine: list[Table], v: int, scope: list[int], sizes: list[int]) -> list[int]:
    """The sum of tables, minimised over v: a table over the others."""
    columns: list[list[int]] = [[]] * sizes[v]
    for own, table in mine:
        step, steps = 1, dict[int, int]()
        for u in reversed(own):
            steps[u] = step
            step *= sizes[u]
        where = [0]
        for u in scope:
            stride = steps.get(u, 0)
            where = [i + stride * x for i in where for x in range(sizes[u])]
        for x in range(sizes[v]):
            shift = steps[v] * x
            here = [table[i + shift] for i in where]
            columns[x] = list(map(int.__add__, columns[x], here)) if columns[x] else here
    return list(map(min, *columns)) if len(columns) > 1 else columns[0]


def _star_labels(
    model: Labelling, tensor: int, homes: list[int], readers: list[list[int]]
) -> list[tuple[int, int, int]]:
    """Home of a tensor, devices that hold it (as bits), and the cost; what costs nothing to reach is always there."""
    useful = sorted({d for able in readers for d in able})
    labels = []
    for home in homes:
        row = model.lengths(tensor, home)
        free = sum(1 << d for d in useful if row[d] == 0) | 1 << home
        costly = [d for d in useful if 0 < row[d] < TOO_MUCH]
        need(len(costly) <= 10, "witness", "too many devices for tensors with several readers")
        for pick in range(1 << len(costly)):
            chosen = [d for i, d in enumerate(costly) if pick >> i & 1]
            if len(chosen) <= len(readers):
                labels.append((home, free | sum(1 << d for d in chosen), sum(row[d] for d in chosen)))
    return labels


WITNESSES: dict[str, Callable[[PlanProblem, dict[str, Any]], int]] = {
    "path": _path_bound,
    "load": _load_bound,
    "work": _work_bound,
    "group": _group_bound,
    "cut": _cut_bound,
    "messages": _messages_bound,
    "elimination": _elimination_bound,
}


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    if len(arguments) != 1:
        print("usage: check.py plan.json", file=sys.stderr)  # noqa: T201
        return 2
    try:
        verdict = check_plan(read_plan(arguments[0]))
    except Refusal as refusal:
        print(json.dumps({"ok": False, "code": refusal.code, "message": str(refusal)}))  # noqa: T201
        return refusal.exit_code
    print(json.dumps({"ok": True, **verdict._asdict()}))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
