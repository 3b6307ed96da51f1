"""What the plan is compared with: the simple solvers of its family and, for throughput, replicas of the whole model."""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate import simulate_throughput, violations

__all__ = ["baseline_values"]


def baseline_values(
    problem: Problem, solvers: dict[str, Solver], seed: int, reached: dict[str, int | None]
) -> dict[str, int | None]:
    """Name -> value, None where the baseline breaks a limit. What was `reached` already is not computed again."""
    values: dict[str, int | None] = {}
    for solver in solvers.values():
        if solver.baseline and solver.name in reached:
            values[solver.name] = reached[solver.name]
        elif solver.baseline:
            search = Search(problem, seed=seed, solver=solver.name)
            try:
                solver.solve(search)
            except InfeasibleError:
                values[solver.name] = None
                continue
            values[solver.name] = None if search.best is None else search.best.value
    if problem.rules.objective == "throughput":
        values["replicas"] = _replicas(problem)
    return values


def _replicas(problem: Problem) -> int | None:
    """The whole model on every device that can hold it, at most as many as stages are allowed: rates add up."""
    periods = []
    for device in range(len(problem.devices)):
        try:
            loads = simulate_throughput(problem, np.full(len(problem.graph.ops), device, np.int32))
        except InfeasibleError:
            continue
        if not violations(problem, loads):
            periods.append(loads.value)
    fastest = sorted(periods)[: problem.stage_limit]
    if not fastest:
        return None
    return 0 if fastest[0] == 0 else ceil(1 / sum(Fraction(1, period) for period in fastest))
