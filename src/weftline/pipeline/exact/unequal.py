"""The exact model for unequal devices, in CP-SAT: on which device does each piece stand, in which order are devices?

`before[a, b]` orders the stage devices; an edge from a piece on a to one on b asks for it. A piece on a host device has
a place of its own between the stages. Transfers may differ by pair of devices: a tensor that enters costs what its
source asks, one that leaves what its costliest destination asks. All costs are divided by `scale` and rounded down, so
that the bound of the model, times `scale`, holds for the problem.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.exact.equal import keep_order, place_on_levels, work_before
from weftline.pipeline.pieces import Pieces

__all__ = ["UnequalModel", "build_unequal_model", "limit_stages", "orders_of_devices"]

Choices = dict[tuple[int, int], Any]


@dataclass(frozen=True, eq=False)
class UnequalModel:
    """A CP-SAT model and how to read its solutions."""

    model: Any
    scale: int
    pieces: Pieces
    chosen: Choices
    """(piece, device) -> true if it stands there."""

    def exclude(self, device: int, held: Indices) -> None:
        """A device may not hold exactly these pieces."""
        inside = set(held.tolist())
        here = {v: literal for (v, d), literal in self.chosen.items() if d == device}
        self.model.add_bool_or([~literal if v in inside else literal for v, literal in here.items()])

    def placement(self, true: Any) -> Indices:
        """Device of each piece in a solution; `true(variable)` gives a variable's value."""
        device = np.zeros(len(self.pieces.time), np.int32)
        for (piece, d), here in self.chosen.items():
            if true(here):
                device[piece] = d
        return device


def build_unequal_model(
    pieces: Pieces, target: int, scale: int, room: Ints, order: Sequence[int] = ()
) -> UnequalModel | None:
    """All pipelines with a value below `target`, along one order of the stage devices or along any.

    None if some piece has no device left, so that there are none.
    """
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    longest = model.new_int_var(0, max(0, (target - 1) // scale), "")
    able = (pieces.time >= 0) & (pieces.time < target)
    chosen = _along(model, pieces, able, order, target, scale, longest) if order else _anywhere(model, pieces, able)
    if chosen is None:
        return None
    for first, *others in pieces.same:
        for v in others:
            for d in range(pieces.time.shape[1]):
                model.add(chosen.get((first, d), 0) == chosen.get((v, d), 0))
    limit_stages(model, pieces, chosen)
    _fit_memory(model, pieces, chosen, room)
    _loads(model, pieces, chosen, scale, longest)
    model.minimize(longest)
    return UnequalModel(model, scale, pieces, chosen)


def _anywhere(model: Any, pieces: Pieces, able: NDArray[np.bool_]) -> Choices | None:
    """A device for every piece, and an order of the devices."""
    if not able.any(axis=1).all():
        return None
    chosen: Choices = {(v, d): model.new_bool_var("") for v, d in np.argwhere(able).tolist()}
    for v in range(len(pieces.time)):
        model.add_exactly_one(chosen[v, d] for d in np.flatnonzero(able[v]).tolist())
    _order_devices(model, pieces, chosen)
    return chosen


def _along(
    model: Any,
    pieces: Pieces,
    able: NDArray[np.bool_],
    order: Sequence[int],
    target: int,
    scale: int,
    longest: Any,
) -> Choices | None:
    """A level for every piece, where the devices stand in a given order."""
    able = able[:, list(order)]
    if not able.any(axis=1).all():
        return None
    times = np.where(able, pieces.time[:, list(order)], np.iinfo(np.int64).max)
    least = times.min(axis=1)
    before, behind = work_before(pieces, least)
    levels, full = np.arange(len(order)), max(1, target - 1)
    first, last = -(-(before + least) // full) - 1, len(order) - -(-(behind + least) // full)
    possible = able & (levels >= first[:, None]) & (levels <= last[:, None])
    for _ in range(len(order)):  # no piece before what it needs, none behind what needs it
        low, high = possible.argmax(axis=1), len(order) - 1 - possible[:, ::-1].argmax(axis=1)
        for u, v in zip(*(side.tolist() for side in pieces.edges), strict=True):
            low[v] = max(low[v], low[u])
        for u, v in zip(*(side[::-1].tolist() for side in pieces.edges), strict=True):
            high[u] = min(high[u], high[v])
        possible &= (levels >= low[:, None]) & (levels <= high[:, None])
        if not possible.any(axis=1).all():
            return None
    at, up_to = place_on_levels(model, low, high)
    keep_order(model, pieces, up_to, low, high)
    chosen: Choices = {}
    for (v, level), here in at.items():
        if possible[v, level]:
            chosen[v, order[level]] = here
        else:
            model.add(here == 0)
    for level in range(len(order) - 1):  # implied: the first stages hold no more than their number times the longest
        least = times[:, : level + 1].min(axis=1)
        inside = np.flatnonzero((low <= level) & (high > level) & (least < np.iinfo(np.int64).max))
        sure = int((least[high <= level] // scale).sum())
        model.add(
            sum(int(least[v] // scale) * up_to[v, level] for v in inside.tolist()) + sure <= (level + 1) * longest
        )
    return chosen


def orders_of_devices(pieces: Pieces, most: int) -> list[tuple[int, ...]] | None:
    """Every order of the stage devices, only one of those that look the same; None if there are more than `most`."""
    stages = pieces.stage_devices
    earlier = {b: [a for a in stages if a < b and _interchangeable(pieces, a, b)] for b in stages}
    found: list[tuple[int, ...]] = []
    stack: list[tuple[int, ...]] = [()]
    while stack:
        begun = stack.pop()
        if len(begun) == len(stages):
            found.append(begun)
            if len(found) > most:
                return None
            continue
        for d in stages[::-1]:
            if d not in begun and all(a in begun for a in earlier[d]):
                stack.append((*begun, d))
    return found


def _order_devices(model: Any, pieces: Pieces, chosen: Choices) -> None:
    """A total order of the stage devices that no edge goes against; pieces on hosts find their place in it."""
    stages = pieces.stage_devices
    before: Choices = {}
    for i, a in enumerate(stages):
        for b in stages[i + 1 :]:
            before[a, b] = model.new_bool_var("")
            before[b, a] = ~before[a, b]
            if _interchangeable(pieces, a, b):
                model.add(before[a, b] == 1)
    for a in stages:
        for b in stages:
            for c in stages:
                if a < b and c not in (a, b) and a < c:  # each cycle once
                    model.add_bool_or(~before[a, b], ~before[b, c], ~before[c, a])
    for u, v in zip(*(side.tolist() for side in pieces.edges), strict=True):
        for a, b in before:
            if (u, a) in chosen and (v, b) in chosen:
                model.add_bool_or(~chosen[u, a], ~chosen[v, b], before[a, b])
    if len(stages) < len(pieces.problem.devices):
        _order_hosts(model, pieces, chosen, before)


def _order_hosts(model: Any, pieces: Pieces, chosen: Choices, before: Choices) -> None:
    """Every stage has an even place, every piece on a host an odd one; edges never go back."""
    stages = pieces.stage_devices
    position = {d: model.new_int_var(0, len(stages) - 1, "") for d in stages}
    if len(stages) > 1:
        model.add_all_different(position.values())
    for (a, b), first in before.items():
        model.add(position[a] < position[b]).only_enforce_if(first)
    place = [model.new_int_var(-1, 2 * len(stages), "") for _ in pieces.time]
    for (v, d), here in chosen.items():
        if d in position:
            model.add(place[v] == 2 * position[d]).only_enforce_if(here)
        else:
            half = model.new_int_var(0, len(stages), "")
            model.add(place[v] == 2 * half - 1).only_enforce_if(here)
    for u, v in zip(*(side.tolist() for side in pieces.edges), strict=True):
        model.add(place[u] <= place[v])


def _interchangeable(pieces: Pieces, a: int, b: int) -> bool:
    """True if swapping two devices changes nothing."""
    time, move, capacity = pieces.time, pieces.transfer, pieces.problem.capacity
    others = [d for d in range(time.shape[1]) if d not in (a, b)]
    return bool(
        (time[:, a] == time[:, b]).all()
        and capacity[a] == capacity[b]
        and (move[:, a, others] == move[:, b, others]).all()
        and (move[:, others, a] == move[:, others, b]).all()
        and (move[:, a, b] == move[:, b, a]).all()
    )


def limit_stages(model: Any, pieces: Pieces, chosen: Choices) -> None:
    """No more devices than stages are allowed."""
    problem = pieces.problem
    if problem.stage_limit >= len(problem.devices):
        return
    used = [model.new_bool_var("") for _ in problem.devices]
    for (_, d), here in chosen.items():
        model.add_implication(here, used[d])
    model.add(sum(used) <= problem.stage_limit)


def _fit_memory(model: Any, pieces: Pieces, chosen: Choices, room: Ints) -> None:
    """What is held all the time fits. (Live activations are the simulator's affair.)"""
    tied = [(sorted({int(pieces.of[op]) for op in entry.ops}), entry.bytes) for entry in pieces.problem.graph.tied]
    everything = int(pieces.weight.sum()) + sum(size for _, size in tied)
    for d in range(pieces.time.shape[1]):
        if room[d] >= everything:
            continue
        held = [int(pieces.weight[v]) * here for (v, e), here in chosen.items() if e == d and pieces.weight[v]]
        for members, size in tied:
            kept = model.new_bool_var("")
            for v in members:
                if (v, d) in chosen:
                    model.add_implication(chosen[v, d], kept)
            held.append(size * kept)
        model.add(sum(held) <= int(room[d]))


def _loads(model: Any, pieces: Pieces, chosen: Choices, scale: int, longest: Any) -> None:
    """Compute, tensors that enter, tensors that leave: added up or the largest of them."""
    devices = range(pieces.time.shape[1])
    compute: list[list[Any]] = [[] for _ in devices]
    enters: list[list[Any]] = [[] for _ in devices]
    leaves: list[list[Any]] = [[] for _ in devices]
    for (v, d), here in chosen.items():
        if pieces.time[v, d] >= scale:
            compute[d].append(int(pieces.time[v, d]) // scale * here)
    for t in range(len(pieces.maker)):
        _cross(model, pieces, chosen, t, scale, enters, leaves)
    overlapped = pieces.problem.rules.communication == "overlapped"
    for d in devices:
        parts = [compute[d], enters[d], leaves[d]]
        for terms in parts if overlapped else [compute[d] + enters[d] + leaves[d]]:
            model.add(sum(terms) <= longest)


def _cross(
    model: Any, pieces: Pieces, chosen: Choices, t: int, scale: int, enters: list[list[Any]], leaves: list[list[Any]]
) -> None:
    """What one tensor costs each device."""
    host, maker = pieces.problem.host, int(pieces.maker[t])
    move = pieces.transfer[pieces.row[t]]
    readers = pieces.reader_of[pieces.reader_ptr[t] : pieces.reader_ptr[t + 1]].tolist()
    homes = [a for a in range(len(move)) if (maker, a) in chosen]
    for q in readers:
        for a in homes:
            for b in np.flatnonzero(move[a] < 0).tolist():
                if (q, b) in chosen:
                    model.add_bool_or(~chosen[maker, a], ~chosen[q, b])
    for b in (b for b in range(len(move)) if not host[b]):
        here = [chosen[q, b] for q in readers if (q, b) in chosen]
        costs = {a: int(move[a, b]) // scale for a in homes if a != b and move[a, b] >= 0}
        for cost in sorted(set(costs.values()) - {0}) if here else ():
            entering = model.new_bool_var("")
            enters[b].append(cost * entering)
            for a in (a for a, value in costs.items() if value == cost):
                for read in here:
                    model.add_bool_or(~chosen[maker, a], ~read, entering)
    for a in (a for a in homes if not host[a]):
        costs = {b: int(move[a, b]) // scale for b in range(len(move)) if b != a and move[a, b] >= 0}
        levels = sorted(set(costs.values()) - {0})
        at_least = {cost: model.new_bool_var("") for cost in levels}
        for below, cost in zip([0, *levels], levels, strict=False):
            leaves[a].append((cost - below) * at_least[cost])
            if below:
                model.add_implication(at_least[cost], at_least[below])
        for b, cost in costs.items():
            for q in readers:
                if cost and (q, b) in chosen:
                    model.add_bool_or(~chosen[maker, a], ~chosen[q, b], at_least[cost])
