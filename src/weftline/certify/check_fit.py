"""Checks a plan of a language model on cards with the standard library alone: `python check.pyz plan.json` (exit 0, 3
or 6).

It re-adds the time of a step, what every device holds, the rates, and the bound (`bound_fit.py` says why it holds). It
knows nothing about how a plan was found.
"""

from __future__ import annotations

import hashlib
import json
import sys
from typing import Any, NamedTuple

from weftline.certify.bound_fit import fit_bound
from weftline.certify.fit_numbers import FitNumbers, FitUnitNumbers
from weftline.certify.problem import Refusal, need, read_strictly, rows, whole

__all__ = ["FitVerdict", "check_fit_plan", "fit_bound", "fit_value", "main", "read_fit_plan"]

CHECKS = ("problem hash", "segments", "rules", "memory", "layers", "value", "bound", "rate")
FIELDS = {
    "format",
    "version",
    "objective",
    "value_ns",
    "bound_ns",
    "gap",
    "proof",
    "bound_by",
    "tokens_per_second",
    "measured_factor",
    "bound_tokens_per_second",
    "prefill_tokens_per_second",
    "first_token_ns",
    "baselines",
    "free_tokens_per_second",
    "advice",
    "model",
    "terms",
    "devices",
    "moved",
    "host",
    "command",
    "launch",
    "notes",
    "asked",
    "solver",
    "seconds",
    "stopped_by",
    "segments",
    "bounds",
    "provenance",
    "problem",
}


class FitVerdict(NamedTuple):
    """What was re-computed."""

    value_ns: int
    proved_bound_ns: int
    """No plan that obeys the rules takes less; 0: nothing is proved."""
    bound_ns: int
    """The plan's own; where it lies above the proved one it is a claim, which was not checked."""
    checks: tuple[str, ...]


def read_fit_plan(path: str) -> dict[str, Any]:
    """Parse strictly."""
    return read_strictly(path, "fit")


# The value: segments, rules, memory, time.


def fit_value(problem: dict[str, Any], segments: Any) -> tuple[int, list[list[int]]]:
    """(time of a step, bytes of each device: one number for each part, and one for buffers), or a `Refusal`."""
    return _added(FitNumbers(problem), segments)


def _added(problem: FitNumbers, segments: Any) -> tuple[int, list[list[int]]]:
    times, before, taken = [], 0, set[int]()
    end, host, cards = problem.end, problem.host, 0
    held = [[0] * (len(problem.parts) + 1) for _ in problem.limits]
    spread = len(rows(segments, "segments")) > 1 and not any(one["moved"] or one["unit"] == host for one in segments)
    last_unit, sizes = None, set[int]()
    host_device = None if host is None else problem.pools[problem.units[host].takes[0][0]][0]
    extra = [0] * len(problem.limits)
    if host is not None and host_device is not None:
        alone = len(segments) == 1 and segments[0]["unit"] == host
        held[host_device][-1] = problem.units[host].buffers["alone" if alone else "first"]
    for one in segments:
        need(one.keys() == {"unit", "devices", "first", "last", "moved"}, "fields", "a segment: wrong fields")
        unit = whole(one["unit"], "unit", 0, len(problem.units) - 1)
        first, last = whole(one["first"], "first"), whole(one["last"], "last")
        need(first == before < last <= end, "segment", f"rows {first} to {last} do not follow on row {before}")
        about = problem.units[unit]
        mine = _own_devices(problem, about, one["devices"], taken)
        moved = _moved(problem, one["moved"], first, last, on_host=unit == host)
        need(unit != host or problem.host_rows == "any" or (problem.host_rows, first) == ("first", 0), "rule", "host")
        total = 0 if last_unit is None else problem.hops[last_unit][unit]
        for row in range(first, last):
            kind = problem.rows[row]
            total += about.row_ns[kind]
            for part in range(len(problem.parts)):
                if (row, part) in moved and host is not None and host_device is not None:
                    total += problem.units[host].ns[kind][part] + about.trip_ns
                    held[host_device][part] += problem.units[host].bytes[kind][part]
                else:
                    total += about.ns[kind][part]
                    for device in mine:
                        held[device][part] += about.bytes[kind][part]
        if unit != host:
            place = ("middle" if cards else "first", "last" if cards else "alone")[last == end]
            for device in mine:
                held[device][-1] += about.buffers[place]
                extra[device] += about.pipelined[place] - about.buffers[place]
            cards, sizes = cards + 1, sizes | {about.size}
        times.append(total)
        before, last_unit = last, unit
    need(before == end, "segment", f"rows from {before} on have no home")
    need(not problem.equal or len(sizes) <= 1, "rule", "all groups must take equally many devices")
    need(problem.most is None or cards <= problem.most, "rule", "too many units in a row")
    need(problem.exact in (None, cards), "rule", "not as many units in a row as are asked")
    for own, limit in zip(held, problem.limits, strict=True):
        need(sum(own) <= limit, "memory", f"a device would hold {sum(own)} bytes and has {limit}")
    if spread and all(sum(o) + e <= x for o, e, x in zip(held, extra, problem.limits, strict=True)):
        for own, more in zip(held, extra, strict=True):
            own[-1] += more
    value = sum(times) if problem.objective == "sum" else len(times) * max(times)
    return problem.base + value, held


def _own_devices(problem: FitNumbers, unit: FitUnitNumbers, given: Any, taken: set[int]) -> list[int]:
    mine = [whole(device, "device", 0, len(problem.limits) - 1) for device in rows(given, "devices")]
    need(len(set(mine)) == len(mine) == unit.size and taken.isdisjoint(mine), "segment", "a device stands twice")
    for pool, count in unit.takes:
        need(sum(device in problem.pools[pool] for device in mine) == count, "segment", "devices of another pool")
    taken.update(mine)
    return mine


def _moved(problem: FitNumbers, given: Any, first: int, last: int, *, on_host: bool) -> set[tuple[int, int]]:
    moved = {(whole(r, "row", first, last - 1), whole(p, "part", 0, len(problem.parts) - 1)) for r, p in given}
    need(len(moved) == len(rows(given, "moved")), "segment", "a part moves twice")
    need(all(part in problem.moves for _, part in moved), "rule", "this part may not move")
    need(not (on_host and moved), "rule", "a row of the host has no parts elsewhere")
    return moved


# The file.


def check_fit_plan(plan: dict[str, Any]) -> FitVerdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(plan)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise Refusal("structure", f"the plan's structure is broken: {type(error).__name__} {error!s:.200}") from error


def _check(plan: dict[str, Any]) -> FitVerdict:
    need(plan.keys() == FIELDS, "fields", f"wrong fields {sorted(plan.keys() ^ FIELDS)!s:.200}")
    form = plan["problem"]
    text = json.dumps(form, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    need(digest == plan["provenance"]["problem_sha256"], "hash", "the embedded problem is not the one that was planned")
    problem = FitNumbers(form)
    value, held = _added(problem, plan["segments"])
    need(whole(plan["value_ns"], "value_ns") == value, "value", f"value_ns is {plan['value_ns']}, re-computed {value}")
    _check_holdings(problem, form, plan["devices"], held)
    _check_places(problem, form, plan)
    proved = 0
    need(len(rows(plan["bounds"], "bounds")) <= 16, "bound", "too many bounds")
    for bound in plan["bounds"]:
        need(bound.keys() == {"by", "value_ns", "proof", "witness"}, "fields", "a bound: wrong fields")
        least = whole(bound["value_ns"], "value_ns of a bound")
        if bound["proof"] == "proved":
            need(least <= fit_bound(form, bound["witness"]), "bound", "a bound is not what its witness proves")
            need(least <= value, "bound", "a proved bound lies above the value")
            proved = max(proved, least)
    bound_ns = whole(plan["bound_ns"], "bound_ns")
    words = "none" if not bound_ns else "proved" if proved >= bound_ns else "claimed"
    need(plan["proof"] == words, "proof", f"the proof is {words}, not {plan['proof']!r:.60}")
    _check_rates(problem, plan, value, bound_ns)
    return FitVerdict(value, proved, bound_ns, CHECKS)


def _check_holdings(problem: FitNumbers, form: dict[str, Any], devices: Any, held: list[list[int]]) -> None:
    """That each device has as much room left as re-added, and caches as many."""
    number = {device["id"]: place for place, device in enumerate(form["devices"])}
    need(len(rows(devices, "devices")) == len(number), "devices", "not as many devices as the problem has")
    cache = problem.parts.index("kv") if "kv" in problem.parts else None
    for one in devices:
        own = held[number.pop(one["id"])]
        sizes = [whole(one[name], name) for name in ("weights_bytes", "kv_bytes", "compute_bytes", "limit_bytes")]
        left = problem.limits[[d["id"] for d in form["devices"]].index(one["id"])] - sum(own)
        need(sizes[3] - sum(sizes[:3]) == left, "memory", f"{one['id']!r:.60} has another room left than re-added")
        need(cache is None or sizes[1] == own[cache], "memory", f"{one['id']!r:.60} has other caches than re-added")


def _check_places(problem: FitNumbers, form: dict[str, Any], plan: dict[str, Any]) -> None:
    """That layers, output layer and what lies on the host are said as the segments have them."""
    ids = [device["id"] for device in form["devices"]]
    said = {one["id"]: one for one in plan["devices"]}
    moved: dict[tuple[str, str], list[int]] = {}
    for one in plan["segments"]:
        first, last = one["first"], min(one["last"], problem.end - 1)
        for device in one["devices"]:
            own = said.pop(ids[device])
            need(
                list(own["layers"]) == ([first, last] if first < last else []), "layers", f"layers of {own['id']!r:.60}"
            )
            need(own["output"] is (one["last"] == problem.end), "layers", f"output layer of {own['id']!r:.60}")
            need(abs(own["share"] * len(one["devices"]) - 1) < 1e-9, "layers", f"share of {own['id']!r:.60}")
        for row, part in one["moved"]:
            moved.setdefault((problem.parts[part], ids[one["devices"][0]]), []).append(row)
    need(
        not any(own["layers"] or own["output"] for own in said.values()),
        "layers",
        "a device holds layers of no segment",
    )
    told = {(one["part"], one["device"]): list(one["layers"]) for one in plan["moved"]}
    need(len(told) == len(plan["moved"]), "layers", "what lies on the host is said twice")
    need(told == {key: sorted(places) for key, places in moved.items()}, "layers", "other parts lie on the host")


def _check_rates(problem: FitNumbers, plan: dict[str, Any], value: int, bound: int) -> None:
    """That rates and gap say what the times say; a measurement may have changed all rates by one factor."""
    gap = (value - bound) / value if bound and value > bound else 0.0 if bound else 1.0
    need(type(plan["gap"]) in (int, float) and abs(plan["gap"] - gap) < 1e-9, "gap", f"the gap is {gap}")
    rate, best = plan["tokens_per_second"]["value"], plan["bound_tokens_per_second"]
    need(0 < rate < float("inf"), "rate", "tokens_per_second is no rate")
    known = plan["measured_factor"] * problem.streams * 1e9 / value
    need(abs(rate / known - 1) < 1e-6, "rate", f"tokens_per_second is {rate}, re-computed {known}")
    low, high = plan["tokens_per_second"]["low"], plan["tokens_per_second"]["high"]
    need(0 < low <= rate * (1 + 1e-9) and rate <= high * (1 + 1e-9), "rate", "the interval does not hold the rate")
    if bound:
        need(abs(best / rate * bound / value - 1) < 1e-6, "rate", "the rate of the bound does not follow from its time")


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    if len(arguments) != 1:
        print("usage: check.pyz plan.json", file=sys.stderr)  # noqa: T201
        return 2
    try:
        verdict = check_fit_plan(read_fit_plan(arguments[0]))
    except Refusal as refusal:
        print(json.dumps({"ok": False, "code": refusal.code, "message": str(refusal)}))  # noqa: T201
        return refusal.exit_code
    print(json.dumps({"ok": True, **verdict._asdict()}))  # noqa: T201
    return 0
