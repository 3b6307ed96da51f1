"""The state of an annealer: which block each piece is in, and what every block costs.

Blocks (columns) 0..S-1 are stages on some devices, the rest are the hosts. Everything about a piece, a tensor or a
block stands in one row of one array: kernels that are handed few plain arrays run many times faster than with many.
The costs are the simulator's, exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.reduce import PieceArrays
from weftline.pipeline.slice.orders import arrange
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import Dice

__all__ = ["PartitionState", "block_cost", "count_transfers", "largest", "load_state", "make_state", "state_value"]

COLUMN, LEVEL, SPOT, LOOSE = 0, 1, 2, 3
"""`who`: block and level of a piece, its places in `member` and in `loose`."""
COMPUTE, ENTER, LEAVE, HELD, SIZE, DEVICE, AT, MORE_ENTER, MORE_LEAVE = 0, 1, 2, 3, 4, 5, 6, 7, 8
"""`block`: its costs, bytes, pieces and device; the column at this place of the pipeline; changes of a move."""
NUMBER, USED, LINKS, MORE_LINKS = 0, 1, 2, 3
"""`counts`: loose pieces, used columns, missing links in use and the change of a move."""
BEFORE, NEXT, MAKES, READS = 0, 2, 4, 6
"""`span`: begin and end of four lists of a piece in `near`."""


class PartitionState(NamedTuple):
    """P pieces, M tensors, S stages, C columns (stages and hosts), K devices."""

    span: Indices
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
    block: Ints
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
    dice: Dice
    kind: Indices
    transfer: Ints
    """Transfers where links differ: row of each tensor, (rows, K, K) ns."""
    tied: Indices
    """(weights, C): pieces in a column that use a tied weight."""
    column_of: Indices
    """(K,): column of a device, -1 if it has none."""
    block_time: Ints
    """(S, K): time of a stage's pieces on any device (only for unequal devices; else no rows)."""
    unable: Indices
    """(S, K): pieces of a stage that a device cannot run."""
    stages: int


def make_state(board: PieceArrays, stage_devices: Indices, dice: Dice, room: Ints, *, unequal: bool) -> PartitionState:
    """An empty state; `load_state` fills it."""
    count, k = board.time.shape
    m, hosts = len(board.maker), np.flatnonzero(board.host)
    stages = min(len(stage_devices), board.stage_limit)
    columns = stages + len(hosts)
    span, near = _neighbours(board)
    readers = np.zeros((m, columns + 2), np.int32)
    readers[:, columns + 1] = board.maker
    block = np.zeros((columns, 9), np.int64)
    block[stages:, DEVICE] = hosts
    rows = stages if unequal else 0
    return PartitionState(
        span=span,
        near=near,
        cost=np.ascontiguousarray(np.concatenate([board.time, board.weight[:, None]], axis=1)),
        wire=board.wire,
        who=np.zeros((count, 4), np.int32),
        readers=readers,
        block=block,
        energy=np.zeros(columns),
        member=np.zeros((columns, count), np.int32),
        loose=np.zeros(count, np.int32),
        counts=np.zeros(4, np.int64),
        room=room.copy(),
        dice=dice,
        kind=board.row,
        transfer=board.transfer,
        tied=np.zeros((len(board.tied_bytes), columns), np.int32),
        column_of=np.zeros(k, np.int32),
        block_time=np.zeros((rows, k), np.int64),
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
    span = np.zeros((len(board.weight), 8), np.int32)
    shift = 0
    for place, (pointer, of) in enumerate(lists):
        span[:, 2 * place] = pointer[:-1] + shift
        span[:, 2 * place + 1] = pointer[1:] + shift
        shift += len(of)
    return span, np.concatenate([of for _, of in lists]).astype(np.int32)


@kernel
def load_state(board: PieceArrays, state: PartitionState, placed: Indices, stage_devices: Indices) -> bool:
    """Take over a device per piece -> False if it uses too many devices, one that cannot run a piece, or a cycle."""
    columns, count = len(state.block), len(placed)
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
                    state.block[fresh, DEVICE] = d
                    fresh += 1
                elif wanted:
                    return False
    for d in range(len(used)):
        total += 1 if used[d] else 0
    if total > board.stage_limit:
        return False
    for c in range(state.stages, columns):
        state.column_of[state.block[c, DEVICE]] = c
    for p in range(count):
        state.who[p, COLUMN] = state.column_of[placed[p]]
    if not renumber(board, state):
        return False
    _count_blocks(board, state)
    count_transfers(board, state)
    return True


@part
def renumber(board: PieceArrays, state: PartitionState) -> bool:
    """Another topological order of the stages; False if there is none."""
    at = np.zeros(max(1, state.stages), np.int32)
    level = np.zeros(len(state.who), np.int32)
    column = state.who[:, COLUMN].copy()
    if not arrange(board, column, state.stages, state.dice, at, level):
        return False
    for p in range(len(level)):
        state.who[p, LEVEL] = level[p]
    for b in range(state.stages):
        state.block[b, AT] = at[b]
    return True


@part
def _count_blocks(board: PieceArrays, state: PartitionState) -> None:
    """Compute, bytes, members and readers of all columns from the start."""
    block, columns = state.block, len(state.block)
    for field in (COMPUTE, HELD, SIZE):
        block[:, field] = 0
    state.tied[:] = 0
    state.readers[:, : columns + 1] = 0
    state.block_time[:] = 0
    state.unable[:] = 0
    for p in range(len(state.who)):
        c = state.who[p, COLUMN]
        block[c, COMPUTE] += board.time[p, block[c, DEVICE]]
        block[c, HELD] += board.weight[p]
        state.member[c, block[c, SIZE]] = p
        state.who[p, SPOT] = block[c, SIZE]
        block[c, SIZE] += 1
        for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
            if state.tied[board.tied_of[e], c] == 0:
                block[c, HELD] += board.tied_bytes[board.tied_of[e]]
            state.tied[board.tied_of[e], c] += 1
        for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
            t = board.reads_of[e]
            if state.readers[t, c] == 0:
                state.readers[t, columns] += 1
            state.readers[t, c] += 1
        if c < len(state.block_time):
            for d in range(board.time.shape[1]):
                if board.time[p, d] < 0:
                    state.unable[c, d] += 1
                else:
                    state.block_time[c, d] += board.time[p, d]
    state.counts[USED] = 0
    for c in range(columns):
        state.counts[USED] += 1 if block[c, SIZE] > 0 else 0


@part
def count_transfers(board: PieceArrays, state: PartitionState) -> None:
    """All that enters and leaves, from the start."""
    block = state.block
    block[:, ENTER] = 0
    block[:, LEAVE] = 0
    state.counts[LINKS] = 0
    for t in range(len(board.maker)):
        home = state.who[board.maker[t], COLUMN]
        dearest = 0
        for c in range(len(block)):
            if c != home and state.readers[t, c] > 0:
                if board.flat:
                    length = board.wire[t]
                else:
                    length = board.transfer[board.row[t], block[home, DEVICE], block[c, DEVICE]]
                    if length < 0:
                        state.counts[LINKS] += 1
                        length = 0
                block[c, ENTER] += length
                dearest = max(dearest, length)
        block[home, LEAVE] += dearest


@part
def block_cost(paid: bool, overlapped: bool, compute: int, enter: int, leave: int) -> int:
    """What a block costs; a host pays no transfers."""
    if not paid:
        return compute
    if overlapped:
        return max(compute, enter, leave)
    return compute + enter + leave


@part
def largest(block: Ints, room: Ints, counts: Ints, stages: int, overlapped: bool) -> int:
    """The dearest block; -1 if memory or a missing link forbids the state."""
    value = 0
    if counts[LINKS] > 0:
        return -1
    for c in range(len(block)):
        if block[c, HELD] > room[block[c, DEVICE]]:
            return -1
        cost = block_cost(c < stages, overlapped, block[c, COMPUTE], block[c, ENTER], block[c, LEAVE])
        value = max(value, cost)
    return value


@kernel
def state_value(board: PieceArrays, state: PartitionState) -> int:
    """What the state costs, -1 if a limit forbids it."""
    return largest(state.block, state.room, state.counts, state.stages, board.overlapped)
