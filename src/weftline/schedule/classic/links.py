"""Rows of operations for devices -> orders for everything: links serve what is ready first, as it comes.

Published schedules say what devices do; where blocks sit on links, the links' orders follow from that.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from itertools import pairwise

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.problem.blocks import Blocks
from weftline.simulate import Orders

__all__ = ["with_links"]


def with_links(blocks: Blocks, micro_batches: int, rows: Sequence[Sequence[int]]) -> Orders:
    """Orders of all lanes; `InfeasibleError` if the devices' rows wait for each other for ever."""
    lanes = blocks.devices
    if not any(lane.link for lane in lanes):
        return tuple(np.array(row, np.int64) for row in rows)
    served = _serve(blocks, micro_batches, rows)
    return tuple(np.array(served[d] if lane.link else rows[d], np.int64) for d, lane in enumerate(lanes))


def _serve(blocks: Blocks, micro_batches: int, rows: Sequence[Sequence[int]]) -> list[list[int]]:
    """Lane -> its operations as they start: earliest possible start first, lanes free, devices in their order."""
    table, n = blocks.table, blocks.n
    waits = np.diff(table.before_ptr).tolist() * micro_batches
    for row in rows:
        for op in row[1:]:
            waits[op] += 1
    follows: dict[int, list[int]] = {}
    for row in rows:
        for first, second in pairwise(row):
            follows.setdefault(first, []).append(second)
    ready = [0] * len(waits)
    free = [0] * len(blocks.devices)
    heap = [(0, op) for op in range(len(waits)) if not waits[op]]
    served: list[list[int]] = [[] for _ in blocks.devices]
    done = 0
    while heap:
        when, op = heappop(heap)
        block = blocks.blocks[op % n]
        start = max(when, *(free[d] for d in block.devices))
        if start > when:
            heappush(heap, (start, op))
            continue
        done += 1
        end = start + block.span
        for d in block.devices:
            free[d] = end
            served[d].append(op)
        base, i = op - op % n, op % n
        unlocked = [(base + int(table.after_of[e]), int(table.after_lag[e])) for e in _row(table.after_ptr, i)]
        for other, lag in [*unlocked, *((after, 0) for after in follows.get(op, ()))]:
            ready[other] = max(ready[other], end + lag)
            waits[other] -= 1
            if not waits[other]:
                heappush(heap, (ready[other], other))
    if done < len(waits):
        raise InfeasibleError("the orders of the devices wait for each other for ever (deadlock)")
    return served


def _row(pointer: Indices, i: int) -> range:
    return range(int(pointer[i]), int(pointer[i + 1]))
