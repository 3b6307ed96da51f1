"""What every run of rows would cost on every unit: the table that the dynamic program adds up.

In: a FitProblem, a price for each byte of the host. Out: for each unit, with and without a card before it, a matrix
[first, last]: no segment there costs less. Where all parts fit it is the cost; where some must move to the host it is
the cost with parts cut at will (`relaxed`), until the cheapest whole parts are asked for (`exact`). Simplified: costs
are whole numbers of 1 / TIME_SCALE ns, so that prices may be small.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weftline.fleet.fit.cover import CoverItem, cheapest_cover
from weftline.problem.fit import FitProblem

__all__ = ["TIME_SCALE", "SegmentTables"]

TIME_SCALE = 4096
ROUNDED_SHARE = 1e-12
"""Share by which a cost with cut parts is rounded down, so that floating point never makes it too large."""

Costs = NDArray[np.float64]
Choice = tuple[int, int, int, int]
"""unit, whether a card stands before it, first row, last row + 1."""


class SegmentTables:
    """Matrices of costs; `price`: of a byte on the host, in 1 / TIME_SCALE ns."""

    def __init__(self, problem: FitProblem, price: int = 0) -> None:
        self.problem, self.price = problem, price
        self.host = problem.host_unit
        self.length = len(problem.rows)
        counts = np.zeros((len(problem.kinds), self.length + 1), np.int64)
        for row, kind in enumerate(problem.rows):
            counts[:, row + 1] = counts[:, row]
            counts[kind, row + 1] += 1
        self.counts = counts
        self.moved: dict[Choice, tuple[tuple[int, int, int], ...]] = {}
        """Of segments whose cost is exact: (kind, part, how many)."""
        self.claims: dict[Choice, int] = {}
        """What was shown of them: no whole parts cost less."""

    @cached_property
    def room(self) -> int:
        """Bytes of the host for rows and parts."""
        if self.host is None:
            return 0
        buffers = self.problem.units[self.host].buffers
        return self.problem.limit(self.host) - min(buffers.alone, buffers.first)

    def items(self, unit: int) -> tuple[list[CoverItem], list[CoverItem]]:
        """Parts that may move from a unit: those that are always worth it, and those that cost something."""
        problem, host = self.problem, self.host
        gains: list[CoverItem] = []
        costs: list[CoverItem] = []
        if host is None or unit == host:
            return gains, costs
        own, other = problem.units[unit], problem.units[host]
        for kind in range(len(problem.kinds)):
            for part, name in enumerate(problem.parts):
                if name not in problem.rules.moves or not (own.bytes[kind][part] or own.ns[kind][part]):
                    continue
                extra = (other.ns[kind][part] + own.trip_ns - own.ns[kind][part]) * TIME_SCALE
                item = CoverItem(extra + self.price * other.bytes[kind][part], own.bytes[kind][part], kind, part)
                (gains if item.cost < 0 else costs).append(item)
        return gains, sorted(costs, key=lambda item: (item.cost / item.size if item.size else float("inf"), item.size))

    def _rows(self, unit: int) -> tuple[Costs, NDArray[np.int64]]:
        """[first, last]: time, and bytes on each device, if only what gains by it moves."""
        about, problem = self.problem.units[unit], self.problem
        gains, _ = self.items(unit)
        time = [(about.row_ns[k] + sum(about.ns[k])) * TIME_SCALE for k in range(len(problem.kinds))]
        held = [sum(about.bytes[k]) for k in range(len(problem.kinds))]
        for item in gains:
            time[item.kind] += item.cost
            held[item.kind] -= item.size
        times = np.array(time, np.float64) @ self.counts
        bytes_ = np.array(held, np.int64) @ self.counts
        return times[None, :] - times[:, None], bytes_[None, :] - bytes_[:, None]

    def spare(self, unit: int, after: int) -> NDArray[np.int64]:
        """[last]: bytes for rows on a unit that ends there."""
        buffers, limit = self.problem.units[unit].buffers, self.problem.limit(unit)
        if unit == self.host:
            spare = np.full(self.length + 1, limit - buffers.first)
        else:
            spare = np.full(self.length + 1, limit - (buffers.middle if after else buffers.first))
            spare[self.length] = limit - (buffers.last if after else buffers.alone)
        return spare

    @cached_property
    def relaxed(self) -> dict[tuple[int, int], Costs]:
        """(unit, whether a card stands before it) -> [first, last]."""
        found = {}
        for unit in range(len(self.problem.units)):
            for after in (0, 1):
                found[unit, after] = self._host_matrix() if unit == self.host else self._matrix(unit, after)
        return found

    def _matrix(self, unit: int, after: int) -> Costs:
        time, held = self._rows(unit)
        cost = np.where(self._order(), time, np.inf)
        missing = np.maximum(held - self.spare(unit, after)[None, :], 0).astype(np.float64)
        extra = np.zeros_like(cost)
        for item in self.items(unit)[1]:
            if item.size:
                run = self.counts[item.kind][None, :] - self.counts[item.kind][:, None]
                taken = np.minimum(missing, np.maximum(run, 0) * float(item.size))
                extra += taken * (item.cost / item.size)
                missing -= taken
        extra = np.ceil(extra * (1 - ROUNDED_SHARE) - 1e-3)
        matrix: Costs = np.where(missing > 0, np.inf, cost + extra)
        return matrix

    def _host_matrix(self) -> Costs:
        assert self.host is not None
        time, held = self._rows(self.host)
        spare = np.broadcast_to(self.spare(self.host, 0), held.shape).copy()
        spare[0, -1] = self.problem.limit(self.host) - self.problem.units[self.host].buffers.alone
        matrix: Costs = np.where(self._order() & (held <= spare), time + self.price * held.astype(np.float64), np.inf)
        return matrix

    def _order(self) -> NDArray[np.bool_]:
        positions = np.arange(self.length + 1)
        return positions[:, None] < positions[None, :]

    def is_exact(self, choice: Choice) -> bool:
        """Whether the matrix holds what the segment costs."""
        return choice[0] == self.host or choice in self.moved or self.missing(choice) <= 0

    def missing(self, choice: Choice) -> int:
        """Bytes that must move to the host."""
        unit, after, first, last = choice
        about = self.problem.units[unit]
        held = [sum(about.bytes[k]) for k in range(len(self.problem.kinds))]
        for item in self.items(unit)[0]:
            held[item.kind] -= item.size
        have = sum(held[k] * int(self.counts[k, last] - self.counts[k, first]) for k in range(len(held)))
        return have - int(self.spare(unit, after)[last])

    def make_exact(self, choice: Choice, most_nodes: int, slack: int) -> None:
        """Put the cost with whole parts into the matrix."""
        unit, after, first, last = choice
        items = [
            (item, int(self.counts[item.kind, last] - self.counts[item.kind, first]))
            for item in self.items(unit)[1]
            if item.size
        ]
        found = cheapest_cover(items, self.missing(choice), most_nodes, slack)
        time, _ = self._rows(unit)
        matrix = self.relaxed[unit, after]
        if found is None:
            matrix[first, last] = np.inf
            self.claims[choice] = -1
            return
        matrix[first, last] = max(matrix[first, last], time[first, last] + found.least)
        self.claims[choice] = found.least
        self.moved[choice] = tuple(
            (item.kind, item.part, count) for (item, _), count in zip(items, found.counts, strict=True) if count
        )

    def moves(self, choice: Choice) -> tuple[tuple[int, int], ...]:
        """(row, part) that live on the host: the first rows of their kind."""
        unit, _, first, last = choice
        if unit == self.host:
            return ()
        everything = [(item.kind, item.part, last - first) for item in self.items(unit)[0]]
        found = []
        for kind, part, count in [*everything, *self.moved.get(choice, ())]:
            rows = [row for row in range(first, last) if self.problem.rows[row] == kind]
            found += [(row, part) for row in rows[:count]]
        return tuple(sorted(found))
