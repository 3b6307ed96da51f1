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

GRACE = 1.0
"""Seconds after the time limit in which baselines may still begin."""


def baseline_values(
    problem: Problem, solvers: dict[str, Solver], seed: int, done: Search, *, adopt: bool = False
) -> dict[str, int | None]:
    """Name -> value, None where the baseline breaks a limit.

    What the search has reached already is not computed again; once its time is over, the rest is left out. With
    `adopt` the search takes what a baseline finds, if it is better: it may have been too short to look for itself.
    """
    values: dict[str, int | None] = {}
    for solver in solvers.values():
        if solver.baseline and solver.name in done.reached:
            values[solver.name] = done.reached[solver.name]
        elif solver.baseline and (done.time_limit is None or done.seconds < done.time_limit + GRACE):
            search = Search(problem, seed=seed, solver=solver.name)
            try:
                solver.solve(search)
            except InfeasibleError:
                values[solver.name] = None
                continue
            values[solver.name] = None if search.best is None else search.best.value
            if adopt and search.best is not None:
                done.adopt(search.best)
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
