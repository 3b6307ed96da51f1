"""A repetend: a pattern of U micro-batches that repeats for ever, and how it is unrolled for a given number of them.

State as in docs/design/0016: on every device the pattern is a cyclic order of (block, copy); window k of the pattern
runs copy u of block i for micro-batch U * (k - lag) + u. So lags say how far micro-batches interlock.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from math import lcm

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.simulate import Orders
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.sentinels import NEVER

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
    unit = lcm(length.denominator, *{start.denominator for start in starts})
    window = length.numerator * (unit // length.denominator)
    whole = [divmod(start.numerator * (unit // start.denominator), window) for start in starts]
    base = min(lag for lag, _ in whole)
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for copy in sorted(range(len(starts)), key=lambda c: (whole[c][1], c)):
        for device in blocks.blocks[copy % blocks.n].devices:
            rows[device].append(copy)
    return Repetend(
        micro_batches,
        length,
        tuple(map(tuple, rows)),
        tuple(lag - base for lag, _ in whole),
        tuple(start - base * length for start in starts) if base else tuple(starts),
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
    ptr = np.zeros(len(repetend.orders) + 1, np.int64)
    np.cumsum([len(order) for order in repetend.orders], out=ptr[1:])
    row = np.array([copy for order in repetend.orders for copy in order], np.int64)
    lag = np.array([repetend.lags[copy] for order in repetend.orders for copy in order], np.int64)
    ends, of = _unroll(blocks.n, repetend.micro_batches, micro_batches, ptr, row, lag)
    return tuple(of[begin:end] for begin, end in pairwise(ends.tolist()))


@kernel
def _unroll(n: int, copies: int, count: int, ptr: Ints, row: Ints, lag: Ints) -> tuple[Ints, Ints]:
    """Window after window; where no slot has work, on to the next window where one begins."""
    turns = -(-count // copies)
    ends, of = np.zeros(len(ptr), np.int64), np.empty(len(row) * turns, np.int64)
    size = 0
    for device in range(len(ptr) - 1):
        left, window = (ptr[device + 1] - ptr[device]) * turns, np.int64(NEVER)
        for t in range(ptr[device], ptr[device + 1]):
            window = min(window, lag[t])
        while left > 0:
            after = np.int64(NEVER)
            for t in range(ptr[device], ptr[device + 1]):
                turn = window - lag[t]
                if turn < 0:
                    after = min(after, lag[t])
                elif turn < turns:
                    left -= 1
                    if turn + 1 < turns:
                        after = window + 1
                    micro = copies * turn + row[t] // n
                    if micro < count:
                        of[size] = micro * n + row[t] % n
                        size += 1
            window = after
        ends[device + 1] = size
    return ends, of[:size]
