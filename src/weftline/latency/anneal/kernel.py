"""Annealing over devices and orders as one kernel that makes a given number of trials.

A trial changes some devices or a range of the order; the schedule is booked again from the first position that changed
and given up as soon as its value is sure to pass a limit: what is worse than chance allows at this temperature. It ends
early too when an order that changed nothing has been seen to the end of the change. Then it is kept or taken back. The
times are those of `simulate.kernels.latency.run_order`, to the nanosecond: the inputs that are missing on an op's
device are booked in order of their producers' ends, then the op. Memory of weights is a hard limit (while it is broken,
only what breaks it less is taken). The mix of moves follows what they gained for the positions they cost.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.moves import MOVE_SWAP, carry, depth_first, excess_of, list_order, make_move
from weftline.latency.anneal.state import (
    ASKED_BELOW,
    BEST_DEVICE,
    BEST_ORDER,
    BOOKED_FOR,
    EDGE_MAKER,
    EDGE_ROW,
    EDGE_TENSOR,
    NOW_EXCESS,
    NOW_STAMP,
    NOW_VALUE,
    READY_AT,
    RUN_TIME,
    STEPS_DONE,
    TIME_AFTER,
    AnnealProblem,
    PlacementState,
)
from weftline.simulate.kernels.jit import kernel, part, uncounted_part
from weftline.simulate.kernels.random import unit
from weftline.simulate.kernels.sorting import sort_rows
from weftline.simulate.sentinels import NEVER

__all__ = ["anneal", "load", "make_order", "note_best"]

LATEST_TIME = 2**61
MOST_INSERTED = 24
"""Up to so many missing inputs of one op are kept in order by insertion."""
MADE_AT, SEND_LENGTH, CAME_FROM = 0, 1, 2
"""`pending[i]`, a transfer to book: when its tensor is made (ns), how long it takes (ns), slot * K + the device it is
on."""
LOG_SLOT, OLD_TIME, OLD_OP = 0, 1, 2
"""`log[i]`, an arrival before the trial: where it stands, and its READY_AT and BOOKED_FOR."""
COOLING_STEPS = 128
"""Trials between two temperatures."""
MIX_STEPS = 2048
"""Trials between two changes of the mix."""
CREDIT_FADE = 0.7
REBUILD_SHARE = 0.15
"""How often a move of several ops also makes the order anew (less often in large graphs)."""
TRIAL_OVERHEAD = 12
"""What a trial costs beside its positions, in positions."""
MEND_SHARE = 0.1
"""How often a move that breaks memory less is taken whatever it costs; else it may cost 3 %."""
LAST_STAMP = 2**31 - 2


@kernel
def make_order(problem: AnnealProblem, state: PlacementState, device: Indices, depth: bool, order: Indices) -> None:
    """Fill `order` for some devices."""
    if depth:
        depth_first(problem, state.random, order)
    else:
        list_order(problem, device, state.level, order)


@kernel
def load(problem: AnnealProblem, state: PlacementState, device: Indices, order: Indices) -> int:
    """Begin anew with these devices and this order -> the value (`problem.penalty` or more: a link is missing)."""
    state.arrival[:] = -1
    state.stored[0] = 0
    state.held[:] = 0
    state.users[:] = 0
    for p in range(len(order)):
        op = order[p]
        state.order[p] = op
        state.position[op] = p
        state.device[op] = device[op]
        carry(problem, state, op, device[op], 1)
    value, done, logged, _ = schedule(problem, state, 0, len(order) + 1, NEVER)
    keep_trial(state, 0, done, logged)
    state.now[NOW_VALUE], state.now[NOW_EXCESS] = value, excess_of(state.held, state.room)
    if not state.asks and state.now[NOW_EXCESS] == 0 and value < min(problem.penalty, state.best_value[0]):
        note_best(state)
    return int(value)


@kernel
def note_best(state: PlacementState) -> None:
    """The state becomes the best."""
    state.best_value[0] = state.now[NOW_VALUE]
    for i in range(len(state.order)):
        state.best[BEST_DEVICE, i] = state.device[i]
        state.best[BEST_ORDER, i] = state.order[i]


@uncounted_part
def schedule(
    problem: AnnealProblem, state: PlacementState, first: int, quiet: int, limit: int
) -> tuple[int, int, int, bool]:
    """Book positions `first`.. -> (value, positions done, arrivals logged, True if the rest is as it was).

    A value above `limit` is only known to be above it. `quiet` is the position after the last change of an order-only
    move (devices are the same), where the rest may turn out to be as it was; n + 1 for other moves.

    Invariant, before position p: `end`, `arrival`, `free`, `clock` and `value` are those of the order up to p alone;
    `fresh` holds them at every `stride`-th position since `begin_at`, `kept` and `log` what they were before the trial,
    and BOOKED_FOR is at most -2 for what this trial booked. `undo_trial` or `keep_trial` must follow.

    tests/latency/test_anneal.py (`test_state_is_the_simulators`, `test_stored_prefixes_may_be_sparse`) compares the
    times with `run_order`, whose plain-Python reference is `simulate/reference.py` (tests/simulate/test_agreement.py).
    """
    cost, order, end, stored, fresh = problem.cost, state.order, state.end, state.stored, state.fresh
    free, stride, n, width = state.free, state.stride, len(state.order), state.free.shape[0]
    at_clock, at_value = width - 2, width - 1  # the last columns: clock of the sequential runtime, latest end so far
    begin_at = first - first % stride
    for c in range(width):
        free[c] = stored[begin_at // stride, c]
    value, logged, clean = free[at_value], 0, True
    for p in range(begin_at, n):
        # 1. Is everything as it was, or is this a position to store?
        if p == quiet and clean and p % stride == 0:
            same = value == stored[p // stride, at_value]
            for c in range(at_value):
                same = same and free[c] == stored[p // stride, c]
            if same:
                return value, p, logged, True
        if stride == 1 or p % stride == 0:
            row = np.uint64(p) if stride == 1 else np.uint64(p // stride)
            for c in range(at_value):
                fresh[row, c] = free[c]
            fresh[row, at_value] = value
        # 2. Inputs, and the op.
        op = np.uint64(order[np.uint64(p)])
        here = np.uint64(state.device[op])
        ready, count = _missing_inputs(problem, state, op, here, begin_at)
        if count > 0:
            came, as_before = _book_inputs(problem, state, op, here, count, logged)
            ready, clean = max(ready, came), clean and as_before
            logged += 0 if problem.per_edge else count
        duration = cost[op, here, RUN_TIME]
        if problem.sequential:
            ready = free[at_clock]
            free[at_clock] += duration
        elif duration > 0:
            ready = max(ready, free[here])
            free[here] = ready + duration
        finish = ready + duration
        before = end[op]
        state.kept[np.uint64(p)] = before
        end[op] = finish
        clean = clean and finish == before
        value = max(value, finish)
        if finish + cost[op, here, TIME_AFTER] > limit:
            return finish + cost[op, here, TIME_AFTER], p + 1, logged, False
    return value, n, logged, False


@uncounted_part
def _missing_inputs(
    problem: AnnealProblem, state: PlacementState, op: np.uint64, here: np.uint64, begin_at: int
) -> tuple[int, int]:
    """When the inputs that are on a device already are there; and how many are not: `pending`, by their makers' ends.

    A transfer that was booked before the trial counts if the op it was booked for stands before the trial's first
    position, on this device.
    """
    edge, arrival, device, pending = problem.edge, state.arrival, state.device, state.pending
    devices = np.uint64(problem.cost.shape[1])
    ready, count = 0, 0
    for e in range(np.uint64(problem.edge_ptr[op]), np.uint64(problem.edge_ptr[op + np.uint64(1)])):
        maker = np.uint64(edge[e, EDGE_MAKER])
        origin = np.uint64(device[maker])
        done = state.end[maker]
        if origin == here:
            ready = max(ready, done)
            continue
        slot = np.int64(0)
        if not problem.per_edge:
            slot = np.int64(np.uint64(edge[e, EDGE_TENSOR]) * devices + here)
            by = arrival[slot, BOOKED_FOR]
            if by <= -2 or (by >= 0 and state.position[by] < begin_at and device[by] == here):
                ready = max(ready, arrival[slot, READY_AT])
                continue
        place = count
        while 0 < place < MOST_INSERTED and pending[place - 1, MADE_AT] > done:
            pending[place, MADE_AT] = pending[place - 1, MADE_AT]
            pending[place, SEND_LENGTH] = pending[place - 1, SEND_LENGTH]
            pending[place, CAME_FROM] = pending[place - 1, CAME_FROM]
            place -= 1
        pending[place, MADE_AT] = done
        pending[place, SEND_LENGTH] = problem.transfer[np.uint64(edge[e, EDGE_ROW]), origin, here]
        pending[place, CAME_FROM] = slot * np.int64(devices) + np.int64(origin)
        count += 1
    if count > MOST_INSERTED:
        sort_rows(pending, count)
    return ready, count


@uncounted_part
def _book_inputs(
    problem: AnnealProblem, state: PlacementState, op: np.uint64, here: np.uint64, count: int, logged: int
) -> tuple[int, bool]:
    """Book what is pending on both ports, and on the bus if there is one -> when all is here, True if as before."""
    free, arrival, log, pending, bus = state.free, state.arrival, state.log, state.pending, problem.bus
    devices, at_clock = np.uint64(problem.cost.shape[1]), free.shape[0] - 2
    sends, receives, lanes = devices, devices + devices, devices + devices + devices
    ready, clean = 0, True
    for i in range(count):
        begin, length = pending[i, MADE_AT], pending[i, SEND_LENGTH]
        if length > 0:
            origin = np.uint64(pending[i, CAME_FROM]) % devices
            begin = max(begin, free[sends + origin], free[receives + here])
            if problem.buses > 0 and bus[origin, here] >= 0:
                lane = lanes + np.uint64(bus[origin, here])
                begin = max(begin, free[lane])
                free[lane] = begin + length
            if problem.sequential:
                begin = free[at_clock]
                free[at_clock] = min(begin + length, LATEST_TIME)
            begin = min(begin, LATEST_TIME)
            free[sends + origin] = begin + length
            free[receives + here] = begin + length
        if not problem.per_edge:
            slot = np.int64(np.uint64(pending[i, CAME_FROM]) // devices)
            clean = clean and arrival[slot, READY_AT] == begin + length
            log[logged, LOG_SLOT] = slot
            log[logged, OLD_TIME], log[logged, OLD_OP] = arrival[slot, READY_AT], arrival[slot, BOOKED_FOR]
            arrival[slot, READY_AT], arrival[slot, BOOKED_FOR] = begin + length, -2 - np.int64(op)
            logged += 1
        ready = max(ready, begin + length)
    return ready, clean


@uncounted_part
def keep_trial(state: PlacementState, begin_at: int, done: int, logged: int) -> None:
    """What `schedule` wrote becomes the state."""
    stored, fresh, arrival, log = state.stored, state.fresh, state.arrival, state.log
    for row in range(begin_at // state.stride, (done - 1) // state.stride + 1):
        for c in range(stored.shape[1]):
            stored[row, c] = fresh[row, c]
    for i in range(logged):
        arrival[log[i, LOG_SLOT], BOOKED_FOR] = -2 - arrival[log[i, LOG_SLOT], BOOKED_FOR]


@uncounted_part
def undo_trial(state: PlacementState, begin_at: int, done: int, logged: int) -> None:
    """Take back what `schedule` wrote. The order must still be the trial's."""
    arrival, log = state.arrival, state.log
    for p in range(begin_at, done):
        state.end[state.order[p]] = state.kept[p]
    for i in range(logged - 1, -1, -1):
        arrival[log[i, LOG_SLOT], READY_AT] = log[i, OLD_TIME]
        arrival[log[i, LOG_SLOT], BOOKED_FOR] = log[i, OLD_OP]


@uncounted_part
def _undo_move(problem: AnnealProblem, state: PlacementState, low: int, high: int, moved: int) -> None:
    """Order and devices are again as before the trial."""
    for p in range(low, high):
        state.order[p] = state.backup[p]
        state.position[state.order[p]] = p
    for i in range(moved):
        op = state.changed[i]
        if state.binds:
            carry(problem, state, op, state.device[op], -1)
            carry(problem, state, op, state.was[i], 1)
        state.device[op] = state.was[i]


@part
def _adapt(state: PlacementState, usual: Ints) -> None:
    """Half of the mix stays as usual, half follows what moves gained for what they cost."""
    total = 0.0
    for kind in range(len(usual)):
        if usual[kind] > 0:
            total += (state.credit[kind] + 0.01) / state.effort[kind]
    for kind in range(len(usual)):
        if usual[kind] > 0:
            rate = (state.credit[kind] + 0.01) / state.effort[kind]
            state.weight[kind] = 0.5 * usual[kind] / usual.sum() + 0.5 * rate / total
            state.credit[kind] *= CREDIT_FADE
            state.effort[kind] = max(1.0, state.effort[kind] * CREDIT_FADE)
        else:
            state.weight[kind] = 0.0


@uncounted_part
def _next_stamp(state: PlacementState) -> int:
    """A stamp that no op has."""
    now = state.now
    now[NOW_STAMP] = now[NOW_STAMP] + 1 if now[NOW_STAMP] < LAST_STAMP else 1
    if now[NOW_STAMP] == 1:
        state.mark[:] = 0
    return int(now[NOW_STAMP])


@uncounted_part
def _draw_kind(state: PlacementState) -> int:
    """A kind of move, by the mix."""
    draw, kind = unit(state.random), 0
    while kind < MOVE_SWAP and draw >= state.weight[kind]:
        draw -= state.weight[kind]
        kind += 1
    return kind


@uncounted_part
def _allowed(problem: AnnealProblem, state: PlacementState, moved: int, temperature: float) -> tuple[int, int]:
    """What the trial's value may be, by chance at this temperature, and its bytes above the limits of memory."""
    now, excess = state.now, state.now[NOW_EXCESS]
    limit = now[NOW_VALUE] - int(temperature * np.log(1.0 - unit(state.random)))
    if state.binds and moved > 0:
        for i in range(moved):
            op = state.changed[i]
            carry(problem, state, op, state.was[i], -1)
            carry(problem, state, op, state.device[op], 1)
        excess = excess_of(state.held, state.room)
        if excess < now[NOW_EXCESS]:
            anything = now[NOW_VALUE] >= problem.penalty or unit(state.random) < MEND_SHARE
            limit = NEVER if anything else max(limit, now[NOW_VALUE] + now[NOW_VALUE] // 32)
    return limit, excess


@kernel
def anneal(
    problem: AnnealProblem, state: PlacementState, usual: Ints, steps: int, hot: float, cold: float, stop: Ints
) -> int:
    """Cool from `hot` to `cold` (ns) over the steps -> steps done. `usual`: shares of the kinds of moves.

    Invariant, between two trials: `order` is topological and `position` its inverse; `end`, `arrival` and `stored` are
    what the simulator says about `order` and `device`; `held` and `users` follow from `device`; NOW_VALUE and
    NOW_EXCESS belong to them; BOOKED_FOR of an arrival is never below -1. A trial is kept whole or taken back whole.
    Where the state `asks`, it stops at a state that would be a new best but for its activations.

    `test_state_is_the_simulators` and `test_value_is_the_simulators` (tests/latency/test_anneal.py) compare it with
    `simulate_latency`, which tests/simulate/test_agreement.py compares with `simulate/reference.py`.
    """
    now, effort, n = state.now, state.effort, len(state.order)
    temperature, factor = hot, (cold / hot) ** (COOLING_STEPS / max(1.0, float(steps)))
    rebuild = REBUILD_SHARE * min(1.0, 1000.0 / n)
    for step in range(steps):
        # 0. Temperature, mix of moves, a fresh stamp.
        if stop[0] != 0:
            return step
        if step % COOLING_STEPS == 0 and step > 0:
            temperature *= factor
        if now[STEPS_DONE] % MIX_STEPS == 0:
            _adapt(state, usual)
        now[STEPS_DONE] += 1
        stamp = _next_stamp(state)
        # 1. Make a move: positions low..high-1 of the order, `moved` ops on other devices.
        kind = _draw_kind(state)
        low, high, moved = make_move(problem, state, kind, stamp, rebuild)
        effort[kind] += TRIAL_OVERHEAD
        if moved == 0 and low == high:
            continue
        # 2. The first position that changed, the end of a change of the order alone, and what the move may cost.
        first, quiet = (low if low < high else n), (high if moved == 0 else n + 1)
        for i in range(moved):
            first = min(first, state.position[state.changed[i]])
        limit, excess = _allowed(problem, state, moved, temperature)
        # 3. Book again from the first change.
        begin_at = first - first % state.stride
        done, logged, value = begin_at, 0, NEVER
        if excess <= now[NOW_EXCESS]:
            value, done, logged, as_it_was = schedule(problem, state, first, quiet, limit)
            if as_it_was:
                value = now[NOW_VALUE]
        effort[kind] += done - begin_at
        # 4. Keep it, or take it back, in the opposite order.
        if excess > now[NOW_EXCESS] or value > limit:
            undo_trial(state, begin_at, done, logged)
            _undo_move(problem, state, low, high, moved)
            continue
        keep_trial(state, begin_at, done, logged)
        if value < now[NOW_VALUE]:
            state.credit[kind] += min(1.0, (now[NOW_VALUE] - value) / temperature)
        now[NOW_VALUE], now[NOW_EXCESS] = value, excess
        if value < state.best_value[0] and excess == 0 and value < problem.penalty:
            if not state.asks:
                note_best(state)
            elif value < now[ASKED_BELOW]:
                return step + 1
    return steps
