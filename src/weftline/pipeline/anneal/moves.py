"""Moves of an annealer: which there are, what they change, and how they are made. Parts of one kernel.

A piece may go to any level between its predecessors and its successors. Where transfers are flat a move changes two
columns, in time proportional to the piece's degree; where links differ it may change any column. What is called in
every step is handed few plain arrays: a state as a whole makes a step many times slower.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.anneal.state import (
    COUNT_LINKS,
    COUNT_USED,
    LIST_BEFORE,
    LIST_MAKES,
    LIST_NEXT,
    LIST_READS,
    LOAD_COMPUTE,
    LOAD_DEVICE,
    LOAD_ENTER,
    LOAD_HELD,
    LOAD_LEAVE,
    LOAD_SIZE,
    MORE_ENTER,
    MORE_LEAVE,
    MORE_LINKS,
    WHO_COLUMN,
    WHO_LEVEL,
    WHO_SPOT,
    PartitionState,
    column_cost,
    count_transfers,
    energy_of,
    refresh,
)
from weftline.pipeline.reduce import PieceArrays
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.random import below, unit

__all__ = [
    "PieceMove",
    "change_elsewhere",
    "changed_energy",
    "levels_of",
    "settle",
    "shift",
    "shift_readers",
    "swap_devices",
    "tied_bytes",
    "weigh_flat",
    "weigh_links",
]


Between = tuple[int, int, int]
"""A piece, the column it leaves, the column it enters."""


class PieceMove(NamedTuple):
    """A piece goes from one column to another, and to a level there."""

    piece: int
    source: int
    target: int
    level: int
    gone: int
    come: int
    """Bytes that leave one column and enter the other."""


@part
def levels_of(list_ptr: Indices, near: Indices, who: Indices, p: int, top: int) -> tuple[int, int]:
    """The levels between a piece's predecessors and its successors."""
    low, high = 0, top
    for e in range(list_ptr[p, LIST_BEFORE], list_ptr[p, LIST_BEFORE + 1]):
        low = max(low, who[near[e], WHO_LEVEL])
    for e in range(list_ptr[p, LIST_NEXT], list_ptr[p, LIST_NEXT + 1]):
        high = min(high, who[near[e], WHO_LEVEL])
    return low, high


@part
def weigh_flat(
    list_ptr: Indices, near: Indices, wire: Ints, readers: Indices, who: Indices, loads: Ints, between: Between
) -> None:
    """Write down what enters and leaves more in the two columns of a move."""
    p, a, b = between
    columns = len(loads)
    enter_a, enter_b, leave_a, leave_b = 0, 0, 0, 0
    for e in range(list_ptr[p, LIST_MAKES], list_ptr[p, LIST_MAKES + 1]):
        t = near[e]
        time, spread = wire[t], readers[t, columns]
        in_a, in_b = readers[t, a] > 0, readers[t, b] > 0
        if in_b:
            enter_b -= time
            spread_b = spread - 1
        else:
            spread_b = spread
        if in_a:
            enter_a += time
            spread -= 1
        if spread > 0:
            leave_a -= time
        if spread_b > 0:
            leave_b += time
    for e in range(list_ptr[p, LIST_READS], list_ptr[p, LIST_READS + 1]):
        t = near[e]
        time, spread = wire[t], readers[t, columns]
        home = who[readers[t, columns + 1], WHO_COLUMN]
        if home == a:
            if spread == 1:
                leave_a += time
        elif readers[t, a] == 1:
            enter_a -= time
        if home == b:
            if readers[t, a] == 1 and spread == (2 if readers[t, b] > 0 else 1):
                leave_b -= time
        elif readers[t, b] == 0:
            enter_b += time
    loads[a, MORE_ENTER] = enter_a
    loads[b, MORE_ENTER] = enter_b
    loads[a, MORE_LEAVE] = leave_a
    loads[b, MORE_LEAVE] = leave_b


@part
def weigh_links(
    list_ptr: Indices,
    near: Indices,
    kind: Indices,
    transfer: Ints,
    readers: Indices,
    who: Indices,
    loads: Ints,
    between: Between,
) -> int:
    """The same for all columns, where links differ -> how many more missing links are in use."""
    p, a, b = between
    columns, missing = len(loads), 0
    for c in range(columns):
        loads[c, MORE_ENTER] = 0
        loads[c, MORE_LEAVE] = 0
    for e in range(list_ptr[p, LIST_MAKES], list_ptr[p, LIST_MAKES + 1]):
        t = near[e]
        missing += _add_tensor(transfer[kind[t]], readers[t], loads, a, -1)
        missing += _add_tensor(transfer[kind[t]], readers[t], loads, b, 1)
    for e in range(list_ptr[p, LIST_READS], list_ptr[p, LIST_READS + 1]):
        t = near[e]
        home = who[readers[t, columns + 1], WHO_COLUMN]
        missing += _add_tensor(transfer[kind[t]], readers[t], loads, home, -1)
        readers[t, a] -= 1
        readers[t, b] += 1
        missing += _add_tensor(transfer[kind[t]], readers[t], loads, home, 1)
        readers[t, a] += 1
        readers[t, b] -= 1
    return missing


@part
def _add_tensor(time: Ints, readers: Indices, loads: Ints, home: int, sign: int) -> int:
    """Count one tensor made in column `home` among the changes -> the missing links that it uses, signed."""
    costliest, missing = 0, 0
    for c in range(len(loads)):
        if c != home and readers[c] > 0:
            length = time[loads[home, LOAD_DEVICE], loads[c, LOAD_DEVICE]]
            if length < 0:
                missing += sign
                length = 0
            loads[c, MORE_ENTER] += sign * length
            costliest = max(costliest, length)
    loads[home, MORE_LEAVE] += sign * costliest
    return missing


@part
def tied_bytes(board: PieceArrays, state: PartitionState, p: int, c: int, users: int) -> int:
    """Bytes of tied weights that a piece brings to a column (users = 0), or takes away with it (users = 1)."""
    size = 0
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        if state.tied[board.tied_of[e], c] == users:
            size += board.tied_bytes[board.tied_of[e]]
    return size


@part
def changed_energy(
    loads: Ints, room: Ints, c: int, time: int, held: int, paid: bool, overlapped: bool, target: float
) -> float:
    """Energy of a column after the weighed changes, some compute and some bytes more."""
    enter, leave = loads[c, LOAD_ENTER] + loads[c, MORE_ENTER], loads[c, LOAD_LEAVE] + loads[c, MORE_LEAVE]
    cost = column_cost(paid, overlapped, loads[c, LOAD_COMPUTE] + time, enter, leave)
    return energy_of(cost, loads[c, LOAD_HELD] + held, room[loads[c, LOAD_DEVICE]], target)


@part
def change_elsewhere(
    loads: Ints,
    room: Ints,
    energy: NDArray[np.float64],
    a: int,
    b: int,
    stages: int,
    overlapped: bool,
    target: float,
) -> float:
    """What the weighed move changes in columns that the piece neither leaves nor enters."""
    change = 0.0
    for c in range(len(loads)):
        after = changed_energy(loads, room, c, 0, 0, c < stages, overlapped, target)
        change += 0.0 if c == a else 0.0 if c == b else after - energy[c]
    return change


@part
def shift(cost: Ints, who: Indices, loads: Ints, member: Indices, counts: Ints, move: PieceMove) -> None:
    """Make a weighed move: costs and members of the two columns (`shift_readers` is the other half)."""
    p, a, b = move.piece, move.source, move.target
    counts[COUNT_USED] += (1 if loads[b, LOAD_SIZE] == 0 else 0) - (1 if loads[a, LOAD_SIZE] == 1 else 0)
    loads[a, LOAD_HELD] -= move.gone
    loads[b, LOAD_HELD] += move.come
    loads[a, LOAD_ENTER] += loads[a, MORE_ENTER]
    loads[a, LOAD_LEAVE] += loads[a, MORE_LEAVE]
    loads[b, LOAD_ENTER] += loads[b, MORE_ENTER]
    loads[b, LOAD_LEAVE] += loads[b, MORE_LEAVE]
    who[p, WHO_COLUMN] = b
    who[p, WHO_LEVEL] = move.level
    loads[a, LOAD_COMPUTE] -= cost[p, loads[a, LOAD_DEVICE]]
    loads[b, LOAD_COMPUTE] += cost[p, loads[b, LOAD_DEVICE]]
    loads[a, LOAD_SIZE] -= 1
    last = member[a, loads[a, LOAD_SIZE]]
    member[a, who[p, WHO_SPOT]] = last
    who[last, WHO_SPOT] = who[p, WHO_SPOT]
    member[b, loads[b, LOAD_SIZE]] = p
    who[p, WHO_SPOT] = loads[b, LOAD_SIZE]
    loads[b, LOAD_SIZE] += 1


@part
def shift_readers(list_ptr: Indices, near: Indices, readers: Indices, move: PieceMove) -> None:
    """A piece that moves reads its tensors in another column."""
    p, a, b, columns = move.piece, move.source, move.target, readers.shape[1] - 2
    for e in range(list_ptr[p, LIST_READS], list_ptr[p, LIST_READS + 1]):
        t = near[e]
        readers[t, a] -= 1
        if readers[t, a] == 0:
            readers[t, columns] -= 1
        if readers[t, b] == 0:
            readers[t, columns] += 1
        readers[t, b] += 1


@part
def settle(board: PieceArrays, state: PartitionState, move: PieceMove, target: float) -> None:
    """What few problems have, after a move was made: tied weights, links that differ, times on other devices."""
    loads, p, a, b = state.loads, move.piece, move.source, move.target
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        state.tied[board.tied_of[e], a] -= 1
        state.tied[board.tied_of[e], b] += 1
    if not board.flat:
        state.counts[COUNT_LINKS] += state.counts[MORE_LINKS]
        for c in range(len(loads)):
            other = 0 if c == a else 0 if c == b else 1
            loads[c, LOAD_ENTER] += other * loads[c, MORE_ENTER]
            loads[c, LOAD_LEAVE] += other * loads[c, MORE_LEAVE]
        refresh(board, state, target)
    if len(state.column_time) > 0:
        _count_times(state, p, a, -1)
        _count_times(state, p, b, 1)


@part
def _count_times(state: PartitionState, p: int, c: int, sign: int) -> None:
    if c < len(state.column_time):
        for d in range(state.cost.shape[1] - 1):
            if state.cost[p, d] < 0:
                state.unable[c, d] += sign
            else:
                state.column_time[c, d] += sign * state.cost[p, d]


@part
def swap_devices(
    board: PieceArrays, state: PartitionState, stage_devices: Indices, target: float, temperature: float
) -> bool:
    """Let a stage have another device, and the stage on that one, if any, its own -> True if it was taken."""
    loads, generator = state.loads, state.generator
    if state.stages == 0 or len(stage_devices) < 2:
        return False
    b = below(generator, state.stages)
    d, own = stage_devices[below(generator, len(stage_devices))], loads[b, LOAD_DEVICE]
    if d == own or state.unable[b, d] > 0:
        return False
    c = state.column_of[d]
    if c >= 0 and state.unable[c, own] > 0:
        return False
    before = refresh(board, state, target)
    _exchange(board, state, b, c, d, own)
    change = refresh(board, state, target) - before
    if change <= 0.0 or unit(generator) < np.exp(-change / temperature):
        return True
    _exchange(board, state, b, c, own, d)
    refresh(board, state, target)
    return False


@part
def _exchange(board: PieceArrays, state: PartitionState, b: int, c: int, d: int, own: int) -> None:
    """Column b gets device d, column c (if any) gets b's own."""
    state.loads[b, LOAD_DEVICE] = d
    state.column_of[d] = b
    state.column_of[own] = c
    state.loads[b, LOAD_COMPUTE] = state.column_time[b, d]
    if c >= 0:
        state.loads[c, LOAD_DEVICE] = own
        state.loads[c, LOAD_COMPUTE] = state.column_time[c, own]
    if not board.flat:
        count_transfers(board, state)
