"""The cheapest way through all rows: a dynamic program over how many devices of each pool are used, and the last row.

In: `SegmentTables`, the sizes of groups that are allowed. Out: the cheapest sequence of segments, and its cost. Every
entry of the tables is a cost that no segment undercuts, so neither does any plan undercut the answer. Simplified: equal
devices are counted, so a few unlike devices make few states.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from weftline.errors import LimitReached
from weftline.fleet.fit.tables import TIME_SCALE, Choice, Costs, SegmentTables
from weftline.problem.fit import FitObjective, FitProblem, HostRows

__all__ = ["FitPath", "cheapest_path", "group_sizes"]

MOST_STATES = 40_000
"""States of used devices; more than these are too many unlike devices for an answer in seconds."""


class FitPath(NamedTuple):
    """A sequence of segments."""

    cost: float
    """In 1 / TIME_SCALE ns, with the price of the host's bytes."""
    choices: tuple[Choice, ...]


class _State(NamedTuple):
    """What has been used so far."""

    units: int
    """Cards or groups in a row; 0 where it does not matter."""
    used: tuple[int, ...]
    """Of each pool."""
    host: bool
    last: int
    """The unit of the last segment; -1 before the first."""


def group_sizes(problem: FitProblem) -> Sequence[int | None]:
    """The sizes of groups that one plan may have: None is any."""
    if not problem.rules.equal_groups:
        return [None]
    return sorted({unit.size for number, unit in enumerate(problem.units) if not problem.is_host(number)})


def cheapest_path(problem: FitProblem, tables: SegmentTables) -> FitPath | None:
    """The best of all sizes of groups; None if nothing fits."""
    found = [_Program(problem, tables, size).solve() for size in group_sizes(problem)]
    return min((path for path in found if path is not None), key=lambda path: path.cost, default=None)


class _Program:
    """One size of groups."""

    def __init__(self, problem: FitProblem, tables: SegmentTables, size: int | None) -> None:
        self.problem, self.tables, self.host = problem, tables, problem.host_unit
        self.bottleneck = problem.objective is FitObjective.MAX
        rules = problem.rules
        self.counted = self.bottleneck or rules.most_units is not None or rules.exact_units is not None
        self.most = min(filter(None, (rules.most_units, rules.exact_units, len(problem.devices))))
        self.cards = [
            number
            for number, unit in enumerate(problem.units)
            if number != self.host and (size is None or unit.size == size)
        ]
        self.values: dict[_State, Costs] = {}
        self.back: dict[_State, list[tuple[_State, int] | None]] = {}

    def solve(self) -> FitPath | None:
        length, first = len(self.problem.rows), _State(0, (0,) * len(self.problem.pools), False, -1)
        self.values[first] = np.full(length + 1, np.inf)
        self.values[first][0] = 0.0
        self.back[first] = [None] * (length + 1)
        waiting: dict[int, set[_State]] = defaultdict(set)
        waiting[0].add(first)
        for total in range(len(self.problem.devices) + 1):
            for state in sorted(waiting[total]):
                for unit in self._next(state):
                    after = self._step(state, unit)
                    if after is not None:
                        waiting[sum(after.used)].add(after)
            if len(self.values) > MOST_STATES:
                raise LimitReached(
                    f"more than {MOST_STATES} states: too many unlike devices; name equal ones alike, or ask for fewer"
                )
        ends = [(self._total(state), state) for state in self.values if self._may_end(state)]
        best = min(ends, default=(np.inf, first))
        return None if best[0] == np.inf else FitPath(float(best[0]), self._choices(best[1]))

    def _next(self, state: _State) -> Iterable[int]:
        """Units that may follow."""
        rows = self.problem.rules.host_rows
        may = rows is HostRows.ANY or (rows is HostRows.FIRST and state.last == -1)
        if self.host is not None and may and not state.host:
            yield self.host
        if self.counted and state.units >= self.most:
            return
        for unit in self.cards:
            takes = self.problem.units[unit].takes
            if all(state.used[pool] + count <= len(self.problem.pools[pool].devices) for pool, count in takes):
                yield unit

    def _step(self, state: _State, unit: int) -> _State | None:
        """All segments of a unit behind a state."""
        used, is_host = list(state.used), unit == self.host
        for pool, count in self.problem.units[unit].takes:
            used[pool] += count
        before = self.values[state]
        matrix = self.tables.relaxed[unit, int(_card_before(self.problem, state))]
        hop = 0 if state.last < 0 else self.problem.hop_ns[state.last][unit] * TIME_SCALE
        together = np.maximum(before[:, None], matrix + hop) if self.bottleneck else (before[:, None] + matrix) + hop
        rows = together.argmin(axis=0)
        costs = together[rows, np.arange(len(before))]
        if not np.isfinite(costs).any():
            return None
        after = _State(state.units + int(self.counted and not is_host), tuple(used), state.host or is_host, unit)
        if after not in self.values:
            self.values[after] = np.full(len(before), np.inf)
            self.back[after] = [None] * len(before)
        values, back = self.values[after], self.back[after]
        for last in np.nonzero(costs < values)[0]:
            values[last] = costs[last]
            back[last] = (state, int(rows[last]))
        return after

    def _may_end(self, state: _State) -> bool:
        exact = self.problem.rules.exact_units
        return state.last >= 0 and (exact is None or state.units == exact)

    def _total(self, state: _State) -> float:
        cost = float(self.values[state][-1])
        return cost * state.units if self.bottleneck else cost

    def _choices(self, state: _State) -> tuple[Choice, ...]:
        found: list[Choice] = []
        last = len(self.problem.rows)
        while (step := self.back[state][last]) is not None:
            before, first = step
            found.append((state.last, int(_card_before(self.problem, before)), first, last))
            state, last = before, first
        return tuple(reversed(found))


def _card_before(problem: FitProblem, state: _State) -> bool:
    """Whether a card has been used."""
    return any(
        count for pool, count in enumerate(state.used) if not problem.devices[problem.pools[pool].devices[0]].host
    )
