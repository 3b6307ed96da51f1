"""The list scheduler as a kernel: time runs from event to event, free devices take the ready block they like best.

In: blocks, rules (`ListRules`), the number of micro-batches. Out: an order for every device. Micro-batches of one block
start in the order of their numbers, so every block has one candidate at a time.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import BlockTable
from weftline.simulate.jit import kernel, part

__all__ = ["ListBoard", "ListRules", "ListState", "list_schedule"]

NEVER = 2**62


class ListBoard(NamedTuple):
    """What the blocks say, by device."""

    lane_ptr: Indices
    lane_of: Indices
    """Device -> its blocks, in topological order."""
    lane_change: Ints
    """Beside `lane_of`: change of memory there."""
    partner: Indices
    """Block -> the backward block of its stage (-1: none); it counts what is in flight."""
    stage_ptr: Indices
    stage_of: Indices
    """Block -> devices that look again when it starts: those of its stage."""
    order_ptr: Ints
    """Device -> first place of its order, for the number of micro-batches at hand."""


class ListRules(NamedTuple):
    """Who goes first, and who must wait."""

    rank: Ints
    """Block -> 0 as soon as possible (B), 2 if memory allows (F), 3 to fill gaps (W)."""
    key: Ints
    """Block -> larger first, within a rank."""
    micro_key: Ints
    """(1,): so much less for every micro-batch."""
    most: Ints
    """KF: block -> forward blocks of its stage in flight at most."""
    overdue: Ints
    """KW: block -> from so many outstanding weight gradients on, they go before forward blocks."""
    reserve: Ints
    """RS, beside `device_of`: memory that must stay free besides."""
    patience: Ints
    """thW and thF, two per device: thousandths of a span that a W (F) waits for what is known to come."""
    banker: Ints
    """(1,): 1 = take memory only if all micro-batches in flight can still end one after another."""
    hold: Ints
    """(1,): 1 = a device keeps itself free for a block whose other devices are busy."""


class ListState(NamedTuple):
    """Room to work in; `of` and `start` are the result."""

    of: Ints
    start: Ints
    arrive: Ints
    missing: Indices
    next_micro: Ints
    free: Ints
    level: Ints
    wake: Ints
    filled: Ints


@kernel
def list_schedule(table: BlockTable, board: ListBoard, rules: ListRules, state: ListState, count: int) -> int:
    """Fill orders and starts -> makespan, or -1 if memory does not let it end."""
    n, devices = len(table.span), len(table.limit)
    _begin(table, board, state, count)
    left, now, makespan = count * n, 0, 0
    while left > 0:
        again = True
        while again:
            again = False
            for device in range(devices):
                if state.wake[device] > now or state.free[device] > now:
                    continue
                block = _choose(table, board, rules, state, count, device, now)
                if block >= 0:
                    _start(table, board, state, block, now)
                    makespan = max(makespan, now + table.span[block])
                    left -= 1
                    again = True
        now = NEVER
        for device in range(devices):
            now = min(now, max(state.wake[device], state.free[device]))
        if now == NEVER and left > 0:
            return -1
    return makespan


@part
def _begin(table: BlockTable, board: ListBoard, state: ListState, count: int) -> None:
    n = len(table.span)
    for op in range(count * n):
        block = op % n
        state.missing[op] = table.before_ptr[block + 1] - table.before_ptr[block]
        state.arrive[op] = 0
    for block in range(n):
        state.next_micro[block] = 0
    for device in range(len(table.limit)):
        state.free[device] = 0
        state.level[device] = 0
        state.wake[device] = 0
        state.filled[device] = board.order_ptr[device]


@part
def _choose(
    table: BlockTable, board: ListBoard, rules: ListRules, state: ListState, count: int, device: int, now: int
) -> int:
    """The block to start, or -1; sets when the device looks again."""
    n = len(table.span)
    best, best_rank, best_key, best_busy = -1, 4, 0, False
    soon_first, soon_any, wake = NEVER, NEVER, NEVER
    for place in range(board.lane_ptr[device], board.lane_ptr[device + 1]):
        block = board.lane_of[place]
        micro = state.next_micro[block]
        if micro >= count or state.missing[micro * n + block] > 0:
            continue
        rank = rules.rank[block]
        come = state.arrive[micro * n + block]
        if come > now:
            wake = min(wake, come)
            if rank < 3:
                soon_any = min(soon_any, come)
                if rank < 2:
                    soon_first = min(soon_first, come)
            continue
        partner = board.partner[block]
        if partner >= 0:
            if rank == 2 and micro - state.next_micro[partner] >= rules.most[block]:
                continue
            if rank == 3 and state.next_micro[partner] - micro >= rules.overdue[block]:
                rank = 1
        key = rules.key[block] - micro * rules.micro_key[0]
        if rank > best_rank or (rank == best_rank and best >= 0 and key <= best_key):
            continue
        if not _fits(table, board, rules, state, block, micro):
            continue
        other = _others_free(table, state, block)
        if other > now:
            wake = min(wake, other)
            if rules.hold[0] == 0:
                continue
        best, best_rank, best_key, best_busy = block, rank, key, other > now
    state.wake[device] = wake
    if best < 0 or best_busy:
        return -1
    waited = soon_any if rules.rank[best] == 3 else (soon_first if rules.rank[best] == 2 else NEVER)
    share = rules.patience[2 * device + (0 if rules.rank[best] == 3 else 1)]
    if waited < NEVER and 1000 * (waited - now) < share * table.span[best]:
        state.wake[device] = waited
        return -1
    return best


@part
def _others_free(table: BlockTable, state: ListState, block: int) -> int:
    """When all devices of a block are free."""
    latest = 0
    for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
        latest = max(latest, state.free[table.device_of[j]])
    return latest


@part
def _fits(table: BlockTable, board: ListBoard, rules: ListRules, state: ListState, block: int, micro: int) -> bool:
    for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
        change, device = table.device_memory[j], table.device_of[j]
        if change <= 0:
            continue
        if state.level[device] + change + rules.reserve[j] > table.limit[device]:
            return False
        if rules.banker[0] == 1 and not _safe(table, board, state, block, micro, device, change):
            return False
    return True


@part
def _safe(
    table: BlockTable, board: ListBoard, state: ListState, block: int, micro: int, device: int, change: int
) -> bool:
    """Whether all micro-batches that have begun here can end one after another when this block has started."""
    low, high = NEVER, micro + 1
    for place in range(board.lane_ptr[device], board.lane_ptr[device + 1]):
        done = state.next_micro[board.lane_of[place]]
        low, high = min(low, done), max(high, done)
    level = state.level[device] + change
    for other in range(low, high):
        for place in range(board.lane_ptr[device], board.lane_ptr[device + 1]):
            rest = board.lane_of[place]
            if other < state.next_micro[rest] or (rest == block and other == micro):
                continue
            level += board.lane_change[place]
            if level > table.limit[device]:
                return False
    return True


@part
def _start(table: BlockTable, board: ListBoard, state: ListState, block: int, now: int) -> None:
    n = len(table.span)
    micro = state.next_micro[block]
    op = micro * n + block
    end = now + table.span[block]
    state.next_micro[block] = micro + 1
    state.start[op] = now
    for j in range(board.stage_ptr[block], board.stage_ptr[block + 1]):
        device = board.stage_of[j]
        state.wake[device] = min(state.wake[device], now)
    for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
        device = table.device_of[j]
        state.of[state.filled[device]] = op
        state.filled[device] += 1
        state.free[device] = end
        state.wake[device] = end
        state.level[device] += table.device_memory[j]
    for e in range(table.after_ptr[block], table.after_ptr[block + 1]):
        target = table.after_of[e]
        after = micro * n + target
        state.missing[after] -= 1
        state.arrive[after] = max(state.arrive[after], end + table.after_lag[e])
        if state.missing[after] == 0:
            for j in range(table.device_ptr[target], table.device_ptr[target + 1]):
                device = table.device_of[j]
                state.wake[device] = min(state.wake[device], state.arrive[after])
