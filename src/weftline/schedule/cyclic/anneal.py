"""Annealing over cyclic orders: the least period of a repetend of U micro-batches, under memory limits.

In: a pattern, a cyclic order to start from, a setting, a number of trials. Out: the best order without excess memory
and its period (floating point; `cyclic_exact.exact_period` says the truth). Memory may be exceeded on the way, for a
price that rises; the dice fix in advance up to which period a trial is taken, so most trials end after one cycle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.schedule.cyclic.moves import (
    CRITICAL_SLOTS,
    LOG_LENGTH,
    TOUCHED_CRITICAL,
    Moves,
    excess_of,
    make_moves,
    move,
    undo_moves,
)
from weftline.schedule.cyclic.order import CyclicOrder, Floats, Pattern
from weftline.schedule.cyclic.ratio import (
    CYCLE_SLOTS,
    DEADLOCK,
    Potentials,
    make_potentials,
    push,
    push_all,
    settle,
    start_trial,
    undo_trial,
)
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import unit

__all__ = ["SETTINGS", "Annealed", "Setting", "anneal"]

HOT, COLD, PRICE, LAST_PRICE = range(4)
"""Slots of the setting as the kernel gets it."""
TRIALS_PER_TEMPERATURE = 64
"""Trials between two temperatures."""
FIRST_STEP_OF_BOUND = 0.002
"""First step down when a critical cycle was broken, of the bound."""
MARGIN_OF_BOUND = 1e-9
"""Starts that move by less (of the bound) do not move."""


@dataclass(frozen=True)
class Setting:
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


@dataclass(frozen=True)
class Annealed:
    """The best order of a run without excess memory, or None."""

    order: CyclicOrder | None
    ratio: float


def anneal(
    pattern: Pattern, order: CyclicOrder, setting: Setting, least: float, *, trials: int, seed: int, stop: Ints
) -> Annealed:
    """One run; it ends at the length `least`, which nothing can beat, after so many trials, or when `stop` rises."""
    work = CyclicOrder(order.slot.copy(), order.position.copy(), order.lag.copy())
    best_slot, best_lag = np.zeros_like(order.slot), np.zeros_like(order.lag)
    schedule = np.array([setting.hot, setting.cold, setting.price, setting.last_price])
    ratio = _anneal(
        pattern,
        work,
        make_potentials(pattern),
        make_moves(pattern, seed),
        schedule,
        float(least),
        trials,
        best_slot,
        best_lag,
        stop,
    )
    if ratio >= DEADLOCK:
        return Annealed(None, ratio)
    position = np.empty_like(best_slot)
    position[best_slot] = np.arange(len(best_slot), dtype=np.int32)
    return Annealed(CyclicOrder(best_slot, position, best_lag), ratio)


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
def _measure(pattern: Pattern, order: CyclicOrder, now: Potentials, moves: Moves, least: float) -> float:
    """The ratio of the whole order; also its critical cycle."""
    start_trial(now)
    push_all(now)
    now.state[CYCLE_SLOTS] = 0
    ratio = settle(pattern, order, now, least, DEADLOCK / 10, MARGIN_OF_BOUND * least)
    _note_critical(now, moves)
    return ratio


@part
def _measure_below(
    pattern: Pattern, order: CyclicOrder, now: Potentials, moves: Moves, least: float, ratio: float
) -> float:
    """The ratio of an order that is known to be at most `ratio`, at which the starts hold.

    From far below it would meet many cycles on its way up: so in steps down, until one is too far.
    """
    step = FIRST_STEP_OF_BOUND * least
    while ratio > least:
        lower = max(least, ratio - step)
        start_trial(now)
        push_all(now)
        now.state[CYCLE_SLOTS] = 0
        found = settle(pattern, order, now, lower, DEADLOCK / 10, MARGIN_OF_BOUND * least)
        _note_critical(now, moves)
        if found > lower:
            return found
        ratio = lower
        step *= 2
    return ratio


@part
def _new_excess(pattern: Pattern, order: CyclicOrder, moves: Moves, excess: Floats, mark: Ints, trial: int) -> float:
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
def _push_moved(pattern: Pattern, order: CyclicOrder, now: Potentials, moves: Moves) -> None:
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


@kernel
def _anneal(
    pattern: Pattern,
    order: CyclicOrder,
    now: Potentials,
    moves: Moves,
    schedule: Floats,
    least: float,
    trials: int,
    best_slot: Indices,
    best_lag: Ints,
    stop: Ints,
) -> float:
    devices = len(pattern.limit)
    excess, mark = np.zeros(devices), np.full(devices, -1)
    total = 0.0
    for device in range(devices):
        moves.excess[device] = excess_of(pattern, order, device)
        total += moves.excess[device]
    ratio = _measure(pattern, order, now, moves, least)
    best = DEADLOCK
    if ratio >= DEADLOCK:
        return best
    enough, margin = least * (1 + 1e-8), MARGIN_OF_BOUND * least
    hot, price = schedule[HOT], schedule[PRICE]
    for trial in range(trials):
        if total < 1e-9 and ratio < best * (1 - 1e-9):
            best = ratio
            best_slot[:] = order.slot
            best_lag[:] = order.lag
            if best <= enough:
                break
        if trial % TRIALS_PER_TEMPERATURE == 0:
            share = trial / trials
            hot = schedule[HOT] * (schedule[COLD] / schedule[HOT]) ** share
            price = schedule[PRICE] * (schedule[LAST_PRICE] / schedule[PRICE]) ** share
            if stop[0]:
                break
        move(pattern, order, moves)
        change = _new_excess(pattern, order, moves, excess, mark, trial)
        allowed = hot * -np.log(1.0 - unit(moves.dice)) + ratio / least - price * change
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
        for j in range(moves.state[LOG_LENGTH]):
            device = pattern.slot_device[order.slot[moves.log[j]]]
            moves.excess[device] = excess[device]
        if trial % 1024 == 0:
            total = moves.excess.sum()
            now.start[:] = now.start - now.start.min()
    return best
