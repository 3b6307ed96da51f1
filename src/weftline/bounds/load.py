"""The load bound: for weights lambda_d >= 0 of sum 1, the largest load >= sum of min over d of lambda_d * time.

Where a pipeline may use only u of the devices, it is enough that the u largest weights sum to 1. The best weights come
from a small linear program by cutting planes (each cut is one pass over the table); they are rounded to integers, so
the witness is exact. For the sequential runtime every op counts fully: the bound is the sum of the least times.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.bound import Bound
from weftline.bounds.group import group_times
from weftline.graph.arrays import Ints
from weftline.problem import Problem

__all__ = ["load_bound"]

SCALE = 2**20
ROUNDS = 80

Floats = NDArray[np.float64]


def load_bound(problem: Problem) -> Bound:
    """Weights by device, rounded, and what they prove."""
    begun = perf_counter()
    total, allowed = group_times(problem)
    if problem.rules.objective == "latency" and problem.rules.runtime == "sequential":
        least = np.where(allowed, total, np.iinfo(np.int64).max).min(axis=1)
        return Bound(int(least.sum()), "load", {"kind": "work"}, perf_counter() - begun)
    times = np.where(allowed, total, -1)
    used = problem.stage_limit if problem.rules.objective == "throughput" else len(problem.devices)
    weights = _best_weights(times, used)
    return Bound(_value(times, weights, used), "load", {"kind": "load", "weights": weights}, perf_counter() - begun)


def _value(times: Ints, weights: list[int], used: int) -> int:
    """ceil(sum over groups of min over devices of weight * time / the `used` largest weights), in exact integers."""
    total = sum(
        min(weight * time for weight, time in zip(weights, row, strict=True) if time >= 0) for row in times.tolist()
    )
    return int(-(-total // sum(sorted(weights)[-used:])))


def _best_weights(times: Ints, used: int) -> list[int]:
    """Kelley's method: the value is concave and piecewise linear in the weights."""
    devices = times.shape[1]
    cost = np.where(times >= 0, times, -1).astype(np.float64)
    weights = np.full(devices, 1.0 / used)
    best, best_weights = -1.0, weights
    cuts: list[Floats] = []
    for _ in range(ROUNDS if devices > 1 else 1):
        value, slope = _pass(cost, weights)
        if value > best:
            best, best_weights = value, weights
        cuts.append(slope)
        upper, proposal = _master(cuts, used)
        if upper <= best * (1 + 1e-6):
            break
        weights = proposal if len(cuts) < 4 else 0.5 * (proposal + best_weights)  # stay near what is good
    rounded = [int(weight * SCALE) for weight in best_weights]
    return rounded if sum(rounded) > 0 else [1] * devices


def _pass(cost: Floats, weights: Floats) -> tuple[float, Floats]:
    """The value at these weights, and a supergradient: the load that each device would get."""
    priced = np.where(cost >= 0, cost * weights, np.inf)
    choice = priced.argmin(axis=1)
    chosen = cost[np.arange(len(cost)), choice]
    return float(priced.min(axis=1).sum()), np.bincount(choice, weights=chosen, minlength=cost.shape[1]).astype(
        np.float64
    )


def _master(cuts: list[Floats], used: int) -> tuple[float, Floats]:
    """max t with t <= cut . weights for every cut; the `used` largest weights sum to at most 1."""
    from ortools.math_opt.python import mathopt

    scale = max(float(cut.max()) for cut in cuts) or 1.0
    model = mathopt.Model()
    weights = [model.add_variable(lb=0.0, ub=1.0) for _ in cuts[0]]
    top = model.add_variable(lb=0.0)
    # The sum of the largest u weights is the least of u * s + sum of max(0, weight - s) over s.
    level = model.add_variable(lb=0.0)
    above = [model.add_variable(lb=0.0) for _ in weights]
    for weight, excess in zip(weights, above, strict=True):
        model.add_linear_constraint(weight - level <= excess)
    model.add_linear_constraint(used * level + sum(above) <= 1.0)
    for cut in cuts:
        model.add_linear_constraint(top <= sum(float(c) / scale * w for c, w in zip(cut, weights, strict=True)))
    model.maximize(top)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if not result.has_primal_feasible_solution():
        return 0.0, np.full(len(weights), 1.0 / len(weights))
    values = np.array([result.variable_values(weight) for weight in weights])
    return float(result.objective_value()) * scale, np.maximum(values, 0.0)
