"""Lower bounds of the makespan, and of the longest device span, of any schedule of N micro-batches.

In: `Blocks` of any kind, N. Out: a number and its name. All blocks of one device run one after another; before it are
heads, behind it tails, and at both ends memory limits how much a device can do while it waits for others:
- load: earliest start of a set of blocks + N * their spans + least path behind them;
- ramp: until time t only blocks that can start before t have started, and they fit in memory; the same backwards;
- area: the sum over time of held memory is at least N times what one micro-batch must hold, and at most limit * time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.makespan_paths import Paths, find_paths
from weftline.bounds.makespan_ramp import most_work
from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.problem.model import UNLIMITED

__all__ = ["device_span_bound", "makespan_bound"]

Flags = NDArray[np.bool_]

MOST_LEVELS = 64
"""Different heads (tails) that are tried as the begin of the work of a set."""


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
        seen = _device(blocks, paths, device, micro_batches)
        if seen is not None:
            best = max(best, _bound(seen), key=lambda pair: pair[0])
    return best


def device_span_bound(blocks: Blocks, micro_batches: int) -> tuple[int, str]:
    """In no schedule is the longest device span (first start to last end of a device that is no link) shorter."""
    paths = find_paths(blocks)
    best = 0, "load"
    for device, lane in enumerate(blocks.devices):
        seen = None if lane.link else _device(blocks, paths, device, micro_batches)
        if seen is None:
            continue
        # heads and tails against the device's own first start and last end: paths from and to its own blocks
        head, tail = np.zeros_like(seen.head), np.zeros_like(seen.tail)
        if seen.between is not None:
            head = np.maximum(seen.between, 0).max(axis=0)
            tail = np.maximum(np.where(seen.between >= 0, seen.between + seen.span[None, :], 0).max(axis=1), seen.span)
            tail = tail - seen.span
        alone = _Device(seen.span, seen.change, head, tail, seen.between, seen.limit, seen.count)
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
    if device.limit >= UNLIMITED or device.between is None:
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
    if device.limit >= UNLIMITED or device.limit <= 0 or device.between is None or device.change.sum():
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
