"""A repetend: a pattern of U micro-batches that repeats for ever, and how it is unrolled for a given number of them.

State as in docs/design/0016: on every device the pattern is a cyclic order of (block, copy); window k of the pattern
runs copy u of block i for micro-batch U * (k - lag) + u. So lags say how far micro-batches interlock.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.simulate import Orders

__all__ = ["Repetend", "repetend_of_starts", "repetend_peaks", "unroll"]


@dataclass(frozen=True, eq=False)
class Repetend:
    """Copy number of a block = copy * blocks + block."""

    micro_batches: int
    """U, per repetition."""
    length: Fraction
    """Time from one repetition to the next: exactly the largest cycle ratio of the order."""
    orders: tuple[tuple[int, ...], ...]
    """Device -> its copies of blocks, in the order of one window."""
    lags: tuple[int, ...]
    """Copy of a block -> windows by which it lags behind."""
    starts: tuple[Fraction, ...]
    """Copy of a block -> a start that keeps everything, for micro-batch `copy`."""

    @property
    def period(self) -> Fraction:
        """Time per micro-batch."""
        return self.length / self.micro_batches


def repetend_of_starts(blocks: Blocks, micro_batches: int, length: Fraction, starts: list[Fraction]) -> Repetend:
    """The order that starts mean: sorted by their remainder in the window."""
    lags = [int(start // length) for start in starts]
    base = min(lags)
    phase = [start - lag * length for start, lag in zip(starts, lags, strict=True)]
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for copy in sorted(range(len(starts)), key=lambda c: (phase[c], c)):
        for device in blocks.blocks[copy % blocks.n].devices:
            rows[device].append(copy)
    return Repetend(
        micro_batches,
        length,
        tuple(map(tuple, rows)),
        tuple(lag - base for lag in lags),
        tuple(s - base * length for s in starts),
    )


def repetend_peaks(blocks: Blocks, repetend: Repetend) -> tuple[int, ...]:
    """Device -> memory that the pattern holds at its peak, for ever; exact for balanced blocks."""
    peaks = []
    for device, order in enumerate(repetend.orders):
        change = [_change(blocks, copy, device) for copy in order]
        level = -sum(m * repetend.lags[copy] for m, copy in zip(change, order, strict=True))
        peak = level
        for m in change:
            level += m
            peak = max(peak, level)
        peaks.append(peak)
    return tuple(peaks)


def _change(blocks: Blocks, copy: int, device: int) -> int:
    block = blocks.blocks[copy % blocks.n]
    return block.memory[block.devices.index(device)]


def unroll(blocks: Blocks, repetend: Repetend, micro_batches: int) -> Orders:
    """The pattern for a given number of micro-batches: windows one after another, without what lies outside."""
    n, u = blocks.n, repetend.micro_batches
    turns = np.arange(-(-micro_batches // u), dtype=np.int64)[:, None]
    rows: list[Ints] = []
    for order in repetend.orders:
        row = np.array(order, np.int64)
        lag = np.array([repetend.lags[copy] for copy in order], np.int64)
        micro = u * turns + row // n
        place = np.broadcast_to(np.arange(len(row)), micro.shape)
        sequence = np.lexsort((place.ravel(), (turns + lag).ravel()))  # by window, then by place in the window
        micro, operation = micro.ravel()[sequence], (micro * n + row % n).ravel()[sequence]
        rows.append(operation[micro < micro_batches])
    return tuple(rows)
