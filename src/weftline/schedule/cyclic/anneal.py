"""Annealing over cyclic orders: the least period of a repetend of U micro-batches, under memory limits.

In: a pattern, a cyclic order to start from, a setting, a number of trials. Out: the best order without excess memory
and its period (floating point; `exact_period` is exact). Memory may be exceeded in between, for a price that
rises; the random numbers fix in advance up to which period a trial is taken, so most trials end after one cycle.

A move lets neighbours in a device's order change places, alone or in a small group. It is a list of exchanges of
neighbours, so it is undone by the same list backwards. An exchange across the end of a window changes the lags of both.
Blocks that share several devices pass each other on all of them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.schedule.cyclic.order import (
    CYCLE_SLOTS,
    DEADLOCK_RATIO,
    CyclicOrder,
    CyclicPattern,
    Floats,
    Potentials,
    excess_of,
    left_of,
    make_potentials,
    push,
    push_all,
    right_of,
    settle,
    start_trial,
    undo_trial,
)
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import RandomGenerator, below, make_generator, unit

__all__ = ["SETTINGS", "AnnealRun", "Annealed", "Setting", "anneal"]

TRIALS_PER_TEMPERATURE = 64
"""Trials between two temperatures."""
FIRST_STEP_OF_BOUND = 0.002
"""First step down when a critical cycle was broken, of the bound."""
MARGIN_OF_BOUND = 1e-9
"""Starts that move by less (of the bound) do not move."""
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
    random: RandomGenerator
    state: Ints
    """Exchanges in the log, critical slots, whether a critical arc was touched."""


def make_moves(pattern: CyclicPattern, seed: int) -> Moves:
    """Nothing done yet."""
    slots = len(pattern.slot_item)
    return Moves(
        np.zeros(MOST_EXCHANGES_OF_A_MOVE, np.int32),
        np.zeros(len(pattern.limit)),
        np.zeros(slots, np.int32),
        np.zeros(slots, np.int32),
        make_generator(seed),
        np.zeros(3, np.int64),
    )


@part
def _exchange(order: CyclicOrder, t: int, right: int) -> None:
    a, b = order.slot[t], order.slot[right]
    order.slot[t], order.slot[right] = b, a
    order.position[a], order.position[b] = right, t
    if right < t:
        order.lag[a] += 1
        order.lag[b] -= 1


@part
def exchange(pattern: CyclicPattern, order: CyclicOrder, moves: Moves, t: int) -> None:
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
def undo_moves(pattern: CyclicPattern, order: CyclicOrder, moves: Moves) -> None:
    """Take back what the log says."""
    for j in range(moves.state[LOG_LENGTH] - 1, -1, -1):
        t = moves.log[j]
        _exchange(order, t, right_of(pattern, order, t))
    moves.state[LOG_LENGTH] = 0


@part
def _pass(pattern: CyclicPattern, order: CyclicOrder, moves: Moves, t: int) -> None:
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
    to_right = unit(moves.random) < 0.5
    for s in range(pattern.slot_ptr[item], pattern.slot_ptr[item + 1]):
        for o in range(pattern.slot_ptr[other], pattern.slot_ptr[other + 1]):
            if s != a and pattern.slot_device[s] == pattern.slot_device[o]:
                _pass_on(pattern, order, moves, s, o, height, to_right)


@part
def _pass_on(
    pattern: CyclicPattern, order: CyclicOrder, moves: Moves, s: int, o: int, height: int, to_right: bool
) -> None:
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
def _shift(pattern: CyclicPattern, order: CyclicOrder, moves: Moves, slot: int, steps: int, to_right: bool) -> None:
    for _ in range(steps):
        t = order.position[slot]
        _pass(pattern, order, moves, t if to_right else left_of(pattern, order, t))


@part
def _shift_everywhere(pattern: CyclicPattern, order: CyclicOrder, moves: Moves, item: int, to_right: bool) -> None:
    """Shift an item by one position on all its devices, or on those chosen at random."""
    every = unit(moves.random) < 0.5
    for slot in range(pattern.slot_ptr[item], pattern.slot_ptr[item + 1]):
        if every or unit(moves.random) < 0.5:
            t = order.position[slot]
            exchange(pattern, order, moves, t if to_right else left_of(pattern, order, t))


@part
def _anywhere(pattern: CyclicPattern, moves: Moves, near: int) -> int:
    """A random position on a device next to one (70 %), or anywhere."""
    devices = len(pattern.limit)
    if unit(moves.random) < 0.7:
        device = near + (1 if unit(moves.random) < 0.5 else -1)
        if 0 <= device < devices:
            size = pattern.device_ptr[device + 1] - pattern.device_ptr[device]
            if size > 0:
                return int(pattern.device_ptr[device] + below(moves.random, size))
    return below(moves.random, len(pattern.slot_item))


@part
def move(pattern: CyclicPattern, order: CyclicOrder, moves: Moves) -> None:
    """Make one random move."""
    moves.state[LOG_LENGTH] = 0
    moves.state[TOUCHED_CRITICAL] = 0
    if moves.state[CRITICAL_SLOTS] > 0 and unit(moves.random) < 0.5:
        t = int(order.position[moves.critical[below(moves.random, moves.state[CRITICAL_SLOTS])]])
    else:
        t = below(moves.random, len(order.slot))
    slot = order.slot[t]
    item = pattern.slot_item[slot]
    device = pattern.slot_device[slot]
    if pattern.slot_ptr[item + 1] - pattern.slot_ptr[item] > 1 and unit(moves.random) < 0.5:
        _shift_everywhere(pattern, order, moves, item, unit(moves.random) < 0.5)
    elif unit(moves.random) < 0.3:
        _shift(pattern, order, moves, slot, 1 + below(moves.random, 4), unit(moves.random) < 0.5)
    else:
        _pass(pattern, order, moves, t)
    if unit(moves.random) < 0.25:
        for _ in range(1 + below(moves.random, 2)):
            _pass(pattern, order, moves, _anywhere(pattern, moves, device))


class Setting(NamedTuple):
    """Temperatures and prices of excess memory: first and last, geometric between; periods in units of the bound."""

    hot: float
    cold: float
    price: float
    last_price: float


SETTINGS = (
    Setting(0.02, 0.0005, 0.005, 0.05),
    Setting(0.05, 0.001, 0.02, 0.1),
    Setting(0.1, 0.001, 0.1, 0.1),
    Setting(0.05, 0.001, 0.05, 0.05),
)
"""The first is best with room in memory, the others where it is tight."""


class AnnealRun(NamedTuple):
    """What one run is asked for."""

    setting: Setting
    least: float
    """Length that nothing can beat: the run ends there."""
    trials: int
    stop: Ints
    """(1,): not 0 = end now."""


class Annealed(NamedTuple):
    """The best order of a run without excess memory, or None."""

    order: CyclicOrder | None
    ratio: float


def anneal(
    pattern: CyclicPattern, order: CyclicOrder, setting: Setting, least: float, *, trials: int, seed: int, stop: Ints
) -> Annealed:
    """One run; it ends at the length `least`, which nothing can beat, after so many trials, or when `stop` rises."""
    work = CyclicOrder(order.slot.copy(), order.position.copy(), order.lag.copy())
    best = CyclicOrder(np.zeros_like(order.slot), np.zeros_like(order.position), np.zeros_like(order.lag))
    run = AnnealRun(setting, float(least), trials, stop)
    ratio = _anneal(pattern, work, make_potentials(pattern), make_moves(pattern, seed), run, best)
    if ratio >= DEADLOCK_RATIO:
        return Annealed(None, ratio)
    best.position[best.slot] = np.arange(len(best.slot), dtype=np.int32)
    return Annealed(best, ratio)


@part
def _note_critical(now: Potentials, moves: Moves) -> None:
    """The cycle that the last trial found becomes the critical one."""
    for j in range(moves.state[CRITICAL_SLOTS]):
        moves.is_critical[moves.critical[j]] = 0
    moves.state[CRITICAL_SLOTS] = now.state[CYCLE_SLOTS]
    for j in range(now.state[CYCLE_SLOTS]):
        moves.critical[j] = now.cycle[j]
        moves.is_critical[now.cycle[j]] = 1


@part
def _measure(pattern: CyclicPattern, order: CyclicOrder, now: Potentials, moves: Moves, least: float) -> float:
    """The ratio of the whole order; also its critical cycle."""
    start_trial(now)
    push_all(now)
    now.state[CYCLE_SLOTS] = 0
    ratio = settle(pattern, order, now, least, DEADLOCK_RATIO / 10, MARGIN_OF_BOUND * least)
    _note_critical(now, moves)
    return ratio


@part
def _measure_below(
    pattern: CyclicPattern, order: CyclicOrder, now: Potentials, moves: Moves, least: float, ratio: float
) -> float:
    """The ratio of an order that is known to be at most `ratio`, at which the starts hold.

    From far below it would meet many cycles: so in steps down, until one is too far.
    """
    step = FIRST_STEP_OF_BOUND * least
    while ratio > least:
        lower = max(least, ratio - step)
        start_trial(now)
        push_all(now)
        now.state[CYCLE_SLOTS] = 0
        found = settle(pattern, order, now, lower, DEADLOCK_RATIO / 10, MARGIN_OF_BOUND * least)
        _note_critical(now, moves)
        if found > lower:
            return found
        ratio = lower
        step *= 2
    return ratio


@part
def _new_excess(
    pattern: CyclicPattern, order: CyclicOrder, moves: Moves, excess: Floats, mark: Ints, trial: int
) -> float:
    """Change of the excess memory by the moves of the log; the devices' own in `excess`, marked by the trial."""
    change = 0.0
    for j in range(moves.state[LOG_LENGTH]):
        device = pattern.slot_device[order.slot[moves.log[j]]]
        if mark[device] != trial:
            mark[device] = trial
            excess[device] = excess_of(pattern, order, device)
            change += excess[device] - moves.excess[device]
    return change


@part
def _push_moved(pattern: CyclicPattern, order: CyclicOrder, now: Potentials, moves: Moves) -> None:
    """Queue the items whose order arcs the moves of the log changed."""
    for j in range(moves.state[LOG_LENGTH]):
        t = moves.log[j]
        device = pattern.slot_device[order.slot[t]]
        first, last = pattern.device_ptr[device], pattern.device_ptr[device + 1]
        for step in range(-1, 2):
            place = t + step
            if place < first:
                place = last - 1
            elif place >= last:
                place = first
            push(now, pattern.slot_item[order.slot[place]])


@part
def _keep_best(order: CyclicOrder, best: CyclicOrder) -> None:
    best.slot[:] = order.slot
    best.lag[:] = order.lag


@part
def _keep_excess(pattern: CyclicPattern, order: CyclicOrder, moves: Moves, excess: Floats) -> None:
    """The devices of the log have the new excess."""
    for j in range(moves.state[LOG_LENGTH]):
        device = pattern.slot_device[order.slot[moves.log[j]]]
        moves.excess[device] = excess[device]


@kernel
def _anneal(
    pattern: CyclicPattern, order: CyclicOrder, now: Potentials, moves: Moves, run: AnnealRun, best: CyclicOrder
) -> float:
    """Run -> the ratio of the best order, which is kept; between trials `now.start` holds for `order` at `ratio`."""
    setting, least, trials = run.setting, run.least, run.trials
    devices = len(pattern.limit)
    excess, mark = np.zeros(devices), np.full(devices, -1)
    total = 0.0
    for device in range(devices):
        moves.excess[device] = excess_of(pattern, order, device)
        total += moves.excess[device]
    ratio = _measure(pattern, order, now, moves, least)
    best_ratio = DEADLOCK_RATIO
    if ratio >= DEADLOCK_RATIO:
        return best_ratio
    enough, margin = least * (1 + 1e-8), MARGIN_OF_BOUND * least
    hot, price = setting.hot, setting.price
    for trial in range(trials):
        if total < 1e-9 and ratio < best_ratio * (1 - 1e-9):
            best_ratio = ratio
            _keep_best(order, best)
            if best_ratio <= enough:
                break
        if trial % TRIALS_PER_TEMPERATURE == 0:
            share = trial / trials
            hot = setting.hot * (setting.cold / setting.hot) ** share
            price = setting.price * (setting.last_price / setting.price) ** share
            if run.stop[0]:
                break
        move(pattern, order, moves)
        change = _new_excess(pattern, order, moves, excess, mark, trial)
        allowed = hot * -np.log(1.0 - unit(moves.random)) + ratio / least - price * change
        if moves.state[LOG_LENGTH] == 0 or allowed < 1.0:
            undo_moves(pattern, order, moves)
            continue
        start_trial(now)
        _push_moved(pattern, order, now, moves)
        found = settle(pattern, order, now, ratio, allowed * least, margin)
        if found > allowed * least:
            undo_trial(now)
            undo_moves(pattern, order, moves)
            continue
        if found > ratio:
            _note_critical(now, moves)
            ratio = found
        elif moves.state[TOUCHED_CRITICAL]:
            ratio = _measure_below(pattern, order, now, moves, least, ratio)
        total += change
        _keep_excess(pattern, order, moves, excess)
        if trial % 1024 == 0:
            total = moves.excess.sum()
            now.start[:] = now.start - now.start.min()
    return best_ratio
