"""Lower bounds of the makespan, and of the longest device span, of any schedule of N micro-batches.

In: `Blocks` of any kind, N. Out: a number and its name. All blocks of one device run one after another; before it are
heads, behind it tails, and at both ends memory limits how much a device can do while it waits for others:
- load: earliest start of a set of blocks + N * their spans + least path behind them;
- ramp: until time t only blocks that can start before t have started, and they fit in memory; the same backwards;
- area: the sum over time of held memory is at least N times what one micro-batch must hold, and at most limit * time.

`Paths` are longest paths inside one micro-batch. Heads and tails also use that its blocks on one device do not overlap.
`most_work`: what has started by a time is, for every micro-batch, a set of blocks that is closed under predecessors;
the changes of memory of all of them together fit in the limit. The same holds backwards in time at the end.
Simplified: above MOST_BLOCKS blocks only paths to the start and to the end are known, not those between blocks.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks, BlockTable
from weftline.problem.model import NO_LIMIT
from weftline.simulate.kernels.jit import kernel

__all__ = ["Paths", "device_span_bound", "find_paths", "makespan_bound", "most_work"]

Flags = NDArray[np.bool_]

MOST_BLOCKS = 1200
"""Up to which paths between blocks are known."""
MOST_SETS = 2_000
MOST_CELLS = 4_000_000
"""Closed sets, and cells of dynamic programming over memory, that `most_work` looks at."""
MOST_LEVELS = 64
"""Different heads (tails) that are tried as the begin of the work of a set."""


class Paths(NamedTuple):
    """Of one micro-batch."""

    head: Ints
    """Block -> earliest start."""
    tail: Ints
    """Block -> least time from its end to the end of the micro-batch."""
    between: Ints
    """[a, b]: least time from the start of a to the start of b, -1 where b does not wait for a; empty for many."""


def find_paths(blocks: Blocks) -> Paths:
    """Heads, tails and paths between."""
    table, n = blocks.table, blocks.n
    head, tail = np.zeros(n, np.int64), np.zeros(n, np.int64)
    _heads(table, head, tail)
    if n > MOST_BLOCKS:
        return Paths(head, tail, np.zeros((0, 0), np.int64))
    between = np.full((n, n), -1, np.int64)
    _between(table, between)
    rows = [np.flatnonzero([d in b.devices for b in blocks.blocks]) for d in range(len(blocks.devices))]
    for block in table.order.tolist():  # ancestors on one device run one after another
        for row in rows:
            above = row[between[row, block] >= 0]
            above = above[above != block]
            if len(above) > 1:
                rest = (between[above, block] - table.span[above]).min()
                head[block] = max(head[block], head[above].min() + table.span[above].sum() + rest)
    for block in reversed(table.order.tolist()):
        for row in rows:
            below = row[between[block, row] >= 0]
            below = below[below != block]
            if len(below) > 1:
                rest = (between[block, below] - table.span[block]).min()
                tail[block] = max(tail[block], tail[below].min() + table.span[below].sum() + rest)
    return Paths(head, tail, between)


@kernel
def _heads(table: BlockTable, head: Ints, tail: Ints) -> None:
    for i in range(len(table.order)):
        block = table.order[i]
        for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
            target = table.after_of[e]
            head[target] = max(head[target], head[block] + table.span[block] + table.after_lag[e])
    for i in range(len(table.order) - 1, -1, -1):
        block = table.order[i]
        for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
            target = table.after_of[e]
            tail[block] = max(tail[block], tail[target] + table.span[target] + table.after_lag[e])


@kernel
def _between(table: BlockTable, between: Ints) -> None:
    n = len(table.order)
    for first in range(n):
        between[first, first] = 0
        for i in range(n):
            block = table.order[i]
            if between[first, block] < 0:
                continue
            length = between[first, block] + table.span[block]
            for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
                target = table.after_of[e]
                between[first, target] = max(between[first, target], length + table.after_lag[e])


def most_work(span: list[int], change: list[int], needs: list[list[int]], room: int, count: int) -> int:
    """Largest sum of spans of `count` closed sets whose changes add up to at most `room`.

    `needs[i]` are the blocks that a set with block i holds too.
    """
    everything = count * sum(span)
    sets = _closed_sets(needs)
    if sets is None:
        return everything
    weights = {(sum(change[i] for i in chosen), sum(span[i] for i in chosen)) for chosen in sets}
    kept = _not_dominated(weights)
    if room >= count * max(memory for memory, _ in kept):
        return count * max(work for _, work in kept)
    best = min(everything, _relaxed(kept, room, count))
    if min(memory for memory, _ in kept) >= 0:
        best = min(best, _exact(kept, room, count, best))
    return best


def _closed_sets(needs: list[list[int]]) -> list[frozenset[int]] | None:
    """All sets that hold what their members need; None if there are too many."""
    found = {frozenset[int]()}
    front = [frozenset[int]()]
    while front:
        current = front.pop()
        for block, needed in enumerate(needs):
            if block not in current and all(other in current for other in needed):
                larger = current | {block}
                if larger not in found:
                    found.add(larger)
                    front.append(larger)
                    if len(found) > MOST_SETS:
                        return None
    return sorted(found, key=sorted)


def _not_dominated(weights: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs (memory, work), by rising memory, each with more work than all before."""
    kept: list[tuple[int, int]] = []
    for memory, work in sorted(weights, key=lambda pair: (pair[0], -pair[1])):
        if not kept or work > kept[-1][1]:
            kept.append((memory, work))
    return kept


def _relaxed(kept: list[tuple[int, int]], room: int, count: int) -> int:
    """With a price for memory: every price gives a bound; the best price is a slope of the upper hull."""
    hull: list[tuple[int, int]] = []
    for memory, work in kept:
        while len(hull) > 1:
            (m0, w0), (m1, w1) = hull[-2:]
            if (work - w0) * (m1 - m0) < (w1 - w0) * (memory - m0):
                break
            hull.pop()
        hull.append((memory, work))
    best = count * hull[-1][1]
    for (m0, w0), (m1, w1) in pairwise(hull):
        price = Fraction(w1 - w0, m1 - m0)
        bound = count * max(work - price * memory for memory, work in hull) + price * room
        best = min(best, int(bound // 1))
    return best


def _exact(kept: list[tuple[int, int]], room: int, count: int, otherwise: int) -> int:
    """By dynamic programming over whole units of memory, if there are few."""
    unit = int(np.gcd.reduce([memory for memory, _ in kept] or [0]))
    if unit == 0:
        return otherwise
    cells = room // unit
    if cells < 0 or (cells + 1) * count * len(kept) > MOST_CELLS:
        return otherwise
    work: Ints = np.zeros(cells + 1, np.int64)
    for _ in range(count):
        better = work.copy()
        for memory, gain in kept:
            size = memory // unit
            if size <= cells:
                better[size:] = np.maximum(better[size:], work[: cells + 1 - size] + gain)
        work = better
    return int(work.max())


@dataclass(frozen=True, eq=False)
class _Device:
    """The blocks of one device, seen from it alone."""

    span: Ints
    change: Ints
    head: Ints
    tail: Ints
    between: Ints | None
    """As in `Paths`, for its blocks alone."""
    limit: int
    count: int


def makespan_bound(blocks: Blocks, micro_batches: int) -> tuple[int, str]:
    """No schedule ends earlier."""
    paths = find_paths(blocks)
    best = int((paths.head + blocks.table.span + paths.tail).max()), "path"
    for device in range(len(blocks.devices)):
        own = _device(blocks, paths, device, micro_batches)
        if own is not None:
            best = max(best, _bound(own), key=lambda pair: pair[0])
    return best


def device_span_bound(blocks: Blocks, micro_batches: int) -> tuple[int, str]:
    """In no schedule is the longest device span (first start to last end of a device that is no link) shorter."""
    paths = find_paths(blocks)
    best = 0, "load"
    for device, lane in enumerate(blocks.devices):
        own = None if lane.link else _device(blocks, paths, device, micro_batches)
        if own is None:
            continue
        # heads and tails against the device's own first start and last end: paths from and to its own blocks
        head, tail = np.zeros_like(own.head), np.zeros_like(own.tail)
        if own.between is not None:
            head = np.maximum(own.between, 0).max(axis=0)
            tail = np.maximum(np.where(own.between >= 0, own.between + own.span[None, :], 0).max(axis=1), own.span)
            tail = tail - own.span
        alone = _Device(own.span, own.change, head, tail, own.between, own.limit, own.count)
        best = max(best, _bound(alone), key=lambda pair: pair[0])
    return best


def _device(blocks: Blocks, paths: Paths, device: int, count: int) -> _Device | None:
    mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
    if not mine:
        return None
    change = [blocks.blocks[i].memory[blocks.blocks[i].devices.index(device)] for i in mine]
    between = paths.between[np.ix_(mine, mine)] if len(paths.between) else None
    return _Device(
        blocks.table.span[mine],
        np.array(change, np.int64),
        paths.head[mine],
        paths.tail[mine],
        between,
        int(blocks.table.limit[device]),
        count,
    )


def _bound(device: _Device) -> tuple[int, str]:
    found = [(_load_bound(device), "load"), (_ramp_bound(device), "ramp"), (_area_bound(device), "area")]
    return max(found, key=lambda pair: pair[0])


def _load_bound(device: _Device) -> int:
    """The best set of blocks with heads and tails above some levels."""
    best = 0
    for head in _levels(device.head):
        early = device.head >= head
        for tail in _levels(device.tail):
            work = int(device.span[early & (device.tail >= tail)].sum())
            if work:
                best = max(best, head + device.count * work + tail)
    return best


def _levels(values: Ints) -> list[int]:
    found = np.unique(values)
    return [int(v) for v in found[:: max(1, len(found) // MOST_LEVELS)]]


def _ramp_bound(device: _Device) -> int:
    """Time t at the begin and q at the end, in which little can be done, and all other work between them."""
    if device.limit >= NO_LIMIT or device.between is None:
        return 0
    whole = device.count * int(device.span.sum())
    kept = device.count * int(device.change.sum())
    waits = device.between >= 0
    begins = [(0, 0)] + [
        (t, _work(device, device.head < t, waits.T, device.change, device.limit)) for t in _levels(device.head) if t
    ]
    ends = [(0, 0)] + [
        (q, _work(device, device.tail < q, waits, -device.change, device.limit - kept))
        for q in _levels(device.tail)
        if q
    ]
    # If less than t + q were enough, all work would be done in the two parts: excluded where there is more of it.
    sums = [t + q + whole - a - b for t, a in begins for q, b in ends if whole > a + b]
    return max(sums, default=0)


def _work(device: _Device, part: Flags, waits: Flags, change: Ints, room: int) -> int:
    """`waits[i, j]`: a set with block i holds block j too (if j is in the part at all)."""
    mine = np.flatnonzero(part)
    needs = [[k for k, j in enumerate(mine) if waits[i, j] and i != j] for i in mine]
    return most_work(device.span[mine].tolist(), change[mine].tolist(), needs, room, device.count)


def _area_bound(device: _Device) -> int:
    """Limit * time >= held memory over time + what must stay unused; for balanced blocks."""
    if device.limit >= NO_LIMIT or device.limit <= 0 or device.between is None or device.change.sum():
        return 0
    held = _held(device)
    if held is None:
        return 0
    span, change, limit = device.span, device.change, device.limit
    less: Ints = np.minimum(change, 0)
    unused = int((-less * span).sum())  # while a releasing block runs
    before = [
        min(max(0, m + int(x)) * int(s) for x, s in zip(less, span, strict=True)) for m in change.tolist() if m > 0
    ]
    total = device.count * (held + unused + sum(before)) - max(before, default=0)  # none before the very first
    followers: Ints = (device.between > 0).sum(axis=1)  # spans are positive
    ends: Ints = ((limit + less) * span + limit * device.tail)[followers == 0]  # nothing is held during the last block
    least: int = int(device.head.min()) + -(-(total + int(ends.min())) // limit)
    return least


def _held(device: _Device) -> int | None:
    """At least so much memory x time does a micro-batch hold: releases matched with takes before them."""
    assert device.between is not None
    left = np.maximum(device.change, 0)
    held = 0
    for block in np.argsort(device.head, kind="stable").tolist():
        wanted = -int(device.change[block])
        order = np.argsort(-device.between[:, block], kind="stable").tolist() if wanted > 0 else []
        for other in order:
            length = int(device.between[other, block])
            if length < 0 or other == block or wanted == 0:
                continue
            taken = min(wanted, int(left[other]))
            held, wanted = held + taken * length, wanted - taken
            left[other] -= taken
        if wanted > 0:
            return None
    return held
