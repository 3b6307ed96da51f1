"""What the plan is compared with: the simple solvers of its family and, for throughput, replicas of the whole model.

Search on a coarser graph first: the answer, lifted to the ops, is where the search on the whole graph begins.

In: a search and the group of every op. The contracted problem gets part of the time (or of the work) with the same
solver; its best plan is offered with the members of a group one after another, and then polished by whatever follows.
Bounds of the contracted problem do not hold for the whole one and are not used.
"""

from __future__ import annotations

from fractions import Fraction
from math import ceil

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.reduce.contract import acyclic, contract
from weftline.search import Search, Solver
from weftline.simulate import Timeline, simulate_throughput, violations

__all__ = ["baseline_values", "search_coarse"]

GRACE = 1.0
"""Seconds after the time limit in which baselines may still begin."""
_ORDER = {name: place for place, name in enumerate(("single-device", "even-split", "round-robin", "greedy"))}
"""The order in which files name baselines, whatever room registers them."""


def baseline_values(
    problem: Problem, solvers: dict[str, Solver], seed: int, done: Search, *, adopt: bool = False
) -> dict[str, int | None]:
    """Name -> value, None where the baseline breaks a limit.

    What the search has reached already is not computed again; once its time is over, the rest is left out. With
    `adopt` the search takes what a baseline finds, if it is better: it may have been too short to look for itself.
    """
    values: dict[str, int | None] = {}
    for solver in sorted(solvers.values(), key=lambda solver: _ORDER.get(solver.name, len(_ORDER))):
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


SHARE = 0.3
"""Of the time, or of the work."""


def search_coarse(search: Search, solver: Solver, group: Indices) -> None:
    """Offer what the solver finds on the contracted problem; nothing if it finds nothing."""
    contracted = contract(search.problem, acyclic(search.problem, group))
    left = search.seconds_left
    coarse = Search(
        contracted.small,
        time_limit=None if left is None else SHARE * left,
        work_limit=None if search.work_limit is None else max(1, int(SHARE * search.work_limit)),
        seed=search.seed,
        solver=f"{search.solver} (coarse)",
    )
    try:
        solver.solve(coarse)
    except InfeasibleError:
        return
    if isinstance(coarse.best, Timeline):
        order = contracted.lift_order(coarse.best.order)
        search.offer(contracted.lift(coarse.best.placement), order=order)
