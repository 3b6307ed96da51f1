"""Blocks -> the list scheduler's board and the rules that are worth trying first.

Ranks come from the kinds of blocks; keys prefer what is deep in the graph, what has much after it, or early
micro-batches. `run_list` gives orders; what they cost is for the simulator to say.
"""

from __future__ import annotations

from itertools import product

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.bounds.makespan import Paths, find_paths
from weftline.schedule.list.kernel import ListBoard, ListRules, ListState, list_schedule
from weftline.simulate import Orders

__all__ = ["ListRun", "list_variants", "one_after_another", "usual_rules"]

RANK = (2, 0, 3, 0)
"""Of F, B, W, C."""
PATIENCE = (0, 400, 900)
"""Thousandths of a span, tried for both thresholds."""
SCALES = tuple(range(8, 31))
"""Tenths: forward blocks in flight for every one that the way to the backward block needs."""
OVERDUE = (2**40, 3, 2)
"""Outstanding weight gradients from which on they go before forward blocks."""


class ListRun:
    """The list scheduler for some blocks and a number of micro-batches."""

    def __init__(self, blocks: Blocks, micro_batches: int) -> None:
        self.blocks, self.micro_batches = blocks, micro_batches
        self._board = _board(blocks, micro_batches)
        ops, devices = micro_batches * blocks.n, len(blocks.devices)
        self._state = ListState(
            np.zeros(micro_batches * len(blocks.table.device_of), np.int64),
            np.zeros(ops, np.int64),
            np.zeros(ops, np.int64),
            np.zeros(ops, np.int32),
            np.zeros(blocks.n, np.int64),
            *(np.zeros(devices, np.int64) for _ in range(4)),
        )

    def run(self, rules: ListRules) -> int:
        """Makespan with waits as the rules want them (the simulator may say less), or -1 if it does not end."""
        return list_schedule(self.blocks.table, self._board, rules, self._state, self.micro_batches)

    def span(self) -> int:
        """The longest device span of the last run."""
        state, ptr, n = self._state, self._board.order_ptr, self.blocks.n
        spans = [0]
        for device, lane in enumerate(self.blocks.devices):
            if not lane.link and ptr[device] < ptr[device + 1]:
                first, last = state.of[ptr[device]], state.of[ptr[device + 1] - 1]
                spans.append(int(state.start[last] + self.blocks.table.span[last % n] - state.start[first]))
        return max(spans)

    def orders(self) -> Orders:
        """The orders of the last run."""
        ptr = self._board.order_ptr
        return tuple(self._state.of[ptr[d] : ptr[d + 1]].copy() for d in range(len(self.blocks.devices)))


def _board(blocks: Blocks, micro_batches: int) -> ListBoard:
    table = blocks.table
    lanes: list[list[tuple[int, int]]] = [[] for _ in blocks.devices]
    for block in table.order.tolist():
        for device, change in zip(blocks.blocks[block].devices, blocks.blocks[block].memory, strict=True):
            lanes[device].append((block, change))
    of_stage: dict[int, set[int]] = {}
    for b in blocks.blocks:
        of_stage.setdefault(b.stage, set()).update(b.devices)
    watchers = [sorted(of_stage[b.stage]) if b.stage >= 0 else [] for b in blocks.blocks]
    lane_ptr = _pointer([len(lane) for lane in lanes])
    return ListBoard(
        lane_ptr,
        np.array([block for lane in lanes for block, _ in lane], np.int32),
        np.array([change for lane in lanes for _, change in lane], np.int64),
        _partners(blocks),
        _pointer([len(row) for row in watchers]),
        np.array([d for row in watchers for d in row], np.int32),
        lane_ptr.astype(np.int64) * micro_batches,
    )


def _partners(blocks: Blocks) -> Indices:
    """Block -> the first backward block of its stage, -1 for none."""
    backward = {b.stage: i for i, b in reversed(list(enumerate(blocks.blocks))) if b.kind == "B" and b.stage >= 0}
    return np.array([-1 if b.kind in "BC" else backward.get(b.stage, -1) for b in blocks.blocks], np.int32)


def _pointer(counts: list[int]) -> Indices:
    pointer = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=pointer[1:])
    return pointer


def usual_rules(blocks: Blocks, micro_batches: int) -> ListRules:
    """B > F > W, deepest first, with the reserve that lets every begun micro-batch end."""
    return ListRules(
        np.array([RANK[kind] for kind in blocks.table.kind.tolist()], np.int64),
        find_paths(blocks).head,
        np.ones(1, np.int64),
        np.full(blocks.n, micro_batches, np.int64),
        np.full(blocks.n, micro_batches + 1, np.int64),
        _reserve(blocks),
        np.zeros(2 * len(blocks.devices), np.int64),
        np.zeros(1, np.int64),
        np.zeros(1, np.int64),
    )


def list_variants(blocks: Blocks, micro_batches: int) -> list[ListRules]:
    """The rules that are tried, the usual ones first."""
    usual = usual_rules(blocks, micro_batches)
    paths = find_paths(blocks)
    head, tail = paths.head, paths.tail
    one, same = np.ones(1, np.int64), np.where(usual.rank == 3, 3, 0).astype(np.int64)
    several = any(len(block.devices) > 1 for block in blocks.blocks)
    early = np.array([int(head.max(initial=0) + tail.max(initial=0)) + 1], np.int64)
    ways = [(usual.rank, head, one), (usual.rank, tail, one), (same, head, one), (same, tail, one), (same, tail, early)]
    waits = [(a, b) for a, b in product(PATIENCE, PATIENCE) if a >= b]
    found = []
    for hold, banker, (thw, thf), (rank, key, micro_key) in product((0, 1) if several else (0,), (0, 1), waits, ways):
        patience = np.tile(np.array([thw, thf], np.int64), len(blocks.devices))
        reserve = np.zeros_like(usual.reserve) if banker else usual.reserve
        rule = usual._replace(rank=rank, key=key, micro_key=micro_key, reserve=reserve, patience=patience)
        found.append(rule._replace(banker=np.array([banker], np.int64), hold=np.array([hold], np.int64)))
    return found + _in_flight_variants(blocks, micro_batches, usual, paths)


def _in_flight_variants(blocks: Blocks, micro_batches: int, usual: ListRules, paths: Paths) -> list[ListRules]:
    """KF in proportion to the time from a forward block to its backward block, counted in periods."""
    partner, period = _partners(blocks), max(blocks.loads)
    pairs = [(i, b) for i, b in enumerate(partner.tolist()) if b >= 0 and blocks.blocks[i].kind == "F"]
    if not len(paths.between) or not pairs:
        return []
    found = []
    weights = usual.rank == 3
    for scale, free, late in product(SCALES, (0, 1), OVERDUE if weights.any() else OVERDUE[:1]):
        most = usual.most.copy()
        for block, backward in pairs:
            length = max(int(paths.between[block, backward]), 1)
            most[block] = max(1, min(micro_batches, -(-scale * length // (10 * period))))
        overdue = np.where(weights, min(late, micro_batches + 1), usual.overdue)
        found.append(usual._replace(most=most, overdue=overdue, reserve=usual.reserve * free))
    return found


def _reserve(blocks: Blocks) -> Ints:
    """Beside `device_of`: what the rest of the micro-batch will need at its peak on this device after this block."""
    table = blocks.table
    peak, level = [0] * len(blocks.devices), [0] * len(blocks.devices)
    need = np.zeros(len(table.device_of), np.int64)
    for block in reversed(table.order.tolist()):
        for j in range(table.device_ptr[block], table.device_ptr[block + 1]):
            device, change = int(table.device_of[j]), int(table.device_memory[j])
            need[j] = peak[device]
            peak[device] = max(0, change + peak[device])
            level[device] += change
    return need


def one_after_another(blocks: Blocks, micro_batches: int, *, release_first: bool = False) -> Orders:
    """Each micro-batch begins when the one before it has ended: the least memory that simple orders need."""
    order = _release_first(blocks) if release_first else blocks.table.order.tolist()
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for micro in range(micro_batches):
        for block in order:
            for device in blocks.blocks[block].devices:
                rows[device].append(micro * blocks.n + block)
    return tuple(np.array(row, np.int64) for row in rows)


def _release_first(blocks: Blocks) -> list[int]:
    """A topological order in which the block that takes least memory comes next."""
    from heapq import heappop, heappush

    table, waits, ready, order = blocks.table, np.diff(blocks.table.before_ptr), [], []  # type: ignore[var-annotated]
    for block in np.flatnonzero(waits == 0).tolist():
        heappush(ready, (sum(blocks.blocks[block].memory), block))
    while ready:
        block = heappop(ready)[1]
        order.append(block)
        for target in table.after_of[table.after_ptr[block] : table.after_ptr[block + 1]].tolist():
            waits[target] -= 1
            if not waits[target]:
                heappush(ready, (sum(blocks.blocks[target].memory), target))
    return order
