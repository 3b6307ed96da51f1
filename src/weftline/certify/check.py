"""Checks a plan file with the standard library alone: `python check.py plan.json` (exit 0, 3 unreadable, 6 refused).

It re-computes the value from placement and timeline, memory from the intervals, and each proved bound from its witness.
It knows the rules of time and memory (docs/concepts.md) and nothing about how a plan was found.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

__all__ = ["Refusal", "Verdict", "bound_of", "check_plan", "read_plan"]

LIMIT = 2**62
Interval = tuple[int, int, int]
"""start, end, bytes"""


class Refusal(Exception):
    """The plan does not hold. `code` is one word for programs, `unreadable` means it could not even be read."""

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        super().__init__(f"{code}: {message}")


class Verdict(NamedTuple):
    """What was re-computed."""

    objective: str
    value_ns: int
    proved_bound_ns: int
    checks: tuple[str, ...]


def need(condition: bool, code: str, message: str) -> None:
    """Refuse unless."""
    if not condition:
        raise Refusal(code, message)


def read_plan(path: str) -> dict[str, Any]:
    """Parse strictly: one JSON object, no NaN, no duplicate keys."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        table = dict(pairs)
        need(len(table) == len(pairs), "unreadable", "a key stands twice in one object")
        return table

    def constant(word: str) -> None:
        raise Refusal("unreadable", f"{word} is not a number that a plan may hold")

    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123
            plan = json.load(file, object_pairs_hook=once, parse_constant=constant)
    except (OSError, ValueError, RecursionError, MemoryError) as error:
        raise Refusal("unreadable", f"{path}: {error}") from error
    need(isinstance(plan, dict) and plan.get("format") == "weftline-plan", "unreadable", f"{path}: not a weftline plan")
    return plan  # type: ignore[no-any-return]


def whole(value: Any, what: str, low: int = 0, high: int = LIMIT) -> int:
    """An integer within limits (True and 1.0 are not integers)."""
    need(type(value) is int, "type", f"{what} must be a whole number, not {value!r:.60}")
    need(value >= low, "negative", f"{what} = {value} is below {low}") if low == 0 else None
    need(low <= value <= high, "range", f"{what} = {value!s:.30} is not in {low}..{high}")
    return value  # type: ignore[no-any-return]


def rows(value: Any, what: str) -> Sequence[Any]:
    """A list."""
    need(isinstance(value, list | tuple), "type", f"{what} must be a list")
    return value  # type: ignore[no-any-return]


class Problem:
    """The embedded problem as plain lists, checked."""

    def __init__(self, form: dict[str, Any]) -> None:
        graph, self.rules = form["graph"], form["rules"]
        self.ops, self.tensors, self.tied = (
            rows(graph["ops"], "ops"),
            rows(graph["tensors"], "tensors"),
            graph.get("tied", []),
        )
        self.devices = rows(form["devices"], "devices")
        self.names = [op["name"] for op in self.ops]
        self.ids = [device["id"] for device in self.devices]
        n, k = len(self.ops), len(self.devices)
        need(n > 0 and len(set(self.names)) == n, "problem", "op names must exist and be unique")
        need(k > 0 and len(set(self.ids)) == k, "problem", "device ids must exist and be unique")
        table = [[whole(t, "time", -1) for t in row] for row in form["time_rows"]]
        need(
            len(form["time_row"]) == n and all(len(row) == k for row in table),
            "problem",
            "times do not fit ops and devices",
        )
        self.time = [table[whole(i, "time_row", 0, len(table) - 1)] for i in form["time_row"]]
        matrices = [[whole(t, "transfer", -1) for t in row] for row in form["transfer_rows"]]
        need(all(len(row) == k * k for row in matrices), "problem", "transfer rows do not fit the devices")
        need(len(form["transfer_row"]) == len(self.tensors), "problem", "transfers do not fit the tensors")
        self.transfer = [matrices[whole(i, "transfer_row", 0, len(matrices) - 1)] for i in form["transfer_row"]]
        self.together = [[whole(op, "together", 0, n - 1) for op in group] for group in form["together"]]
        self.bus = {(whole(a, "bus", 0, k - 1), whole(b, "bus", 0, k - 1)): str(name) for a, b, name in form["buses"]}
        self.producer = [whole(t["producer"], "producer", -1, n - 1) for t in self.tensors]
        self.consumers = [[whole(c, "consumer", 0, n - 1) for c in t.get("consumers", [])] for t in self.tensors]
        self.bytes = [whole(t.get("bytes", 0), "tensor bytes") for t in self.tensors]
        for p, readers in zip(self.producer, self.consumers, strict=True):
            need(all(p < c for c in readers), "problem", "the embedded graph is not in topological order")
        self.inputs: list[list[int]] = [[] for _ in self.ops]
        for t, readers in enumerate(self.consumers):
            for c in readers:
                if self.producer[t] >= 0:
                    self.inputs[c].append(t)

    def rule(self, name: str, value: str) -> bool:
        """Does this rule have that value?"""
        return bool(self.rules[name] == value)

    def length(self, tensor: int, source: int, target: int) -> int:
        """Time of a transfer; 0 inside a device."""
        return 0 if source == target else self.transfer[tensor][source * len(self.devices) + target]


def check_plan(plan: dict[str, Any]) -> Verdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(plan)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Refusal("structure", f"the plan's structure is broken: {type(error).__name__} {error}") from error


def _check(plan: dict[str, Any]) -> Verdict:
    digest = hashlib.sha256(
        json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False).encode()
    ).hexdigest()
    need(digest == plan["provenance"]["problem_sha256"], "hash", "the embedded problem is not the one that was planned")
    problem = Problem(plan["problem"])
    need(
        plan["objective"] == problem.rules["objective"],
        "objective",
        "the plan answers another question than its problem",
    )
    placement = _placement(problem, plan["placement"])
    for group in problem.together:
        names = [problem.names[op] for op in group]
        need(len({placement[op] for op in group}) == 1, "together", f"ops that must share a device do not: {names[:4]}")
    if plan["objective"] == "latency":
        value, load, held = _check_timeline(problem, placement, plan["timeline"])
    else:
        value, load, held = _check_stages(problem, placement, plan["stages"])
    _check_devices(problem, plan["devices"], load, _peaks(problem, placement, held))
    need(whole(plan["value_ns"], "value_ns") == value, "value", f"value_ns is {plan['value_ns']}, re-computed {value}")
    proved = _check_bounds(problem, plan, value)
    checks = ("problem hash", "placement", "order and exclusivity", "memory", "value", "bound")
    return Verdict(plan["objective"], value, proved, checks)


def _placement(problem: Problem, given: dict[str, str]) -> list[int]:
    missing = next((name for name in problem.names if name not in given), None)
    need(missing is None, "missing-op", f"op {missing!r} has no device")
    need(len(given) == len(problem.names), "unknown-op", "the placement holds ops that the graph does not have")
    number = {name: i for i, name in enumerate(problem.ids)}
    for name, device in given.items():
        need(device in number, "unknown-device", f"op {name!r} stands on unknown device {device!r}")
    placement = [number[given[name]] for name in problem.names]
    for op, device in enumerate(placement):
        need(
            problem.time[op][device] >= 0,
            "forbidden",
            f"device {problem.ids[device]} cannot run op {problem.names[op]!r}",
        )
    return placement


# Latency: the timeline is taken as it is, and every rule is tested on it.


def _check_timeline(
    problem: Problem, placement: list[int], timeline: dict[str, Any]
) -> tuple[int, list[int], list[list[Interval]]]:
    n, per_edge = len(problem.ops), problem.rule("transfers", "per-edge")
    start, end = [-1] * n, [-1] * n
    for row in rows(timeline["ops"], "timeline.ops"):
        op, begin, finish = whole(row[0], "op", 0, n - 1), whole(row[1], "start"), whole(row[2], "end")
        need(start[op] < 0, "duplicate-op", f"op {problem.names[op]!r} runs twice")
        duration = problem.time[op][placement[op]]
        need(
            finish - begin == duration,
            "duration",
            f"op {problem.names[op]!r} takes {finish - begin} ns, not {duration}",
        )
        start[op], end[op] = begin, finish
    late = next((op for op in range(n) if start[op] < 0), None)
    need(late is None, "missing-op", f"op {problem.names[late or 0]!r} never runs")
    busy: dict[tuple[str, Any], list[tuple[int, int]]] = {}
    arrived: dict[tuple[int, int], tuple[int, int]] = {}
    for tensor, source, target, consumer, begin, finish in rows(timeline["transfers"], "timeline.transfers"):
        t, s, d = (
            whole(tensor, "tensor", 0, len(problem.tensors) - 1),
            whole(source, "source"),
            whole(target, "target", 0, len(problem.ids) - 1),
        )
        name = problem.tensors[t]["name"]
        need(
            problem.producer[t] >= 0 and placement[problem.producer[t]] == s,
            "transfer",
            f"{name!r} is not made on device {s}",
        )
        readers = [c for c in problem.consumers[t] if placement[c] == d and (not per_edge or c == consumer)]
        need(
            bool(readers) and (per_edge or consumer == -1),
            "transfer",
            f"nobody on device {d} needs {name!r} from this transfer",
        )
        length = problem.length(t, s, d)
        need(
            length > 0 and whole(finish, "end") - whole(begin, "start") == length,
            "duration",
            f"transfer of {name!r} must take {length} ns",
        )
        need(begin >= end[problem.producer[t]], "precedence", f"{name!r} is sent before it is made")
        key = (t, consumer if per_edge else d)
        need(key not in arrived, "transfer", f"{name!r} is sent twice to one place")
        arrived[key] = (begin, finish)
        lanes: list[tuple[str, Any]] = [("send port of", s), ("receive port of", d)]
        lanes += [("bus", problem.bus[s, d])] if (s, d) in problem.bus else []
        for lane in [("runtime", "sequential")] if problem.rule("runtime", "sequential") else lanes:
            busy.setdefault(lane, []).append((begin, finish))
    for op in range(n):
        for t in problem.inputs[op]:
            _check_edge(problem, placement, t, op, start, end, arrived)
        lane = ("runtime", "sequential") if problem.rule("runtime", "sequential") else ("device", placement[op])
        busy.setdefault(lane, []).append((start[op], end[op]))
    _check_exclusive(problem, busy)
    load = [sum(end[op] - start[op] for op in range(n) if placement[op] == d) for d in range(len(problem.ids))]
    return max(end), load, _latency_intervals(problem, placement, start, end, arrived)


def _check_edge(
    problem: Problem,
    placement: list[int],
    t: int,
    op: int,
    start: list[int],
    end: list[int],
    arrived: dict[tuple[int, int], tuple[int, int]],
) -> None:
    maker, name = problem.producer[t], problem.names[op]
    length = problem.length(t, placement[maker], placement[op])
    need(length >= 0, "link", f"there is no link to bring {problem.tensors[t]['name']!r} to op {name!r}")
    ready = end[maker]
    if length > 0:
        key = (t, op if problem.rule("transfers", "per-edge") else placement[op])
        need(key in arrived, "transfer", f"{problem.tensors[t]['name']!r} never reaches the device of op {name!r}")
        ready = arrived[key][1]
    need(
        start[op] >= ready, "precedence", f"op {name!r} starts before its input {problem.tensors[t]['name']!r} is there"
    )


def _check_exclusive(problem: Problem, busy: dict[tuple[str, Any], list[tuple[int, int]]]) -> None:
    for (what, which), spans in busy.items():
        taken = sorted(span for span in spans if span[0] < span[1])
        for before, after in zip(taken, taken[1:], strict=False):
            place = problem.ids[which] if isinstance(which, int) else which
            code = {"device": "overlap", "runtime": "overlap", "bus": "bus"}.get(what, "port")
            need(before[1] <= after[0], code, f"{what} {place} is used twice at {after[0]} ns")


def _latency_intervals(
    problem: Problem,
    placement: list[int],
    start: list[int],
    end: list[int],
    arrived: dict[tuple[int, int], tuple[int, int]],
) -> list[list[Interval]]:
    held: list[list[Interval]] = [[] for _ in problem.ids]
    per_edge, last_send = problem.rule("transfers", "per-edge"), dict[int, int]()
    for (t, _), (_, finish) in arrived.items():
        last_send[t] = max(last_send.get(t, 0), finish)
    for op, form in enumerate(problem.ops):
        held[placement[op]].append((start[op], end[op], whole(form.get("workspace_bytes", 0), "workspace")))
    for t, readers in enumerate(problem.consumers):
        maker, size = problem.producer[t], problem.bytes[t]
        home = placement[maker] if maker >= 0 else -1
        if maker >= 0:
            until = max([end[maker], last_send.get(t, 0), *(end[c] for c in readers if placement[c] == home)])
            until = max(end) if problem.tensors[t].get("output", False) else until
            held[home].append((start[maker], until, size))
        copies: dict[tuple[int, int], int] = {}
        for c in readers:
            if placement[c] != home:
                key = (placement[c], c if per_edge and maker >= 0 else -1)
                copies[key] = max(copies.get(key, 0), end[c])
        for (device, consumer), until in copies.items():
            begin = 0 if maker < 0 else arrived.get((t, consumer if per_edge else device), (end[maker], 0))[0]
            held[device].append((begin, until, size))
    return held


# Throughput: everything is re-computed from the placement.


def _check_stages(
    problem: Problem, placement: list[int], stages: list[dict[str, Any]]
) -> tuple[int, list[int], list[list[Interval]]]:
    k = len(problem.ids)
    compute, entering, leaving, count = [0] * k, [0] * k, [0] * k, [0] * k
    host = [bool(device.get("host", False)) for device in problem.devices]
    for op, device in enumerate(placement):
        compute[device] += problem.time[op][device]
        count[device] += 1
    for t, readers in enumerate(problem.consumers):
        if problem.producer[t] < 0:
            continue
        home = placement[problem.producer[t]]
        lengths = {placement[c]: problem.length(t, home, placement[c]) for c in readers if placement[c] != home}
        need(
            all(length >= 0 for length in lengths.values()),
            "link",
            f"there is no link for {problem.tensors[t]['name']!r}",
        )
        for device, length in lengths.items():
            entering[device] += 0 if host[device] else length
        leaving[home] += 0 if host[home] else max(lengths.values(), default=0)
    used = [d for d in range(k) if count[d]]
    need(len(used) <= (problem.rules["stages"] or k), "stages", "more devices are used than stages are allowed")
    order = _quotient_order(problem, placement, host)
    overlapped = problem.rule("communication", "overlapped")
    load = [max(p) if overlapped else sum(p) for p in zip(compute, entering, leaving, strict=True)]
    need(
        [s["device"] for s in stages] == [problem.ids[d] for d in order],
        "stages",
        "the stages are not in pipeline order",
    )
    for d, stage in zip(order, stages, strict=True):
        again = {
            "ops": count[d],
            "compute_ns": compute[d],
            "in_ns": entering[d],
            "out_ns": leaving[d],
            "load_ns": load[d],
        }
        for key, expected in again.items():
            need(
                stage[key] == expected,
                "stages",
                f"stage on {problem.ids[d]}: {key} is {stage[key]!r}, re-computed {expected}",
            )
    return max(load), load, _stage_intervals(problem, placement, count, 2 if overlapped else 1)


def _quotient_order(problem: Problem, placement: list[int], host: list[bool]) -> list[int]:
    """Devices by the first time their node is removed in a breadth-first topological sort of the quotient graph."""
    k = len(problem.ids)
    forward = [not op.get("backward", False) for op in problem.ops]
    node = [k + op if host[d] else d for op, d in enumerate(placement)]
    edges: dict[int, list[int]] = {}
    waiting: dict[int, int] = {node[op]: 0 for op in range(len(node)) if forward[op]}
    members: dict[int, list[int]] = {}
    for op, v in enumerate(node):
        if forward[op]:
            members.setdefault(v, []).append(op)
    outputs: list[list[int]] = [[] for _ in problem.ops]
    for t, p in enumerate(problem.producer):
        if p >= 0:
            outputs[p].append(t)
    for v, ops in members.items():
        targets = [
            node[c] for op in ops for t in outputs[op] for c in problem.consumers[t] if forward[c] and node[c] != v
        ]
        edges[v] = targets
        for target in targets:
            waiting[target] += 1
    queue = [v for v in sorted(waiting) if waiting[v] == 0]
    rank: dict[int, int] = {}
    for position, v in enumerate(queue):
        rank.setdefault(v if v < k else placement[v - k], position)
        for target in edges[v]:
            waiting[target] -= 1
            if waiting[target] == 0:
                queue.append(target)
    need(len(queue) == len(waiting), "cycle", "the stages depend on each other in a cycle")
    return sorted(set(placement), key=lambda d: (rank.get(d, LIMIT), d))


def _stage_intervals(problem: Problem, placement: list[int], count: list[int], copies: int) -> list[list[Interval]]:
    held: list[list[Interval]] = [[] for _ in problem.ids]
    place, seen = [0] * len(placement), [0] * len(problem.ids)
    for op, device in enumerate(placement):
        place[op] = seen[device]
        seen[device] += 1
        size = whole(problem.ops[op].get("workspace_bytes", 0), "workspace")
        held[device].append((place[op], place[op] + 1, size))
    for t, readers in enumerate(problem.consumers):
        maker, size = problem.producer[t], problem.bytes[t]
        last: dict[int, int] = {}
        for c in readers:
            last[placement[c]] = max(last.get(placement[c], 0), place[c] + 1)
        if maker >= 0:
            home = placement[maker]
            until = max(last.pop(home, 0), place[maker] + 1)
            leaves = bool(last) or bool(problem.tensors[t].get("output", False))
            held[home].append((place[maker], count[home] if leaves else until, size * copies if leaves else size))
        for device, until in last.items():
            held[device].append((0, until, size * copies))
    return held


# Memory, devices, bounds.


def _peaks(problem: Problem, placement: list[int], held: list[list[Interval]]) -> list[int]:
    static = problem.rule("memory", "static")
    base = [0] * len(problem.ids)
    for op, form in enumerate(problem.ops):
        base[placement[op]] += whole(form.get("weight_bytes", 0), "weight")
        base[placement[op]] += whole(form.get("workspace_bytes", 0), "workspace") if static else 0
    for weight in problem.tied:
        for device in {placement[op] for op in weight["ops"]}:
            base[device] += whole(weight["bytes"], "tied weight")
    return base if static else [b + _peak(intervals) for b, intervals in zip(base, held, strict=True)]


def _peak(intervals: Iterable[Interval]) -> int:
    """Largest sum of bytes at one time; what ends at t is gone before what starts at t."""
    steps = [step for a, b, size in intervals if a < b for step in ((a, 1, size), (b, 0, -size))]
    level = best = 0
    for _, _, change in sorted(steps):
        level += change
        best = max(best, level)
    return best


def _check_devices(problem: Problem, given: dict[str, Any], load: list[int], peak: list[int]) -> None:
    need(set(given) == set(problem.ids), "devices", "the plan's devices are not the problem's")
    for d, name in enumerate(problem.ids):
        capacity = problem.devices[d].get("capacity")
        limit = LIMIT if capacity is None else whole(capacity, "capacity")
        need(peak[d] <= limit, "memory", f"device {name} needs {peak[d]} bytes but holds {limit}")
        again = {"load_ns": load[d], "memory_bytes": peak[d], "memory_limit": capacity}
        for key, expected in again.items():
            need(
                given[name][key] == expected,
                "devices",
                f"device {name}: {key} is {given[name][key]!r}, re-computed {expected}",
            )


def _check_bounds(problem: Problem, plan: dict[str, Any], value: int) -> int:
    """Every proved bound again; -> the best proved one."""
    best, proved = 0, 0
    for bound in rows(plan["bounds"], "bounds"):
        claim = whole(bound["value_ns"], "bound")
        need(claim <= value, "bound", f"bound {bound['by']} = {claim} lies above the value {value}")
        need(bound["proof"] in ("proved", "claimed"), "proof", f"unknown proof {bound['proof']!r}")
        best = max(best, claim)
        if bound["proof"] == "proved":
            again = bound_of(problem, bound["witness"])
            need(again >= claim, "bound", f"the witness of bound {bound['by']} proves {again}, not {claim}")
            proved = max(proved, claim)
    need(
        whole(plan["bound_ns"], "bound_ns") == best,
        "bound",
        f"bound_ns is {plan['bound_ns']}, the best of the bounds is {best}",
    )
    proof = "none" if best == 0 else "proved" if proved == best else "claimed"
    need(plan["proof"] == proof, "proof", f"the plan says {plan['proof']!r}, but its bound is {proof}")
    gap = (value - best) / value if value else 0.0
    need(
        isinstance(plan["gap"], float) and abs(plan["gap"] - gap) < 1e-9,
        "gap",
        f"gap is {plan['gap']!r}, re-computed {gap}",
    )
    return proved


def bound_of(problem: Problem, witness: dict[str, Any]) -> int:
    """What a witness proves, in exact integers."""
    kinds: dict[str, Callable[[Problem, dict[str, Any]], int]] = {
        "path": _path_bound,
        "load": _load_bound,
        "work": _work_bound,
        "group": _group_bound,
    }
    need(witness["kind"] in kinds, "witness", f"unknown kind of witness {witness['kind']!r}")
    return kinds[witness["kind"]](problem, witness)


def _groups(problem: Problem) -> list[list[int]]:
    members = {op for group in problem.together for op in group}
    return problem.together + [[op] for op in range(len(problem.ops)) if op not in members]


def _group_times(problem: Problem, group: list[int]) -> list[int]:
    """Total time on each device, -1 where some op cannot run."""
    columns = [[problem.time[op][d] for op in group] for d in range(len(problem.ids))]
    return [-1 if min(column) < 0 else sum(column) for column in columns]


def _load_bound(problem: Problem, witness: dict[str, Any]) -> int:
    weights = [whole(weight, "weight") for weight in witness["weights"]]
    need(len(weights) == len(problem.ids) and sum(weights) > 0, "witness", "one weight per device, not all 0")
    total = 0
    for group in _groups(problem):
        total += min(w * t for w, t in zip(weights, _group_times(problem, group), strict=True) if t >= 0)
    return -(-total // sum(weights))


def _work_bound(problem: Problem, witness: dict[str, Any]) -> int:
    need(
        problem.rule("objective", "latency") and problem.rule("runtime", "sequential"),
        "witness",
        "work bounds the sequential runtime alone",
    )
    return sum(min(t for t in _group_times(problem, group) if t >= 0) for group in _groups(problem))


def _group_bound(problem: Problem, witness: dict[str, Any]) -> int:
    ops = [whole(op, "op", 0, len(problem.ops) - 1) for op in witness["ops"]]
    need(any(set(ops) <= set(group) for group in _groups(problem)), "witness", "these ops need not share a device")
    return min(t for t in _group_times(problem, ops) if t >= 0)


def _path_bound(problem: Problem, witness: dict[str, Any]) -> int:
    need(problem.rule("objective", "latency"), "witness", "a path bounds latency alone")
    k, earliest = len(problem.ids), dict[int, list[int]]()
    for op in sorted({whole(op, "op", 0, len(problem.ops) - 1) for op in witness["ops"]}):
        ends = [t if t >= 0 else LIMIT for t in problem.time[op]]
        known = [(t, earliest[problem.producer[t]]) for t in problem.inputs[op] if problem.producer[t] in earliest]
        for d in range(k):
            arrivals = [
                min([before[a] + length for a in range(k) if (length := problem.length(t, a, d)) >= 0], default=LIMIT)
                for t, before in known
            ]
            ends[d] += max(arrivals, default=0)
        earliest[op] = ends
    return max(min(ends) for ends in earliest.values())


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    if len(arguments) != 1:
        print("usage: check.py plan.json", file=sys.stderr)  # noqa: T201
        return 2
    try:
        verdict = check_plan(read_plan(arguments[0]))
    except Refusal as refusal:
        print(json.dumps({"ok": False, "code": refusal.code, "message": str(refusal)}))  # noqa: T201
        return 3 if refusal.code == "unreadable" else 6
    print(json.dumps({"ok": True, **verdict._asdict()}))  # noqa: T201
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
