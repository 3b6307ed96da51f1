"""What one device has to do for each micro-batch, and what must happen before and after it.

In: the blocks of a schedule, a device. Out: its blocks with the least time before each (`head`) and behind each
(`tail`), the least time between any two of them, changes of memory, and room. Simplified: above MOST_BLOCKS blocks only
plain paths are known, and nothing between blocks.

**Between.** If a path leads from a to b, then in every micro-batch b starts at least so long after a as the longest
path (spans and latencies, the span of b not among them): each block on it waits for the one before.

**Heads.** Let S be blocks of one device from which paths lead to b. They run one after another, none before its own
head. So some block of S ends not before (least head of S) + (sum of spans of S), and from its end to the start of b
passes at least the least, over S, of (between minus span). Taken is the larger of this and the longest path, for every
device. Tails: the same in reverse.

**Device spans.** Where the longest span of a device counts, time begins with the first start on the device and ends
with the last end. Head of b: the largest `between` from a block of the same device; tail: the largest (`between` +
span) to one, less its own span.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.certify.allowance import Allowance
from weftline.certify.problem import need
from weftline.certify.schedule_blocks import ScheduleBlocks

__all__ = ["DeviceBlocks", "blocks_of_device", "longest_paths"]

MOST_BLOCKS = 1200


class DeviceBlocks(NamedTuple):
    """Of one device; positions in the lists are those of `blocks`."""

    blocks: list[int]
    span: list[int]
    change: list[int]
    head: list[int]
    tail: list[int]
    between: list[list[int]] | None
    """[a][b]: least time from the start of a to the start of b; 0 for a itself; -1 where b does not wait for a."""
    room: int | None
    """What the changes of memory may add up to."""


def longest_paths(blocks: ScheduleBlocks, source: int, allowance: Allowance) -> list[int]:
    """Block -> least time from the start of `source` to its start, -1 where it does not wait for it."""
    allowance.spend("steps", blocks.n + len(blocks.edges))
    found = [-1] * blocks.n
    found[source] = 0
    for a in blocks.order:
        if found[a] >= 0:
            for b, lag in blocks.after[a]:
                found[b] = max(found[b], found[a] + blocks.span[a] + lag)
    return found


def blocks_of_device(blocks: ScheduleBlocks, device: int, allowance: Allowance, *, alone: bool) -> DeviceBlocks:
    """`alone`: time is that of the device, from its first start to its last end."""
    mine = blocks.on[device]
    need(bool(mine), "witness", f"device {device} has nothing to do")
    need(not (alone and blocks.link[device]), "witness", "spans of links do not count")
    span = [blocks.span[i] for i in mine]
    limit, between = blocks.limit[device], None
    room = None if limit is None else limit - blocks.reserved[device]
    head, tail = blocks.head, blocks.tail
    if blocks.n <= MOST_BLOCKS:
        paths = [longest_paths(blocks, i, allowance) for i in range(blocks.n)]
        between = [[paths[i][j] for j in mine] for i in mine]
        if not alone:
            head, tail = _heads(blocks, paths, allowance), _tails(blocks, paths, allowance)
    heads, tails = [head[i] for i in mine], [tail[i] for i in mine]
    if alone:
        heads, tails = [0] * len(mine), [0] * len(mine)
        if between is not None:
            heads = [max(0, *column) for column in zip(*between, strict=True)]
            ends = [[t + s for t, s in zip(row, span, strict=True) if t >= 0] for row in between]
            tails = [max(row) - s for row, s in zip(ends, span, strict=True)]
    return DeviceBlocks(mine, span, [blocks.memory[i][device] for i in mine], heads, tails, between, room)


def _heads(blocks: ScheduleBlocks, paths: list[list[int]], allowance: Allowance) -> list[int]:
    head = list(blocks.head)
    for b in blocks.order:
        for mine in blocks.on:
            allowance.spend("steps", len(mine))
            above = [a for a in mine if a != b and paths[a][b] >= 0]
            if len(above) > 1:
                rest = min(paths[a][b] - blocks.span[a] for a in above)
                head[b] = max(head[b], min(head[a] for a in above) + sum(blocks.span[a] for a in above) + rest)
    return head


def _tails(blocks: ScheduleBlocks, paths: list[list[int]], allowance: Allowance) -> list[int]:
    tail = list(blocks.tail)
    for a in reversed(blocks.order):
        for mine in blocks.on:
            allowance.spend("steps", len(mine))
            below = [b for b in mine if b != a and paths[a][b] >= 0]
            if len(below) > 1:
                rest = min(paths[a][b] - blocks.span[a] for b in below)
                tail[a] = max(tail[a], min(tail[b] for b in below) + sum(blocks.span[b] for b in below) + rest)
    return tail
