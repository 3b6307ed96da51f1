"""What a trial does to devices: whole `together` sets move, weights are carried along, the order may be made anew.

Parts of the annealing kernel. A trial writes the ops that moved and the devices they had, so that it can be taken back.
"""

from __future__ import annotations

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.moves import depth_first, list_order
from weftline.latency.anneal.state import EXCESS, GROUPS, State
from weftline.latency.anneal.state import AnnealProblem as Board
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.random import below, unit

__all__ = ["carry", "excess_of", "move_chosen", "rebuild_order", "swap_devices"]

TRIES = 16
"""Partners that an op looks at for a swap."""


@part
def excess_of(held: Ints, room: Ints) -> int:
    """Bytes above the limits."""
    total = 0
    for d in range(len(held)):
        total += max(0, held[d] - room[d])
    return total


@part
def carry(
    static_bytes: Ints,
    tied_ptr: Indices,
    tied_of: Indices,
    tied_bytes: Ints,
    held: Ints,
    users: Indices,
    op: int,
    device: int,
    sign: int,
) -> None:
    """Bring the weights of an op to a device (sign 1) or take them away (-1); a tied one counts once per device."""
    held[device] += sign * static_bytes[op]
    for e in range(tied_ptr[op], tied_ptr[op + 1]):
        weight = tied_of[e]
        if sign < 0:
            users[weight, device] -= 1
        if users[weight, device] == 0:
            held[device] += sign * tied_bytes[weight]
        if sign > 0:
            users[weight, device] += 1


@part
def _send_group(
    board: Board, device: Indices, changed: Indices, was: Indices, moved: int, which: int, target: int
) -> int:
    """Put a `together` set (or a single op) on a device -> number of ops that have moved so far."""
    for e in range(board.group_ptr[which], board.group_ptr[which + 1]):
        op = board.group_of[e]
        if device[op] != target:
            changed[moved] = op
            was[moved] = device[op]
            device[op] = target
            moved += 1
    return moved


@part
def _target(board: Board, state: State, op: int) -> int:
    """Another device: any, or that of a neighbour."""
    devices, here = board.cost.shape[1], state.device[op]
    if unit(state.dice) < 0.5:
        before, after = board.before_ptr[op], board.after_ptr[op]
        reads, read = board.before_ptr[op + 1] - before, board.after_ptr[op + 1] - after
        if reads + read > 0:
            pick = below(state.dice, reads + read)
            other = state.device[
                board.before_of[before + pick] if pick < reads else board.after_of[after + pick - reads]
            ]
            if other != here:
                return int(other)
    target = below(state.dice, devices - 1)
    return target + 1 if target >= here else target


@part
def move_chosen(board: Board, state: State, count: int, stamp: int) -> int:
    """Send the chosen ops (with their sets) to one device, those that can run there -> how many moved."""
    chosen, device = state.chosen, state.device
    target = _target(board, state, chosen[below(state.dice, count)])
    moved = 0
    for i in range(count):
        which = board.group[chosen[i]]
        if board.allowed[which, target] and state.mark[GROUPS, which] != stamp:
            state.mark[GROUPS, which] = stamp
            moved = _send_group(board, device, state.changed, state.was, moved, which, target)
    return moved


@part
def swap_devices(board: Board, state: State) -> int:
    """Two ops (with their sets) exchange their devices, if both can run there and memory allows -> how many moved."""
    n, device = len(state.device), state.device
    a = below(state.dice, n)
    first, here = board.group[a], device[a]
    for _ in range(TRIES):
        b = below(state.dice, n)
        other, there = board.group[b], device[b]
        if here == there or not board.allowed[first, there] or not board.allowed[other, here]:
            continue
        more = _group_bytes(board, first) - _group_bytes(board, other)
        fits = max(0, state.held[there] + more - state.room[there]) + max(0, state.held[here] - more - state.room[here])
        if fits <= state.now[EXCESS]:
            moved = _send_group(board, device, state.changed, state.was, 0, first, there)
            return _send_group(board, device, state.changed, state.was, moved, other, here)
    return 0


@part
def _group_bytes(board: Board, which: int) -> int:
    total = 0
    for e in range(board.group_ptr[which], board.group_ptr[which + 1]):
        total += board.static_bytes[board.group_of[e]]
    return total


@part
def rebuild_order(board: Board, state: State) -> tuple[int, int]:
    """Another order for the devices as they are now -> the range of positions that changed."""
    order, spare, position = state.order, state.spare, state.position
    if unit(state.dice) < 0.5:
        depth_first(board.before_ptr, board.after_ptr, board.after_of, state.dice, spare)
    else:
        list_order(
            board.cost,
            board.transfer,
            board.after_ptr,
            board.after_of,
            board.after_row,
            state.device,
            state.level,
            spare,
        )
    first, last = len(order), 0
    for p in range(len(order)):
        if order[p] != spare[p]:
            first, last = min(first, p), p + 1
            state.backup[p] = order[p]
            order[p] = spare[p]
            position[spare[p]] = p
        else:
            state.backup[p] = order[p]
    return (first, last) if first < last else (0, 0)
