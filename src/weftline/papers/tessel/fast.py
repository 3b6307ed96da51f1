"""Tessel-fast (TPDS 2024): compact each device without a look at dependencies, then give indices backwards.

1. Device by device, blocks go to the first free step; every other device in reverse order. 2. From the end, each block
gets the largest index of its successors, one more where the compaction broke the edge. 3. Memory is only checked
afterwards: there is no repair. 4. z3 orders warmup and cooldown until they are good enough (early accept), and the
simulator moves all to the left (tighten). Kinder than published: free steps are looked for on all devices of a block.
"""

from __future__ import annotations

from weftline.errors import InfeasibleError
from weftline.papers.tessel.z3 import Operation, as_repetend, composed, cooldown, load_z3, need_balance, warmup
from weftline.problem.blocks import Blocks
from weftline.schedule.search import Scheduler, ScheduleSearch

__all__ = ["SCHEDULER", "backward_indices", "compact"]

ACCEPT, REPEATS = 0.05, 128
"""A warmup or cooldown is good enough at its work + 5 % of 128 periods."""


def compact(blocks: Blocks) -> list[int]:
    """Block -> its start in the repetend, dependencies ignored."""
    rank = {int(i): k for k, i in enumerate(blocks.table.order)}
    busy: list[list[tuple[int, int]]] = [[] for _ in blocks.devices]
    start: dict[int, int] = {}
    for device in range(len(blocks.devices)):
        mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
        mine.sort(key=lambda i: (_side(blocks, i), rank[i]), reverse=device % 2 == 1)
        for i in mine:
            if i not in start:
                taken = sorted(pair for d in blocks.blocks[i].devices for pair in busy[d])
                start[i] = _first_free(taken, blocks.blocks[i].span)
                for d in blocks.blocks[i].devices:
                    busy[d].append((start[i], start[i] + blocks.blocks[i].span))
    return [start[i] for i in range(blocks.n)]


def _side(blocks: Blocks, i: int) -> int:
    """Forward blocks on several devices first, backward blocks on several devices last."""
    block = blocks.blocks[i]
    return 0 if len(block.devices) == 1 else -1 if block.kind == "F" else 1


def _first_free(taken: list[tuple[int, int]], span: int) -> int:
    free = 0
    for begin, end in taken:
        if begin >= free + span:
            break
        free = max(free, end)
    return free


def backward_indices(blocks: Blocks, start: list[int], period: int) -> list[int]:
    """Block -> its micro-batch index: as many more than a successor as periods are missing between the two."""
    table = blocks.table
    index = [0] * blocks.n
    for i in reversed(table.order.tolist()):
        for e in range(table.after_ptr[i], table.after_ptr[i + 1]):
            after = int(table.after_of[e])
            late = start[i] + blocks.blocks[i].span + int(table.after_lag[e]) - start[after]
            index[i] = max(index[i], index[after] + max(0, -(-late // period)))
    return index


def _work(blocks: Blocks, operations: list[Operation]) -> int:
    spans = [0] * len(blocks.devices)
    for i, _ in operations:
        for device in blocks.blocks[i].devices:
            spans[device] += blocks.blocks[i].span
    return max(spans)


def _solve(search: ScheduleSearch) -> None:
    blocks = search.blocks
    need_balance(blocks)
    load_z3()
    start = compact(blocks)
    period = max(begin + block.span for begin, block in zip(start, blocks.blocks, strict=True))
    index = backward_indices(blocks, start, period)
    slack = ACCEPT * period * REPEATS
    good = (_work(blocks, warmup(index)) + slack, _work(blocks, cooldown(index)) + slack)
    orders = composed(search, index, start, good) if max(index) < search.micro_batches else None
    if orders is not None:
        search.offer(orders)
    if search.offer_repetend(as_repetend(blocks, index, start, period)) is None:
        raise InfeasibleError(
            "Tessel-fast compacts without a look at memory, and it does not fit", conflicts=search.refused
        )


SCHEDULER = Scheduler(
    "tessel-fast", "Tessel-fast (TPDS 2024): compaction, indices backwards, early accept by z3", _solve
)
