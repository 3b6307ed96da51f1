"""Moves of the annealer over cyclic orders: neighbours in a device's order change places, alone or in a small group.

Every move is a list of exchanges of neighbours, so it is undone by the same list backwards. An exchange across the end
of a window changes the lags of both. Blocks that share several devices pass each other on all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.schedule.cyclic.order import CyclicOrder, Floats, Pattern
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.random import Dice, below, make_dice, unit

__all__ = ["Moves", "excess_of", "exchange", "make_moves", "move", "undo_moves"]

MOST_EXCHANGES_OF_A_MOVE = 4096
"""Length of the log; exchanges beyond it are not made."""
LOG_LENGTH, CRITICAL_SLOTS, TOUCHED_CRITICAL = range(3)
"""Slots of `Moves.state`."""


class Moves(NamedTuple):
    """What a trial did, and what it may aim at."""

    log: Indices
    """Positions that were exchanged with their right neighbour."""
    excess: Floats
    """Device -> memory above its limit, in units."""
    critical: Indices
    """Slots whose order arc stands on the critical cycle."""
    is_critical: Indices
    dice: Dice
    state: Ints
    """Exchanges in the log, critical slots, whether a critical arc was touched."""


def make_moves(pattern: Pattern, seed: int) -> Moves:
    """Nothing done yet."""
    slots = len(pattern.slot_item)
    return Moves(
        np.zeros(MOST_EXCHANGES_OF_A_MOVE, np.int32),
        np.zeros(len(pattern.limit)),
        np.zeros(slots, np.int32),
        np.zeros(slots, np.int32),
        make_dice(seed),
        np.zeros(3, np.int64),
    )


@part
def right_of(pattern: Pattern, order: CyclicOrder, t: int) -> int:
    """The next position on the same device."""
    device = pattern.slot_device[order.slot[t]]
    return t + 1 if t + 1 < pattern.device_ptr[device + 1] else pattern.device_ptr[device]


@part
def left_of(pattern: Pattern, order: CyclicOrder, t: int) -> int:
    """The position before on the same device."""
    device = pattern.slot_device[order.slot[t]]
    return t - 1 if t > pattern.device_ptr[device] else pattern.device_ptr[device + 1] - 1


@part
def _exchange(order: CyclicOrder, t: int, right: int) -> None:
    a, b = order.slot[t], order.slot[right]
    order.slot[t], order.slot[right] = b, a
    order.position[a], order.position[b] = right, t
    if right < t:
        order.lag[a] += 1
        order.lag[b] -= 1


@part
def exchange(pattern: Pattern, order: CyclicOrder, moves: Moves, t: int) -> None:
    """Let a position and its right neighbour change places, and note it."""
    right = right_of(pattern, order, t)
    if right == t or moves.state[LOG_LENGTH] >= len(moves.log):
        return
    left = left_of(pattern, order, t)
    for place in (left, t, right):
        if moves.is_critical[order.slot[place]]:
            moves.state[TOUCHED_CRITICAL] = 1
    _exchange(order, t, right)
    moves.log[moves.state[LOG_LENGTH]] = t
    moves.state[LOG_LENGTH] += 1


@part
def undo_moves(pattern: Pattern, order: CyclicOrder, moves: Moves) -> None:
    """Take back what the log says."""
    for j in range(moves.state[LOG_LENGTH] - 1, -1, -1):
        t = moves.log[j]
        _exchange(order, t, right_of(pattern, order, t))
    moves.state[LOG_LENGTH] = 0


@part
def excess_of(pattern: Pattern, order: CyclicOrder, device: int) -> float:
    """Memory above the limit, in units; only the order counts."""
    first, last = pattern.device_ptr[device], pattern.device_ptr[device + 1]
    level = 0
    for t in range(first, last):
        slot = order.slot[t]
        level -= pattern.slot_change[slot] * order.lag[slot]
    peak = level
    for t in range(first, last):
        level += pattern.slot_change[order.slot[t]]
        peak = max(peak, level)
    return float(max(0, peak - pattern.limit[device]) / pattern.unit[device])


@part
def _pass(pattern: Pattern, order: CyclicOrder, moves: Moves, t: int) -> None:
    """Exchange a position with its right neighbour, on all devices that both items hold."""
    right = right_of(pattern, order, t)
    a, b = order.slot[t], order.slot[right]
    item, other = pattern.slot_item[a], pattern.slot_item[b]
    if right == t or item == other:
        return
    height = order.lag[a] - order.lag[b] + (1 if right < t else 0)
    exchange(pattern, order, moves, t)
    if pattern.slot_ptr[item + 1] - pattern.slot_ptr[item] == 1:
        return
    to_right = unit(moves.dice) < 0.5
    for s in range(pattern.slot_ptr[item], pattern.slot_ptr[item + 1]):
        for o in range(pattern.slot_ptr[other], pattern.slot_ptr[other + 1]):
            if s != a and pattern.slot_device[s] == pattern.slot_device[o]:
                _pass_on(pattern, order, moves, s, o, height, to_right)


@part
def _pass_on(pattern: Pattern, order: CyclicOrder, moves: Moves, s: int, o: int, height: int, to_right: bool) -> None:
    """Move slot s right (or o left) until it has passed the other for the repetition that the height means."""
    device = pattern.slot_device[s]
    for _ in range(2 * (pattern.device_ptr[device + 1] - pattern.device_ptr[device])):
        t = order.position[s] if to_right else left_of(pattern, order, order.position[o])
        right = right_of(pattern, order, t)
        met = order.slot[t] == s and order.slot[right] == o
        reached = met and order.lag[s] - order.lag[o] + (1 if right < t else 0) == height
        exchange(pattern, order, moves, t)
        if reached:
            return


@part
def _shift(pattern: Pattern, order: CyclicOrder, moves: Moves, slot: int, steps: int, to_right: bool) -> None:
    for _ in range(steps):
        t = order.position[slot]
        _pass(pattern, order, moves, t if to_right else left_of(pattern, order, t))


@part
def _shift_everywhere(pattern: Pattern, order: CyclicOrder, moves: Moves, item: int, to_right: bool) -> None:
    """Shift an item by one position on all its devices, or on those that the dice choose."""
    every = unit(moves.dice) < 0.5
    for slot in range(pattern.slot_ptr[item], pattern.slot_ptr[item + 1]):
        if every or unit(moves.dice) < 0.5:
            t = order.position[slot]
            exchange(pattern, order, moves, t if to_right else left_of(pattern, order, t))


@part
def _anywhere(pattern: Pattern, moves: Moves, near: int) -> int:
    """A random position on a device next to one (70 %), or anywhere."""
    devices = len(pattern.limit)
    if unit(moves.dice) < 0.7:
        device = near + (1 if unit(moves.dice) < 0.5 else -1)
        if 0 <= device < devices:
            size = pattern.device_ptr[device + 1] - pattern.device_ptr[device]
            if size > 0:
                return int(pattern.device_ptr[device] + below(moves.dice, size))
    return below(moves.dice, len(pattern.slot_item))


@part
def move(pattern: Pattern, order: CyclicOrder, moves: Moves) -> None:
    """Make one random move."""
    moves.state[LOG_LENGTH] = 0
    moves.state[TOUCHED_CRITICAL] = 0
    if moves.state[CRITICAL_SLOTS] > 0 and unit(moves.dice) < 0.5:
        t = int(order.position[moves.critical[below(moves.dice, moves.state[CRITICAL_SLOTS])]])
    else:
        t = below(moves.dice, len(order.slot))
    slot = order.slot[t]
    item = pattern.slot_item[slot]
    device = pattern.slot_device[slot]
    if pattern.slot_ptr[item + 1] - pattern.slot_ptr[item] > 1 and unit(moves.dice) < 0.5:
        _shift_everywhere(pattern, order, moves, item, unit(moves.dice) < 0.5)
    elif unit(moves.dice) < 0.3:
        _shift(pattern, order, moves, slot, 1 + below(moves.dice, 4), unit(moves.dice) < 0.5)
    else:
        _pass(pattern, order, moves, t)
    if unit(moves.dice) < 0.25:
        for _ in range(1 + below(moves.dice, 2)):
            _pass(pattern, order, moves, _anywhere(pattern, moves, device))
