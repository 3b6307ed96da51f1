"""Annealing over explicit sequences as one kernel that makes a given number of trials.

A trial shifts one operation, on all its devices, to another time: mostly one of the critical path, mostly by a few
places, never past another micro-batch of its block, never beyond a memory limit. What is sure to be worse than what
the random numbers allow is given up while starts are still being computed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import BlockTable
from weftline.schedule.sequence.line import (
    BEST_DEVICE_SPAN,
    BEST_MAKESPAN,
    DEVICE_SPAN_NOW,
    IS_JUST_LOADED,
    MAKESPAN_NOW,
    MOVED_DEVICE,
    NEW_PLACE,
    OLD_PLACE,
    PATH_LENGTH,
    SUM_OF_ENDS,
    TRIAL_STAMP,
    TRIALS_MADE,
    TRIALS_TAKEN,
    Flags,
    SequenceBoard,
    SequenceState,
    entry_on,
    judge,
    keep_line,
    last_begin,
    line_backward,
    line_forward,
    propagate,
    propagate_tails,
    restore_line,
    restore_starts,
)
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.random import RandomGenerator, below, unit
from weftline.simulate.sentinels import NEVER

__all__ = ["SequenceRun", "anneal_sequences"]

SHARE_OF_CRITICAL = 0.75
"""How often an operation of the critical path is moved."""
WEIGHT_OF_MEAN_END = 0.02
"""In the cost, beside the makespan."""
WEIGHT_OF_MEAN_SPAN = 0.1
"""In the cost, beside the device span where that counts."""


class SequenceRun(NamedTuple):
    """What one call of the kernel is asked for."""

    trials: int
    hot: float
    cold: float
    """Temperatures in units of time, geometric between."""
    by_span: bool
    """Minimise the longest device span instead of the makespan."""
    goal: int
    """End when it is reached."""
    within: int
    """No state with a larger makespan is taken."""
    stop: Ints
    """(1,): not 0 = end now."""


@kernel
def anneal_sequences(table: BlockTable, board: SequenceBoard, state: SequenceState, run: SequenceRun) -> None:
    """Trials; between two of them `start` is the earliest start of every operation and `line` a topological order."""
    counts, values, random, by_span = state.counts, state.value, state.random, run.by_span
    if counts[IS_JUST_LOADED] == 1:  # loaded just now: every operation is dirty
        propagate_tails(table, board, state, len(state.line) - 1, len(state.line))
        judge(table, board, state, by_span)
        _note_best(values, state.best, state.of, by_span)
        counts[IS_JUST_LOADED] = 0
    temperature = run.hot
    factor = (run.cold / run.hot) ** (1.0 / max(1, run.trials // 256))
    for trial in range(run.trials):
        if trial % 256 == 255:
            temperature *= factor
            if run.stop[0] != 0 or values[BEST_DEVICE_SPAN if by_span else BEST_MAKESPAN] <= run.goal:
                return
        counts[TRIALS_MADE] += 1
        if unit(random) < SHARE_OF_CRITICAL:
            if counts[PATH_LENGTH] < 0:
                _trace(table, board, state, by_span)
            op = state.path[below(random, counts[PATH_LENGTH])]
        else:
            op = below(random, len(board.block))
        if not _shift_all(table, board, state, op):
            continue
        allowed = _cost(values, len(table.limit), by_span) - temperature * np.log(1.0 - unit(random))
        if _try(table, board, state, op, allowed, run):
            counts[TRIALS_TAKEN] += 1
            _note_best(values, state.best, state.of, by_span)


@part
def _cost(values: Ints, devices: int, by_span: bool) -> float:
    """What is annealed: the value, and a little of the mean end (span) of devices, which leads over plateaus."""
    makespan, span = values[MAKESPAN_NOW], values[DEVICE_SPAN_NOW]
    if by_span:
        return float(span + 0.001 * makespan + WEIGHT_OF_MEAN_SPAN * values[SUM_OF_ENDS] / devices)
    return float(makespan + 0.001 * span + WEIGHT_OF_MEAN_END * values[SUM_OF_ENDS] / devices)


@part
def _note_best(values: Ints, best: Indices, of: Indices, by_span: bool) -> None:
    main, other = (DEVICE_SPAN_NOW, MAKESPAN_NOW) if by_span else (MAKESPAN_NOW, DEVICE_SPAN_NOW)
    is_less = values[main] < values[BEST_MAKESPAN + main]
    if is_less or (values[main] == values[BEST_MAKESPAN + main] and values[other] < values[BEST_MAKESPAN + other]):
        values[BEST_MAKESPAN] = values[MAKESPAN_NOW]
        values[BEST_DEVICE_SPAN] = values[DEVICE_SPAN_NOW]
        best[:] = of


@part
def _trace(table: BlockTable, board: SequenceBoard, state: SequenceState, by_span: bool) -> None:
    """Walk back from the last end along what each operation waited for."""
    spans, is_link, before_ptr, before_of = table.span, table.is_link, table.before_ptr, table.before_of
    before_lag, device_ptr = table.before_lag, table.device_ptr
    place_ptr, block_of, base_of, entry_of = board.place_ptr, board.block, board.base, board.entry
    place_device = board.place_device
    starts, of, path, where, counts = state.start, state.of, state.path, state.where, state.counts
    latest, op = np.int64(-1), 0
    for device in range(len(place_ptr) - 1):
        first, last = place_ptr[device], place_ptr[device + 1] - 1
        if last < first:
            continue
        length = starts[of[last]] + spans[block_of[of[last]]]
        if by_span:
            length = -1 if is_link[device] else length - starts[of[first]]
        if length > latest:
            latest, op = length, of[last]
    size = 0
    while op >= 0:
        path[size] = op
        size += 1
        block, base, entry = block_of[op], base_of[op], entry_of[op]
        begin, found = starts[op], -1
        for e in range(before_ptr[block], before_ptr[block + 1]):
            source = before_of[e]
            if starts[base + source] + spans[source] + before_lag[e] == begin:
                found = base + source
        for j in range(entry, entry + device_ptr[block + 1] - device_ptr[block]):
            place = where[j]
            if place > place_ptr[place_device[place]]:
                previous = of[place - 1]
                if starts[previous] + spans[block_of[previous]] == begin and found < 0:
                    found = previous
        op = found
    counts[PATH_LENGTH] = size


@part
def _far(random: RandomGenerator) -> int:
    """How many places: 1 mostly, up to 8 often, up to 40 sometimes."""
    drawn = unit(random)
    if drawn < 0.5:
        return 1
    return 1 + below(random, 8 if drawn < 0.9 else 40)


@part
def _shift_all(table: BlockTable, board: SequenceBoard, state: SequenceState, op: int) -> bool:
    """Choose new places for an operation and shift it there; `moved` tells them. False if it stays where it is."""
    device_ptr = table.device_ptr
    block_of, entry_of, place_device = board.block, board.entry, board.place_device
    random, where, starts, of, moved = state.random, state.where, state.start, state.of, state.moved
    block, entry = block_of[op], entry_of[op]
    several = device_ptr[block + 1] - device_ptr[block]
    main = below(random, several) if several > 1 else 0
    forward = unit(random) < 0.5
    place = where[entry + main]
    target = _walk(table, board, state, op, entry + main, _far(random), NEVER if forward else -1, forward)
    if target == place:
        return False
    time = starts[of[target]]
    for j in range(several):
        old = where[entry + j]
        new = target
        if j != main:
            new = _walk(table, board, state, op, entry + j, len(of), time, forward)
        moved[j, MOVED_DEVICE] = place_device[old]
        moved[j, OLD_PLACE] = old
        moved[j, NEW_PLACE] = new
    for j in range(several):
        _shift(table, board, state, op, entry + j, moved[j, OLD_PLACE], moved[j, NEW_PLACE])
    return True


@part
def _walk(
    table: BlockTable,
    board: SequenceBoard,
    state: SequenceState,
    op: int,
    entry: int,
    far: int,
    time: int,
    forward: bool,
) -> int:
    """The place that the operation reaches: until `far`, `time`, memory, its own block or a neighbour of an edge."""
    limits = table.limit
    block_of, base_of, place_device, entry_change = board.block, board.base, board.place_device, board.entry_change
    place_ptr = board.place_ptr
    where, of, starts, levels = state.where, state.of, state.start, state.level
    block, base, place = block_of[op], base_of[op], where[entry]
    device = place_device[place]
    change, limit = entry_change[entry], limits[device]
    first, end = place_ptr[device], place_ptr[device + 1]
    step = 1 if forward else -1
    for _ in range(far):
        following = place + step
        if following < first or following >= end:
            break
        other = of[following]
        if block_of[other] == block:
            break
        if forward and (starts[other] > time or (change < 0 and levels[following] - change > limit)):
            break
        if not forward:
            before = levels[following - 1] if following > first else np.int64(0)
            if starts[other] < time or (change > 0 and max(before, levels[following]) + change > limit):
                break
        if base_of[other] == base:
            if forward and _is_edge(table.after_ptr, table.after_of, block, block_of[other]):
                break
            if not forward and _is_edge(table.before_ptr, table.before_of, block, block_of[other]):
                break
        place = following
    return int(place)


@part
def _is_edge(ptr: Indices, of: Indices, block: int, other: int) -> bool:
    found = False
    for e in range(ptr[block], ptr[block + 1]):
        found = found or of[e] == other
    return found


@part
def _shift(
    table: BlockTable, board: SequenceBoard, state: SequenceState, op: int, entry: int, old: int, new: int
) -> None:
    """Move an operation on one device; levels and rests of work follow."""
    spans, device_ptr, device_of = table.span, table.device_ptr, table.device_of
    place_device, entry_change, block_of = board.place_device, board.entry_change, board.block
    place_ptr, entry_of = board.place_ptr, board.entry
    of, where, levels, rests = state.of, state.where, state.level, state.rest
    device = place_device[old]
    change, span = entry_change[entry], spans[block_of[op]]
    if new > old:
        for place in range(old, new):
            other = of[place + 1]
            of[place] = other
            where[entry_on(device_ptr, device_of, block_of[other], entry_of[other], device)] = place
        whole = levels[new]
        for place in range(old, new):
            levels[place] = levels[place + 1] - change
            rests[place] = rests[place + 1] + span
        levels[new] = whole
        after = new + 1 < place_ptr[device + 1]
        rests[new] = (rests[new + 1] if after else 0) + span
    elif new < old:
        before = levels[new - 1] if new > place_ptr[device] else 0
        whole = rests[new]
        for place in range(old, new, -1):
            other = of[place - 1]
            of[place] = other
            where[entry_on(device_ptr, device_of, block_of[other], entry_of[other], device)] = place
            levels[place] = levels[place - 1] + change
            rests[place] = rests[place - 1] - span
        levels[new] = before + change
        rests[new] = whole
    of[new] = op
    where[entry] = new


@part
def _try(
    table: BlockTable, board: SequenceBoard, state: SequenceState, op: int, allowed: float, run: SequenceRun
) -> bool:
    """Keep the shift if it costs no more than allowed; else undo it."""
    block, entry, devices, by_span = board.block[op], board.entry[op], len(table.limit), run.by_span
    several = table.device_ptr[block + 1] - table.device_ptr[block]
    state.counts[TRIAL_STAMP] += 1
    stamp = state.counts[TRIAL_STAMP]
    low, high = state.spot[op], state.spot[op]
    forward = True
    for j in range(several):
        old, new = state.moved[j, OLD_PLACE], state.moved[j, NEW_PLACE]
        if new > old:
            high = max(high, state.spot[state.of[new - 1]])
        elif new < old:
            forward = False
            low = min(low, state.spot[state.of[new + 1]])
    keep_line(state.line, state.old_line, low, high)
    if forward:
        line_forward(table, board, state, op, high, stamp)
    else:
        line_backward(table, board, state, op, low, stamp)
    if _is_legal(state.moved, state.of, state.mark, several, forward, stamp):
        pending = _touch_moved(board.place_ptr, state.moved, state.of, state.dirty, several, forward)
        kept0, kept1, kept2 = state.value[MAKESPAN_NOW], state.value[DEVICE_SPAN_NOW], state.value[SUM_OF_ENDS]
        least = (WEIGHT_OF_MEAN_SPAN if by_span else WEIGHT_OF_MEAN_END) * 0.998 * kept2 / devices
        begin = last_begin(board.place_ptr, state.of, state.start) if by_span else 0
        most = min(run.within, int(allowed - least) + 1 + begin)
        changed = propagate(table, board, state, low, high, pending, most)
        if changed >= 0:
            judge(table, board, state, by_span)
            if state.value[MAKESPAN_NOW] <= run.within and _cost(state.value, devices, by_span) <= allowed:
                if changed > 0:
                    state.counts[PATH_LENGTH] = -1
                _renew_tails(table, board, state, several, high)
                return True
            state.value[MAKESPAN_NOW] = kept0
            state.value[DEVICE_SPAN_NOW] = kept1
            state.value[SUM_OF_ENDS] = kept2
        restore_starts(state.start, state.changed, state.changed_start, changed if changed >= 0 else -1 - changed)
    restore_line(state.line, state.old_line, state.spot, low, high)
    for j in range(several):
        _shift(table, board, state, op, entry + j, state.moved[j, NEW_PLACE], state.moved[j, OLD_PLACE])
    return False


@part
def _is_legal(moved: Indices, of: Indices, mark: Indices, several: int, forward: bool, stamp: int) -> bool:
    """Whether none that the operation passed waits for it (backward: it waits for none of them)."""
    legal = True
    for j in range(several):
        old, new = moved[j, OLD_PLACE], moved[j, NEW_PLACE]
        if new != old:
            passed = of[new - 1] if forward else of[new + 1]
            legal = legal and mark[passed] != stamp
    return legal


@part
def _touch_moved(place_ptr: Indices, moved: Indices, of: Indices, dirty: Flags, several: int, forward: bool) -> int:
    """Mark the operations whose start may change -> how many."""
    pending = 0
    for j in range(several):
        old, new = moved[j, OLD_PLACE], moved[j, NEW_PLACE]
        if new != old:
            end = place_ptr[moved[j, MOVED_DEVICE] + 1]
            pending += _touch(dirty, of, min(old, new), end)
            pending += _touch(dirty, of, new, end)
            pending += _touch(dirty, of, max(old, new) + 1, end)
            if not forward:
                pending += _touch(dirty, of, new + 1, end)
    return pending


@part
def _renew_tails(table: BlockTable, board: SequenceBoard, state: SequenceState, several: int, high: int) -> None:
    """After a shift that is kept: paths to the end change from those whose followers changed."""
    pending = 0
    for j in range(several):
        old, new = state.moved[j, OLD_PLACE], state.moved[j, NEW_PLACE]
        if new != old:
            first, end = (
                board.place_ptr[state.moved[j, MOVED_DEVICE]],
                board.place_ptr[state.moved[j, MOVED_DEVICE] + 1],
            )
            pending += _touch(state.dirty, state.of, max(first, min(old, new) - 1), end)
            pending += _touch(state.dirty, state.of, max(first, new - 1), end)
            pending += _touch(state.dirty, state.of, new, end)
            pending += _touch(state.dirty, state.of, max(old, new), end)
    propagate_tails(table, board, state, high, pending)


@part
def _touch(dirty: Flags, of: Indices, place: int, end: int) -> int:
    """Mark what stands at a place of a device -> 1 if it was not marked."""
    if place >= end or dirty[of[place]] == 1:
        return 0
    dirty[of[place]] = 1
    return 1
