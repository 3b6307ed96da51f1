"""When memory is so tight that the heuristics run into a wall: CP-SAT packs the weights, with the least total work.

Exact for the memory of weights; activations are checked afterwards by the simulator. Proves infeasibility of the
packing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import group_times
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem.feasible import least_memory
from weftline.search import Search, Solver
from weftline.search.cp_sat import PACKING_SECONDS, solve_packing
from weftline.simulate import simulate_latency

__all__ = ["SOLVER"]

MAX_CHOICES = 150_000
ATTEMPTS = 8


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


SOLVER = Solver("pack", "least total work that fits memory (CP-SAT), for when memory is tight", _solve)
