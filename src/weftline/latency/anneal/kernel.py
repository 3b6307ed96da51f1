"""Annealing over devices and orders as one kernel that makes a given number of trials.

A trial changes some devices or a range of the order; the schedule is booked again from the first change and given up as
soon as it is sure to be worse than what the dice allow. Memory of weights is a hard limit (while it is broken, only
what breaks it less is taken). The mix of moves follows what they gained for the positions they cost.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.devices import carry, excess_of, move_chosen, rebuild_order, swap_devices
from weftline.latency.anneal.moves import (
    BALL,
    GATHER,
    ONE,
    SHIFT,
    SUBTREE,
    SWAP,
    choose_ball,
    choose_subtree,
    choose_window,
    depth_first,
    gather,
    list_order,
    shift_op,
)
from weftline.latency.anneal.schedule import keep_trial, schedule, undo_trial
from weftline.latency.anneal.state import ASKED_BELOW, BEST_DEVICE, BEST_ORDER, EXCESS, STAMP, STEPS_DONE, VALUE, State
from weftline.latency.anneal.state import AnnealProblem as Board
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import below, unit

__all__ = ["NEVER", "anneal", "load", "make_order", "note_best"]

NEVER = 2**62
COOL = 128
"""Trials between two temperatures."""
ADAPT = 2048
"""Trials between two changes of the mix."""
FADE = 0.7
REBUILD = 0.15
"""How often a move of several ops also makes the order anew (less often in large graphs)."""
OVERHEAD = 12
"""What a trial costs beside its positions, in positions."""
MEND = 0.1
"""How often a move that breaks memory less is taken whatever it costs; else it may cost 3 %."""


@kernel
def make_order(board: Board, state: State, device: Indices, depth: bool, order: Indices) -> None:
    """Fill `order` for some devices."""
    if depth:
        depth_first(board.before_ptr, board.after_ptr, board.after_of, state.dice, order)
    else:
        list_order(
            board.cost, board.transfer, board.after_ptr, board.after_of, board.after_row, device, state.level, order
        )


@kernel
def load(board: Board, state: State, device: Indices, order: Indices) -> int:
    """Begin anew with these devices and this order -> the value (`board.penalty` or more: a link is missing)."""
    now, held = state.now, state.held
    state.arrival[:] = -1
    state.stored[0] = 0
    held[:] = 0
    state.users[:] = 0
    for p in range(len(order)):
        op = order[p]
        state.order[p] = op
        state.position[op] = p
        state.device[op] = device[op]
        carry(board.static_bytes, board.tied_ptr, board.tied_of, board.tied_bytes, held, state.users, op, device[op], 1)
    value, done, logged, _ = schedule(
        board.cost,
        board.edge_ptr,
        board.edge,
        board.transfer,
        board.bus,
        state.order,
        state.position,
        state.device,
        state.end,
        state.arrival,
        state.stored,
        state.fresh,
        state.kept,
        state.log,
        state.free,
        state.pending,
        0,
        len(order) + 1,
        NEVER,
        state.stride,
        board.buses,
        board.per_edge,
        board.sequential,
    )
    keep_trial(state.stored, state.fresh, state.arrival, state.log, 0, done, state.stride, logged)
    now[VALUE], now[EXCESS] = value, excess_of(held, state.room)
    if not state.asks and now[EXCESS] == 0 and value < min(board.penalty, state.best_value[0]):
        note_best(state)
    return int(value)


@kernel
def note_best(state: State) -> None:
    """The state becomes the best."""
    state.best_value[0] = state.now[VALUE]
    for i in range(len(state.order)):
        state.best[BEST_DEVICE, i] = state.device[i]
        state.best[BEST_ORDER, i] = state.order[i]


@part
def _adapt(state: State, usual: Ints) -> None:
    """Half of the mix stays as usual, half follows what moves gained for what they cost."""
    total = 0.0
    for kind in range(len(usual)):
        if usual[kind] > 0:
            total += (state.credit[kind] + 0.01) / state.effort[kind]
    for kind in range(len(usual)):
        if usual[kind] > 0:
            rate = (state.credit[kind] + 0.01) / state.effort[kind]
            state.weight[kind] = 0.5 * usual[kind] / usual.sum() + 0.5 * rate / total
            state.credit[kind] *= FADE
            state.effort[kind] = max(1.0, state.effort[kind] * FADE)
        else:
            state.weight[kind] = 0.0


@kernel
def anneal(board: Board, state: State, usual: Ints, steps: int, hot: float, cold: float, stop: Ints) -> int:
    """Cool from `hot` to `cold` (ns) over the steps -> steps done. `usual`: shares of the kinds of moves.

    Invariant, between two trials: `order` is topological and `position` its inverse; `end`, `arrival` and `stored` are
    what the simulator says about `order` and `device`; `held` and `users` follow from `device`; `now[VALUE]` and
    `now[EXCESS]` belong to them; BOOKED_FOR of an arrival is never below -1. A trial is kept whole or taken back whole.
    Where the state `asks`, it stops at a state that would be a new best but for its activations.

    `test_state_is_the_simulators` and `test_value_is_the_simulators` (tests/latency/test_anneal.py) compare it with
    `simulate_latency`, which tests/simulate/test_agreement.py compares with `simulate/reference.py`.
    """
    cost, edge_ptr, edge, transfer, bus = board.cost, board.edge_ptr, board.edge, board.transfer, board.bus
    before_ptr, before_of, after_ptr, after_of = board.before_ptr, board.before_of, board.after_ptr, board.after_of
    order, position, device, end, arrival = state.order, state.position, state.device, state.end, state.arrival
    stored, fresh, kept, log, free, pending = (
        state.stored,
        state.fresh,
        state.kept,
        state.log,
        state.free,
        state.pending,
    )
    changed, was, backup, mark, chosen, dice = (
        state.changed,
        state.was,
        state.backup,
        state.mark,
        state.chosen,
        state.dice,
    )
    now, weight, credit, effort, held, room = (
        state.now,
        state.weight,
        state.credit,
        state.effort,
        state.held,
        state.room,
    )
    static_bytes, tied_ptr, tied_of, tied_bytes = board.static_bytes, board.tied_ptr, board.tied_of, board.tied_bytes
    users, stride, buses, per_edge, sequential = (
        state.users,
        state.stride,
        board.buses,
        board.per_edge,
        board.sequential,
    )
    n, binds, penalty, tree, spare = len(order), state.binds, board.penalty, board.tree, state.spare
    best_value, asks = state.best_value, state.asks
    temperature, factor = hot, (cold / hot) ** (COOL / max(1.0, float(steps)))
    rebuild = REBUILD * min(1.0, 1000.0 / n)
    for step in range(steps):
        # 0. Temperature, mix of moves, a fresh stamp.
        if stop[0] != 0:
            return step
        if step % COOL == 0 and step > 0:
            temperature *= factor
        if now[STEPS_DONE] % ADAPT == 0:
            _adapt(state, usual)
        now[STEPS_DONE] += 1
        now[STAMP] = now[STAMP] + 1 if now[STAMP] < 2**31 - 2 else 1
        stamp = now[STAMP]
        if stamp == 1:
            mark[:] = 0
        # 1. Draw a kind of move and make it: positions low..high-1 of the order, `moved` ops on other devices.
        draw, kind = unit(dice), 0
        while kind < SWAP and draw >= weight[kind]:
            draw -= weight[kind]
            kind += 1
        low, high, moved = 0, 0, 0
        if kind == SHIFT:
            low, high = shift_op(
                before_ptr, before_of, after_ptr, after_of, order, position, backup, dice, below(dice, n)
            )
        elif kind == GATHER:
            low, high = gather(
                before_ptr,
                before_of,
                after_ptr,
                after_of,
                tree,
                order,
                position,
                device,
                mark,
                backup,
                spare,
                dice,
                stamp,
            )
        elif kind == SWAP:
            moved = swap_devices(board, state)
        else:
            count = 1
            if kind == ONE:
                chosen[0] = below(dice, n)
            elif kind == BALL:
                count = choose_ball(before_ptr, before_of, after_ptr, after_of, device, mark, chosen, dice, stamp)
            elif kind == SUBTREE:
                count = choose_subtree(tree, chosen, dice)
            else:
                count = choose_window(order, device, chosen, dice)
            if count > 0:
                moved = move_chosen(board, state, count, stamp)
            if moved > 0 and kind == ONE:
                if unit(dice) < 0.3:
                    low, high = shift_op(
                        before_ptr, before_of, after_ptr, after_of, order, position, backup, dice, chosen[0]
                    )
            elif moved > 1 and unit(dice) < rebuild:
                low, high = rebuild_order(board, state)
        effort[kind] += OVERHEAD
        if moved == 0 and low == high:
            continue
        # 2. What the move may cost: the limit of the temperature, and bytes above the limits of memory.
        first, quiet = (low if low < high else n), (high if moved == 0 else n + 1)
        for i in range(moved):
            first = min(first, position[changed[i]])
        limit, excess = now[VALUE] - int(temperature * np.log(1.0 - unit(dice))), now[EXCESS]
        if binds and moved > 0:
            for i in range(moved):
                op = changed[i]
                carry(static_bytes, tied_ptr, tied_of, tied_bytes, held, users, op, was[i], -1)
                carry(static_bytes, tied_ptr, tied_of, tied_bytes, held, users, op, device[op], 1)
            excess = excess_of(held, room)
            if excess < now[EXCESS]:
                limit = (
                    NEVER if now[VALUE] >= penalty or unit(dice) < MEND else max(limit, now[VALUE] + now[VALUE] // 32)
                )
        # 3. Book again from the first change.
        done, logged, value, as_it_was = first - first % stride, 0, NEVER, False
        if excess <= now[EXCESS]:
            value, done, logged, as_it_was = schedule(
                cost,
                edge_ptr,
                edge,
                transfer,
                bus,
                order,
                position,
                device,
                end,
                arrival,
                stored,
                fresh,
                kept,
                log,
                free,
                pending,
                first,
                quiet,
                limit,
                stride,
                buses,
                per_edge,
                sequential,
            )
            if as_it_was:
                value = now[VALUE]
        begin_at = first - first % stride
        effort[kind] += done - begin_at
        # 4. Keep it,
        if excess <= now[EXCESS] and value <= limit:
            keep_trial(stored, fresh, arrival, log, begin_at, done, stride, logged)
            if value < now[VALUE]:
                credit[kind] += min(1.0, (now[VALUE] - value) / temperature)
            now[VALUE], now[EXCESS] = value, excess
            if value < best_value[0] and excess == 0 and value < penalty:
                if not asks:
                    note_best(state)
                elif value < now[ASKED_BELOW]:
                    return step + 1
            continue
        # 5. or take it back, in the opposite order.
        undo_trial(order, end, kept, arrival, log, begin_at, done, logged)
        for p in range(low, high):
            order[p] = backup[p]
            position[order[p]] = p
        for i in range(moved):
            op = changed[i]
            if binds:
                carry(static_bytes, tied_ptr, tied_of, tied_bytes, held, users, op, device[op], -1)
                carry(static_bytes, tied_ptr, tied_of, tied_bytes, held, users, op, was[i], 1)
            device[op] = was[i]
    return steps
