"""Simulated annealing on moves of single pieces, as one kernel that runs a given number of steps.

Energy: over all blocks the sum of 1e4 x^2 + 10 x, where x is the part by which a block exceeds the target (a little
below the best value). A piece may go to any level between its predecessors and its successors. A rejected move is
sometimes tried together with a move of one piece of the receiving block. Stages of unequal devices also swap devices.
The places of the pipeline are renumbered now and then in another topological order of the quotient graph.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.anneal.moves import (
    changed_energy,
    energy_of,
    levels_of,
    loosen_around,
    shift,
    tighten,
    weigh_flat,
    weigh_links,
)
from weftline.pipeline.anneal.state import (
    AT,
    COLUMN,
    COMPUTE,
    DEVICE,
    ENTER,
    HELD,
    LEAVE,
    LEVEL,
    LINKS,
    LOOSE,
    MORE_ENTER,
    MORE_LEAVE,
    MORE_LINKS,
    NUMBER,
    SIZE,
    USED,
    PartitionState,
    block_cost,
    count_transfers,
    largest,
    renumber,
)
from weftline.pipeline.reduce import PieceArrays
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import below, unit

__all__ = ["anneal"]

RENUMBER = 8192
AIM = 0.998
COMPOUND = 0.3
LINK = 10.0
"""Energy of a missing link in use."""
SWAP = 128
"""Steps between two tries to swap devices."""


@kernel
def anneal(
    board: PieceArrays,
    state: PartitionState,
    stage_devices: Indices,
    best: Indices,
    best_value: Ints,
    steps: int,
    hot: float,
    cold: float,
    floor: int,
    stop: Ints,
) -> int:
    """Cool from `hot` to `cold` over the steps -> steps done. A better state goes to `best` (device per piece)."""
    span, near, cost, wire, who, readers = state.span, state.near, state.cost, state.wire, state.who, state.readers
    block, energy, member, loose, counts = state.block, state.energy, state.member, state.loose, state.counts
    room, dice, kind, transfer, stages = state.room, state.dice, state.kind, state.transfer, state.stages
    flat, overlapped, limit = board.flat, board.overlapped, board.stage_limit
    count, columns = len(who), len(block)
    hosts, bytes_at = columns - stages, cost.shape[1] - 1
    tied, unequal = len(state.tied) > 0, len(state.block_time) > 0
    special = tied or unequal or not flat
    target = max(float(floor), 1.0, AIM * best_value[0])
    total = _refresh(board, state, target)
    _loosen_all(state)
    temperature, factor = hot, (cold / hot) ** (256.0 / max(1, steps))
    often = max(RENUMBER, (4 * count + 255) // 256 * 256)
    swap = SWAP if flat else max(4 * SWAP, len(board.maker))
    bar = 0.0603 * columns
    moved, came_from, old_level = 0, 0, 0  # the first of two moves
    first_a, first_b = 0.0, 0.0
    for step in range(steps):
        if step & 255 == 0 and step > 0:
            temperature *= factor
            if step & 4095 == 0 and stop[0] != 0:
                return step
            if step % often == 0:
                renumber(board, state)
                _loosen_all(state)
                total = _refresh(board, state, target)
        improved = False
        if unequal and step % swap == 0:
            improved = _swap_devices(board, state, stage_devices, target, temperature)
            if improved:
                total = _refresh(board, state, target)
        else:
            if counts[NUMBER] == 0:
                continue
            p = int(loose[below(dice, counts[NUMBER])])
            change = 0.0
            made = 0
            while True:
                low, high = levels_of(span, near, who, p, 2 * stages)
                if hosts == 0:
                    low, high = low >> 1, min(high, 2 * stages - 1) >> 1
                    if low >= high:
                        if made == 0:
                            tighten(who, loose, counts, p)
                        break
                    place = low + below(dice, high - low)
                    if place >= who[p, LEVEL] >> 1:
                        place += 1
                    level = 2 * place + 1
                    b = block[place, AT]
                else:
                    if low >= high and hosts < 2:
                        if made == 0:
                            tighten(who, loose, counts, p)
                        break
                    level = low + below(dice, high - low + 1)
                    b = block[level >> 1, AT] if level & 1 else int(stages + below(dice, hosts))
                a = int(who[p, COLUMN])
                if a == b:
                    if level != who[p, LEVEL] and made == 0:
                        who[p, LEVEL] = level
                        loosen_around(span, near, who, loose, counts, p)
                    break
                time = cost[p, block[b, DEVICE]]
                more = (1 if block[b, SIZE] == 0 else 0) - (1 if block[a, SIZE] == 1 else 0)
                if time < 0 or counts[USED] + more > limit:
                    break
                if flat:
                    weigh_flat(span, near, wire, readers, who, block, p, a, b)
                else:
                    weigh_links(span, near, kind, transfer, readers, who, block, counts, p, a, b)
                gone, come = cost[p, bytes_at], cost[p, bytes_at]
                if tied:
                    gone += _tied_bytes(board, state, p, a, 1)
                    come += _tied_bytes(board, state, p, b, 0)
                energy_a = changed_energy(
                    block, room, a, -cost[p, block[a, DEVICE]], -gone, a < stages, overlapped, target
                )
                energy_b = changed_energy(block, room, b, time, come, b < stages, overlapped, target)
                change += energy_a - energy[a] + energy_b - energy[b]
                if not flat:
                    change += LINK * counts[MORE_LINKS]
                    change += _change_elsewhere(block, room, energy, a, b, stages, overlapped, target)
                taken = change <= 0.0 or unit(dice) < np.exp(-change / temperature)
                if not taken and (made == 1 or block[b, SIZE] == 0 or unit(dice) >= COMPOUND):
                    break
                if made == 0:
                    moved, came_from, old_level = p, a, int(who[p, LEVEL])
                    first_a, first_b = energy[b], energy[a]  # as seen on the way back
                made += 1
                shift(span, near, cost, readers, who, block, member, counts, p, b, level, gone, come)
                energy[a], energy[b] = energy_a, energy_b
                if special:
                    _settle(board, state, p, a, b, target)
                if taken:
                    loosen_around(span, near, who, loose, counts, moved)
                    loosen_around(span, near, who, loose, counts, p)
                    total += change
                    made = 0
                    improved = True
                    break
                p = int(member[b, below(dice, block[b, SIZE])])
                if p == moved:
                    break
            if made == 1:  # take it back
                p, b = moved, came_from
                a = int(who[p, COLUMN])
                if flat:
                    weigh_flat(span, near, wire, readers, who, block, p, a, b)
                else:
                    weigh_links(span, near, kind, transfer, readers, who, block, counts, p, a, b)
                gone, come = cost[p, bytes_at], cost[p, bytes_at]
                if tied:
                    gone += _tied_bytes(board, state, p, a, 1)
                    come += _tied_bytes(board, state, p, b, 0)
                shift(span, near, cost, readers, who, block, member, counts, p, b, old_level, gone, come)
                energy[a], energy[b] = first_a, first_b
                if special:
                    _settle(board, state, p, a, b, target)
        if improved and total < bar:
            value = largest(block, room, counts, stages, overlapped)
            if 0 <= value < best_value[0]:
                for p in range(count):
                    best[p] = block[who[p, COLUMN], DEVICE]
                best_value[0] = value
                if value <= floor:
                    return step
                target = max(float(floor), 1.0, AIM * value)
                total = _refresh(board, state, target)
    return steps


@part
def _change_elsewhere(
    block: Ints,
    room: Ints,
    energy: NDArray[np.float64],
    a: int,
    b: int,
    stages: int,
    overlapped: bool,
    target: float,
) -> float:
    """What the weighed move changes in blocks that the piece neither leaves nor enters."""
    change = 0.0
    for c in range(len(block)):
        after = changed_energy(block, room, c, 0, 0, c < stages, overlapped, target)
        change += 0.0 if c == a else 0.0 if c == b else after - energy[c]
    return change


@part
def _refresh(board: PieceArrays, state: PartitionState, target: float) -> float:
    """Energies of all blocks from the start -> their sum."""
    block = state.block
    total = float(LINK * state.counts[LINKS])
    for c in range(len(block)):
        paid = c < state.stages
        cost = block_cost(paid, board.overlapped, block[c, COMPUTE], block[c, ENTER], block[c, LEAVE])
        state.energy[c] = energy_of(cost, block[c, HELD], state.room[block[c, DEVICE]], target)
        total += state.energy[c]
    return total


@part
def _loosen_all(state: PartitionState) -> None:
    """Every piece counts as loose until it is found not to be."""
    for p in range(len(state.who)):
        state.loose[p] = p
        state.who[p, LOOSE] = p
    state.counts[NUMBER] = len(state.who)


@part
def _settle(board: PieceArrays, state: PartitionState, p: int, a: int, b: int, target: float) -> None:
    """What few problems have, after a move was made: tied weights, links that differ, times on other devices."""
    block = state.block
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        state.tied[board.tied_of[e], a] -= 1
        state.tied[board.tied_of[e], b] += 1
    if not board.flat:
        state.counts[LINKS] += state.counts[MORE_LINKS]
        for c in range(len(block)):
            other = 0 if c == a else 0 if c == b else 1
            block[c, ENTER] += other * block[c, MORE_ENTER]
            block[c, LEAVE] += other * block[c, MORE_LEAVE]
        _refresh(board, state, target)
    if len(state.block_time) > 0:
        _count_times(state, p, a, -1)
        _count_times(state, p, b, 1)


@part
def _count_times(state: PartitionState, p: int, c: int, sign: int) -> None:
    if c < len(state.block_time):
        for d in range(state.cost.shape[1] - 1):
            if state.cost[p, d] < 0:
                state.unable[c, d] += sign
            else:
                state.block_time[c, d] += sign * state.cost[p, d]


@part
def _tied_bytes(board: PieceArrays, state: PartitionState, p: int, c: int, users: int) -> int:
    """Bytes of tied weights that a piece brings to a column (users = 0), or takes away with it (users = 1)."""
    size = 0
    for e in range(board.tied_ptr[p], board.tied_ptr[p + 1]):
        if state.tied[board.tied_of[e], c] == users:
            size += board.tied_bytes[board.tied_of[e]]
    return size


@part
def _swap_devices(
    board: PieceArrays, state: PartitionState, stage_devices: Indices, target: float, temperature: float
) -> bool:
    """Let a stage have another device, and the stage on that one, if any, its own -> True if it was taken."""
    block, dice = state.block, state.dice
    if state.stages == 0 or len(stage_devices) < 2:
        return False
    b = below(dice, state.stages)
    d, own = stage_devices[below(dice, len(stage_devices))], block[b, DEVICE]
    if d == own or state.unable[b, d] > 0:
        return False
    c = state.column_of[d]
    if c >= 0 and state.unable[c, own] > 0:
        return False
    before = _refresh(board, state, target)
    _exchange(board, state, b, c, d, own)
    change = _refresh(board, state, target) - before
    if change <= 0.0 or unit(dice) < np.exp(-change / temperature):
        return True
    _exchange(board, state, b, c, own, d)
    _refresh(board, state, target)
    return False


@part
def _exchange(board: PieceArrays, state: PartitionState, b: int, c: int, d: int, own: int) -> None:
    """Column b gets device d, column c (if any) gets b's own."""
    state.block[b, DEVICE] = d
    state.column_of[d] = b
    state.column_of[own] = c
    state.block[b, COMPUTE] = state.block_time[b, d]
    if c >= 0:
        state.block[c, DEVICE] = own
        state.block[c, COMPUTE] = state.block_time[c, own]
    if not board.flat:
        count_transfers(board, state)
