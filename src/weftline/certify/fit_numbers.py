"""The embedded problem of a plan of a language model on cards, as plain numbers, checked.

In: what the file holds. Out: `FitNumbers`, or a `Refusal`. Simplified: names of rows and units are not looked at.
"""

from __future__ import annotations

from typing import Any

from weftline.certify.problem import need, rows, whole

__all__ = ["FitNumbers", "FitUnitNumbers"]

MAX_FIT_NUMBER = 10**16
PROBLEM = {
    "name",
    "rows",
    "kinds",
    "parts",
    "devices",
    "pools",
    "units",
    "hop_ns",
    "rules",
    "objective",
    "streams",
    "base_ns",
}
UNIT = {"name", "takes", "bytes", "ns", "row_ns", "buffers", "pipelined_buffers", "trip_ns"}
RULES = {"engine", "host_rows", "moves", "equal_groups", "most_units", "exact_units"}
PLACES = ("alone", "first", "middle", "last")


class FitUnitNumbers:
    """A unit as plain numbers."""

    def __init__(self, form: dict[str, Any], kinds: int, parts: int) -> None:
        need(form.keys() == UNIT, "fields", "a unit: wrong fields")
        self.takes = [(whole(p, "pool"), whole(n, "count", 1)) for p, n in rows(form["takes"], "takes")]
        self.bytes, self.ns = (
            [[whole(n, name, 0, MAX_FIT_NUMBER) for n in rows(row, name)] for row in rows(form[name], name)]
            for name in ("bytes", "ns")
        )
        self.row_ns = [whole(n, "row_ns", 0, MAX_FIT_NUMBER) for n in rows(form["row_ns"], "row_ns")]
        shaped = all(len(table) == kinds and all(len(row) == parts for row in table) for table in (self.bytes, self.ns))
        need(shaped and len(self.row_ns) == kinds, "problem", "a unit has a table of the wrong shape")
        need(form["buffers"].keys() == set(PLACES) == form["pipelined_buffers"].keys(), "fields", "buffers")
        self.buffers, self.pipelined = (
            {place: whole(form[name][place], "buffer", 0, MAX_FIT_NUMBER) for place in PLACES}
            for name in ("buffers", "pipelined_buffers")
        )
        need(
            all(self.buffers[p] <= self.pipelined[p] for p in PLACES),
            "problem",
            "buffers of several batches are smaller",
        )
        self.trip_ns = whole(form["trip_ns"], "trip_ns", 0, MAX_FIT_NUMBER)
        self.size = sum(count for _, count in self.takes)


class FitNumbers:
    """The embedded problem, checked."""

    def __init__(self, form: dict[str, Any]) -> None:
        need(form.keys() == PROBLEM and form["rules"].keys() == RULES, "fields", "the embedded problem: wrong fields")
        kinds, self.parts = rows(form["kinds"], "kinds"), rows(form["parts"], "parts")
        self.rows = [whole(kind, "kind of a row", 0, len(kinds) - 1) for kind in rows(form["rows"], "rows")]
        need(1 <= len(self.rows) <= 2_000 and 1 <= len(self.parts) <= 16, "problem", "too many rows or parts, or none")
        self.limits, self.hosts = [], []
        for device in rows(form["devices"], "devices"):
            need(device.keys() == {"id", "limit_bytes", "host"}, "fields", "a device: wrong fields")
            self.limits.append(whole(device["limit_bytes"], "limit_bytes", 0, MAX_FIT_NUMBER))
            need(type(device["host"]) is bool, "problem", "host is true or false")
            self.hosts.append(device["host"])
        self.pools = [[whole(n, "device") for n in rows(p["devices"], "pool")] for p in rows(form["pools"], "pools")]
        held = sorted(device for pool in self.pools for device in pool)
        need(held == list(range(len(self.limits))) and all(self.pools), "problem", "a device is in one pool")
        same = all(len({(self.limits[i], self.hosts[i]) for i in pool}) == 1 for pool in self.pools)
        need(same and len(held) <= 256, "problem", "devices of a pool are equal")
        self.units = [FitUnitNumbers(unit, len(kinds), len(self.parts)) for unit in rows(form["units"], "units")]
        need(1 <= len(self.units) <= 256, "problem", "too many units, or none")
        for unit in self.units:
            good = len({pool for pool, _ in unit.takes}) == len(unit.takes) > 0
            good = good and all(p < len(self.pools) and n <= len(self.pools[p]) for p, n in unit.takes)
            need(good, "problem", "a unit takes devices that are not there")
            alone = unit.size == 1 or not any(self.hosts[self.pools[pool][0]] for pool, _ in unit.takes)
            need(alone, "problem", "the host is in no group")
        host = [i for i, unit in enumerate(self.units) if self.hosts[self.pools[unit.takes[0][0]][0]]]
        need(len(host) <= 1 and sum(self.hosts) <= 1, "problem", "there is one host at most")
        self.host = host[0] if host else None
        self.hops = [
            [whole(n, "hop", 0, MAX_FIT_NUMBER) for n in rows(r, "hops")] for r in rows(form["hop_ns"], "hops")
        ]
        square = len(self.hops) == len(self.units) and all(len(row) == len(self.units) for row in self.hops)
        need(square, "problem", "hops need a number for every pair of units")
        rules = form["rules"]
        self.moves = [part for part, name in enumerate(self.parts) if name in rows(rules["moves"], "moves")]
        self.host_rows, self.objective = rules["host_rows"], form["objective"]
        need(self.host_rows in ("none", "first", "any") and self.objective in ("sum", "max"), "problem", "wrong words")
        need(type(rules["equal_groups"]) is bool, "problem", "equal_groups is true or false")
        self.equal = rules["equal_groups"]
        self.most, self.exact = (
            None if rules[name] is None else whole(rules[name], name, 1) for name in ("most_units", "exact_units")
        )
        host_used = bool(self.moves) or self.host_rows != "none"
        need(self.objective == "sum" or not host_used, "problem", "batches in turn use no host")
        need(not self.moves or self.host is not None, "problem", "parts can move only to a host")
        self.streams = whole(form["streams"], "streams", 1)
        self.base = whole(form["base_ns"], "base_ns", 0, MAX_FIT_NUMBER)
        self.end = len(self.rows)
        self.counts = [[0] * len(kinds)]
        for kind in self.rows:
            self.counts.append([n + (i == kind) for i, n in enumerate(self.counts[-1])])

    def limit(self, unit: int) -> int:
        """Bytes on each device of a unit."""
        return min(self.limits[self.pools[pool][0]] for pool, _ in self.units[unit].takes)

    def run(self, first: int, last: int) -> list[tuple[int, int]]:
        """(kind, how many) of rows first..last-1."""
        pairs = enumerate(zip(self.counts[first], self.counts[last], strict=True))
        return [(kind, b - a) for kind, (a, b) in pairs if b > a]
