"""A placement solver of your own: move one op at a time to another device, keep what is not worse.

Here it is registered for this process; a package registers it by the entry point `weftline.latency`
(see docs/guide/solver.md).
"""

from __future__ import annotations

import numpy as np

import weftline as wl
from weftline.latency import solvers
from weftline.search import Search, Solver
from weftline.testing import check_solver, random_problem
from weftline.zoo import zoo_graph

MOVES = 300


def hill_climb(search: Search) -> None:
    """Start from one device; `offer` costs a candidate with the simulator, and the search keeps the best."""
    solvers()["single-device"].solve(search)
    if search.best is None:
        return
    random = np.random.default_rng(search.seed)
    current, value = search.best.placement.copy(), search.best.value
    time = search.problem.cost.time
    for _ in range(MOVES):
        if search.stopped_by:
            return
        op = random.integers(len(current))
        candidate = current.copy()
        candidate[op] = random.choice(np.flatnonzero(time[op] >= 0))
        offered = search.offer(candidate)
        if offered is not None and offered <= value:
            current, value = candidate, offered


def main() -> None:
    """Hold the solver to the rules, then use it."""
    solver = Solver("hill-climb", "one device, then single moves", hill_climb)
    for seed in range(5):
        check_solver(solver, random_problem(seed, "latency", max_ops=6))
    solvers()[solver.name] = solver
    graph = zoo_graph("inception-v3", size="small")
    plan = wl.plan(graph, wl.Cluster.preset("two-gpus"), solver="hill-climb", work_limit=MOVES)
    print(plan.summary())


if __name__ == "__main__":
    main()
