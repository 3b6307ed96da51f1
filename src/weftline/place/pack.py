"""When memory is so tight that the heuristics run into a wall: CP-SAT packs the weights, with the least total work.

Exact for the memory of weights; activations are checked afterwards by the simulator. Proves infeasibility of the
packing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.group import group_times
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem.feasible import least_memory
from weftline.search import Search, Solver
from weftline.simulate import simulate_latency

__all__ = ["PACKING_SECONDS", "SOLVER", "solve_packing"]

MAX_CHOICES = 150_000
ATTEMPTS = 8
PACKING_SECONDS = 10.0
"""For all attempts together."""


def _solve(search: Search) -> None:
    """Pack; where activations then overflow a device, leave that much room there and pack again."""
    problem = search.problem
    times, allowed = group_times(problem)
    if allowed.sum() > MAX_CHOICES:
        raise InfeasibleError(f"packing {len(times)} groups of ops exactly is too large")
    room, begun = problem.capacity.copy(), search.seconds
    for attempt in range(ATTEMPTS):
        placement = _pack(search, times, allowed, room, begun, proof=attempt == 0)
        if placement is None or search.offer(placement) is not None or search.stopped_by:
            return
        try:
            overflow = simulate_latency(problem, placement).peak - problem.capacity
        except InfeasibleError:  # a missing link, which more room does not mend
            return
        room -= np.maximum(overflow, 0)
        if search.work_limit is None and search.seconds > begun + PACKING_SECONDS:
            return


def _pack(
    search: Search, times: Ints, allowed: NDArray[np.bool_], room: Ints, begun: float, *, proof: bool
) -> Indices | None:
    """A placement whose weights fit into `room`, with the least total work; None or, for a `proof`, an error."""
    from ortools.sat.python import cp_model

    problem = search.problem
    model = cp_model.CpModel()
    chosen = {(g, d): model.new_bool_var("") for g, d in np.argwhere(allowed).tolist()}
    for g in range(len(times)):
        model.add_exactly_one(chosen[g, d] for d in range(len(problem.devices)) if allowed[g, d])
    need = least_memory(problem).tolist()
    for d in (d for d, device in enumerate(problem.devices) if device.capacity is not None):
        load = [need[g] * choice for (g, device), choice in chosen.items() if device == d and need[g]]
        for tied in problem.graph.tied:
            held = model.new_bool_var("")
            for g in {int(problem.group[op]) for op in tied.ops}:
                if (g, d) in chosen:
                    model.add_implication(chosen[g, d], held)
            load.append(tied.bytes * held)
        model.add(sum(load) <= int(room[d]))
    model.minimize(sum(int(times[g, d]) * choice for (g, d), choice in chosen.items()))
    solver, status = solve_packing(search, model, begun)
    if status == cp_model.INFEASIBLE and proof:
        raise InfeasibleError("the weights cannot be packed into the devices' memory", proved=True)
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    device = np.zeros(len(times), np.int32)
    for (g, d), choice in chosen.items():
        if solver.boolean_value(choice):
            device[g] = d
    return device[problem.group]


def solve_packing(search: Search, model: Any, begun: float) -> tuple[Any, Any]:
    """One CP-SAT worker with the search's seed, within what is left of the time for packing, which began at `begun`.

    Ctrl-C is left to Python: CP-SAT would stop this one call and swallow it.
    """
    from ortools.sat.python import cp_model

    solver = cp_model.CpSolver()
    solver.parameters.num_workers = 1
    solver.parameters.random_seed = search.seed
    solver.parameters.catch_sigint_signal = False
    if search.work_limit is not None:
        solver.parameters.max_deterministic_time = 2.0
    else:
        left = begun + PACKING_SECONDS - search.seconds
        if search.time_limit is not None:
            left = min(left, search.time_limit - search.seconds)
        solver.parameters.max_time_in_seconds = max(0.1, left)
    return solver, solver.solve(model)


SOLVER = Solver("pack", "least total work that fits memory (CP-SAT), for when memory is tight", _solve)
