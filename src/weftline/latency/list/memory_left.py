"""Where an op may still go, given memory, links and ops that must stay together; and how a plan is offered.

`possible_devices`: where a `together` set (or a single op) can stand at all. Only what no plan can use is crossed
out: a device from which some neighbour cannot be reached wherever that neighbour stands, until nothing changes.

`RoomLeft` and, for kernels, `WeightRoom`: where groups of ops stand, and what memory their weights leave, to be filled
group by group. Simplified: they count weights (tied ones once per device), not activations.

`offer_leaving_room`: from memory for weights (K,) to plans. Where activations overflow a device, leave that much room
there and plan again. Every plan is offered as it was planned (its order or its actions) and as its bare placement,
which the simulator books anew; the search keeps the better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices, least_memory
from weftline.search import Search
from weftline.simulate import Timeline, simulate_latency
from weftline.simulate.kernels.jit import kernel, part, uncounted_part
from weftline.simulate.tables import Tables, once_per_problem, tables

__all__ = [
    "MOST_ATTEMPTS",
    "Bools",
    "Candidate",
    "RoomLeft",
    "WeightRoom",
    "clear_room",
    "close_unlinked",
    "make_room",
    "may_stop",
    "new_bytes",
    "offer_leaving_room",
    "offer_plan",
    "open_devices",
    "overflow",
    "possible_devices",
    "settle",
]

Bools = NDArray[np.bool_]


@once_per_problem
def possible_devices(problem: Problem) -> Bools:
    """(groups, K). Do not change it."""
    found = np.ascontiguousarray(allowed_devices(problem))
    if problem.cost.transfer.min(initial=0) < 0:
        _cross_out(tables(problem), problem.group, found)
    return found


@kernel
def _cross_out(table: Tables, group: Indices, possible: Bools) -> None:
    """Until nothing changes; backwards through the ops, so that one round is mostly enough."""
    changed = True
    while changed:
        changed = False
        for op in range(len(group) - 1, -1, -1):
            for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
                source, target = group[table.edge_maker[e]], group[op]
                if source != target:
                    row = table.transfer_row[table.edge_tensor[e]]
                    changed |= _cross_out_edge(table, possible, source, target, row)


@uncounted_part
def _cross_out_edge(table: Tables, possible: Bools, source: int, target: int, row: int) -> bool:
    """Devices at either end of one edge that have no partner at the other -> whether there were any."""
    devices = possible.shape[1]
    changed = False
    for a in range(devices):
        forward, backward = False, False
        for b in range(devices):
            forward |= possible[target, b] and table.transfer[row, a, b] >= 0
            backward |= possible[source, b] and table.transfer[row, b, a] >= 0
        if possible[source, a] and not forward:
            possible[source, a] = False
            changed = True
        if possible[target, a] and not backward:
            possible[target, a] = False
            changed = True
    return changed


class RoomLeft:
    """Memory left on each device, counting weights alone, and the device of every group that has one."""

    def __init__(self, problem: Problem, capacity: Ints | None = None) -> None:
        self._problem = problem
        self._allowed = [[d for d, yes in enumerate(row) if yes] for row in allowed_devices(problem).tolist()]
        self._need = least_memory(problem).tolist()
        self._group: list[int] = problem.group.tolist()
        self._left: list[int] = (problem.capacity if capacity is None else capacity).tolist()
        self._device: dict[int, int] = {}
        self._tied: dict[int, list[tuple[int, int]]] = {}
        for number, tied in enumerate(problem.graph.tied):
            for op in tied.ops:
                self._tied.setdefault(self._group[op], []).append((number, tied.bytes))
        self._holds: set[tuple[int, int]] = set()

    def choices(self, op: int) -> list[int]:
        """Devices the op may go to. Raises `InfeasibleError` if there is none."""
        group = self._group[op]
        if group in self._device:
            return [self._device[group]]
        fitting = [d for d in self._allowed[group] if self._extra(group, d) <= self._left[d]]
        if not fitting:
            raise InfeasibleError(f"no device has memory left for op {self._problem.graph.ops[op].name!r}")
        return fitting

    def put(self, op: int, device: int) -> None:
        """Place the op, and with it its whole group."""
        group = self._group[op]
        if group not in self._device:
            self._left[device] -= self._extra(group, device)
            self._holds.update((number, device) for number, _ in self._tied.get(group, ()))
            self._device[group] = device

    def placement(self) -> Indices:
        """The device of every op, once all are placed."""
        return np.array([self._device[group] for group in self._group], np.int32)

    def _extra(self, group: int, device: int) -> int:
        need: int = self._need[group]
        if group in self._tied:
            # A group may use one tied weight several times: it counts once.
            need += sum(
                {number: size for number, size in self._tied[group] if (number, device) not in self._holds}.values()
            )
        return need


class WeightRoom(NamedTuple):
    """Groups (`together` sets, or single ops) on devices.

    A call that is not inlined counts the references of every array in its arguments: parts for hot loops look at all
    devices in one call, and take small tuples.
    """

    group: Indices
    """Op -> group."""
    member_ptr: Indices
    member_of: Indices
    """Group -> ops."""
    possible: Bools
    """(groups, K)"""
    need: Ints
    """Weights of a group."""
    tied_ptr: Indices
    tied_of: Indices
    """Group -> tied weights it uses, each once."""
    tied_bytes: Ints
    capacity: Ints
    """(K,): bytes for weights."""
    left: Ints
    """(K,): bytes of them that are free."""
    fixed: Ints
    """Group -> device, -1 = none yet."""
    holds: Bools
    """(tied weights, K)"""
    gaps: bool
    """Some links are missing."""


def make_room(problem: Problem) -> WeightRoom:
    """Nothing placed yet."""
    need, arrays = least_memory(problem), problem.graph.arrays
    groups, k = len(need), len(problem.devices)
    weight = np.repeat(np.arange(len(arrays.tied_bytes)), np.diff(arrays.tied_ptr))
    users = np.unique(np.stack([problem.group[arrays.tied_of], weight]), axis=1)
    return WeightRoom(
        group=problem.group,
        member_ptr=row_pointer(problem.group, groups),
        member_of=np.argsort(problem.group, kind="stable").astype(np.int32),
        possible=possible_devices(problem),
        need=need,
        tied_ptr=row_pointer(users[0], groups),
        tied_of=users[1].astype(np.int32),
        tied_bytes=arrays.tied_bytes,
        capacity=problem.capacity.copy(),
        left=problem.capacity.copy(),
        fixed=np.full(groups, -1, np.int64),
        holds=np.zeros((len(arrays.tied_bytes), k), np.bool_),
        gaps=bool(problem.cost.transfer.min(initial=0) < 0),
    )


@part
def clear_room(room: WeightRoom) -> None:
    """Take everything off the devices."""
    room.left[:] = room.capacity
    room.fixed[:] = -1
    room.holds[:] = False


@uncounted_part
def new_bytes(room: WeightRoom, which: int, device: int) -> int:
    """What a group brings to a device: its weights, and tied ones that are not there yet."""
    needed = room.need[which]
    for k in range(room.tied_ptr[which], room.tied_ptr[which + 1]):
        if not room.holds[room.tied_of[k], device]:
            needed += room.tied_bytes[room.tied_of[k]]
    return int(needed)


@uncounted_part
def open_devices(room: WeightRoom, op: int, is_open: Bools) -> None:
    """Mark where the op can go: where its group stands, or may stand and has memory. (Links: `close_unlinked`.)"""
    which = room.group[op]
    for device in range(len(is_open)):
        if room.fixed[which] >= 0:
            is_open[device] = room.fixed[which] == device
        else:
            needed = room.need[which]
            for k in range(room.tied_ptr[which], room.tied_ptr[which + 1]):
                if not room.holds[room.tied_of[k], device]:
                    needed += room.tied_bytes[room.tied_of[k]]
            is_open[device] = room.possible[which, device] and needed <= room.left[device]


@uncounted_part
def close_unlinked(table: Tables, room: WeightRoom, op: int, is_open: Bools) -> None:
    """Unmark devices that no link joins to some neighbour of the op's group that stands somewhere already."""
    which = room.group[op]
    if room.fixed[which] >= 0:
        return
    for i in range(room.member_ptr[which], room.member_ptr[which + 1]):
        member = room.member_of[i]
        for e in range(np.int64(table.edge_ptr[member]), np.int64(table.edge_ptr[member + 1])):
            origin = room.fixed[room.group[table.edge_maker[e]]]
            row = table.transfer_row[table.edge_tensor[e]]
            for device in range(len(is_open)):
                is_open[device] &= origin < 0 or table.transfer[row, origin, device] >= 0
        for k in range(table.output_ptr[member], table.output_ptr[member + 1]):
            row = table.transfer_row[table.output_of[k]]
            for c in range(table.consumer_ptr[table.output_of[k]], table.consumer_ptr[table.output_of[k] + 1]):
                target = room.fixed[room.group[table.consumer_of[c]]]
                for device in range(len(is_open)):
                    is_open[device] &= target < 0 or table.transfer[row, device, target] >= 0


@uncounted_part
def settle(room: WeightRoom, op: int, device: int) -> None:
    """Put the group of an op on a device, unless it stands there already."""
    which = room.group[op]
    if room.fixed[which] < 0:
        room.fixed[which] = device
        room.left[device] -= new_bytes(room, which, device)
        for k in range(room.tied_ptr[which], room.tied_ptr[which + 1]):
            room.holds[room.tied_of[k], device] = True


MOST_ATTEMPTS = 8
"""Plans that leave more and more room for activations."""


@dataclass(frozen=True, eq=False)
class Candidate:
    """A placement, and how the scheduler meant it to run."""

    placement: Indices
    order: Indices | None = None
    timeline: Timeline | None = None


def may_stop(search: Search) -> bool:
    """Nothing more is to be offered."""
    return search.best is not None and search.stopped_by != ""


def offer_plan(search: Search, plan: Candidate) -> int | None:
    """Both forms -> the better value, None if neither keeps the limits. Nothing is offered after a stop."""
    values = []
    if plan.timeline is not None:
        actions = plan.timeline.actions(search.problem.graph.arrays.producer)
        values.append(search.offer(plan.placement, actions=actions))
    elif plan.order is not None:
        values.append(search.offer(plan.placement, order=plan.order))
    if not values or not may_stop(search):
        values.append(search.offer(plan.placement))
    return min((value for value in values if value is not None), default=None)


def overflow(search: Search, placement: Indices) -> Ints:
    """(K,): bytes above capacity. Raises `InfeasibleError` where a link is missing, which more room does not mend."""
    above: Ints = np.maximum(simulate_latency(search.problem, placement).peak - search.problem.capacity, 0)
    return above


def offer_leaving_room(search: Search, make: Callable[[Ints], Candidate | None]) -> None:
    """Raises `InfeasibleError` if nothing was found; `make` raises it if no device is left for some op.

    `make` may return None once a stop rule has fired and the search has an answer.
    """
    capacity = search.problem.capacity.copy()
    for _ in range(MOST_ATTEMPTS):
        if may_stop(search):
            return
        plan = make(capacity)
        if plan is None or offer_plan(search, plan) is not None:
            return
        if search.stopped_by:
            break
        capacity -= overflow(search, plan.placement)
    raise InfeasibleError("its plans break limits", conflicts=search.refused)
