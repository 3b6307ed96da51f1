"""Tessel's parts put together: repetend indices -> what comes before and behind, and orders for all micro-batches.

A repetend holds every block once, block i for micro-batch `index[i]`; repetition k runs it for micro-batch
`index[i] + k`. What is before is the warmup, what is behind the cooldown. As published the three phases are ordered
one by one; the simulator then starts everything as early as these orders allow, which lets the phases interlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks
from weftline.schedule.repetend import Repetend
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.tessel_z3 import Operation, Phase
from weftline.simulate import Orders

__all__ = ["as_repetend", "composed", "cooldown", "held_memory", "need_balance", "warmup"]


def need_balance(blocks: Blocks) -> None:
    """A pattern repeats for ever only if micro-batches take back all memory."""
    if not blocks.balanced:
        raise InfeasibleError("Tessel's schedules repeat: micro-batches must take back all memory")


def warmup(index: Sequence[int]) -> list[Operation]:
    """Operations before the repetend."""
    return [(block, micro) for block, last in enumerate(index) for micro in range(last)]


def cooldown(index: Sequence[int]) -> list[Operation]:
    """Operations behind a repetend that runs once."""
    return [(block, micro) for block, first in enumerate(index) for micro in range(first + 1, max(index) + 1)]


def held_memory(blocks: Blocks, index: Sequence[int]) -> list[int]:
    """Device -> memory that the warmup leaves."""
    held = [0] * len(blocks.devices)
    for block, count in zip(blocks.blocks, index, strict=True):
        for device, change in zip(block.devices, block.memory, strict=True):
            held[device] += count * change
    return held


def as_repetend(blocks: Blocks, index: Sequence[int], start: Sequence[int], period: int) -> Repetend:
    """The same pattern in the words of this room."""
    top = max(index)
    by_start = sorted(range(blocks.n), key=lambda i: (start[i], i))
    rows = tuple(tuple(i for i in by_start if d in blocks.blocks[i].devices) for d in range(len(blocks.devices)))
    starts = tuple(Fraction(start[i] + (top - index[i]) * period) for i in range(blocks.n))
    return Repetend(1, Fraction(period), rows, tuple(top - i for i in index), starts)


def composed(
    search: ScheduleSearch, index: Sequence[int], start: Sequence[int], good: tuple[float, float] = (0.0, 0.0)
) -> Orders | None:
    """Warmup and cooldown of least makespan (or at most `good`) around the repetend, for all micro-batches."""
    blocks, count = search.blocks, search.micro_batches
    repeats = count - max(index)
    if repeats < 1:
        return None
    held = held_memory(blocks, index)
    first = Phase(search, warmup(index), [0] * len(held)).least_makespan(good[0])
    last = None if first is None else Phase(search, cooldown(index), held).least_makespan(good[1])
    if first is None or last is None:
        return None
    once = {(i, index[i]): start[i] for i in range(blocks.n)}
    rows = []
    for device in range(len(blocks.devices)):
        parts = [
            [op for op in sorted(part, key=lambda op: (part[op], op)) if device in blocks.blocks[op[0]].devices]
            for part in (first, once, last)
        ]
        row = [*parts[0], *((i, micro + k) for k in range(repeats) for i, micro in parts[1])]
        row += [(i, micro + repeats - 1) for i, micro in parts[2]]
        rows.append(np.array([micro * blocks.n + i for i, micro in row], np.int64))
    return tuple(rows)
