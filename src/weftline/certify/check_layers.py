"""Checks a plan of layers on devices with tables with the standard library alone: `python check.pyz plan.json`
(exit 0, 3 or 6).

It re-adds the lanes: that each is a way through all layers, that no instance, link or port is asked for more than it
can, the rate; and every proved bound from its witness. It knows nothing about how a plan was found. `problem.py`
holds its reader.

A bound by coverage: s is a step function of flows that never falls. Every layer is covered by flows that add up to the
rate F, and such flows have steps that add up to `full` at least. An instance that holds k layers and serves f adds
k s(f) to that, and slope k f / F; requests pass at most S instances, so all flows together are at most S F. Where
k s(f) + (slope k - hop) f / F, added up over all devices, stays below layers (full + slope) - S hop, F is impossible.
Two layers in a row that are each served by one instance alone need one instance, or a link that carries F. So such
layers lie in parts of the network of these links, one part for each run of them, and a part holds no more of them than
its devices can at rate F. The other layers are shared: two or more flows weigh full + extra.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from weftline.certify import check
from weftline.certify.problem import Refusal, need, read_strictly, rows, run_checker, whole

__all__ = ["LayersVerdict", "check_layer_plan", "main", "read_layer_plan", "refuted_rate"]

RATE_SCALE, NS_SCALE = 10**6, 10**15
"""Rates are units per million seconds."""
SOURCE_END, SINK_END = -1, -2
MAX_RATE, MAX_WEIGHT, MAX_STEPS, MAX_COUNT = 10**15, 10**6, 2_000, 100_000
MAX_TOGETHER = 2**60
"""Rates of all devices."""
MAX_POINTS = 256
"""Bounds, and points of the front, of one file."""
MAX_WORK = 2 * 10**8
"""Weight x steps of one knapsack."""
CHECKS = ("problem hash", "instances", "lanes", "links", "rate", "front", "bound")
PROBLEM = {"kind", "name", "layers", "pools", "units", "links", "ports", "partial", "max_depth"}
FIELDS = {
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
    "solver",
    "seconds",
    "stopped_by",
    "baselines",
    "instances",
    "lanes",
    "front",
    "bounds",
    "provenance",
    "problem",
}


class LayersVerdict(NamedTuple):
    """What was re-computed."""

    value_ns: int
    rate: float
    """Units per second."""
    proved_rate: float | None
    """No deployment has a higher rate than this."""
    rate_bound: float | None
    """The plan's own; where it lies below the proved one it is a claim, which was not checked."""
    checks: tuple[str, ...]


class _Problem:
    """Layers, units, pools, links, as plain numbers, checked."""

    def __init__(self, form: dict[str, Any]) -> None:
        need(form["kind"] == "layers", "problem", "the embedded problem is of another kind")
        need(
            form.keys() - {"max_copies"} == PROBLEM and isinstance(form["name"], str),
            "fields",
            "the embedded problem: wrong fields",
        )
        self.layers = whole(form["layers"], "layers", 1, 10_000)
        self.counts = [whole(pool["count"], "count", 1, MAX_COUNT) for pool in rows(form["pools"], "pools")]
        need(0 < sum(self.counts) <= MAX_COUNT, "problem", "too many devices, or none")
        self.pool_of = [number for number, count in enumerate(self.counts) for _ in range(count)]
        self.names: list[str] = []
        for pool in form["pools"]:
            need(pool.keys() == {"name", "count", "names"}, "fields", "a pool: wrong fields")
            need(isinstance(pool["name"], str), "problem", "names are text")
            given = rows(pool["names"], "names")
            need(len(given) in (0, pool["count"]), "problem", "a name for every device of a pool, or none")
            self.names += given or [f"{pool['name']}#{i}" for i in range(pool["count"])]
        need(all(isinstance(name, str) for name in self.names), "problem", "names are text")
        need(len(set(self.names)) == len(self.names), "problem", "two devices have one name")
        self.units = []
        for unit in rows(form["units"], "units"):
            need(unit.keys() == {"name", "pool", "rates", "size"}, "fields", "a unit: wrong fields")
            need(isinstance(unit["name"], str) and len(unit["rates"]) > 0, "problem", "a unit without a name or table")
            rates = [whole(rate, "rate", 0, MAX_RATE) for rate in rows(unit["rates"], "rates")][: self.layers]
            pool = whole(unit["pool"], "pool", 0, len(self.counts) - 1)
            self.units.append((pool, whole(unit["size"], "size", 1, self.counts[pool]), rates, unit["name"]))
        together = sum(self.counts[pool] * max(rates) for pool, _, rates, _ in self.units)
        need(
            0 < len({unit[3] for unit in self.units}) == len(self.units), "problem", "two units have one name, or none"
        )
        need(together <= MAX_TOGETHER, "problem", "the rates of all devices together are too large")
        links = form["links"]
        self.links = None if links is None else self._links(rows(links, "links"))
        ports = form["ports"]
        self.ports = (
            None if ports is None else [[whole(r, "port", 0, MAX_RATE) for r in rows(p, "port")] for p in ports]
        )
        need(self.ports is None or all(len(port) == 2 for port in self.ports), "problem", "a port has two rates")
        need(self.ports is None or len(self.ports) == len(self.names), "problem", "a port for every device")
        grouped = any(size > 1 for _, size, _, _ in self.units)
        need(not grouped or (links is None and ports is None), "problem", "groups have no links and no ports")
        need(type(form["partial"]) is bool, "problem", "partial is true or false")
        self.partial = form["partial"]
        self.copies = whole(form.get("max_copies", MAX_COUNT), "max_copies", 1, MAX_COUNT)
        self.depth = None if form["max_depth"] is None else whole(form["max_depth"], "max_depth", 1, 10_000)

    def _links(self, given: Any) -> dict[tuple[int, int], int]:
        last = len(self.names) - 1
        found = {
            (whole(a, "link", SOURCE_END, last), whole(b, "link", SINK_END, last)): whole(c, "link", 0, MAX_RATE)
            for a, b, c in given
        }
        need(len(found) == len(given), "problem", "a link stands twice")
        good = all(a != SINK_END and b not in (SOURCE_END, a) for a, b in found)
        need(good, "problem", "a link joins no two devices")
        return found


def read_layer_plan(path: str) -> dict[str, Any]:
    """Parse strictly."""
    return read_strictly(path, "layer-plan")


def check_layer_plan(plan: dict[str, Any]) -> LayersVerdict:
    """Raise `Refusal` at the first thing that does not hold."""
    try:
        return _check(plan)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
        raise Refusal("structure", f"the plan's structure is broken: {type(error).__name__} {error!s:.200}") from error


def _check(plan: dict[str, Any]) -> LayersVerdict:
    text = json.dumps(plan["problem"], sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    digest = hashlib.sha256(text.encode()).hexdigest()
    need(digest == plan["provenance"]["problem_sha256"], "hash", "the embedded problem is not the one that was planned")
    _check_form(plan)
    problem = _Problem(plan["problem"])
    instances, number = [], {name: i for i, name in enumerate(problem.names)}
    unit_of = {name: i for i, (*_, name) in enumerate(problem.units)}
    for one in rows(plan["instances"], "instances"):
        need(one.keys() == {"node", "devices", "unit", "first", "last", "rate"}, "fields", "an instance: wrong fields")
        devices = rows(one["devices"], "devices")
        need(one["unit"] in unit_of and one["node"] == devices[0], "instance", "an instance of no unit")
        instances.append([unit_of[one["unit"]], [number[name] for name in devices], one["first"], one["last"]])
    total, depth, served = _added(problem, instances, plan["lanes"], problem.depth)
    for one, rate in zip(plan["instances"], served, strict=True):
        need(_is(one["rate"], rate / RATE_SCALE), "instance-rate", "an instance serves another rate")
    need(
        _is(plan["rate"], total / RATE_SCALE), "rate", f"rate is {plan['rate']!r:.60}, re-computed {total / RATE_SCALE}"
    )
    value = -(-NS_SCALE // total)
    need(whole(plan["value_ns"], "value_ns") == value, "value", f"value_ns is {plan['value_ns']}, re-computed {value}")
    need(whole(plan["depth"], "depth") == depth, "depth", f"depth is {plan['depth']}, re-computed {depth}")
    need(len(rows(plan["front"], "front")) <= MAX_POINTS, "front", "too many points")
    for point in plan["front"]:
        _check_point(problem, plan["problem"], point)
        need(point["rate"] <= plan["rate"], "front", "a point of the front has a higher rate than the plan")
    proved = _check_bounds(problem, plan, total)
    return LayersVerdict(
        value, plan["rate"], None if proved is None else proved / RATE_SCALE, plan["rate_bound"], CHECKS
    )


def _is(given: Any, number: float) -> bool:
    return type(given) in (int, float) and given == number


def _check_form(plan: dict[str, Any]) -> None:
    need(plan.keys() == FIELDS, "fields", f"wrong fields {sorted(plan.keys() ^ FIELDS)!s:.200}")
    need(plan["provenance"].keys() == check.PROVENANCE, "fields", "provenance: wrong fields")
    need(plan["objective"] == "throughput", "objective", "a fleet is planned for throughput")
    for name in ("solver", "stopped_by", "bound_by"):
        need(isinstance(plan[name], str), "fields", f"{name} must be text")
    for name, rate in plan["baselines"].items():
        good = rate is None or (type(rate) in (int, float) and 0 <= rate < float("inf"))
        need(good, "baselines", f"baseline {name!s:.60} is no rate")
    seconds = plan["seconds"]
    good = seconds is None or (type(seconds) in (int, float) and 0 <= seconds < float("inf"))
    need(good, "fields", "seconds must be a time or null")


def _added(problem: _Problem, instances: Any, lanes: Any, depth: int | None) -> tuple[int, int, list[int]]:
    """Instances [unit, devices, first, last] and lanes -> the rate, the longest lane, what every instance serves."""
    taken: set[int] = set()
    for unit, devices, first, last in rows(instances, "instances"):
        pool, size, _, _ = problem.units[whole(unit, "unit", 0, len(problem.units) - 1)]
        mine = {whole(device, "device", 0, len(problem.names) - 1) for device in rows(devices, "devices")}
        need(len(mine) == len(devices) == size, "instance", "an instance has not as many devices as its unit")
        need(all(problem.pool_of[device] == pool for device in mine), "instance", "a device is of another pool")
        need(mine.isdisjoint(taken), "instance", "a device stands in two instances")
        taken |= mine
        need(0 <= whole(first, "first") < whole(last, "last") <= problem.layers, "instance", "it holds no layers")
    more = Counter(first for _, _, first, _ in instances)
    more.subtract(last for _, _, _, last in instances)
    holders = accumulate(more[layer] for layer in range(problem.layers))
    need(max(holders) <= problem.copies, "copies", "too many instances hold a layer")
    served, carried, deepest, total = [0] * len(instances), Counter[tuple[int, int]](), 0, 0
    for lane in rows(lanes, "lanes"):
        need(lane.keys() == {"rate", "hops"}, "fields", "a lane has a rate and hops")
        rate, position, before = whole(lane["rate"], "rate of a lane", 1, MAX_RATE), 0, SOURCE_END
        for hop in rows(lane["hops"], "hops"):
            number, p, q = (whole(part, "hop") for part in hop)
            _, devices, first, last = instances[number]
            need(p == position and first <= p < q <= last, "hop", "a lane has a hole, or leaves what an instance holds")
            need(problem.partial or (p, q) == (first, last), "hop", "a request may not use a part of an instance")
            served[number] += rate
            carried[before, devices[0]] += rate
            position, before = q, devices[0]
        carried[before, SINK_END] += rate
        need(position == problem.layers, "lane", "a lane ends before the last layer")
        need(depth is None or len(lane["hops"]) <= depth, "depth", "a lane has too many instances in a row")
        deepest, total = max(deepest, len(lane["hops"])), total + rate
    need(total > 0, "lanes", "there is no lane")
    for (unit, _, first, last), rate in zip(instances, served, strict=True):
        rates = problem.units[unit][2]
        need(last - first <= len(rates) and rate <= rates[last - first - 1], "served", "an instance serves too much")
    for link, rate in carried.items() if problem.links is not None else ():
        need(rate <= problem.links.get(link, 0), "link", f"link {link} carries too much, or is not there")  # type: ignore[union-attr]
    for device, (into, out) in enumerate(problem.ports or ()):
        need(sum(r for (_, b), r in carried.items() if b == device) <= into, "port", "too much enters a device")
        need(sum(r for (a, _), r in carried.items() if a == device) <= out, "port", "too much leaves a device")
    return total, deepest, served


def _check_point(problem: _Problem, form: dict[str, Any], point: dict[str, Any]) -> None:
    """A point of the front: the same question with a smaller limit of depth."""
    names = {"depth", "rate", "rate_bound", "proof", "instances", "lanes", "witness"}
    need(point.keys() == names, "fields", "a point of the front: wrong fields")
    depth = whole(point["depth"], "depth", 1, 10_000)
    total, _, _ = _added(problem, point["instances"], point["lanes"], min(depth, problem.depth or depth))
    need(_is(point["rate"], total / RATE_SCALE), "front", "the rate of a point of the front is another one")
    words = "none" if point["witness"] is None else "proved"
    need(point["proof"] == words, "front", f"the proof of a point of the front is {words}")
    if point["witness"] is None:
        need(point["rate_bound"] is None, "front", "a bound without a witness")
        return
    again = refuted_rate({**form, "max_depth": min(depth, problem.depth or depth)}, point["witness"]) - 1
    need(_is(point["rate_bound"], again / RATE_SCALE), "front", "a bound of the front is not what its witness proves")
    need(again >= total, "front", "a bound of the front lies below a rate that is reached")


def _check_bounds(problem: _Problem, plan: dict[str, Any], total: int) -> int | None:
    """The smallest rate that is proved; every bound lies above what is reached."""
    proved = best = None
    need(len(rows(plan["bounds"], "bounds")) <= MAX_POINTS, "bound", "too many bounds")
    for bound in plan["bounds"]:
        need(bound.keys() == {"by", "rate_bound", "proof", "witness"}, "fields", "a bound: wrong fields")
        need(isinstance(bound["by"], str) and bound["proof"] in ("proved", "claimed"), "bound", "unknown words")
        claim = bound["rate_bound"]
        limit = round(claim * RATE_SCALE) if type(claim) in (int, float) and 0 <= claim <= MAX_RATE else -1
        need(_is(claim, limit / RATE_SCALE) and limit >= total, "bound", f"bound {claim!r:.60} lies below the rate")
        if bound["proof"] == "proved":
            again = refuted_rate(plan["problem"], bound["witness"]) - 1
            need(
                _is(claim, again / RATE_SCALE), "bound-unproved", f"a witness proves {again / RATE_SCALE}, not {claim}"
            )
            limit = again
            proved = limit if proved is None else min(proved, limit)
        best = limit if best is None else min(best, limit)
    need(
        plan["rate_bound"] is None if best is None else _is(plan["rate_bound"], best / RATE_SCALE),
        "rate-bound",
        "another",
    )
    proof = "none" if best is None else "proved" if proved == best else "claimed"
    need(plan["proof"] == proof, "proof", f"the plan says {plan['proof']!r:.60}, but its bound is {proof}")
    names = {b["by"] for b in plan["bounds"] if best is not None and _is(b["rate_bound"], best / RATE_SCALE)} or {""}
    need(plan["bound_by"] in names, "bound-by", f"the best bound is not by {plan['bound_by']!r:.60}")
    need(_is(plan["gap"], 1.0 if best is None else (best - total) / best), "gap", "the gap is another one")
    bound_ns = 0 if best is None else -(-NS_SCALE // best)
    need(whole(plan["bound_ns"], "bound_ns") == bound_ns, "bound-ns", f"bound_ns is not {bound_ns}")
    return proved


# Bounds.


def refuted_rate(form: dict[str, Any], witness: Any) -> int:
    """A rate that the witness shows to be impossible."""
    need(isinstance(witness, dict) and witness.get("kind") == "coverage", "witness-kind", "not a witness of coverage")
    need(witness.keys() == {"kind", "rate", "steps", "full", "slope", "hop", "extra"}, "witness", "wrong fields")
    problem, rate = _Problem(form), whole(witness["rate"], "rate", 1, 10 * MAX_RATE)
    full, slope, hop, extra = (whole(witness[name], name, 0, MAX_WEIGHT) for name in ("full", "slope", "hop", "extra"))
    steps = [
        (whole(c, "flow", 1, 10 * MAX_RATE), whole(s, "weight", 0, MAX_WEIGHT))
        for c, s in rows(witness["steps"], "steps")
    ]
    need(0 < len(steps) <= MAX_STEPS and (full + extra) * len(steps) <= MAX_WORK, "witness-size", "too many steps")
    rising = all(a[0] < b[0] and a[1] <= b[1] for a, b in pairwise(steps))
    need(rising and steps[-1][0] >= rate, "witness", "steps must rise, up to the rate")
    need(full + extra == 0 or steps[0][1] > 0, "witness", "flows that weigh nothing add up to any rate")
    need(hop == 0 or problem.depth is not None, "witness", "hops cost nothing where depth has no limit")
    top = full + extra
    widest = [0] * max(top, 1)  # of flows that weigh so much together
    for weight in range(1, top):
        widest[weight] = max([widest[weight - 1], *(widest[weight - s] + c for c, s in steps if s <= weight)])
    need(full == 0 or widest[full - 1] < rate, "witness", "flows that add up to the rate weigh less than a full set")
    for c, s in steps if extra else ():  # a first flow, and at least one more
        rest = top - 1 - s
        light = rest >= steps[0][1] and c + max(widest[rest], steps[0][0]) >= rate
        need(not light, "witness", "two or more flows that add up to the rate weigh less than full and extra")
    total, units = 0, [list[tuple[int, Any]]() for _ in problem.counts]
    for pool, size, rates, _ in problem.units:
        units[pool].append((size, rates))
    work = sum(len(rates) * len(steps) for own in units for _, rates in own)
    work += sum(count * len(own) for count, own in zip(problem.counts, units, strict=True))
    need(work <= MAX_WORK, "witness-size", "too many tables, devices or steps")
    for own, count in zip(units, problem.counts, strict=True):
        worth = [
            (
                size,
                max([0, *(_worth(held, min(top, rate), steps, rate, slope, hop) for held, top in enumerate(rates, 1))]),
            )
            for size, rates in own
        ]
        best = [0] * (count + 1)  # of so many devices of the pool
        for n in range(1, count + 1):
            best[n] = max([best[n - 1], *(best[n - size] + value for size, value in worth if size <= n)])
        total += best[count]
    least = rate * (problem.layers * (full + slope) - (problem.depth or 0) * hop + _shared(problem, rate) * extra)
    need(total < least, "bound-unproved", f"devices are worth {total}, which is not below {least}")
    return rate


def _shared(problem: _Problem, rate: int) -> int:
    """The least number of layers that are not served by one instance alone."""
    if problem.links is None:
        return 0
    most = [0] * len(problem.counts)
    for own, _, rates, _ in problem.units:
        most[own] = max([most[own], *(k for k, r in enumerate(rates, 1) if r >= rate)])
    held = [most[pool] for pool in problem.pool_of]
    part = list(range(len(held)))  # devices that are joined by links which carry the rate have one number
    near: list[list[int]] = [[] for _ in held]
    for (a, b), room in problem.links.items():
        if a >= 0 and b >= 0 and room >= rate:
            near[a].append(b)
            near[b].append(a)
    seen, sizes = [False] * len(part), []
    for start in part:
        size, waiting = 0, [] if seen[start] else [start]
        seen[start] = True
        while waiting:
            device = waiting.pop()
            size += held[device]
            for other in near[device]:
                if not seen[other]:
                    seen[other] = True
                    waiting.append(other)
        sizes.append(size)
    sizes.sort(reverse=True)
    return next(m for m in range(problem.layers + 1) if problem.layers - m <= sum(sizes[: m + 1]))


def _worth(held: int, most: int, steps: list[tuple[int, int]], rate: int, slope: int, hop: int) -> int:
    """The most that an instance with so many layers can add, times the rate, with any flow up to `most`."""
    best = before = 0
    for flow, weight in steps:
        if before >= most:
            break
        ends = (min(flow, most), before)
        best = max(best, *(rate * held * weight + (slope * held - hop) * end for end in ends))
        before = flow
    return best


def main(arguments: list[str]) -> int:
    """Print one JSON object; exit 0, 3 or 6."""
    return run_checker("plan.json", lambda path: check_layer_plan(read_layer_plan(path)), arguments)
