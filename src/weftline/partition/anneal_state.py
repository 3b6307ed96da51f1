"""The state of an annealer: which block each piece is in, and what every block costs, kept up to date move by move.

Blocks (columns) 0..S-1 are stages, on the devices `device[column]`; the rest are the hosts. A move changes two blocks
where transfers are flat, and any where links differ. The costs are the simulator's, exactly.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.partition.board import Board
from weftline.partition.dice import Dice
from weftline.partition.levels import arrange
from weftline.simulate.jit import kernel, part

__all__ = ["State", "apply", "block_cost", "count_transfers", "held_by", "largest", "load_state", "make_state", "state_value", "weigh"]


class State(NamedTuple):
    """P pieces, M tensors, S stages, C columns (stages and hosts), K devices."""

    column: Indices
    level: Indices
    at: Indices
    """(S,): column at each place of the pipeline; place b has level 2b + 1."""
    device: Indices
    """(C,)"""
    column_of: Indices
    """(K,): column of a device, -1 if it has none."""
    readers: Indices
    """(M, C): readers of a tensor in a column."""
    spread: Indices
    """(M,): columns with a reader."""
    compute: Ints
    enter: Ints
    leave: Ints
    held: Ints
    """(C,): bytes."""
    tied: Indices
    """(weights, C): pieces in a column that use a tied weight."""
    size: Indices
    member: Indices
    """(C, P): pieces of a column."""
    spot: Indices
    """(P,): where a piece stands in its row of `member`."""
    block_time: Ints
    """(S, K): time of a stage's pieces on any device (only for unequal devices; else no rows)."""
    unable: Indices
    """(S, K): pieces of a stage that a device cannot run."""
    more_enter: Ints
    more_leave: Ints
    """(C,): changes that the last weighed move makes."""
    links: Ints
    """(2,): missing links in use, and the change that the last weighed move makes."""
    room: Ints
    """(K,): bytes."""
    energy: NDArray[np.float64]
    """(C,)"""
    loose: Indices
    """Pieces that may be able to move, in its first `counts[0]` places."""
    loose_spot: Indices
    """(P,): place in `loose`, -1 if a piece is not there."""
    counts: Ints
    """(2,): number of loose pieces, number of used columns."""
    dice: Dice


def make_state(board: Board, stage_devices: Indices, dice: Dice, room: Ints, *, unequal: bool) -> State:
    """An empty state; `load_state` fills it."""
    count, k = board.time.shape
    m, hosts = len(board.maker), np.flatnonzero(board.host)
    stages = min(len(stage_devices), board.stage_limit)
    columns = stages + len(hosts)
    rows = stages if unequal else 0

    def small(*shape: int) -> Indices:
        return np.zeros(shape, np.int32)

    def large(*shape: int) -> Ints:
        return np.zeros(shape, np.int64)

    return State(
        column=small(count),
        level=small(count),
        at=small(stages),
        device=np.concatenate([stage_devices[:stages], hosts]).astype(np.int32),
        column_of=small(k),
        readers=small(m, columns),
        spread=small(m),
        compute=large(columns),
        enter=large(columns),
        leave=large(columns),
        held=large(columns),
        tied=small(len(board.tied_bytes), columns),
        size=small(columns),
        member=small(columns, count),
        spot=small(count),
        block_time=large(rows, k),
        unable=small(rows, k),
        more_enter=large(columns),
        more_leave=large(columns),
        links=large(2),
        room=room.copy(),
        energy=np.zeros(columns),
        loose=small(count),
        loose_spot=small(count),
        counts=large(2),
        dice=dice,
    )


@kernel
def load_state(board: Board, state: State, placed: Indices, stage_devices: Indices) -> bool:
    """Take over a device per piece -> False if it uses too many devices, one that cannot run a piece, or a cycle."""
    stages, columns, count = len(state.at), len(state.device), len(placed)
    used = np.zeros(len(board.host), np.bool_)
    for p in range(count):
        used[placed[p]] = True
        if board.time[p, placed[p]] < 0:
            return False
    state.column_of[:] = -1
    next_column = 0
    for wanted in (True, False):
        for d in stage_devices:
            if used[d] == wanted:
                if next_column < stages:
                    state.column_of[d] = next_column
                    state.device[next_column] = d
                    next_column += 1
                elif wanted:
                    return False
    total = 0
    for d in range(len(used)):
        total += 1 if used[d] else 0
    if total > board.stage_limit:
        return False
    for c in range(stages, columns):
        state.column_of[state.device[c]] = c
    for p in range(count):
        state.column[p] = state.column_of[placed[p]]
    if not arrange(board, state.column, stages, state.dice, state.at, state.level):
        return False
    _count_all(board, state)
    return True


@part
def _count_all(board: Board, state: State) -> None:
    state.compute[:] = 0
    state.held[:] = 0
    state.size[:] = 0
    state.tied[:] = 0
    state.readers[:] = 0
    state.spread[:] = 0
    state.block_time[:] = 0
    state.unable[:] = 0
    for p in range(len(state.column)):
        c = state.column[p]
        state.held[c] += held_by(board, state, p, c, 0)
        _enter_block(board, state, p, c)
        for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
            t = board.reads_of[e]
            if state.readers[t, c] == 0:
                state.spread[t] += 1
            state.readers[t, c] += 1
    state.counts[1] = 0
    for c in range(len(state.size)):
        state.counts[1] += 1 if state.size[c] > 0 else 0
    count_transfers(board, state)


@part
def count_transfers(board: Board, state: State) -> None:
    """All that enters and leaves, from the start."""
    columns = len(state.device)
    state.enter[:] = 0
    state.leave[:] = 0
    state.links[:] = 0
    for t in range(len(board.maker)):
        home = state.column[board.maker[t]]
        dearest = np.int64(0)
        for c in range(columns):
            if c != home and state.readers[t, c] > 0:
                if board.flat:
                    length = board.wire[t]
                else:
                    length = board.transfer[board.row[t], state.device[home], state.device[c]]
                    if length < 0:
                        state.links[0] += 1
                        length = 0
                state.enter[c] += length
                dearest = max(dearest, length)
        state.leave[home] += dearest


@part
def held_by(board: Board, state: State, p: int, c: int, alone: int) -> int:
    """Bytes that a piece adds to a column (alone = 0), or takes with it when it leaves (alone = 1)."""
    size = board.weight[p]
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        w = board.tied_of[e]
        if state.tied[w, c] == alone:
            size += board.tied_bytes[w]
    return size


@part
def _enter_block(board: Board, state: State, p: int, c: int) -> None:
    state.compute[c] += board.time[p, state.device[c]]
    state.member[c, state.size[c]] = p
    state.spot[p] = state.size[c]
    state.size[c] += 1
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        state.tied[board.tied_of[e], c] += 1
    if c < len(state.block_time):
        for d in range(board.time.shape[1]):
            if board.time[p, d] < 0:
                state.unable[c, d] += 1
            else:
                state.block_time[c, d] += board.time[p, d]


@part
def _leave_block(board: Board, state: State, p: int, c: int) -> None:
    state.compute[c] -= board.time[p, state.device[c]]
    state.size[c] -= 1
    last = state.member[c, state.size[c]]
    state.member[c, state.spot[p]] = last
    state.spot[last] = state.spot[p]
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        state.tied[board.tied_of[e], c] -= 1
    if c < len(state.block_time):
        for d in range(board.time.shape[1]):
            if board.time[p, d] < 0:
                state.unable[c, d] -= 1
            else:
                state.block_time[c, d] -= board.time[p, d]


@part
def block_cost(board: Board, state: State, c: int, compute: int, enter: int, leave: int) -> int:
    """What a block costs; a host pays no transfers."""
    if c >= len(state.at):
        return compute
    if board.overlapped:
        return max(compute, max(enter, leave))
    return compute + enter + leave


@part
def largest(board: Board, state: State) -> int:
    """The dearest block; -1 if memory or a missing link forbids the state."""
    value = np.int64(0)
    if state.links[0] > 0:
        return np.int64(-1)
    for c in range(len(state.device)):
        if state.held[c] > state.room[state.device[c]]:
            return np.int64(-1)
        value = max(value, block_cost(board, state, c, state.compute[c], state.enter[c], state.leave[c]))
    return value


@part
def weigh(board: Board, state: State, p: int, b: int) -> None:
    """Write down how entering and leaving tensors change when a piece moves to column `b`."""
    if board.flat:
        _weigh_flat(board, state, p, state.column[p], b)
    else:
        state.more_enter[:] = 0
        state.more_leave[:] = 0
        state.links[1] = 0
        a = state.column[p]
        for e in range(board.makes_ptr[p], board.makes_ptr[p + 1]):
            t = board.makes_of[e]
            _add_tensor(board, state, t, a, -1)
            _add_tensor(board, state, t, b, 1)
        for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
            t = board.reads_of[e]
            home = state.column[board.maker[t]]
            _add_tensor(board, state, t, home, -1)
            state.readers[t, a] -= 1
            state.readers[t, b] += 1
            _add_tensor(board, state, t, home, 1)
            state.readers[t, a] += 1
            state.readers[t, b] -= 1


@part
def _add_tensor(board: Board, state: State, t: int, home: int, sign: int) -> None:
    """Count one tensor made in column `home` among the changes."""
    dearest = np.int64(0)
    for c in range(len(state.device)):
        if c != home and state.readers[t, c] > 0:
            length = board.transfer[board.row[t], state.device[home], state.device[c]]
            if length < 0:
                state.links[1] += sign
                length = 0
            state.more_enter[c] += sign * length
            dearest = max(dearest, length)
    state.more_leave[home] += sign * dearest


@part
def _weigh_flat(board: Board, state: State, p: int, a: int, b: int) -> None:
    enter_a, enter_b, leave_a, leave_b = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
    for e in range(board.makes_ptr[p], board.makes_ptr[p + 1]):
        t = board.makes_of[e]
        time, spread = board.wire[t], state.spread[t]
        in_a, in_b = state.readers[t, a] > 0, state.readers[t, b] > 0
        if in_b:
            enter_b -= time
        if in_a:
            enter_a += time
        if spread - in_a > 0:
            leave_a -= time
        if spread - in_b > 0:
            leave_b += time
    for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
        t = board.reads_of[e]
        time, home = board.wire[t], state.column[board.maker[t]]
        if home == a:
            if state.spread[t] == 1:
                leave_a += time
        elif state.readers[t, a] == 1:
            enter_a -= time
        if home == b:
            if state.readers[t, a] == 1 and state.spread[t] - (state.readers[t, b] > 0) == 1:
                leave_b -= time
        elif state.readers[t, b] == 0:
            enter_b += time
    state.more_enter[a] = enter_a
    state.more_enter[b] = enter_b
    state.more_leave[a] = leave_a
    state.more_leave[b] = leave_b


@part
def apply(board: Board, state: State, p: int, b: int, level: int) -> None:
    """Make the move that was weighed last."""
    a = state.column[p]
    state.level[p] = level
    if a == b:
        return
    if board.flat:
        state.enter[a] += state.more_enter[a]
        state.leave[a] += state.more_leave[a]
        state.enter[b] += state.more_enter[b]
        state.leave[b] += state.more_leave[b]
    else:
        for c in range(len(state.device)):
            state.enter[c] += state.more_enter[c]
            state.leave[c] += state.more_leave[c]
        state.links[0] += state.links[1]
    state.held[a] -= held_by(board, state, p, a, 1)
    state.held[b] += held_by(board, state, p, b, 0)
    state.counts[1] += (1 if state.size[b] == 0 else 0) - (1 if state.size[a] == 1 else 0)
    _leave_block(board, state, p, a)
    _enter_block(board, state, p, b)
    state.column[p] = b
    for e in range(board.reads_ptr[p], board.reads_ptr[p + 1]):
        t = board.reads_of[e]
        state.readers[t, a] -= 1
        if state.readers[t, a] == 0:
            state.spread[t] -= 1
        if state.readers[t, b] == 0:
            state.spread[t] += 1
        state.readers[t, b] += 1


@kernel
def state_value(board: Board, state: State) -> int:
    """The dearest block for Python."""
    return largest(board, state)
