"""The reader that all checkers share: strict JSON, values within limits, and the embedded problem as plain lists.

In: the bytes of a file. Out: `PlanProblem`, or a `Refusal` with one word for programs and a sentence. Simplified:
nothing is trusted, and nothing but the standard library is used.
"""

from __future__ import annotations

import json
import math
import os
import stat
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

__all__ = [
    "MAX_NUMBER",
    "NO_WAY",
    "Interval",
    "PlanProblem",
    "Refusal",
    "Unreadable",
    "flag",
    "group_times",
    "groups_of",
    "members",
    "need",
    "read_plan",
    "read_strictly",
    "rows",
    "run_checker",
    "same",
    "whole",
    "witness_ops",
]

MAX_NUMBER = 2**62
NO_WAY = 2**200
"""The length of a transfer that cannot be made: longer than any sum."""
MAX_FILE_BYTES = 2 * 2**30
RULES = {
    "objective": ("latency", "throughput"),
    "runtime": ("parallel", "sequential"),
    "transfers": ("per-tensor", "per-edge"),
    "communication": ("added", "overlapped"),
    "memory": ("dynamic", "static"),
}

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


def need(condition: bool, code: str, message: str) -> None:
    """Refuse unless."""
    if not condition:
        raise Refusal(code, message)


# Reading: strict JSON, then values of the right type within limits.


def run_checker(file: str, check: Callable[[str], Any], arguments: list[str]) -> int:
    """A checker as a program: print one JSON object about the file that is named; exit 0, 3 or 6, or 2 without one."""
    if len(arguments) != 1:
        print(f"usage: check.pyz {file}", file=sys.stderr)  # noqa: T201
        return 2
    try:
        verdict = check(arguments[0])
    except Refusal as refusal:
        print(json.dumps({"ok": False, "code": refusal.code, "message": str(refusal)}))  # noqa: T201
        return refusal.exit_code
    print(json.dumps({"ok": True, **verdict._asdict()}))  # noqa: T201
    return 0


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


def groups_of(problem: PlanProblem) -> list[list[int]]:
    """The sets of `together`, then every other op alone."""
    inside = {op for group in problem.together for op in group}
    return problem.together + [[op] for op in range(len(problem.names)) if op not in inside]


def group_times(problem: PlanProblem, group: Iterable[int]) -> list[int]:
    """Total time on each device, -1 where some op cannot run."""
    columns = zip(*(problem.time[op] for op in group), strict=True)
    return [-1 if min(column) < 0 else sum(column) for column in columns]


def witness_ops(problem: PlanProblem, witness: dict[str, Any]) -> list[int]:
    """The ops that a witness names, at least one."""
    ops = members(witness["ops"], "op of the witness", len(problem.names), "witness")
    need(bool(ops), "witness", "it names no op")
    return ops
