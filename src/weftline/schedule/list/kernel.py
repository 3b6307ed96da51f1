"""The list scheduler as a kernel: time runs from event to event, free devices take the ready block that ranks first.

In: blocks, rules (`ListRules`), the number of micro-batches. Out: an order for every device. Micro-batches of one block
start in the order of their numbers, so every block has one candidate at a time.
"""

from __future__ import annotations

from typing import NamedTuple

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import BlockTable
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.sentinels import NEVER

__all__ = ["ListBoard", "ListRules", "ListState", "list_schedule"]

RANK_FIRST, RANK_OVERDUE, RANK_FORWARD, RANK_FILL, RANK_NONE = range(5)
"""What goes first: B and C, then W that wait too long, then F, then other W."""
PATIENCE_FILL, PATIENCE_FORWARD = range(2)
"""Slots of `ListRules.patience` of a device: of W and of F."""


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
    """Block -> RANK_FIRST as soon as possible (B), RANK_FORWARD if memory allows (F), RANK_FILL to fill gaps (W)."""
    key: Ints
    """Block -> larger first, within a rank."""
    micro_key: int
    """So much less for every micro-batch."""
    most: Ints
    """KF: block -> forward blocks of its stage in flight at most."""
    overdue: Ints
    """KW: block -> from so many outstanding weight gradients on, they go before forward blocks."""
    reserve: Ints
    """RS, beside `device_of`: memory that must stay free besides."""
    patience: Ints
    """thW and thF, two per device: thousandths of a span that a W (F) waits for what is known to come."""
    banker: bool
    """Take memory only if all micro-batches in flight can still end one after another."""
    hold: bool
    """A device keeps itself free for a block whose other devices are busy."""


class ListState(NamedTuple):
    """Scratch arrays; `of` and `start` are the result."""

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
    """Fill orders and starts -> makespan, or -1 if memory does not let it end.

    At every event, what has started by `now` keeps edges, devices and memory; the simulator costs the orders again.
    """
    spans, limits = table.span, table.limit
    wake, free = state.wake, state.free
    n, devices = len(spans), len(limits)
    _begin(table, board, state, count)
    left, now, makespan = count * n, 0, 0
    while left > 0:
        again = True
        while again:
            again = False
            for device in range(devices):
                if wake[device] > now or free[device] > now:
                    continue
                block = _choose(table, board, rules, state, count, device, now)
                if block >= 0:
                    _start(table, board, state, block, now)
                    makespan = max(makespan, now + spans[block])
                    left -= 1
                    again = True
        now = NEVER
        for device in range(devices):
            now = min(now, max(wake[device], free[device]))
        if now == NEVER and left > 0:
            return -1
    return makespan


@part
def _begin(table: BlockTable, board: ListBoard, state: ListState, count: int) -> None:
    spans, before_ptr, limits = table.span, table.before_ptr, table.limit
    order_ptr = board.order_ptr
    missing, arrive, next_micro, free, levels = state.missing, state.arrive, state.next_micro, state.free, state.level
    wake, filled = state.wake, state.filled
    n = len(spans)
    for op in range(count * n):
        block = op % n
        missing[op] = before_ptr[block + 1] - before_ptr[block]
        arrive[op] = 0
    for block in range(n):
        next_micro[block] = 0
    for device in range(len(limits)):
        free[device] = 0
        levels[device] = 0
        wake[device] = 0
        filled[device] = order_ptr[device]


@part
def _choose(
    table: BlockTable, board: ListBoard, rules: ListRules, state: ListState, count: int, device: int, now: int
) -> int:
    """The block to start, or -1; sets when the device looks again."""
    spans, device_ptr, device_of, device_memory = table.span, table.device_ptr, table.device_of, table.device_memory
    limits = table.limit
    lane_ptr, lane_of, partners = board.lane_ptr, board.lane_of, board.partner
    ranks, mosts, overdues, keys = rules.rank, rules.most, rules.overdue, rules.key
    reserve, patience = rules.reserve, rules.patience
    next_micro, missing, arrive, levels, free = state.next_micro, state.missing, state.arrive, state.level, state.free
    wake = state.wake
    n = len(spans)
    best, best_rank, best_key, best_busy = -1, RANK_NONE, 0, False
    soon_first, soon_any, look = NEVER, NEVER, NEVER
    for place in range(lane_ptr[device], lane_ptr[device + 1]):
        block = lane_of[place]
        micro = next_micro[block]
        if micro >= count or missing[micro * n + block] > 0:
            continue
        rank = ranks[block]
        come = arrive[micro * n + block]
        if come > now:
            look = min(look, come)
            if rank < RANK_FILL:
                soon_any = min(soon_any, come)
                if rank < RANK_FORWARD:
                    soon_first = min(soon_first, come)
            continue
        partner = partners[block]
        if partner >= 0:
            if rank == RANK_FORWARD and micro - next_micro[partner] >= mosts[block]:
                continue
            if rank == RANK_FILL and next_micro[partner] - micro >= overdues[block]:
                rank = RANK_OVERDUE
        key = keys[block] - micro * rules.micro_key
        if rank > best_rank or (rank == best_rank and best >= 0 and key <= best_key):
            continue
        first, last = device_ptr[block], device_ptr[block + 1]
        if not _fits(first, last, device_of, device_memory, limits, reserve, levels):
            continue
        if rules.banker and not _all_safe(table, board, state, block, micro):
            continue
        other = free[device] if last == first + 1 else _all_free(first, last, device_of, free)
        if other > now:
            look = min(look, other)
            if not rules.hold:
                continue
        best, best_rank, best_key, best_busy = block, rank, key, other > now
    wake[device] = look
    if best < 0 or best_busy:
        return -1
    is_fill = ranks[best] == RANK_FILL
    waited = soon_any if is_fill else (soon_first if ranks[best] == RANK_FORWARD else NEVER)
    share = patience[2 * device + (PATIENCE_FILL if is_fill else PATIENCE_FORWARD)]
    if waited < NEVER and 1000 * (waited - now) < share * spans[best]:
        wake[device] = waited
        return -1
    return best


@part
def _all_free(first: int, last: int, device_of: Indices, free: Ints) -> int:
    """When all devices of a block are free."""
    latest = 0
    for j in range(first, last):
        latest = max(latest, free[device_of[j]])
    return latest


@part
def _fits(
    first: int, last: int, device_of: Indices, device_memory: Ints, limit: Ints, reserve: Ints, level: Ints
) -> bool:
    for j in range(first, last):
        change, device = device_memory[j], device_of[j]
        if change > 0 and level[device] + change + reserve[j] > limit[device]:
            return False
    return True


@part
def _all_safe(table: BlockTable, board: ListBoard, state: ListState, block: int, micro: int) -> bool:
    device_ptr, device_memory, device_of = table.device_ptr, table.device_memory, table.device_of
    for j in range(device_ptr[block], device_ptr[block + 1]):
        change, device = device_memory[j], device_of[j]
        if change > 0 and not _safe(table, board, state, block, micro, device, change):
            return False
    return True


@part
def _safe(
    table: BlockTable, board: ListBoard, state: ListState, block: int, micro: int, device: int, change: int
) -> bool:
    """Whether all micro-batches that have begun here can end one after another when this block has started."""
    limits = table.limit
    lane_ptr, lane_of, lane_change = board.lane_ptr, board.lane_of, board.lane_change
    next_micro, levels = state.next_micro, state.level
    low, high = NEVER, micro + 1
    for place in range(lane_ptr[device], lane_ptr[device + 1]):
        done = next_micro[lane_of[place]]
        low, high = min(low, done), max(high, done)
    level = levels[device] + change
    for other in range(low, high):
        for place in range(lane_ptr[device], lane_ptr[device + 1]):
            rest = lane_of[place]
            if other < next_micro[rest] or (rest == block and other == micro):
                continue
            level += lane_change[place]
            if level > limits[device]:
                return False
    return True


@part
def _start(table: BlockTable, board: ListBoard, state: ListState, block: int, now: int) -> None:
    spans, device_ptr, device_of, device_memory = table.span, table.device_ptr, table.device_of, table.device_memory
    after_ptr, after_of, after_lag = table.after_ptr, table.after_of, table.after_lag
    stage_ptr, stage_of = board.stage_ptr, board.stage_of
    next_micro, starts, wake, of, filled = state.next_micro, state.start, state.wake, state.of, state.filled
    free, levels, missing, arrive = state.free, state.level, state.missing, state.arrive
    n = len(spans)
    micro = next_micro[block]
    op = micro * n + block
    end = now + spans[block]
    next_micro[block] = micro + 1
    starts[op] = now
    for j in range(stage_ptr[block], stage_ptr[block + 1]):
        device = stage_of[j]
        wake[device] = min(wake[device], now)
    for j in range(device_ptr[block], device_ptr[block + 1]):
        device = device_of[j]
        of[filled[device]] = op
        filled[device] += 1
        free[device] = end
        wake[device] = end
        levels[device] += device_memory[j]
    for e in range(after_ptr[block], after_ptr[block + 1]):
        target = after_of[e]
        after = micro * n + target
        missing[after] -= 1
        arrive[after] = max(arrive[after], end + after_lag[e])
        if missing[after] == 0:
            for j in range(device_ptr[target], device_ptr[target + 1]):
                device = device_of[j]
                wake[device] = min(wake[device], arrive[after])
