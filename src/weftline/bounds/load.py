"""The load bound: for weights lambda_d >= 0 of sum 1, the largest load >= sum of min over d of lambda_d * time.

Where a pipeline may use only u of the devices, it is enough that the u largest weights sum to 1. The best weights come
from a small linear program by cutting planes (each cut is one pass over the table); they are rounded to integers, so
the witness is exact. Where memory is scarce, prices per byte and device strengthen it: what a device holds fits, so
price * (held - capacity) <= 0 may be added. For the sequential runtime the bound is the sum of the least times.
"""

from __future__ import annotations

from dataclasses import replace
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.bound import Bound
from weftline.bounds.group import group_times
from weftline.graph.arrays import Ints
from weftline.problem import Problem
from weftline.problem.feasible import least_memory

__all__ = ["load_bound"]

SCALE = 2**20
FINE = 2**30
"""Scale of weights beside prices, which are small numbers per byte."""
ROUNDS = 80
MOST = 100.0
"""Largest price of all weights together, in units of the largest load."""

Floats = NDArray[np.float64]


def load_bound(problem: Problem) -> Bound:
    """Weights by device (and prices of memory where it is scarce), rounded, and what they prove."""
    begun = perf_counter()
    total, allowed = group_times(problem)
    if problem.rules.objective == "latency" and problem.rules.runtime == "sequential":
        least = np.where(allowed, total, np.iinfo(np.int64).max).min(axis=1)
        return Bound(int(least.sum()), "load", {"kind": "work"}, perf_counter() - begun)
    table = _Table(np.where(allowed, total, -1), least_memory(problem), problem.capacity, _used(problem))
    weights = _best_point(table, np.full(table.devices, 1.0 / table.used), priced=False)[: table.devices]
    whole = _rounded(weights, SCALE)
    best = Bound(table.value(whole, [0] * table.devices), "load", {"kind": "load", "weights": whole})
    if table.limited.any():
        point = _best_point(table, weights, priced=True)
        whole, prices = _rounded(point[: table.devices], FINE), table.prices(point[table.devices :])
        value = table.value(whole, prices)
        if value > best.value:
            best = Bound(value, "load", {"kind": "load", "weights": whole, "prices": prices})
    return replace(best, seconds=perf_counter() - begun)


def _used(problem: Problem) -> int:
    return problem.stage_limit if problem.rules.objective == "throughput" else len(problem.devices)


def _rounded(weights: Floats, scale: int) -> list[int]:
    rounded = [int(weight * scale) for weight in weights]
    return rounded if sum(rounded) > 0 else [1] * len(rounded)


class _Table:
    """Times and memory of the groups; memory is counted in shares of all weights."""

    def __init__(self, times: Ints, need: Ints, capacity: Ints, used: int) -> None:
        self.times, self.need, self.capacity, self.used = times, need, capacity, used
        self.devices = times.shape[1]
        self.all = max(int(need.sum()), 1)
        self.cost, self.share = times.astype(np.float64), need / self.all
        self.limited = capacity < self.all
        self.room = np.where(self.limited, capacity / self.all, 0.0)

    def look(self, point: Floats) -> tuple[float, Floats]:
        """The value at (weights, prices), and a supergradient: the load and the overflow of each device."""
        weights, prices = point[: self.devices], point[self.devices :]
        priced = np.where(self.cost >= 0, self.cost * weights + self.share[:, None] * prices, np.inf)
        choice = priced.argmin(axis=1)
        load = np.bincount(choice, self.cost[np.arange(len(choice)), choice], self.devices)
        held = np.bincount(choice, self.share, self.devices)
        overflow = np.where(self.limited, held - self.room, 0.0)
        value = float(priced.min(axis=1).sum() - (prices * self.room).sum())
        return value, np.concatenate([load, overflow]).astype(np.float64)

    def prices(self, prices: Floats) -> list[int]:
        """Per byte, whole, 0 where memory is not limited."""
        return [int(price * FINE / self.all) if yes else 0 for price, yes in zip(prices, self.limited, strict=True)]

    def value(self, weights: list[int], prices: list[int]) -> int:
        """What the witness proves, in exact integers: see `certify/check.py`."""
        total = -sum(price * limit for price, limit in zip(prices, self.capacity.tolist(), strict=True) if price)
        for row, size in zip(self.times.tolist(), self.need.tolist(), strict=True):
            total += min(w * t + p * size for w, p, t in zip(weights, prices, row, strict=True) if t >= 0)
        return max(0, int(-(-total // sum(sorted(weights)[-self.used :]))))


def _best_point(table: _Table, weights: Floats, *, priced: bool) -> Floats:
    """Kelley's method: the value is concave and piecewise linear in weights and prices."""
    point = np.concatenate([weights, np.zeros(table.devices)])
    best, best_point = -1.0, point
    cuts: list[Floats] = []
    rounds = (ROUNDS if table.devices > 1 else 1) * (2 if priced else 1)
    for _ in range(rounds):
        value, slope = table.look(point)
        if value > best:
            best, best_point = value, point
        cuts.append(slope)
        upper, proposal = _master(cuts, table.used, table.limited & priced)
        if upper <= best * (1 + 1e-6):
            break
        point = proposal if len(cuts) < 4 else 0.5 * (proposal + best_point)  # stay near what is good
    return best_point


def _master(cuts: list[Floats], used: int, priced: NDArray[np.bool_]) -> tuple[float, Floats]:
    """max t with t <= cut . point for every cut; the `used` largest weights sum to at most 1, prices are bounded."""
    from ortools.math_opt.python import mathopt

    devices = len(priced)
    scale = max(float(cut[:devices].max()) for cut in cuts) or 1.0
    model = mathopt.Model()
    weights = [model.add_variable(lb=0.0, ub=1.0) for _ in range(devices)]
    prices = [model.add_variable(lb=0.0, ub=MOST if yes else 0.0) for yes in priced]
    top = model.add_variable(lb=0.0)
    # The sum of the largest u weights is the least of u * s + sum of max(0, weight - s) over s.
    level = model.add_variable(lb=0.0)
    above = [model.add_variable(lb=0.0) for _ in weights]
    for weight, excess in zip(weights, above, strict=True):
        model.add_linear_constraint(weight - level <= excess)
    model.add_linear_constraint(used * level + sum(above) <= 1.0)
    for cut in cuts:
        loads = sum(float(c) / scale * w for c, w in zip(cut[:devices], weights, strict=True))
        model.add_linear_constraint(
            top <= loads + sum(float(c) * p for c, p in zip(cut[devices:], prices, strict=True))
        )
    model.maximize(top)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if not result.has_primal_feasible_solution():
        return 0.0, np.concatenate([np.full(devices, 1.0 / used), np.zeros(devices)])
    found = [result.variable_values(weight) for weight in weights]
    costs = [result.variable_values(price) * scale for price in prices]
    return float(result.objective_value()) * scale, np.maximum(np.array(found + costs), 0.0)
