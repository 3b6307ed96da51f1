"""`min-cut`: the sequential runtime, where latency is a sum: a minimum cut with two devices, an exact labelling else.

In: a Search. Out: the placement with the least total of work and communication, and its proof as a bound. For the
parallel runtime the same placement is a heuristic, and there is no bound.

More than two devices: any set of groups may move to one device at once, each move a minimum cut (keep the device, or
move to device `a`). Transfer times are no metric, and a tensor with several readers is paid once: so the cut works on a
simplified cost, and a move is made only if the true cost falls.

Where that does not fit memory: first prices per byte (their labellings may fit, their bounds are valid), each also with
groups moved until the weights fit; where activations overflow, with less room for weights. Then small problems try
labellings in the order of their costs, and at last `pack`: CP-SAT packs the weights, with the least total work. That
is exact for the memory of weights, and proves where they cannot be packed; activations are left to the simulator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound, group_times
from weftline.bounds.dual import minimum_cut
from weftline.bounds.label_costs import IMPOSSIBLE_COST, LabelCosts, label_costs, placement_of
from weftline.bounds.labelling import Labelled, best_labelling, eliminate, priced_labellings
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.memory_left import MOST_ATTEMPTS, RoomLeft
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.search import Search, Solver
from weftline.search.cp_sat import PACKING_SECONDS, solve_packing
from weftline.simulate import simulate_latency

__all__ = ["SOLVER_MIN_CUT", "SOLVER_PACK", "expand", "offer_bound", "offer_labels", "offer_within_memory"]


@dataclass(frozen=True)
class MinCutParameters:
    """Numbers of `min-cut`."""

    most_rounds: int = 8
    """Of moves of any set of groups to each device, from one start."""
    most_by_cost: int = 300
    """Labellings that are tried in the order of their costs."""
    most_groups: int = 60
    """For that, since each labelling needs as many others."""
    most_shrinks: int = 5
    """How often room is left for activations."""
    labellings_per_price: int = 3
    """That are offered for each set of prices."""


def expand(costs: LabelCosts, labels: Ints, *, stop: Callable[[], bool], rounds: int = 8) -> Ints:
    """From these labels, and from every group on one device where that can be."""
    k = costs.unary.shape[1]
    starts = [labels] + [np.full(len(labels), d, np.int64) for d in range(k)]
    best = min(
        (_improved(costs, start, stop, rounds) for start in starts if costs.cost(start) < IMPOSSIBLE_COST),
        key=costs.cost,
        default=None,
    )
    return labels if best is None else best


def _improved(costs: LabelCosts, labels: Ints, stop: Callable[[], bool], rounds: int) -> Ints:
    k, value = costs.unary.shape[1], costs.cost(labels)
    for _ in range(rounds):
        before = value
        for device in range(k):
            if stop():
                return labels
            moved = _move(costs, labels, device)
            cost = IMPOSSIBLE_COST if moved is None else costs.cost(moved)
            if moved is not None and cost < value:
                labels, value = moved, cost
        if value == before:
            break
    return labels


def _move(costs: LabelCosts, labels: Ints, device: int) -> Ints | None:
    """Keep (0) or move to the device (1): the cheapest choice of the simplified cost."""
    every = np.arange(len(labels))
    unary = np.stack([costs.unary[every, labels], costs.unary[:, device]], axis=1)
    pair, table = _all_pairs(costs, labels)
    first, second = labels[pair[:, 0]], labels[pair[:, 1]]
    rows = np.arange(len(pair))
    stay = table[rows, first, second]
    there, back = table[rows, first, device], table[rows, device, second]
    # stay + 0 <= there + back, or else `stay` is cut down to it; then it is shared out to leave a pair of arcs.
    stay = np.minimum(stay, np.minimum(there + back, IMPOSSIBLE_COST))
    cost = np.zeros((len(pair), 2, 2), np.int64)
    taken = np.minimum(stay, there)
    open_ones = stay < IMPOSSIBLE_COST
    np.add.at(unary[:, 0], pair[open_ones, 0], taken[open_ones])
    np.add.at(unary[:, 0], pair[open_ones, 1], (stay - taken)[open_ones])
    cost[:, 0, 1] = np.where(there < IMPOSSIBLE_COST, there - np.where(open_ones, taken, 0), IMPOSSIBLE_COST)
    cost[:, 1, 0] = np.where(back < IMPOSSIBLE_COST, back - np.where(open_ones, stay - taken, 0), IMPOSSIBLE_COST)
    unary = np.minimum(unary, IMPOSSIBLE_COST)
    empty = np.zeros(0, np.int64)
    cut = minimum_cut(
        replace(
            costs,
            unary=unary,
            pair=pair,
            pair_cost=cost,
            star_tensor=empty,
            star_home=empty,
            star_ptr=np.zeros(1, np.int64),
            star_of=empty,
            star_cost=np.zeros((0, 2, 2), np.int64),
        )
    )
    return None if cut is None else np.where(cut.labels == 1, device, labels)


def _all_pairs(costs: LabelCosts, labels: Ints) -> tuple[Ints, Ints]:
    """Pairs, and for every reader of a star one more: readers on one device share the cost of a transfer."""
    sizes = np.diff(costs.star_ptr)
    star = np.repeat(np.arange(len(sizes)), sizes)
    key = star * costs.unary.shape[1] + labels[costs.star_of]
    sharing = np.bincount(key, minlength=1)[key] if len(key) else key
    cost = costs.star_cost[star]
    cost = np.where(cost < IMPOSSIBLE_COST, cost // np.maximum(sharing, 1)[:, None, None], IMPOSSIBLE_COST)
    pair = np.concatenate([costs.pair, np.stack([costs.star_home[star], costs.star_of], axis=1)])
    return pair, np.concatenate([costs.pair_cost, cost])


def offer_bound(search: Search, found: Labelled) -> None:
    """It holds for the sequential runtime alone."""
    if search.problem.rules.runtime == "sequential":
        search.offer_bound(Bound(found.bound, "labelling", found.witness))


def offer_labels(search: Search, labels: Ints) -> bool:
    """In the usual order; where memory refuses it, in the order of the graph."""
    placement = placement_of(search.problem, labels)
    if search.offer(placement) is not None:
        return True
    if search.problem.rules.memory == "static" or search.stopped_by:
        return False
    return search.offer(placement, order=np.arange(len(placement), dtype=np.int32)) is not None


def offer_within_memory(search: Search, costs: LabelCosts, labels: Ints, seconds: float | None) -> None:
    """`seconds` is for each search of prices; see the head of this file."""
    numbers = search.parameters(MinCutParameters)
    problem, need, room = search.problem, least_memory(search.problem), search.problem.capacity.copy()
    for attempt in range(numbers.most_shrinks):
        found = _priced(search, costs, need, room, labels, seconds if attempt == 0 else 0.0, proof=attempt == 0)
        for tried in found[: numbers.labellings_per_price]:
            if offer_labels(search, tried) or search.stopped_by:
                break
        if search.best is not None or not found or search.stopped_by:
            break
        room = room - _overflow(problem, found[0])
    if not search.stopped_by and len(costs.unary) <= numbers.most_groups:
        _offer_by_cost(search, costs, numbers.most_by_cost)
    if search.best is None and not search.stopped_by:
        SOLVER_PACK.solve(search)


def _priced(
    search: Search, costs: LabelCosts, need: Ints, room: Ints, labels: Ints, seconds: float | None, *, proof: bool
) -> list[Ints]:
    """Labellings whose weights fit, the cheapest first."""
    begun, fitting = search.seconds, list[Ints]()
    moved = moved_to_fit(search.problem, costs, labels, room)
    for found in priced_labellings(costs, need, room, seconds=seconds):
        if proof:
            offer_bound(search, found)
        if np.all(np.bincount(found.labels, need, minlength=len(room)) <= room):
            fitting.append(found.labels)
        else:
            moved += moved_to_fit(search.problem, costs, found.labels, room)
        if search.stopped_by or (seconds is not None and search.seconds > begun + seconds):
            break
    distinct = {one.tobytes(): one for one in fitting + moved}
    return sorted(distinct.values(), key=costs.cost)


def moved_to_fit(problem: Problem, costs: LabelCosts, labels: Ints, room: Ints) -> list[Ints]:
    """One by one in the order of the graph: where the labels say if there is memory left, else where it costs least.

    Groups to come are taken to be where their labels say, unless that device has refused one. Empty: one fits nowhere.
    """
    left, group = RoomLeft(problem, room), problem.group.tolist()
    unary, near = costs.unary.tolist(), _neighbours(costs)
    place: list[int] = labels.tolist()
    done, full = [False] * len(place), set[int]()
    for op, g in enumerate(group):
        if done[g]:
            continue
        try:
            choices = left.choices(op)
        except InfeasibleError:
            return []
        if place[g] not in choices:
            full.add(place[g])
        known = [(place[v], table) for v, table in near[g] if done[v] or place[v] not in full]
        if place[g] not in choices or any(place[v] != labels[v] for v, _ in near[g] if done[v]):
            place[g] = min(choices, key=lambda d: unary[g][d] + sum(int(table[d, at]) for at, table in known))
        left.put(op, place[g])
        done[g] = True
    return [np.array(place, np.int64)]


def _neighbours(costs: LabelCosts) -> list[list[tuple[int, Ints]]]:
    """Group -> other groups, with the cost by its own device and theirs; readers of a star only know its home."""
    near: list[list[tuple[int, Ints]]] = [[] for _ in costs.unary]
    star = np.repeat(np.arange(len(costs.star_home)), np.diff(costs.star_ptr))
    pairs = np.concatenate([costs.pair, np.stack([costs.star_home[star], costs.star_of], axis=1)])
    for (a, b), table in zip(pairs.tolist(), (*costs.pair_cost, *costs.star_cost[star]), strict=True):
        near[a].append((b, table))
        near[b].append((a, table.T))
    return near


def _overflow(problem: Problem, labels: Ints) -> Ints:
    try:
        peak = simulate_latency(problem, placement_of(problem, labels)).peak
    except InfeasibleError:
        return np.zeros(len(problem.capacity), np.int64)
    over: Ints = np.maximum(peak - problem.capacity, 0)
    return over


def _offer_by_cost(search: Search, costs: LabelCosts, most: int) -> None:
    """The first that fits is the best there is, if all its orders are as good as the two that are tried."""
    for tried, labels in enumerate(_by_cost(search, costs)):
        costlier = search.best is not None and costs.cost(labels) >= search.best.value
        if search.stopped_by or tried == most or costlier or offer_labels(search, labels):
            return


def _by_cost(search: Search, costs: LabelCosts) -> Iterator[Ints]:
    """Labellings, the cheapest first: what is left after one is split into parts that each forbid a choice of it."""
    first = best_labelling(costs)
    if first is None or not first.exact:
        return
    number = 0
    waiting = [(costs.cost(first.labels), number, first.labels, costs.unary < IMPOSSIBLE_COST)]
    while waiting:
        _, _, labels, allowed = heappop(waiting)
        yield labels
        allowed = allowed.copy()
        for group in np.flatnonzero(allowed.sum(axis=1) > 1).tolist():
            if search.stopped_by:
                return
            rest = allowed.copy()
            rest[group, labels[group]] = False
            found = best_labelling(costs.restricted(rest))
            if found is not None:
                number += 1
                heappush(waiting, (costs.cost(found.labels), number, found.labels, rest))
            allowed[group] = False
            allowed[group, labels[group]] = True


def _solve(search: Search) -> None:
    costs = label_costs(search.problem)
    if costs is None:
        raise InfeasibleError("min-cut cannot add up times as large as these, or tables of so many devices")
    found = best_labelling(costs, seconds=_part_of_time(search))
    if found is None:
        least = eliminate(costs)
        never = least is not None and least.value >= IMPOSSIBLE_COST
        raise InfeasibleError("missing links leave no placement" if never else "min-cut found nothing", proved=never)
    labels = found.labels
    if not found.exact:
        rounds = search.parameters(MinCutParameters).most_rounds
        labels = expand(costs, labels, stop=lambda: bool(search.stopped_by), rounds=rounds)
    offer_bound(search, found)
    if not offer_labels(search, labels) and not search.stopped_by:
        offer_within_memory(search, costs, labels, _part_of_time(search))
    if search.best is None:
        raise InfeasibleError("min-cut found no placement within the limits", conflicts=search.refused)


def _part_of_time(search: Search) -> float | None:
    """For the search of a bound: half of what is left; without a limit of time only rounds count."""
    if search.work_limit is not None or search.time_limit is None:
        return None
    return max(0.0, search.time_limit - search.seconds) / 2


SOLVER_MIN_CUT = Solver(
    "min-cut",
    "sequential runtime: exact, by minimum cuts (a heuristic for the parallel one)",
    _solve,
    parameters=MinCutParameters,
)


@dataclass(frozen=True)
class PackParameters:
    """Numbers of `pack`."""

    most_choices: int = 150_000
    """Pairs of a group and a device that one model may have."""
    most_attempts: int = MOST_ATTEMPTS
    """Packings that leave more and more room for activations."""


def _pack_solve(search: Search) -> None:
    """Pack; where activations then overflow a device, leave that much room there and pack again."""
    problem, numbers = search.problem, search.parameters(PackParameters)
    times, allowed = group_times(problem)
    if allowed.sum() > numbers.most_choices:
        raise InfeasibleError(f"packing {len(times)} groups of ops exactly is too large")
    room, begun = problem.capacity.copy(), search.seconds
    for attempt in range(numbers.most_attempts):
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


SOLVER_PACK = Solver(
    "pack",
    "least total work that fits memory (CP-SAT), for when memory is tight",
    _pack_solve,
    parameters=PackParameters,
)


SOLVERS = (SOLVER_MIN_CUT, SOLVER_PACK)
