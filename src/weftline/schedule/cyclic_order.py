"""Cyclic orders: for every device a repeating sequence of the blocks of U micro-batches, as flat arrays for kernels.

In: blocks and U, or starts. Out: `Pattern` (what is fixed) and `CyclicOrder` (what a search changes). Copy u of block i
is item u * n + i. An item stands in one slot on each of its devices; window k of a device runs the slot for repetition
k - lag. Lags belong to slots: the windows of two devices need not begin together. Simplified: balanced blocks only.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.repetend import Repetend

__all__ = ["CyclicOrder", "Pattern", "make_pattern", "order_of_repetend", "order_of_starts", "repeated"]

Floats = NDArray[np.float64]


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
    arcs = np.diff(table.after_ptr)
    owner = np.repeat(np.arange(n), arcs)
    shift = np.repeat(np.arange(copies) * n, len(table.after_of))
    slot_device = np.tile(table.device_of, copies)
    slots = np.diff(table.device_ptr)
    device_ptr = np.zeros(len(blocks.devices) + 1, np.int32)
    np.cumsum(np.bincount(slot_device, minlength=len(blocks.devices)), out=device_ptr[1:])
    unit = np.ones(len(blocks.devices))
    np.maximum.at(unit, table.device_of, table.device_memory / 2)
    return Pattern(
        np.tile(table.span, copies),
        np.concatenate([[0], np.cumsum(np.tile(arcs, copies))]).astype(np.int32),
        (np.tile(table.after_of, copies) + shift).astype(np.int32),
        np.tile(table.span[owner] + table.after_lag, copies).astype(np.int64),
        np.concatenate([[0], np.cumsum(np.tile(slots, copies))]).astype(np.int32),
        np.repeat(np.arange(n * copies), np.tile(slots, copies)).astype(np.int32),
        slot_device.astype(np.int32),
        np.tile(table.device_memory, copies),
        device_ptr,
        table.limit,
        unit,
    )


def order_of_starts(
    pattern: Pattern, starts: Sequence[float | Fraction] | Floats, length: float | Fraction
) -> CyclicOrder:
    """The order that starts mean, whether or not they overlap: by their remainder in the window."""
    lags = np.array([int(start // length) for start in starts], np.int64)
    phase = [start - int(lag) * length for start, lag in zip(starts, lags, strict=True)]
    rank = np.empty(len(phase), np.int64)
    rank[sorted(range(len(phase)), key=lambda i: (phase[i], starts[i], i))] = np.arange(len(phase))
    slot = np.lexsort((rank[pattern.slot_item], pattern.slot_device)).astype(np.int32)
    return _order(slot, (lags - lags.min())[pattern.slot_item])


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
