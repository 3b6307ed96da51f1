"""The state of annealing over sequences: an order for every device, starts, and a line of all operations.

`line` is a topological order of the whole: what an operation waits for (its edges and what is before it on its devices)
stands before it. After a move only a part of it is looked at again. All of it lives in flat arrays for the kernels.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.simulate.kernels.random import Dice, make_dice

__all__ = ["Flags", "Floats", "SequenceBoard", "SequenceState", "make_board", "make_state"]

Flags = NDArray[np.uint8]
Floats = NDArray[np.float64]

TRIALS_MADE, TRIALS_TAKEN, PATH_LENGTH, TRIAL_STAMP, IS_JUST_LOADED = range(5)
"""Slots of `SequenceState.counts`."""
MAKESPAN, DEVICE_SPAN, SUM_OF_ENDS, BEST_MAKESPAN, BEST_DEVICE_SPAN = range(5)
"""Slots of `SequenceState.value`; the best has the order of the first two."""


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
    """Operation -> longest way from its start to the end of everything."""
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
    """Three per device of the operation that moves: device, old place, new place."""
    best: Indices
    """As `of`, of the best state."""
    counts: Ints
    """Trials, taken trials, operations of `path` (-1: unknown), trial number for `mark`, 1 = loaded just now."""
    value: Ints
    """Makespan, device span, sum of ends of devices; then makespan and device span of the best."""
    dice: Dice


def make_board(blocks: Blocks, micro_batches: int) -> SequenceBoard:
    """The board of some blocks."""
    table, n = blocks.table, blocks.n
    micro = np.repeat(np.arange(micro_batches), n)
    per = np.bincount(table.device_of, minlength=len(blocks.devices)) * micro_batches
    ptr = np.zeros(len(blocks.devices) + 1, np.int32)
    np.cumsum(per, out=ptr[1:])
    return SequenceBoard(
        np.tile(np.arange(n, dtype=np.int32), micro_batches),
        (micro * n).astype(np.int32),
        (micro * len(table.device_of) + np.tile(table.device_ptr[:-1], micro_batches)).astype(np.int32),
        ptr,
        np.repeat(np.arange(len(blocks.devices), dtype=np.int32), per),
        np.tile(table.device_memory, micro_batches),
    )


def make_state(blocks: Blocks, micro_batches: int, seed: int) -> SequenceState:
    """An empty state."""
    ops, places = blocks.n * micro_batches, len(blocks.table.device_of) * micro_batches

    def indices(size: int) -> Indices:
        return np.zeros(size, np.int32)

    return SequenceState(
        indices(places),
        indices(places),
        np.zeros(ops, np.int64),
        np.zeros(ops, np.int64),
        np.zeros(places, np.int64),
        np.zeros(places, np.int64),
        indices(ops),
        indices(ops),
        np.zeros(ops, np.uint8),
        indices(ops),
        indices(ops),
        indices(ops),
        indices(ops),
        np.zeros(ops, np.int64),
        indices(ops),
        indices(3 * len(blocks.devices)),
        indices(places),
        np.zeros(5, np.int64),
        np.zeros(5, np.int64),
        make_dice(seed),
    )
