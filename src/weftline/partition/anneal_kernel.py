"""Simulated annealing on moves of single pieces, as one kernel that runs a given number of steps.

Energy: over all blocks the sum of 1e4 x^2 + 10 x, where x is the part by which a block exceeds the target (a little
below the best value). A piece may go to any level between its predecessors and its successors. A rejected move is
sometimes tried together with a move of one piece of the receiving block. Stages of unequal devices also swap devices.
The places of the pipeline are renumbered now and then in another topological order of the quotient graph.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.partition.anneal_state import (
    State,
    apply,
    block_cost,
    count_transfers,
    held_by,
    largest,
    weigh,
)
from weftline.partition.board import Board
from weftline.partition.dice import below, unit
from weftline.partition.levels import arrange
from weftline.simulate.jit import kernel, part

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
    board: Board,
    state: State,
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
    count, columns = len(state.column), len(state.device)
    target = _aim(best_value[0], floor)
    _loosen_all(board, state)
    total = _energies(board, state, target)
    temperature = hot
    factor = (cold / hot) ** (256.0 / max(1, steps))
    renumber = max(RENUMBER, 4 * count)
    unequal = len(state.block_time) > 0
    swap = SWAP if board.flat else max(4 * SWAP, len(board.maker))
    bar = np.float64(0.0603 * columns)
    for step in range(steps):
        if step & 255 == 0 and step > 0:
            temperature *= factor
            if step & 4095 == 0 and stop[0] != 0:
                return step
            if step % renumber < 256:
                arrange(board, state.column, len(state.at), state.dice, state.at, state.level)
                _loosen_all(board, state)
                total = _energies(board, state, target)
        if unequal and step % swap == 0:
            change = _swap_devices(board, state, stage_devices, target, temperature)
            moved = change < 1e17
            if moved:
                total = _energies(board, state, target)
        else:
            change = _step(board, state, target, temperature)
            moved = change < 1e17
            if moved:
                total += change
        if moved and total < bar:
            value = largest(board, state)
            if 0 <= value < best_value[0]:
                _keep(state, best)
                best_value[0] = value
                if value <= floor:
                    return step
                target = _aim(value, floor)
                total = _energies(board, state, target)
    return steps


@part
def _aim(value: int, floor: int) -> float:
    return max(np.float64(floor), max(1.0, AIM * value))


@part
def _keep(state: State, best: Indices) -> None:
    for p in range(len(best)):
        best[p] = state.device[state.column[p]]


@part
def _energy(cost: int, held: int, room: int, target: float) -> float:
    result = 0.0
    x = cost / target - 1.0
    if x > 0:
        result = 1e4 * x * x + 10.0 * x
    if held > room:
        y = (held - room) / max(1.0, np.float64(max(room, 1)))
        result += 1e4 * y * y + 10.0 * y + 1.0
    return result


@part
def _energies(board: Board, state: State, target: float) -> float:
    """All blocks from the start -> their sum."""
    total = LINK * state.links[0]
    for c in range(len(state.device)):
        cost = block_cost(board, state, c, state.compute[c], state.enter[c], state.leave[c])
        state.energy[c] = _energy(cost, state.held[c], state.room[state.device[c]], target)
        total += state.energy[c]
    return total


@part
def _loosen_all(board: Board, state: State) -> None:
    """Every piece counts as loose until a step finds that it is not."""
    for p in range(len(state.column)):
        state.loose[p] = p
        state.loose_spot[p] = p
    state.counts[0] = len(state.column)


@part
def _tighten(state: State, p: int) -> None:
    spot = state.loose_spot[p]
    state.counts[0] -= 1
    last = state.loose[state.counts[0]]
    state.loose[spot] = last
    state.loose_spot[last] = spot
    state.loose_spot[p] = -1


@part
def _loosen(state: State, p: int) -> None:
    if state.loose_spot[p] < 0:
        state.loose[state.counts[0]] = p
        state.loose_spot[p] = state.counts[0]
        state.counts[0] += 1


@part
def _loosen_around(board: Board, state: State, p: int) -> None:
    _loosen(state, p)
    for e in range(board.before_ptr[p], board.before_ptr[p + 1]):
        _loosen(state, board.before_of[e])
    for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
        _loosen(state, board.next_of[e])


@part
def _draw_level(board: Board, state: State, p: int) -> int:
    """A level that a piece may have; its own if there is no other, or by chance."""
    stages, hosts = len(state.at), len(state.device) - len(state.at)
    low, high = 0, 2 * stages
    for e in range(board.before_ptr[p], board.before_ptr[p + 1]):
        low = max(low, state.level[board.before_of[e]])
    for e in range(board.next_ptr[p], board.next_ptr[p + 1]):
        high = min(high, state.level[board.next_of[e]])
    if hosts == 0:
        low, high = low >> 1, min(high, 2 * stages - 1) >> 1
        if low >= high:
            return -1
        place = low + below(state.dice, high - low)
        if place >= state.level[p] >> 1:
            place += 1
        return 2 * place + 1
    if low >= high and hosts < 2:
        return -1
    return low + below(state.dice, high - low + 1)


@part
def _column_at(state: State, level: int) -> int:
    if level & 1:
        return state.at[level >> 1]
    return len(state.at) + below(state.dice, len(state.device) - len(state.at))


@part
def _possible(board: Board, state: State, p: int, b: int) -> bool:
    """A piece can run there, and not too many devices are in use then."""
    if board.time[p, state.device[b]] < 0:
        return False
    more = (1 if state.size[b] == 0 else 0) - (1 if state.size[state.column[p]] == 1 else 0)
    return bool(state.counts[1] + more <= board.stage_limit)


@part
def _change(board: Board, state: State, p: int, b: int, target: float) -> float:
    """Change of the energy if a piece moves; the move is weighed then."""
    a = state.column[p]
    weigh(board, state, p, b)
    held_a = state.held[a] - held_by(board, state, p, a, 1)
    held_b = state.held[b] + held_by(board, state, p, b, 0)
    compute_a = state.compute[a] - board.time[p, state.device[a]]
    compute_b = state.compute[b] + board.time[p, state.device[b]]
    enter_a, leave_a = state.enter[a] + state.more_enter[a], state.leave[a] + state.more_leave[a]
    enter_b, leave_b = state.enter[b] + state.more_enter[b], state.leave[b] + state.more_leave[b]
    cost_a = block_cost(board, state, a, compute_a, enter_a, leave_a)
    cost_b = block_cost(board, state, b, compute_b, enter_b, leave_b)
    change = _energy(cost_a, held_a, state.room[state.device[a]], target) - state.energy[a]
    change += _energy(cost_b, held_b, state.room[state.device[b]], target) - state.energy[b]
    if not board.flat:
        change += LINK * state.links[1]
        for c in range(len(state.device)):
            if c != a and c != b and (state.more_enter[c] != 0 or state.more_leave[c] != 0):
                enter, leave = state.enter[c] + state.more_enter[c], state.leave[c] + state.more_leave[c]
                cost = block_cost(board, state, c, state.compute[c], enter, leave)
                change += _energy(cost, state.held[c], state.room[state.device[c]], target) - state.energy[c]
    return change


@part
def _move(board: Board, state: State, p: int, b: int, level: int, target: float) -> None:
    """Make the weighed move and refresh the energies of blocks that changed."""
    a = state.column[p]
    apply(board, state, p, b, level)
    for c in range(len(state.device)):
        if c == a or c == b or (not board.flat and (state.more_enter[c] != 0 or state.more_leave[c] != 0)):
            cost = block_cost(board, state, c, state.compute[c], state.enter[c], state.leave[c])
            state.energy[c] = _energy(cost, state.held[c], state.room[state.device[c]], target)


@part
def _accepted(state: State, change: float, temperature: float) -> bool:
    return bool(change <= 0.0 or unit(state.dice) < np.exp(-change / temperature))


@part
def _step(board: Board, state: State, target: float, temperature: float) -> float:
    """One move, or two -> the change of the energy, 1e18 if nothing changed."""
    if state.counts[0] == 0:
        return 1e18
    p = state.loose[below(state.dice, state.counts[0])]
    level = _draw_level(board, state, p)
    if level < 0:
        _tighten(state, p)
        return 1e18
    b = _column_at(state, level)
    a, old = state.column[p], state.level[p]
    if a == b:
        if level != old:
            apply(board, state, p, b, level)
            _loosen_around(board, state, p)
        return 1e18
    if not _possible(board, state, p, b):
        return 1e18
    change = _change(board, state, p, b, target)
    if _accepted(state, change, temperature):
        _move(board, state, p, b, level, target)
        _loosen_around(board, state, p)
        return change
    if state.size[b] == 0 or unit(state.dice) >= COMPOUND:
        return 1e18
    _move(board, state, p, b, level, target)
    q = state.member[b, below(state.dice, state.size[b])]
    further = _draw_level(board, state, q)
    if q != p and further >= 0:
        c = _column_at(state, further)
        if c != b and _possible(board, state, q, c):
            second = _change(board, state, q, c, target)
            if _accepted(state, change + second, temperature):
                _move(board, state, q, c, further, target)
                _loosen_around(board, state, p)
                _loosen_around(board, state, q)
                return change + second
    weigh(board, state, p, a)
    _move(board, state, p, a, old, target)
    return 1e18


@part
def _swap_devices(board: Board, state: State, stage_devices: Indices, target: float, temperature: float) -> float:
    """Let a stage have another device, and the stage on that one, if any, its own -> change of the energy or 1e18."""
    stages = len(state.at)
    if stages == 0 or len(stage_devices) < 2:
        return 1e18
    b = below(state.dice, stages)
    d, own = stage_devices[below(state.dice, len(stage_devices))], state.device[b]
    if d == own or state.unable[b, d] > 0:
        return 1e18
    c = state.column_of[d]
    if c >= 0 and state.unable[c, own] > 0:
        return 1e18
    before = _energies(board, state, target)
    _exchange(board, state, b, c, d, own)
    change = _energies(board, state, target) - before
    if _accepted(state, change, temperature):
        return change
    _exchange(board, state, b, c, own, d)
    return 1e18


@part
def _exchange(board: Board, state: State, b: int, c: int, d: int, own: int) -> None:
    """Column b gets device d, column c (if any) gets b's own."""
    state.device[b] = d
    state.column_of[d] = b
    state.column_of[own] = c
    state.compute[b] = state.block_time[b, d]
    if c >= 0:
        state.device[c] = own
        state.compute[c] = state.block_time[c, own]
    if not board.flat:
        count_transfers(board, state)
