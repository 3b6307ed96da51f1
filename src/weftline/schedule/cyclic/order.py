"""Cyclic orders: for every device a repeating sequence of the blocks of U micro-batches, as flat arrays for kernels.

In: blocks and U, or starts. Out: `Pattern` (what is fixed) and `CyclicOrder` (what a search changes). Copy u of block i
is item u * n + i. An item stands in one slot on each of its devices; window k of a device runs the slot for repetition
k - lag. Lags belong to slots: the windows of two devices need not begin together. Simplified: balanced blocks only.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from math import lcm
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.repetend import Repetend

__all__ = ["CyclicOrder", "Pattern", "make_pattern", "order_of_repetend", "order_of_starts", "repeated"]

Floats = NDArray[np.float64]
Times = NDArray[Any]
"""Whole or not; Python's own integers where 64 bits are not enough."""
WIDE = 2**62


class Pattern(NamedTuple):
    """U copies of the blocks; slots of device d are at positions `device_ptr[d]:device_ptr[d + 1]` of an order."""

    span: Ints
    """Item -> how long it takes."""
    arc_ptr: Indices
    arc_to: Indices
    arc_weight: Ints
    """Item -> items that wait for it, and how long after its start."""
    slot_ptr: Indices
    """Item -> its slots `slot_ptr[i]:slot_ptr[i + 1]`, one on each of its devices."""
    slot_item: Indices
    slot_device: Indices
    slot_change: Ints
    """Slot -> change of memory."""
    device_ptr: Indices
    limit: Ints
    unit: Floats
    """Device -> memory that weighs as much as half an activation."""


class CyclicOrder(NamedTuple):
    """One cyclic order of every device."""

    slot: Indices
    """Position -> slot."""
    position: Indices
    """Slot -> position."""
    lag: Ints
    """Slot -> windows by which it lags behind."""


def make_pattern(blocks: Blocks, copies: int) -> Pattern:
    """The arrays of so many micro-batches."""
    table, n = blocks.table, blocks.n
    arcs, slots = np.diff(table.after_ptr), np.diff(table.device_ptr)
    owner = np.repeat(np.arange(n), arcs)
    slot_item = np.repeat(np.arange(n, dtype=np.int32), slots)
    device_ptr = np.zeros(len(blocks.devices) + 1, np.int32)
    np.cumsum(copies * np.bincount(table.device_of, minlength=len(blocks.devices)), out=device_ptr[1:])
    unit = np.ones(len(blocks.devices))
    np.maximum.at(unit, table.device_of, table.device_memory / 2)
    return Pattern(
        _copied(table.span, copies),
        _pointers(arcs, copies),
        _copied(table.after_of, copies, n),
        _copied(table.span[owner] + table.after_lag, copies),
        _pointers(slots, copies),
        _copied(slot_item, copies, n),
        _copied(table.device_of, copies),
        _copied(table.device_memory, copies),
        device_ptr,
        table.limit,
        unit,
    )


def _copied(row: NDArray[Any], copies: int, step: int = 0) -> NDArray[Any]:
    """A row for every copy, each larger than the one before by the step."""
    if copies == 1:
        return row
    shift = np.repeat(np.arange(copies, dtype=row.dtype) * step, len(row))
    return np.asarray(np.tile(row, copies) + shift)


def _pointers(sizes: NDArray[Any], copies: int) -> Indices:
    found = np.zeros(len(sizes) * copies + 1, np.int32)
    np.cumsum(_copied(sizes, copies), out=found[1:])
    return found


def order_of_starts(
    pattern: Pattern, starts: Sequence[float | Fraction] | Times, length: float | Fraction
) -> CyclicOrder:
    """The order that starts mean, whether or not they overlap: by their remainder in the window."""
    if isinstance(length, Fraction):
        starts, length = _whole([Fraction(start) for start in starts], length)
    lags, phase = np.divmod(np.asarray(starts), length)
    lags = (lags - lags.min()).astype(np.int64)
    item = pattern.slot_item
    if phase.dtype == object:  # beyond 64 bits: ranks mean the same
        rank = {value: number for number, value in enumerate(sorted(set(phase)))}
        phase = np.array([rank[value] for value in phase])
    slot = np.lexsort((lags[item], phase[item], pattern.slot_device)).astype(np.int32)
    return _order(slot, lags[item])


def _whole(starts: list[Fraction], length: Fraction) -> tuple[Times, int]:
    """Starts and length in a unit in which all are whole."""
    unit = lcm(length.denominator, *{start.denominator for start in starts})
    rows = [start.numerator * (unit // start.denominator) for start in starts]
    whole = length.numerator * (unit // length.denominator)
    return np.array(rows, np.int64 if max(whole, *map(abs, rows)) < WIDE else object), whole


def order_of_repetend(pattern: Pattern, repetend: Repetend) -> CyclicOrder:
    """The order that a repetend of as many micro-batches has."""
    return order_of_starts(pattern, repetend.starts, repetend.length)


def repeated(pattern: Pattern, repetend: Repetend) -> CyclicOrder:
    """A repetend run several times, as one repetition of the pattern (whose copies are a multiple of its own)."""
    times = len(pattern.span) // len(repetend.starts)
    starts: list[Fraction] = []
    for turn in range(times):
        starts += [start + turn * repetend.length for start in repetend.starts]
    return order_of_starts(pattern, starts, times * repetend.length)


def _order(slot: Indices, lag: Ints) -> CyclicOrder:
    position = np.empty(len(slot), np.int32)
    position[slot] = np.arange(len(slot), dtype=np.int32)
    return CyclicOrder(slot, position, np.ascontiguousarray(lag, np.int64))
