"""Checks a fleet plan with the standard library alone: `python check.pyz fleet.json` (exit 0, 3 or 6).

It re-adds the lanes: what an input of each costs every device, that no device is busier than always, what each holds,
the rate and the period; and every proved bound from its prices. It knows nothing about how a plan was found.
`problem.py` holds its reader and the embedded problem.

A bound by prices: an input pays the price of the time that it takes from each device. If no way of an input through the
cluster costs less than c, and all devices together sell at most S in a second, no period is shorter than c / S.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from weftline.certify import check
from weftline.certify.problem import PlanProblem, Refusal, need, read_strictly, rows, run_checker, same, whole
from weftline.certify.stages import peak_of, stage_intervals

__all__ = ["FleetVerdict", "check_fleet", "fleet_bound_of", "main", "read_fleet"]

RATE_UNITS = 10**6
FULL_SECOND = 10**9 * RATE_UNITS
"""Rates are inputs per million seconds; rate x ns of one input, added up on a device, is at most this."""
MAX_RATE = 2**80
MAX_PRICE, SHARE_PARTS = 2**20, 16
CHECKS = ("problem hash", "lanes", "device time", "memory", "rate", "bound")
FIELDS = {
    *(
        "format",
        "version",
        "objective",
        "value_ns",
        "bound_ns",
        "gap",
        "proof",
        "bound_by",
        "rate",
        "rate_bound",
        "depth",
    ),
    *(
        "solver",
        "seconds",
        "stopped_by",
        "baselines",
        "devices",
        "instances",
        "lanes",
        "bounds",
        "provenance",
        "problem",
    ),
}
OPTIONAL = {"limits", "advice"}
CHEAPEST = ("messages", "elimination")
"""Kinds of witnesses for the cheapest way."""


class FleetVerdict(NamedTuple):
    """What was re-computed."""

    value_ns: int
    rate: float
    """Inputs per second."""
    proved_bound_ns: int
    bound_ns: int
    """The plan's own; where it lies above the proved one it is a claim, which was not checked."""
    checks: tuple[str, ...]
    guessed_ops: int = 0
    """Ops whose costs are a guess: where there are any, rate and bounds hold for these guessed costs."""


def read_fleet(path: str) -> dict[str, Any]:
    """Parse strictly."""
    return read_strictly(path, "fleet")


def check_fleet(plan: dict[str, Any]) -> FleetVerdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(plan)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise Refusal("structure", f"the plan's structure is broken: {type(error).__name__} {error!s:.200}") from error


def _check(plan: dict[str, Any]) -> FleetVerdict:
    text = json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    need(digest == plan["provenance"]["problem_sha256"], "hash", "the embedded problem is not the one that was planned")
    _check_form(plan)
    problem = PlanProblem(plan["problem"])
    need(problem.rule("objective", "throughput"), "objective", "the plan answers another question than its problem")
    need(whole(problem.rules["stages"], "stages") == 0, "objective", "a number of stages is for one pipeline")
    lanes = [_Lane(problem, lane) for lane in rows(plan["lanes"], "lanes")]
    need(bool(lanes), "lanes", "there is no lane")
    _check_limits(lanes, plan.get("limits", {"max_depth": None, "latency_ns": None}))
    _check_devices(problem, lanes, plan["devices"])
    _check_instances(problem, lanes, rows(plan["instances"], "instances"))
    total = sum(lane.rate for lane in lanes)
    value = -(-FULL_SECOND // total)
    need(whole(plan["value_ns"], "value_ns") == value, "value", f"value_ns is {plan['value_ns']}, re-computed {value}")
    rate = total / RATE_UNITS
    need(_is(plan["rate"], rate), "rate", f"rate is {plan['rate']!r:.60}, re-computed {rate}")
    depth = max(lane.depth for lane in lanes)
    need(whole(plan["depth"], "depth") == depth, "depth", f"depth is {plan['depth']}, re-computed {depth}")
    proved = _check_bounds(plan, problem, value)
    return FleetVerdict(value, rate, proved, plan["bound_ns"], CHECKS, len(problem.guessed))


def _is(given: Any, number: float) -> bool:
    return type(given) in (int, float) and given == number


def _check_form(plan: dict[str, Any]) -> None:
    """Every field and no other; what is not re-computed still has its form."""
    wrong = plan.keys() ^ (FIELDS | (plan.keys() & OPTIONAL))
    need(not wrong, "fields", f"wrong fields {sorted(wrong)!s:.200}")
    given = plan["provenance"]
    need(given.keys() == check.PROVENANCE, "fields", "provenance: wrong fields")
    for name in ("solver", "stopped_by", "bound_by", "objective", *(plan.keys() & {"advice"})):
        need(isinstance(plan[name], str), "fields", f"{name} must be text")
    need(plan["objective"] == "throughput", "objective", "a fleet is planned for throughput")
    for name, rate in plan["baselines"].items():
        good = rate is None or (type(rate) in (int, float) and 0 <= rate < float("inf"))
        need(good, "baselines", f"baseline {name!s:.60} is no rate")
    seconds = plan["seconds"]
    good = seconds is None or (type(seconds) in (int, float) and 0 <= seconds < float("inf"))
    need(good, "fields", "seconds must be a time or null")


class _Lane:
    """A device for every op, what an input costs there, and how often it comes."""

    def __init__(self, problem: PlanProblem, form: dict[str, Any]) -> None:
        need(form.keys() == {"rate", "depth", "hops"}, "lane", "a lane has a rate, a depth and hops")
        self.rate = whole(form["rate"], "rate of a lane", 1, MAX_RATE)
        self.placement = _placement(problem, rows(form["hops"], "hops"))
        self.limited, self.alone = _times(problem, self.placement)
        level, device = [0] * len(self.placement), self.placement
        for op, tensors in enumerate(problem.inputs):
            for t in tensors:
                maker = problem.producer[t]
                level[op] = max(level[op], level[maker] + (device[maker] != device[op]))
        self.depth = 1 + max(level)
        need(whole(form["depth"], "depth of a lane") == self.depth, "depth", f"a lane is {self.depth} devices deep")
        visits = [0] * len(problem.ids)
        for d, _ in set(zip(device, level, strict=True)):
            visits[d] += 1
        static = problem.rule("memory", "static")
        held = stage_intervals(problem, self.placement)
        self.activations = [0 if static else peak_of(each) * max(n, 1) for each, n in zip(held, visits, strict=True)]


def _placement(problem: PlanProblem, hops: Sequence[Any]) -> list[int]:
    """Hops [device, first op, last + 1] -> the device of every op: without holes, each op where it can run."""
    found: list[int] = []
    for hop in hops:
        need(len(rows(hop, "hop")) == 3, "hop", "a hop is a device, a first op and a last")
        device = whole(hop[0], "device of a hop", 0, len(problem.ids) - 1)
        first, last = whole(hop[1], "first op", 0, len(problem.names)), whole(hop[2], "last op", 0, len(problem.names))
        need(first == len(found) < last, "hop", f"a hop begins at op {first}, not at {len(found)}, or is empty")
        for op in range(first, last):
            able = problem.time[op][device] >= 0
            need(able, "forbidden", f"device {problem.ids[device]} cannot run op {problem.names[op]!r:.80}")
        found += [device] * (last - first)
    need(len(found) == len(problem.names), "hop", "a lane ends before the last op")
    for group in problem.together:
        need(len({found[op] for op in group}) == 1, "together", "ops that must share a device do not")
    return found


def _times(problem: PlanProblem, placement: list[int]) -> tuple[list[list[int]], int]:
    """What one input takes of every device: rows that are limited by a second each; and all its ops and transfers,
    one after another.
    """
    k, sent = len(problem.ids), 0
    compute, entering, leaving = [0] * k, [0] * k, [0] * k
    for op, device in enumerate(placement):
        compute[device] += problem.time[op][device]
    for t, readers in enumerate(problem.consumers):
        if problem.producer[t] < 0:
            continue
        home = placement[problem.producer[t]]
        lengths = {placement[c]: problem.length(t, home, placement[c]) for c in readers if placement[c] != home}
        need(min(lengths.values(), default=0) >= 0, "link", f"there is no link for {problem.tensors[t]!r:.80}")
        sent += sum(lengths.values())
        for device, length in lengths.items():
            entering[device] += 0 if problem.host[device] else length
        leaving[home] += 0 if problem.host[home] else max(lengths.values(), default=0)
    if problem.rule("communication", "overlapped"):
        return [compute, entering, leaving], sum(compute) + sent
    return [[sum(parts) for parts in zip(compute, entering, leaving, strict=True)]], sum(compute) + sent


def _check_limits(lanes: list[_Lane], given: Any) -> None:
    """No lane is deeper than allowed, none takes longer for an input that is alone, no op is on too many devices."""
    names = {"max_depth", "latency_ns"}
    need(isinstance(given, dict) and given.keys() - {"max_copies"} == names, "limits", "limits: wrong fields")
    found = {"max_depth": max(lane.depth for lane in lanes), "latency_ns": max(lane.alone for lane in lanes)}
    found["max_copies"] = max(len(set(devices)) for devices in zip(*(lane.placement for lane in lanes), strict=True))
    for name, most in found.items():
        if given.get(name) is not None:
            limit = whole(given[name], name)
            need(most <= limit, "limits", f"{name}: a lane has {most}, {limit} are allowed")


def _check_devices(problem: PlanProblem, lanes: list[_Lane], given: dict[str, Any]) -> None:
    """No device is busier than always, and what it holds fits."""
    need(set(given) == set(problem.ids), "devices", "the devices are not those of the problem")
    for d, name in enumerate(problem.ids):
        uses = [sum(lane.rate * lane.limited[row][d] for lane in lanes) for row in range(len(lanes[0].limited))]
        need(max(uses) <= FULL_SECOND, "busy", f"device {name} is busy for {max(uses)} of {FULL_SECOND}")
        weights = sum(problem.weight[op] for op in _ops_on(lanes, d))
        if problem.rule("memory", "static"):
            weights += sum(problem.workspace[op] for op in _ops_on(lanes, d))
        weights += sum(size for size, users in problem.tied if not _ops_on(lanes, d).isdisjoint(users))
        peak, limit = weights + max(lane.activations[d] for lane in lanes), problem.capacity[d]
        need(limit is None or peak <= limit, "memory", f"device {name} needs {peak} bytes but holds {limit}")
        need(given[name].keys() == {"busy", "memory_bytes", "memory_limit"}, "fields", f"device {name}: wrong fields")
        need(_is(given[name]["busy"], max(uses) / FULL_SECOND), "device-busy", f"device {name}: busy is another share")
        same(given[name], {"memory_bytes": peak, "memory_limit": limit}, "device", f"device {name}")


def _ops_on(lanes: list[_Lane], device: int) -> set[int]:
    return {op for lane in lanes for op, d in enumerate(lane.placement) if d == device}


def _check_instances(problem: PlanProblem, lanes: list[_Lane], given: Sequence[Any]) -> None:
    """Who holds how many ops: every device that any lane uses, in the order of the problem."""
    again = [{"device": name, "ops": len(_ops_on(lanes, d))} for d, name in enumerate(problem.ids) if _ops_on(lanes, d)]
    need([dict(one) for one in given] == again, "instances", "the instances are not what the lanes use")


def _check_bounds(plan: dict[str, Any], problem: PlanProblem, value: int) -> int:
    """Every proved bound again; -> the best proved one."""
    best, proved = 0, 0
    for bound in rows(plan["bounds"], "bounds"):
        need(bound.keys() == {"by", "value_ns", "proof", "witness"}, "fields", "a bound has wrong fields")
        claim, proof = whole(bound["value_ns"], "bound"), bound["proof"]
        need(claim <= value, "bound-too-high", f"a bound of {claim} lies above the value {value}")
        need(proof in ("proved", "claimed"), "bound-proof", f"unknown proof {proof!r:.60}")
        if proof == "proved":
            again = fleet_bound_of(plan["problem"], bound["witness"])
            need(again >= claim, "bound-unproved", f"a witness proves {again}, not {claim}")
            proved = max(proved, claim)
        best = max(best, claim)
    need(whole(plan["bound_ns"], "bound_ns") == best, "best-bound", f"the best of the bounds is {best}")
    proof = "none" if best == 0 else "proved" if proved == best else "claimed"
    need(plan["proof"] == proof, "proof", f"the plan says {plan['proof']!r:.60}, but its bound is {proof}")
    names = {bound["by"] for bound in plan["bounds"] if bound["value_ns"] == best} or {""}
    need(plan["bound_by"] in names, "bound-by", f"the best bound is not by {plan['bound_by']!r:.60}")
    need(_is(plan["gap"], (value - best) / value), "gap", "the gap is another one")
    above = None if best <= 1 else 10**9 / (best - 1)  # periods are rounded up to whole ns
    need(
        plan["rate_bound"] is None if above is None else _is(plan["rate_bound"], above), "rate-bound", "is another one"
    )
    return proved


def fleet_bound_of(form: dict[str, Any], witness: Any) -> int:
    """What prices prove about the period of every deployment, in ns."""
    need(isinstance(witness, dict) and witness.get("kind") == "prices", "witness-kind", "not a witness of prices")
    need(witness.keys() <= {"kind", "compute", "entering", "leaving", "sent", "cheapest"}, "witness", "wrong fields")
    problem = PlanProblem(form)
    names = ("compute", "entering", "leaving") if problem.rule("communication", "overlapped") else ("compute",)
    prices = [[whole(price, "price", 0, MAX_PRICE) for price in rows(witness[name], name)] for name in names]
    need(all(len(row) == len(problem.ids) for row in prices), "witness", "a price for every device")
    supply = sum(map(sum, prices))
    need(supply > 0, "witness", "all prices are 0")
    inner = witness["cheapest"]
    need(isinstance(inner, dict) and inner.get("kind") in CHEAPEST, "witness-kind", "no witness of the cheapest way")
    priced = PlanProblem(_priced(form, problem, prices * (3 // len(prices)), _shares(problem, witness.get("sent", []))))
    return -(-check.bound_of(priced, inner) // supply)


def _shares(problem: PlanProblem, given: Any) -> dict[int, list[int]]:
    """Tensor -> who bears how much of its sending; all together at most the whole."""
    found = {}
    for row in rows(given, "sent"):
        tensor = whole(row[0], "tensor", 0, len(problem.tensors) - 1)
        parts = [whole(part, "share", 0, SHARE_PARTS) for part in row[1:]]
        fits = tensor not in found and len(parts) == len(problem.consumers[tensor]) and sum(parts) <= SHARE_PARTS
        need(fits, "witness", f"shares of tensor {tensor} stand twice, or do not fit")
        found[tensor] = parts
    return found


def _priced(
    form: dict[str, Any], problem: PlanProblem, prices: list[list[int]], shares: dict[int, list[int]]
) -> dict[str, Any]:
    """A problem of the sequential runtime whose value is never more than what the same placement pays on its way.

    A receiver pays for what it gets; the sender pays once, for the costliest of its receivers: at least any mean.
    """
    k, host = len(problem.ids), problem.host
    into, out = ([0 if host[d] else row[d] for d in range(k)] for row in prices[1:])
    places = [(a, b) for a in range(k) for b in range(k)]
    tensors, table, number = [dict(one) for one in form["graph"]["tensors"]], list[list[int]](), list[int]()
    known: dict[tuple[int, bool, int], int] = {}

    def row(tensor: int, received: bool, part: int) -> int:
        """The number of a row of transfer times: prices of receiving, and of a part of the sending."""
        key = (form["transfer_row"][tensor], received, part)
        if key not in known:
            known[key] = len(table)
            each = zip(places, problem.transfer[tensor], strict=True)
            factor = [(into[b] if received else 0) + out[a] * part // SHARE_PARTS for a, b in places]
            table.append(
                [0 if a == b else -1 if ns < 0 else ns * f for ((a, b), ns), f in zip(each, factor, strict=True)]
            )
        return known[key]

    for t, readers in enumerate(problem.consumers):
        split = problem.producer[t] >= 0 and len(readers) > 1
        number.append(row(t, True, 0 if split else SHARE_PARTS))
    for t, readers in enumerate(problem.consumers):
        if problem.producer[t] >= 0 and len(readers) > 1:
            parts = shares.get(t) or [0] * (len(readers) - 1) + [SHARE_PARTS]
            for reader, part in zip(readers, parts, strict=True):
                if part:
                    tensors.append({"name": f"{t} to {reader}", "producer": problem.producer[t], "consumers": [reader]})
                    number.append(row(t, False, part))
    times = [
        [-1 if ns < 0 else ns * price for ns, price in zip(row, prices[0], strict=True)] for row in form["time_rows"]
    ]
    rules = {**form["rules"], "objective": "latency", "runtime": "sequential", "transfers": "per-tensor"}
    graph = {**form["graph"], "tensors": tensors}
    priced = {"graph": graph, "time_rows": times, "transfer_rows": table, "transfer_row": number, "rules": rules}
    return {**form, **priced, "buses": []}


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    return run_checker("fleet.json", lambda path: check_fleet(read_fleet(path)), arguments)
