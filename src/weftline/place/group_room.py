"""Room: where groups of ops stand, and what memory their weights leave; the form of `RoomLeft` that kernels use.

In: a Problem. Out: a Room to be filled group by group. Counts weights (a tied one once per device), not activations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.place.possible_devices import Bools, possible_devices
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.simulate.jit import part
from weftline.simulate.tables import Tables

__all__ = ["Room", "clear_room", "close_unlinked", "make_room", "new_bytes", "open_devices", "settle"]


class Room(NamedTuple):
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


def make_room(problem: Problem) -> Room:
    """Nothing placed yet."""
    need, arrays = least_memory(problem), problem.graph.arrays
    groups, k = len(need), len(problem.devices)
    weight = np.repeat(np.arange(len(arrays.tied_bytes)), np.diff(arrays.tied_ptr))
    users = np.unique(np.stack([problem.group[arrays.tied_of], weight]), axis=1)
    return Room(
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
def clear_room(room: Room) -> None:
    """Take everything off the devices."""
    room.left[:] = room.capacity
    room.fixed[:] = -1
    room.holds[:] = False


@part
def new_bytes(room: Room, which: int, device: int) -> int:
    """What a group brings to a device: its weights, and tied ones that are not there yet."""
    needed = room.need[which]
    for k in range(room.tied_ptr[which], room.tied_ptr[which + 1]):
        if not room.holds[room.tied_of[k], device]:
            needed += room.tied_bytes[room.tied_of[k]]
    return int(needed)


@part
def open_devices(room: Room, op: int, is_open: Bools) -> None:
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


@part
def close_unlinked(table: Tables, room: Room, op: int, is_open: Bools) -> None:
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


@part
def settle(room: Room, op: int, device: int) -> None:
    """Put the group of an op on a device, unless it stands there already."""
    which = room.group[op]
    if room.fixed[which] < 0:
        room.fixed[which] = device
        room.left[device] -= new_bytes(room, which, device)
        for k in range(room.tied_ptr[which], room.tied_ptr[which + 1]):
            room.holds[room.tied_of[k], device] = True
