"""The state of annealing over sequences, and the parts that keep its line of operations and their starts right.

`line` is a topological order of the whole: what an operation waits for (its edges and what is before it on its devices)
stands before it. A move shifts one operation on its devices. Forward: what stands behind it in the line and waits for
it goes behind those that it passed; if one of these waits for it, the move closes a circle. Backward: the same
mirrored. Then starts are computed again along the line, only where something that an operation waits for has changed.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import BlockTable
from weftline.simulate.kernels.jit import part
from weftline.simulate.kernels.random import RandomGenerator

__all__ = ["SequenceBoard", "SequenceState", "line_backward", "line_forward", "propagate", "propagate_tails"]

Flags = NDArray[np.uint8]

TRIALS_MADE, TRIALS_TAKEN, PATH_LENGTH, TRIAL_STAMP, IS_JUST_LOADED = range(5)
"""Slots of `SequenceState.counts`."""
MAKESPAN_NOW, DEVICE_SPAN_NOW, SUM_OF_ENDS, BEST_MAKESPAN, BEST_DEVICE_SPAN = range(5)
"""Slots of `SequenceState.value`; the best has the order of the first two."""
MOVED_DEVICE, OLD_PLACE, NEW_PLACE = range(3)
"""Slots of a row of `SequenceState.moved`."""


class SequenceBoard(NamedTuple):
    """What does not change; an entry is an operation on one of its devices."""

    block: Indices
    """Operation -> block."""
    base: Indices
    """Operation -> first operation of its micro-batch."""
    entry: Indices
    """Operation -> its first entry."""
    place_ptr: Indices
    """Device -> its first place."""
    place_device: Indices
    """Place -> device."""
    entry_change: Ints
    """Entry -> change of memory."""


class SequenceState(NamedTuple):
    """What moves change."""

    of: Indices
    """Place -> operation."""
    where: Indices
    """Entry -> place."""
    start: Ints
    """Operation -> earliest start."""
    tail: Ints
    """Operation -> longest path from its start to the end of everything."""
    level: Ints
    """Place -> memory held when its operation has started."""
    rest: Ints
    """Place -> work on the device from here to its end."""
    line: Indices
    spot: Indices
    """Position -> operation, and back."""
    dirty: Flags
    mark: Indices
    """Operation -> number of the last trial that reached it."""
    kept_line: Indices
    old_line: Indices
    changed: Indices
    changed_start: Ints
    path: Indices
    """Operations of a critical path."""
    moved: Indices
    """Row per device of the operation that moves: slots MOVED_DEVICE, OLD_PLACE, NEW_PLACE."""
    best: Indices
    """As `of`, of the best state."""
    counts: Ints
    """Trials, taken trials, operations of `path` (-1: unknown), trial number for `mark`, 1 = loaded just now."""
    value: Ints
    """Makespan, device span, sum of ends of devices; then makespan and device span of the best."""
    random: RandomGenerator


@part
def entry_on(device_ptr: Indices, device_of: Indices, block: int, entry: int, device: int) -> int:
    """The entry of an operation on a device, from its first one."""
    j = device_ptr[block]
    while device_of[j] != device:
        j += 1
    return int(entry + j - device_ptr[block])


@part
def line_forward(table: BlockTable, board: SequenceBoard, state: SequenceState, op: int, high: int, stamp: int) -> None:
    """Put the operation, and what waits for it up to position `high`, behind everything else up to there."""
    before_ptr, before_of, device_ptr = table.before_ptr, table.before_of, table.device_ptr
    block_of, base_of, entry_of, place_ptr = board.block, board.base, board.entry, board.place_ptr
    place_device = board.place_device
    spot, marks, aside, line, where, of = state.spot, state.mark, state.kept_line, state.line, state.where, state.of
    low = spot[op]
    marks[op] = stamp
    kept, size = 0, low
    aside[kept] = op
    kept += 1
    for i in range(low + 1, high + 1):
        other = line[i]
        block, base = block_of[other], base_of[other]
        waits = False
        for e in range(before_ptr[block], before_ptr[block + 1]):
            if marks[base + before_of[e]] == stamp:
                waits = True
        entry = entry_of[other]
        for j in range(entry, entry + device_ptr[block + 1] - device_ptr[block]):
            place = where[j]
            if place > place_ptr[place_device[place]] and marks[of[place - 1]] == stamp:
                waits = True
        if waits:
            marks[other] = stamp
            aside[kept] = other
            kept += 1
        else:
            line[size] = other
            spot[other] = size
            size += 1
    for i in range(kept):
        line[size + i] = aside[i]
        spot[aside[i]] = size + i


@part
def line_backward(table: BlockTable, board: SequenceBoard, state: SequenceState, op: int, low: int, stamp: int) -> None:
    """Put the operation, and what it waits for down to position `low`, before everything else down to there."""
    after_ptr, after_of, device_ptr = table.after_ptr, table.after_of, table.device_ptr
    block_of, base_of, entry_of, place_ptr = board.block, board.base, board.entry, board.place_ptr
    place_device = board.place_device
    spot, marks, aside, line, where, of = state.spot, state.mark, state.kept_line, state.line, state.where, state.of
    high = spot[op]
    marks[op] = stamp
    kept, size = 0, high
    aside[kept] = op
    kept += 1
    for i in range(high - 1, low - 1, -1):
        other = line[i]
        block, base = block_of[other], base_of[other]
        waits = False
        for e in range(after_ptr[block], after_ptr[block + 1]):
            if marks[base + after_of[e]] == stamp:
                waits = True
        entry = entry_of[other]
        for j in range(entry, entry + device_ptr[block + 1] - device_ptr[block]):
            place = where[j]
            if place + 1 < place_ptr[place_device[place] + 1] and marks[of[place + 1]] == stamp:
                waits = True
        if waits:
            marks[other] = stamp
            aside[kept] = other
            kept += 1
        else:
            line[size] = other
            spot[other] = size
            size -= 1
    for i in range(kept):
        line[size - i] = aside[i]
        spot[aside[i]] = size - i


@part
def keep_line(line: Indices, old_line: Indices, low: int, high: int) -> None:
    """Remember a part of the line."""
    for i in range(low, high + 1):
        old_line[i] = line[i]


@part
def restore_line(line: Indices, old_line: Indices, spot: Indices, low: int, high: int) -> None:
    """Put the remembered part back."""
    for i in range(low, high + 1):
        line[i] = old_line[i]
        spot[line[i]] = i


@part
def propagate(
    table: BlockTable, board: SequenceBoard, state: SequenceState, low: int, high: int, pending: int, most: int
) -> int:
    """Compute starts again from position `low` on -> how many changed; minus one minus that when one is too late.

    Behind position `high` the paths to the end are as before the move, so they tell at once what is too late.
    """
    before_ptr, before_of, before_lag = table.before_ptr, table.before_of, table.before_lag
    after_ptr, after_of, device_ptr, spans = table.after_ptr, table.after_of, table.device_ptr, table.span
    block_of, base_of, entry_of = board.block, board.base, board.entry
    place_ptr, place_device = board.place_ptr, board.place_device
    line, dirty, starts, tails = state.line, state.dirty, state.start, state.tail
    where, rests, of = state.where, state.rest, state.of
    changed_ops, changed_start = state.changed, state.changed_start
    changed, i = 0, low
    while pending > 0:
        op = line[i]
        i += 1
        if dirty[op] == 0:
            continue
        dirty[op] = 0
        pending -= 1
        block, base, entry = block_of[op], base_of[op], entry_of[op]
        several = device_ptr[block + 1] - device_ptr[block]
        begin, rest = np.int64(0), np.int64(0)
        for e in range(before_ptr[block], before_ptr[block + 1]):
            source = before_of[e]
            begin = max(begin, starts[base + source] + spans[source] + before_lag[e])
        for j in range(entry, entry + several):
            place = where[j]
            rest = max(rest, rests[place])
            if place > place_ptr[place_device[place]]:
                previous = of[place - 1]
                begin = max(begin, starts[previous] + spans[block_of[previous]])
        if begin == starts[op]:
            continue
        changed_ops[changed] = op
        changed_start[changed] = starts[op]
        changed += 1
        starts[op] = begin
        if begin + (tails[op] if i > high + 1 else rest) > most:
            while pending > 0:
                if dirty[line[i]] == 1:
                    dirty[line[i]] = 0
                    pending -= 1
                i += 1
            return -1 - changed
        for e in range(after_ptr[block], after_ptr[block + 1]):
            after = base + after_of[e]
            if dirty[after] == 0:
                dirty[after] = 1
                pending += 1
        for j in range(entry, entry + several):
            place = where[j] + 1
            if place < place_ptr[place_device[place - 1] + 1] and dirty[of[place]] == 0:
                dirty[of[place]] = 1
                pending += 1
    return changed


@part
def propagate_tails(table: BlockTable, board: SequenceBoard, state: SequenceState, high: int, pending: int) -> None:
    """Compute the longest paths to the end again, from position `high` down."""
    before_ptr, before_of = table.before_ptr, table.before_of
    after_ptr, after_of, after_lag = table.after_ptr, table.after_of, table.after_lag
    device_ptr, spans = table.device_ptr, table.span
    block_of, base_of, entry_of = board.block, board.base, board.entry
    place_ptr, place_device = board.place_ptr, board.place_device
    line, dirty, tails, where, of = state.line, state.dirty, state.tail, state.where, state.of
    i = high
    while pending > 0:
        op = line[i]
        i -= 1
        if dirty[op] == 0:
            continue
        dirty[op] = 0
        pending -= 1
        block, base, entry = block_of[op], base_of[op], entry_of[op]
        several = device_ptr[block + 1] - device_ptr[block]
        tail = np.int64(0)
        for e in range(after_ptr[block], after_ptr[block + 1]):
            tail = max(tail, tails[base + after_of[e]] + after_lag[e])
        for j in range(entry, entry + several):
            place = where[j] + 1
            if place < place_ptr[place_device[place - 1] + 1]:
                tail = max(tail, tails[of[place]])
        tail += spans[block]
        if tail == tails[op]:
            continue
        tails[op] = tail
        for e in range(before_ptr[block], before_ptr[block + 1]):
            source = base + before_of[e]
            if dirty[source] == 0:
                dirty[source] = 1
                pending += 1
        for j in range(entry, entry + several):
            place = where[j]
            if place > place_ptr[place_device[place]] and dirty[of[place - 1]] == 0:
                dirty[of[place - 1]] = 1
                pending += 1


@part
def restore_starts(starts: Ints, changed_ops: Indices, changed_start: Ints, changed: int) -> None:
    """Undo the last `changed` new starts."""
    for i in range(changed - 1, -1, -1):
        starts[changed_ops[i]] = changed_start[i]


@part
def judge(table: BlockTable, board: SequenceBoard, state: SequenceState, by_span: bool) -> None:
    """Makespan, device span and sum of ends (spans) of the starts at hand."""
    spans, is_link = table.span, table.is_link
    place_ptr, block_of = board.place_ptr, board.block
    starts, of, values = state.start, state.of, state.value
    makespan, span, ends = np.int64(0), np.int64(0), np.int64(0)
    for device in range(len(place_ptr) - 1):
        first, last = place_ptr[device], place_ptr[device + 1] - 1
        if last < first:
            continue
        end = starts[of[last]] + spans[block_of[of[last]]]
        makespan = max(makespan, end)
        ends += end - starts[of[first]] if by_span else end
        if is_link[device] == 0:
            span = max(span, end - starts[of[first]])
    values[MAKESPAN_NOW] = makespan
    values[DEVICE_SPAN_NOW] = span
    values[SUM_OF_ENDS] = ends


@part
def last_begin(place_ptr: Indices, of: Indices, starts: Ints) -> int:
    """When the last device begins: no device ends later than so long after the longest span."""
    latest = np.int64(0)
    for device in range(len(place_ptr) - 1):
        if place_ptr[device] < place_ptr[device + 1]:
            latest = max(latest, starts[of[place_ptr[device]]])
    return int(latest)
