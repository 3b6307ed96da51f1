"""Longest paths inside one micro-batch: when a block can start at the earliest, and what must follow it.

In: `Blocks`. Out: `Paths`. Heads and tails also use that blocks of one micro-batch on one device do not overlap.
Simplified: above MOST_BLOCKS blocks only paths to the start and to the end are known, not those between blocks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks, BlockTable
from weftline.simulate.jit import kernel

__all__ = ["Paths", "find_paths"]

MOST_BLOCKS = 1200


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
