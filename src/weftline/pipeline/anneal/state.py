"""The state of an annealer: which column each piece is in, what every column costs, and which pieces may move.

Columns 0..S-1 are stages on some devices, the rest are the hosts. Everything about a piece, a tensor or a
column stands in one row of one array: kernels that are handed few plain arrays run many times faster than with many.
The costs are the simulator's, exactly. Energy: over all columns the sum of 1e4 x^2 + 10 x, where x is the part by which
a column exceeds the target.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.reduce import PieceArrays
from weftline.pipeline.slice.orders import arrange
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import RandomGenerator

__all__ = [
    "PartitionState",
    "column_cost",
    "count_transfers",
    "energy_of",
    "largest",
    "load_state",
    "loosen_all",
    "loosen_around",
    "make_state",
    "refresh",
    "renumber",
    "state_value",
    "tighten",
]


WHO_COLUMN, WHO_LEVEL, WHO_SPOT, WHO_LOOSE = 0, 1, 2, 3
"""`who`: column and level of a piece, its places in `member` and in `loose`."""
LOAD_COMPUTE, LOAD_ENTER, LOAD_LEAVE, LOAD_HELD, LOAD_SIZE, LOAD_DEVICE = 0, 1, 2, 3, 4, 5
"""`loads`: costs, bytes, pieces and device."""
PLACE_COLUMN, MORE_ENTER, MORE_LEAVE = 6, 7, 8
"""`loads`: the column at this place of the pipeline; how a move changes what enters and leaves."""
COUNT_LOOSE, COUNT_USED, COUNT_LINKS, MORE_LINKS = 0, 1, 2, 3
"""`counts`: loose pieces, used columns, missing links in use and the change of a move."""
LIST_BEFORE, LIST_NEXT, LIST_MAKES, LIST_READS = 0, 2, 4, 6
"""`list_ptr`: begin and end of four lists of a piece in `near`."""
LINK_ENERGY = 10.0
"""Of a missing link in use."""


class PartitionState(NamedTuple):
    """P pieces, M tensors, S stages, C columns (stages and hosts), K devices."""

    list_ptr: Indices
    """(P, 8)"""
    near: Indices
    """Pieces before and after a piece, tensors that it makes and reads."""
    cost: Ints
    """(P, K + 1): time on each device, then bytes."""
    wire: Ints
    """(M,): ns, where transfers are flat."""
    who: Indices
    """(P, 4)"""
    readers: Indices
    """(M, C + 2): readers in each column, columns with a reader, the maker."""
    loads: Ints
    """(C, 9)"""
    energy: NDArray[np.float64]
    """(C,)"""
    member: Indices
    """(C, P): pieces of a column."""
    loose: Indices
    """(P,): pieces that may be able to move."""
    counts: Ints
    """(4,)"""
    room: Ints
    """(K,): bytes."""
    generator: RandomGenerator
    kind: Indices
    transfer: Ints
    """Transfers where links differ: row of each tensor, (rows, K, K) ns."""
    tied: Indices
    """(weights, C): pieces in a column that use a tied weight."""
    column_of: Indices
    """(K,): column of a device, -1 if it has none."""
    column_time: Ints
    """(S, K): time of a stage's pieces on any device (only for unequal devices; else no rows)."""
    unable: Indices
    """(S, K): pieces of a stage that a device cannot run."""
    stages: int


def make_state(
    board: PieceArrays, stage_devices: Indices, generator: RandomGenerator, room: Ints, *, unequal: bool
) -> PartitionState:
    """An empty state; `load_state` fills it."""
    count, k = board.time.shape
    m, hosts = len(board.maker), np.flatnonzero(board.host)
    stages = min(len(stage_devices), board.stage_limit)
    columns = stages + len(hosts)
    list_ptr, near = _neighbours(board)
    readers = np.zeros((m, columns + 2), np.int32)
    readers[:, columns + 1] = board.maker
    loads = np.zeros((columns, 9), np.int64)
    loads[stages:, LOAD_DEVICE] = hosts
    rows = stages if unequal else 0
    return PartitionState(
        list_ptr=list_ptr,
        near=near,
        cost=np.ascontiguousarray(np.concatenate([board.time, board.weight[:, None]], axis=1)),
        wire=board.wire,
        who=np.zeros((count, 4), np.int32),
        readers=readers,
        loads=loads,
        energy=np.zeros(columns),
        member=np.zeros((columns, count), np.int32),
        loose=np.zeros(count, np.int32),
        counts=np.zeros(4, np.int64),
        room=room.copy(),
        generator=generator,
        kind=board.row,
        transfer=board.transfer,
        tied=np.zeros((len(board.tied_bytes), columns), np.int32),
        column_of=np.zeros(k, np.int32),
        column_time=np.zeros((rows, k), np.int64),
        unable=np.zeros((rows, k), np.int32),
        stages=stages,
    )


def _neighbours(board: PieceArrays) -> tuple[Indices, Indices]:
    lists = (
        (board.before_ptr, board.before_of),
        (board.next_ptr, board.next_of),
        (board.makes_ptr, board.makes_of),
        (board.reads_ptr, board.reads_of),
    )
    list_ptr = np.zeros((len(board.weight), 8), np.int32)
    shift = 0
    for place, (pointer, of) in enumerate(lists):
        list_ptr[:, 2 * place] = pointer[:-1] + shift
        list_ptr[:, 2 * place + 1] = pointer[1:] + shift
        shift += len(of)
    return list_ptr, np.concatenate([of for _, of in lists]).astype(np.int32)


@kernel
def load_state(board: PieceArrays, state: PartitionState, placed: Indices, stage_devices: Indices) -> bool:
    """Take over a device per piece -> False if it uses too many devices, one that cannot run a piece, or a cycle."""
    columns, count = len(state.loads), len(placed)
    used = np.zeros(len(board.host), np.bool_)
    for p in range(count):
        used[placed[p]] = True
        if board.time[p, placed[p]] < 0:
            return False
    state.column_of[:] = -1
    fresh, total = 0, 0
    for wanted in (True, False):
        for d in stage_devices:
            if used[d] == wanted:
                if fresh < state.stages:
                    state.column_of[d] = fresh
                    state.loads[fresh, LOAD_DEVICE] = d
                    fresh += 1
                elif wanted:
                    return False
    for d in range(len(used)):
        total += 1 if used[d] else 0
    if total > board.stage_limit:
        return False
    for c in range(state.stages, columns):
        state.column_of[state.loads[c, LOAD_DEVICE]] = c
    for p in range(count):
        state.who[p, WHO_COLUMN] = state.column_of[placed[p]]
    if not renumber(board, state):
        return False
    _count_columns(board, state)
    count_transfers(board, state)
    return True


@part
def renumber(board: PieceArrays, state: PartitionState) -> bool:
    """Another topological order of the stages; False if there is none."""
    at = np.zeros(max(1, state.stages), np.int32)
    level = np.zeros(len(state.who), np.int32)
    column = state.who[:, WHO_COLUMN].copy()
    if not arrange(board, column, state.stages, state.generator, at, level):
        return False
    for p in range(len(level)):
        state.who[p, WHO_LEVEL] = level[p]
    for b in range(state.stages):
        state.loads[b, PLACE_COLUMN] = at[b]
    return True


@part
def _count_columns(board: PieceArrays, state: PartitionState) -> None:
    """Compute, bytes, members and readers of all columns from the start."""
    loads, columns = state.loads, len(state.loads)
    for field in (LOAD_COMPUTE, LOAD_HELD, LOAD_SIZE):
        loads[:, field] = 0
    state.tied[:] = 0
    state.readers[:, : columns + 1] = 0
    state.column_time[:] = 0
    state.unable[:] = 0
    for p in range(len(state.who)):
        c = state.who[p, WHO_COLUMN]
        loads[c, LOAD_COMPUTE] += board.time[p, loads[c, LOAD_DEVICE]]
        loads[c, LOAD_HELD] += board.weight[p]
        state.member[c, loads[c, LOAD_SIZE]] = p
        state.who[p, WHO_SPOT] = loads[c, LOAD_SIZE]
        loads[c, LOAD_SIZE] += 1
        for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
            if state.tied[board.tied_of[e], c] == 0:
                loads[c, LOAD_HELD] += board.tied_bytes[board.tied_of[e]]
            state.tied[board.tied_of[e], c] += 1
        for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
            t = board.reads_of[e]
            if state.readers[t, c] == 0:
                state.readers[t, columns] += 1
            state.readers[t, c] += 1
        if c < len(state.column_time):
            for d in range(board.time.shape[1]):
                if board.time[p, d] < 0:
                    state.unable[c, d] += 1
                else:
                    state.column_time[c, d] += board.time[p, d]
    state.counts[COUNT_USED] = 0
    for c in range(columns):
        state.counts[COUNT_USED] += 1 if loads[c, LOAD_SIZE] > 0 else 0


@part
def count_transfers(board: PieceArrays, state: PartitionState) -> None:
    """All that enters and leaves, from the start."""
    loads = state.loads
    loads[:, LOAD_ENTER] = 0
    loads[:, LOAD_LEAVE] = 0
    state.counts[COUNT_LINKS] = 0
    for t in range(len(board.maker)):
        home = state.who[board.maker[t], WHO_COLUMN]
        costliest = 0
        for c in range(len(loads)):
            if c != home and state.readers[t, c] > 0:
                if board.flat:
                    length = board.wire[t]
                else:
                    length = board.transfer[board.row[t], loads[home, LOAD_DEVICE], loads[c, LOAD_DEVICE]]
                    if length < 0:
                        state.counts[COUNT_LINKS] += 1
                        length = 0
                loads[c, LOAD_ENTER] += length
                costliest = max(costliest, length)
        loads[home, LOAD_LEAVE] += costliest


@part
def column_cost(paid: bool, overlapped: bool, compute: int, enter: int, leave: int) -> int:
    """What a column costs; a host pays no transfers."""
    if not paid:
        return compute
    if overlapped:
        return max(compute, enter, leave)
    return compute + enter + leave


@part
def largest(loads: Ints, room: Ints, counts: Ints, stages: int, overlapped: bool) -> int:
    """The costliest column; -1 if memory or a missing link forbids the state."""
    value = 0
    if counts[COUNT_LINKS] > 0:
        return -1
    for c in range(len(loads)):
        if loads[c, LOAD_HELD] > room[loads[c, LOAD_DEVICE]]:
            return -1
        cost = column_cost(c < stages, overlapped, loads[c, LOAD_COMPUTE], loads[c, LOAD_ENTER], loads[c, LOAD_LEAVE])
        value = max(value, cost)
    return value


@kernel
def state_value(board: PieceArrays, state: PartitionState) -> int:
    """What the state costs, -1 if a limit forbids it."""
    return largest(state.loads, state.room, state.counts, state.stages, board.overlapped)


@part
def energy_of(cost: int, held: int, room: int, target: float) -> float:
    """How much a column is above the target, and above its memory."""
    result = 0.0
    x = cost / target - 1.0
    if x > 0.0:
        result = 1e4 * x * x + 10.0 * x
    if held > room:
        y = (held - room) / np.float64(max(room, 1))
        result += 1e4 * y * y + 10.0 * y + 1.0
    return result


@part
def refresh(board: PieceArrays, state: PartitionState, target: float) -> float:
    """Energies of all columns from the start -> their sum."""
    loads = state.loads
    total = float(LINK_ENERGY * state.counts[COUNT_LINKS])
    for c in range(len(loads)):
        paid = c < state.stages
        compute, enter, leave = loads[c, LOAD_COMPUTE], loads[c, LOAD_ENTER], loads[c, LOAD_LEAVE]
        cost = column_cost(paid, board.overlapped, compute, enter, leave)
        state.energy[c] = energy_of(cost, loads[c, LOAD_HELD], state.room[loads[c, LOAD_DEVICE]], target)
        total += state.energy[c]
    return total


@part
def loosen_all(state: PartitionState) -> None:
    """Every piece counts as loose until it is found not to be."""
    for p in range(len(state.who)):
        state.loose[p] = p
        state.who[p, WHO_LOOSE] = p
    state.counts[COUNT_LOOSE] = len(state.who)


@part
def _loosen(who: Indices, loose: Indices, counts: Ints, p: int) -> None:
    """A piece may be able to move again."""
    if who[p, WHO_LOOSE] < 0:
        loose[counts[COUNT_LOOSE]] = p
        who[p, WHO_LOOSE] = counts[COUNT_LOOSE]
        counts[COUNT_LOOSE] += 1


@part
def loosen_around(list_ptr: Indices, near: Indices, who: Indices, loose: Indices, counts: Ints, p: int) -> None:
    """A piece that moved, and all whose levels it limits."""
    _loosen(who, loose, counts, p)
    for e in range(list_ptr[p, LIST_BEFORE], list_ptr[p, LIST_BEFORE + 1]):
        _loosen(who, loose, counts, near[e])
    for e in range(list_ptr[p, LIST_NEXT], list_ptr[p, LIST_NEXT + 1]):
        _loosen(who, loose, counts, near[e])


@part
def tighten(who: Indices, loose: Indices, counts: Ints, p: int) -> None:
    """A piece cannot move."""
    spot = who[p, WHO_LOOSE]
    counts[COUNT_LOOSE] -= 1
    last = loose[counts[COUNT_LOOSE]]
    loose[spot] = last
    who[last, WHO_LOOSE] = spot
    who[p, WHO_LOOSE] = -1
