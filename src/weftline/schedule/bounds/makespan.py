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
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks, BlockTable
from weftline.problem.model import NO_LIMIT
from weftline.simulate.kernels.jit import kernel

__all__ = ["Paths", "bound_witnesses", "device_span_bound", "find_paths", "makespan_bound", "most_work"]

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
    return _most_work(span, change, needs, room, count)[0]


def _most_work(
    span: list[int], change: list[int], needs: list[list[int]], room: int, count: int
) -> tuple[int, dict[str, Any]]:
    """The same, and how the checker can see it: by a price of memory, by filling it exactly, or by all spans."""
    everything = count * sum(span)
    sets = _closed_sets(needs)
    if sets is None:
        return everything, {}
    weights = {(sum(change[i] for i in chosen), sum(span[i] for i in chosen)) for chosen in sets}
    kept = _not_dominated(weights)
    if room >= count * max(memory for memory, _ in kept):
        return count * max(work for _, work in kept), {"price": [0, 1]}
    best, price = _relaxed(kept, room, count)
    best, how = min((everything, {}), (best, {"price": [price.numerator, price.denominator]}), key=lambda pair: pair[0])
    if min(memory for memory, _ in kept) >= 0:
        filled = _exact(kept, room, count, best)
        if filled < best:
            return filled, {"exact": True}
    return best, how


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


def _relaxed(kept: list[tuple[int, int]], room: int, count: int) -> tuple[int, Fraction]:
    """With a price for memory: every price gives a bound; the best price is a slope of the upper hull."""
    hull: list[tuple[int, int]] = []
    for memory, work in kept:
        while len(hull) > 1:
            (m0, w0), (m1, w1) = hull[-2:]
            if (work - w0) * (m1 - m0) < (w1 - w0) * (memory - m0):
                break
            hull.pop()
        hull.append((memory, work))
    best, at = count * hull[-1][1], Fraction(0)
    for (m0, w0), (m1, w1) in pairwise(hull):
        price = Fraction(w1 - w0, m1 - m0)
        bound = count * max(work - price * memory for memory, work in hull) + price * room
        if bound // 1 < best:
            best, at = int(bound // 1), price
    return best, at


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
    for own in _devices(blocks, micro_batches, paths).values():
        best = max(best, _bound(own), key=lambda pair: pair[0])
    return best


def device_span_bound(blocks: Blocks, micro_batches: int) -> tuple[int, str]:
    """In no schedule is the longest device span (first start to last end of a device that is no link) shorter."""
    best = 0, "load"
    for own in _devices(blocks, micro_batches, find_paths(blocks), alone=True).values():
        best = max(best, _bound(own), key=lambda pair: pair[0])
    return best


def bound_witnesses(blocks: Blocks, micro_batches: int, *, device_span: bool) -> list[tuple[int, dict[str, Any]]]:
    """Every argument about one device alone, with what shows it to the checker; the strongest first."""
    found: list[tuple[int, dict[str, Any]]] = []
    for device, own in _devices(blocks, micro_batches, find_paths(blocks), alone=device_span).items():
        load, head, tail = _load_bound(own)
        found.append((load, {"kind": "load", "device": device, "head": head, "tail": tail}))
        ramp, begin, end = _ramp_bound(own)
        parts = {name: {"time": time, **how} for name, (time, _, how) in (("begin", begin), ("end", end))}
        found.append((ramp, {"kind": "ramp", "device": device, **parts}))
        area = _area_bound(own)
        mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
        plan = [[mine[i], mine[j], amount] for i, j, amount in _held(own) or ()] if area else []
        found.append((area, {"kind": "area", "device": device, "plan": plan}))
    return sorted(((value, witness) for value, witness in found if value), key=lambda pair: -pair[0])


def _devices(blocks: Blocks, micro_batches: int, paths: Paths, *, alone: bool = False) -> dict[int, _Device]:
    """All that have work; `alone`: no links, and time from their own first start to their own last end."""
    found: dict[int, _Device] = {}
    for device, lane in enumerate(blocks.devices):
        own = _device(blocks, paths, device, micro_batches)
        if own is None or (alone and lane.link):
            continue
        found[device] = own
        if not alone:
            continue
        # heads and tails against the device's own first start and last end: paths from and to its own blocks
        head, tail = np.zeros_like(own.head), np.zeros_like(own.tail)
        if own.between is not None:
            head = np.maximum(own.between, 0).max(axis=0)
            tail = np.maximum(np.where(own.between >= 0, own.between + own.span[None, :], 0).max(axis=1), own.span)
            tail = tail - own.span
        found[device] = _Device(own.span, own.change, head, tail, own.between, own.limit, own.count)
    return found


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
    found = [(_load_bound(device)[0], "load"), (_ramp_bound(device)[0], "ramp"), (_area_bound(device), "area")]
    return max(found, key=lambda pair: pair[0])


def _load_bound(device: _Device) -> tuple[int, int, int]:
    """The best set of blocks with heads and tails above some levels, and these."""
    best = 0, 0, 0
    for head in _levels(device.head):
        early = device.head >= head
        for tail in _levels(device.tail):
            work = int(device.span[early & (device.tail >= tail)].sum())
            if work:
                best = max(best, (head + device.count * work + tail, head, tail), key=lambda found: found[0])
    return best


def _levels(values: Ints) -> list[int]:
    found = np.unique(values)
    return [int(v) for v in found[:: max(1, len(found) // MOST_LEVELS)]]


_Part = tuple[int, int, dict[str, Any]]
"""A time, the work that can be done within it, and how the checker sees that."""


def _ramp_bound(device: _Device) -> tuple[int, _Part, _Part]:
    """Time t at the begin and q at the end, in which little can be done, and all other work between them."""
    best: tuple[int, _Part, _Part] = 0, (0, 0, {}), (0, 0, {})
    if device.limit >= NO_LIMIT or device.between is None:
        return best
    whole = device.count * int(device.span.sum())
    kept = device.count * int(device.change.sum())
    waits = device.between >= 0
    begins, ends = [best[1]], [best[2]]
    for t in _levels(device.head):
        if t:
            begins.append((t, *_work(device, device.head < t, waits.T, device.change, device.limit)))
    for q in _levels(device.tail):
        if q:
            ends.append((q, *_work(device, device.tail < q, waits, -device.change, device.limit - kept)))
    # If less than t + q were enough, all work would be done in the two parts: excluded where there is more of it.
    for begin in begins:
        for end in ends:
            value = begin[0] + end[0] + whole - begin[1] - end[1]
            if whole > begin[1] + end[1] and value > best[0]:
                best = value, begin, end
    return best


def _work(device: _Device, part: Flags, waits: Flags, change: Ints, room: int) -> tuple[int, dict[str, Any]]:
    """`waits[i, j]`: a set with block i holds block j too (if j is in the part at all)."""
    mine = np.flatnonzero(part)
    needs = [[k for k, j in enumerate(mine) if waits[i, j] and i != j] for i in mine]
    return _most_work(device.span[mine].tolist(), change[mine].tolist(), needs, room, device.count)


def _area_bound(device: _Device) -> int:
    """Limit * time >= held memory over time + what must stay unused; for balanced blocks."""
    if device.limit >= NO_LIMIT or device.limit <= 0 or device.between is None or device.change.sum():
        return 0
    plan = _held(device)
    if plan is None:
        return 0
    held = sum(amount * int(device.between[i, j]) for i, j, amount in plan)
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


def _held(device: _Device) -> list[tuple[int, int, int]] | None:
    """What a micro-batch holds for how long: releases matched with takes before them, (take, release, amount)."""
    assert device.between is not None
    left = np.maximum(device.change, 0)
    held: list[tuple[int, int, int]] = []
    for block in np.argsort(device.head, kind="stable").tolist():
        wanted = -int(device.change[block])
        order = np.argsort(-device.between[:, block], kind="stable").tolist() if wanted > 0 else []
        for other in order:
            length = int(device.between[other, block])
            if length < 0 or other == block or wanted == 0:
                continue
            taken = min(wanted, int(left[other]))
            if taken:
                held.append((other, block, taken))
            wanted -= taken
            left[other] -= taken
        if wanted > 0:
            return None
    return held
