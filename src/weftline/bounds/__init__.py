"""The lower bounds that all questions share, each with a witness that can be checked without a solver.

In: a Problem. Out: `Bound`s; `certify/check.py` re-computes each from its witness alone. Simplified: they ignore
contention and nearly all of memory. A question's own bounds are in its room.

The group bound: ops that must share a device (or one op alone) take their time on one device, whichever it is.

The load bound: for weights lambda_d >= 0 of sum 1, the largest load >= sum of min over d of lambda_d * time. Where a
pipeline may use only u of the devices, it is enough that the u largest weights sum to 1. The best weights come from a
small linear program by cutting planes (each cut is one pass over the table); they are rounded to integers, so the
witness is exact. Where memory is scarce, prices per byte and device strengthen it: what a device holds fits, so
price * (held - capacity) <= 0 may be added. For the sequential runtime the bound is the sum of the least times.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from weftline.cost.table import distinct_rows
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.search.bound import Bound

__all__ = ["Bound", "group_bound", "group_times", "load_bound"]


def group_times(problem: Problem) -> tuple[Ints, np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
    """(groups, K) total time of each `together` set or single op on each device, and whether it can run there."""
    count = int(problem.group.max()) + 1
    total = np.zeros((count, len(problem.devices)), np.int64)
    allowed = np.ones(total.shape, np.bool_)
    np.add.at(total, problem.group, np.maximum(problem.cost.time, 0))
    np.logical_and.at(allowed, problem.group, problem.cost.time >= 0)
    return total, allowed


def group_bound(problem: Problem) -> Bound:
    """The largest over groups of the smallest total over devices."""
    begun = perf_counter()
    total, allowed = group_times(problem)
    least = np.where(allowed, total, np.iinfo(np.int64).max).min(axis=1)
    worst = int(least.argmax())
    ops = np.flatnonzero(problem.group == worst).tolist()
    return Bound(int(least[worst]), "group", {"kind": "group", "ops": ops}, perf_counter() - begun)


WEIGHT_SCALE = 2**20
FINE_SCALE = 2**30
"""Scale of weights beside prices, which are small numbers per byte."""
LARGEST_PRICE = 2.0**60
"""The checker reads no larger number."""
MOST_ROUNDS = 80
LARGEST_PRICE_SUM = 100.0
"""Largest price of all weights together, in units of the largest load."""

Floats = NDArray[np.float64]


def load_bound(problem: Problem) -> Bound:
    """Weights by device (and prices of memory where it is scarce), rounded, and what they prove."""
    begun = perf_counter()
    total, allowed = group_times(problem)
    if problem.rules.objective == "latency" and problem.rules.runtime == "sequential":
        least = np.where(allowed, total, np.iinfo(np.int64).max).min(axis=1)
        return Bound(int(least.sum()), "load", {"kind": "work"}, perf_counter() - begun)
    columns, kind = _kinds(np.where(allowed, total, -1), problem.capacity)
    table = _Table(
        np.ascontiguousarray(columns[:-1]), least_memory(problem), columns[-1], np.bincount(kind), _used(problem)
    )
    weights = _best_point(table, np.full(table.kinds, 1.0 / table.used), priced=False)[: table.kinds]
    whole = _rounded(weights, WEIGHT_SCALE)
    best = Bound(table.value(whole, [0] * table.kinds), "load", {"kind": "load", "weights": _each(whole, kind)})
    if table.limited.any():
        point = _best_point(table, weights, priced=True)
        scale = min(FINE_SCALE, int(LARGEST_PRICE * table.all / max(1.0, float(point[table.kinds :].max()))))
        whole, prices = _rounded(point[: table.kinds], scale), table.prices(point[table.kinds :], scale)
        value = table.value(whole, prices)
        if value > best.value:
            witness: dict[str, object] = {"kind": "load", "weights": _each(whole, kind), "prices": _each(prices, kind)}
            best = Bound(value, "load", witness)
    return replace(best, seconds=perf_counter() - begun)


def _kinds(times: Ints, capacity: Ints) -> tuple[Ints, Indices]:
    """Distinct devices (one column each: times, then capacity), and the kind of each device."""
    rows, kind = distinct_rows(np.concatenate([times, capacity[None]]).T)
    return rows.T, kind


def _each(values: list[int], kind: Indices) -> list[int]:
    """A value per kind -> one per device."""
    return [values[k] for k in kind.tolist()]


def _used(problem: Problem) -> int:
    return problem.stage_limit if problem.rules.objective == "throughput" else len(problem.devices)


def _rounded(weights: Floats, scale: int) -> list[int]:
    rounded = [int(weight * scale) for weight in weights]
    return rounded if sum(rounded) > 0 else [1] * len(rounded)


class _Table:
    """Times and memory of the groups by kind of device; memory is counted in shares of all weights."""

    def __init__(self, times: Ints, need: Ints, capacity: Ints, count: Ints, used: int) -> None:
        self.times, self.need, self.capacity, self.count, self.used = times, need, capacity, count, used
        self.kinds = times.shape[1]
        self.all = max(int(need.sum()), 1)
        self.cost, self.share = times.astype(np.float64), need / self.all
        self.limited = capacity < self.all
        self.room = np.where(self.limited, count * (capacity / self.all), 0.0)

    def look(self, point: Floats) -> tuple[float, Floats]:
        """The value at (weights, prices), and a supergradient: the load and the overflow of each kind of device."""
        weights, prices = point[: self.kinds], point[self.kinds :]
        priced = np.where(self.cost >= 0, self.cost * weights + self.share[:, None] * prices, np.inf)
        choice = priced.argmin(axis=1)
        load = np.bincount(choice, self.cost[np.arange(len(choice)), choice], self.kinds)
        held = np.bincount(choice, self.share, self.kinds)
        overflow = np.where(self.limited, held - self.room, 0.0)
        value = float(priced.min(axis=1).sum() - (prices * self.room).sum())
        return value, np.concatenate([load, overflow]).astype(np.float64)

    def prices(self, prices: Floats, scale: int) -> list[int]:
        """Per byte, whole, 0 where memory is not limited."""
        return [int(price * scale / self.all) if yes else 0 for price, yes in zip(prices, self.limited, strict=True)]

    def value(self, weights: list[int], prices: list[int]) -> int:
        """What the witness proves, in exact integers: see `certify/check.py`."""
        held = zip(prices, self.capacity.tolist(), self.count.tolist(), strict=True)
        total = -sum(price * limit * count for price, limit, count in held if price)
        for row, size in zip(self.times.tolist(), self.need.tolist(), strict=True):
            total += min(w * t + p * size for w, p, t in zip(weights, prices, row, strict=True) if t >= 0)
        each = sorted(w for w, count in zip(weights, self.count.tolist(), strict=True) for _ in range(count))
        return max(0, int(-(-total // sum(each[-self.used :]))))


def _best_point(table: _Table, weights: Floats, *, priced: bool) -> Floats:
    """Kelley's method: the value is concave and piecewise linear in weights and prices."""
    point = np.concatenate([weights, np.zeros(table.kinds)])
    best, best_point = -1.0, point
    cuts: list[Floats] = []
    rounds = (MOST_ROUNDS if table.kinds > 1 else 1) * (2 if priced else 1)
    for _ in range(rounds):
        value, slope = table.look(point)
        if value > best:
            best, best_point = value, point
        cuts.append(slope)
        upper, proposal = _master(cuts, table.used, table.count, table.limited & priced)
        if upper <= best * (1 + 1e-6):
            break
        point = proposal if len(cuts) < 4 else 0.5 * (proposal + best_point)  # stay near what is good
    return best_point


def _master(cuts: list[Floats], used: int, count: Ints, priced: NDArray[np.bool_]) -> tuple[float, Floats]:
    """max t with t <= cut . point for every cut; the `used` largest weights sum to at most 1, prices are bounded."""
    from ortools.math_opt.python import mathopt

    kinds = len(priced)
    scale = max(float(cut[:kinds].max()) for cut in cuts) or 1.0
    model = mathopt.Model()
    weights = [model.add_variable(lb=0.0, ub=1.0) for _ in range(kinds)]
    prices = [model.add_variable(lb=0.0, ub=LARGEST_PRICE_SUM if yes else 0.0) for yes in priced]
    top = model.add_variable(lb=0.0)
    # The sum of the largest u weights is the least of u * s + sum of max(0, weight - s) over s.
    level = model.add_variable(lb=0.0)
    above = [model.add_variable(lb=0.0) for _ in weights]
    for weight, excess in zip(weights, above, strict=True):
        model.add_linear_constraint(weight - level <= excess)
    model.add_linear_constraint(
        used * level + sum(int(c) * excess for c, excess in zip(count, above, strict=True)) <= 1.0
    )
    for cut in cuts:
        loads = sum(float(c) / scale * w for c, w in zip(cut[:kinds], weights, strict=True))
        model.add_linear_constraint(top <= loads + sum(float(c) * p for c, p in zip(cut[kinds:], prices, strict=True)))
    model.maximize(top)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if not result.has_primal_feasible_solution():
        return 0.0, np.concatenate([np.full(kinds, 1.0 / used), np.zeros(kinds)])
    found = [result.variable_values(weight) for weight in weights]
    costs = [result.variable_values(price) * scale for price in prices]
    return float(result.objective_value()) * scale, np.maximum(np.array(found + costs), 0.0)
