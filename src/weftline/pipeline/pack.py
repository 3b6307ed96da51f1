"""When memory is so tight that the heuristics run into a wall: CP-SAT finds a pipeline that fits, with little compute.

Exact for the memory of weights and for the order of stages; transfers are not in its objective. Where activations
overflow a device, it packs again with room for them. Proves infeasibility of the first packing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.search.cp_sat import PACKING_SECONDS, solve_packing
from weftline.simulate import simulate_throughput

__all__ = ["SOLVER"]

MOST_PIECE_DEVICE_PAIRS = 100_000
ATTEMPTS_WITH_LESS_ROOM = 8


def _solve(search: Search) -> None:
    problem = search.problem
    pieces = make_pieces(problem)
    if (pieces.time >= 0).sum() > MOST_PIECE_DEVICE_PAIRS:
        raise InfeasibleError(f"packing {len(pieces.size)} pieces exactly is too large")
    room, begun = problem.capacity.copy(), search.seconds
    for attempt in range(ATTEMPTS_WITH_LESS_ROOM):
        placement = _pack(search, pieces, room, begun, proof=attempt == 0)
        if placement is None or search.offer(placement) is not None or search.stopped_by:
            return
        try:
            overflow = np.maximum(simulate_throughput(problem, placement).peak - problem.capacity, 0)
        except InfeasibleError:
            return
        spent = search.work_limit is None and search.seconds > begun + PACKING_SECONDS
        if spent or not overflow.any():
            return
        room -= overflow


def _pack(search: Search, pieces: Pieces, room: Ints, begun: float, *, proof: bool) -> Indices | None:
    """A pipeline whose weights fit into `room`; None or, for a `proof`, an error if there is none."""
    from ortools.sat.python import cp_model

    problem = search.problem
    model = cp_model.CpModel()
    chosen = {(u, d): model.new_bool_var("") for u, d in np.argwhere(pieces.time >= 0).tolist()}
    for u in range(len(pieces.size)):
        model.add_exactly_one(chosen[u, d] for d in range(len(problem.devices)) if (u, d) in chosen)
    _order_stages(model, problem, pieces, chosen)
    _limit_stages(model, problem, chosen)
    _fit_memory(model, problem, pieces, chosen, room)
    _respect_links(model, problem, pieces, chosen)
    longest = model.new_int_var(0, int(pieces.time.max(axis=1, initial=0).sum()), "")
    for d in range(len(problem.devices)):
        model.add(sum(int(pieces.time[u, d]) * choice for (u, e), choice in chosen.items() if e == d) <= longest)
    model.minimize(longest)
    solver, status = solve_packing(search, model, begun)
    if status == cp_model.INFEASIBLE and proof:
        raise InfeasibleError(
            "no pipeline satisfies the limits",
            conflicts=("which devices can run which ops", "memory of the weights", "links", "the order of the stages"),
            proved=True,
        )
    if status not in (cp_model.OPTIMAL, cp_model.FEASIBLE):
        return None
    device = np.zeros(len(pieces.size), np.int32)
    for (u, d), choice in chosen.items():
        if solver.boolean_value(choice):
            device[u] = d
    return pieces.lift(device)


def _order_stages(model: Any, problem: Problem, pieces: Pieces, chosen: dict[tuple[int, int], Any]) -> None:
    """Every contiguous device has an even place of its own, every piece on a host an odd one; edges never go back."""
    k = len(problem.devices)
    position = [model.new_int_var(0, k - 1, "") for _ in range(k)]
    model.add_all_different(position)
    place = [model.new_int_var(-1, 2 * k - 1, "") for _ in pieces.size]
    for (u, d), choice in chosen.items():
        if not problem.host[d]:
            model.add(place[u] == 2 * position[d]).only_enforce_if(choice)
        else:
            half = model.new_int_var(0, k, "")
            model.add(place[u] == 2 * half - 1).only_enforce_if(choice)
    for a, b in zip(*(side.tolist() for side in pieces.edges), strict=True):
        model.add(place[a] <= place[b])


def _limit_stages(model: Any, problem: Problem, chosen: dict[tuple[int, int], Any]) -> None:
    if problem.stage_limit >= len(problem.devices):
        return
    used = [model.new_bool_var("") for _ in problem.devices]
    for (_, d), choice in chosen.items():
        model.add_implication(choice, used[d])
    model.add(sum(used) <= problem.stage_limit)


def _fit_memory(model: Any, problem: Problem, pieces: Pieces, chosen: dict[tuple[int, int], Any], room: Ints) -> None:
    for d in (d for d, device in enumerate(problem.devices) if device.capacity is not None):
        load = [int(pieces.weight[u]) * choice for (u, e), choice in chosen.items() if e == d and pieces.weight[u]]
        for tied in problem.graph.tied:
            held = model.new_bool_var("")
            for u in {int(pieces.of[op]) for op in tied.ops}:
                if (u, d) in chosen:
                    model.add_implication(chosen[u, d], held)
            load.append(tied.bytes * held)
        model.add(sum(load) <= int(room[d]))


def _respect_links(model: Any, problem: Problem, pieces: Pieces, chosen: dict[tuple[int, int], Any]) -> None:
    source, target, tensor = problem.graph.arrays.edges()
    missing = problem.cost.transfer[problem.cost.transfer_row[tensor]] < 0
    for e in np.flatnonzero(missing.any(axis=(1, 2))).tolist():
        a, b = int(pieces.of[source[e]]), int(pieces.of[target[e]])
        for x, y in np.argwhere(missing[e]).tolist():
            if a != b and (a, x) in chosen and (b, y) in chosen:
                model.add_bool_or(~chosen[a, x], ~chosen[b, y])


SOLVER = Solver("pack", "a pipeline that fits memory (CP-SAT), for when memory is tight", _solve)
