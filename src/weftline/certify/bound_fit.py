"""No plan of a language model on cards takes less: the bound of `check_fit.py`, re-computed.

A plan is a sequence of segments, each on a unit of its own. Whatever a segment of rows holds on a card, the bytes that
do not fit must live on the host: they cost at least as much as the cheapest bytes, cut at will (`_relaxed`). Where the
witness claims more for a segment, a search through whole parts must find nothing cheaper (`_none_cheaper`). With a
price on bytes of the host, whatever a plan puts there pays; the host has room for so many bytes only, so the payment of
all, less the price of that room, is no more than what the plan costs. The cheapest sequence is then found by a program
over (how many devices of each pool are used, last unit, row): no plan costs less.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from weftline.certify.fit_numbers import FitNumbers
from weftline.certify.problem import need, rows, whole

__all__ = ["fit_bound"]

TIME_SCALE = 4096
"""Costs are whole numbers of 1 / 4096 ns, so that prices of bytes may be small."""
MAX_FIT_STEPS, MAX_COVER_NODES = 60_000_000, 3_000_000
NO_WAY = 2**200


class _Item(NamedTuple):
    cost: int
    size: int
    many: int


class _Costs:
    """What no segment undercuts, with a price on bytes of the host."""

    def __init__(self, problem: FitNumbers, price: int, claims: Any) -> None:
        self.problem, self.price, self.nodes = problem, price, 0
        self.claims: dict[tuple[int, ...], int] = {}
        for claim in rows(claims, "claims"):
            *key, least = (whole(number, "claim", -1, NO_WAY) for number in claim)
            self.claims[tuple(key)] = least
        self.tables = [self._tables(unit) for unit in range(len(problem.units))]

    def _tables(self, unit: int) -> tuple[list[int], list[int], list[tuple[int, int, int]]]:
        """Time and bytes of each kind, if only what gains by it moves; (cost, bytes, kind) of what may move besides,
        the cheapest bytes first.
        """
        problem, about = self.problem, self.problem.units[unit]
        time = [(about.row_ns[k] + sum(ns)) * TIME_SCALE for k, ns in enumerate(about.ns)]
        size = [sum(one) for one in about.bytes]
        if problem.host is None:
            return time, size, []
        if unit == problem.host:
            return [t + self.price * s for t, s in zip(time, size, strict=True)], size, []
        host, items = problem.units[problem.host], []
        for kind in range(len(size)):
            for part in problem.moves:
                own = about.bytes[kind][part]
                more = (host.ns[kind][part] + about.trip_ns - about.ns[kind][part]) * TIME_SCALE
                cost = more + self.price * host.bytes[kind][part]
                if cost < 0:
                    time[kind] += cost
                    size[kind] -= own
                elif own:
                    items.append((cost, own, kind))
        return time, size, sorted(items, key=lambda item: (item[0] * 10**18 // item[1], item[1]))

    def of(self, unit: int, after: int, first: int, last: int) -> int:
        """Of a segment; NO_WAY where it cannot be."""
        problem, about = self.problem, self.problem.units[unit]
        time, size, items = self.tables[unit]
        run = problem.run(first, last)
        if unit == problem.host:
            place = "alone" if (first, last) == (0, problem.end) else "first"
        else:
            place = ("middle" if after else "first", "last" if after else "alone")[last == problem.end]
        missing = sum(size[kind] * count for kind, count in run) - problem.limit(unit) + about.buffers[place]
        cost = sum(time[kind] * count for kind, count in run)
        if missing <= 0:
            return cost
        counts = dict(run)
        mine = [_Item(c, s, counts[kind]) for c, s, kind in items if kind in counts]
        least = _relaxed(mine, 0, missing)
        if least >= NO_WAY:
            return NO_WAY
        claim = self.claims.get((unit, after, first, last), -1)
        if claim > least:
            need(
                self._none_cheaper(mine, 0, missing, claim), "bound", "whole parts are cheaper than the witness claims"
            )
            least = claim
        return cost + least

    def _none_cheaper(self, items: list[_Item], place: int, missing: int, budget: int) -> bool:
        """Whether no whole parts of items from a place on make room for less than the budget."""
        self.nodes += 1
        need(self.nodes <= MAX_COVER_NODES, "bound", "the witness claims too much to be checked")
        if missing <= 0:
            return budget <= 0
        if place == len(items) or _relaxed(items, place, missing) >= budget:
            return True
        item = items[place]
        return all(
            self._none_cheaper(items, place + 1, missing - number * item.size, budget - number * item.cost)
            for number in range(min(item.many, -(-missing // item.size)), -1, -1)
        )


def _relaxed(items: list[_Item], place: int, missing: int) -> int:
    """The cheapest bytes of items from a place on, cut at will; NO_WAY if all of them are not enough."""
    cost = 0
    for item in items[place:]:
        if item.size * item.many >= missing:
            return cost - (-missing * item.cost // item.size)
        missing -= item.size * item.many
        cost += item.cost * item.many
    return NO_WAY


def fit_bound(form: dict[str, Any], witness: dict[str, Any]) -> int:
    """The time of a step that no plan undercuts, re-computed from a witness."""
    need(witness.keys() == {"kind", "price", "claims"} and witness["kind"] == "fit-path", "bound", "unknown witness")
    return _bound(FitNumbers(form), whole(witness["price"], "price", 0, 2**40), witness["claims"])


def _bound(problem: FitNumbers, price: int, claims: Any) -> int:
    costs = _Costs(problem, price, claims)
    sizes = {unit.size for i, unit in enumerate(problem.units) if i != problem.host} if problem.equal else {0}
    least = min((_cheapest(problem, costs, size) for size in sizes), default=NO_WAY)
    need(least < NO_WAY, "bound", "nothing fits")
    room = 0
    if problem.host is not None:
        buffers = problem.units[problem.host].buffers
        room = max(0, problem.limit(problem.host) - min(buffers["alone"], buffers["first"]))
    return problem.base + max(0, -(-(least - price * room) // TIME_SCALE))


_State = tuple[tuple[int, ...], int, int]
"""Devices of each pool that are used; the last unit; units in a row."""


def _cheapest(problem: FitNumbers, costs: _Costs, size: int) -> int:
    """The cheapest sequence of segments; in `max`, units in a row times the slowest."""
    end, steps = problem.end, 0
    start: _State = ((0,) * len(problem.pools), -1, 0)
    values: dict[_State, list[int]] = {start: [0] + [NO_WAY] * end}
    waiting: dict[int, list[_State]] = defaultdict(list)
    waiting[0].append(start)
    cache: dict[tuple[int, int], list[list[int]]] = {}
    for total in range(len(problem.limits) + 1):
        for state in waiting[total]:
            for unit, after in _next_units(problem, state, size):
                steps += end * end
                need(steps <= MAX_FIT_STEPS, "bound", "the problem is too large to be checked")
                card_before = int(state[2] > 0)
                table = cache.get((unit, card_before))
                if table is None:
                    table = [
                        [costs.of(unit, card_before, first, last) for last in range(first + 1, end + 1)]
                        for first in range(end)
                    ]
                    cache[unit, card_before] = table
                if after not in values:
                    values[after] = [NO_WAY] * (end + 1)
                    waiting[sum(after[0])].append(after)
                hop = 0 if state[1] < 0 else problem.hops[state[1]][unit] * TIME_SCALE
                _extend(values[state], values[after], table, hop, added=problem.objective == "sum")
    ends = [(state, value[end]) for state, value in values.items() if state[1] >= 0]
    allowed = [(state, value) for state, value in ends if value < NO_WAY and problem.exact in (None, state[2])]
    return min((value if problem.objective == "sum" else value * state[2] for state, value in allowed), default=NO_WAY)


def _next_units(problem: FitNumbers, state: _State, size: int) -> Iterator[tuple[int, _State]]:
    used, last, count = state
    for number, unit in enumerate(problem.units):
        is_host = number == problem.host
        if is_host and not (problem.host_rows == "any" or (problem.host_rows == "first" and last < 0)):
            continue
        if not is_host and ((size and unit.size != size) or (problem.most is not None and count >= problem.most)):
            continue
        after = list(used)
        for pool, devices in unit.takes:
            after[pool] += devices
        if all(n <= len(pool) for n, pool in zip(after, problem.pools, strict=True)):
            yield number, (tuple(after), number, count + (not is_host))


def _extend(before: list[int], after: list[int], table: list[list[int]], hop: int, *, added: bool) -> None:
    """One more segment behind every row that was reached."""
    for first, cost in enumerate(before[:-1]):
        if cost >= NO_WAY:
            continue
        for place, more in enumerate(table[first], first + 1):
            together = cost + hop + more if added else max(cost, hop + more)
            after[place] = min(after[place], together)
