"""List scheduling: every device takes, when it is free, the ready block that comes first by a fixed priority.

In: blocks, rules (ranks from the kinds of blocks; keys that prefer what is deep in the graph, what has much after it,
or early micro-batches). Out: orders; what they cost is for the simulator to say. The scheduler `list` tries several
rules and offers the best few, and one micro-batch after another, which needs least memory. `ListSearch` anneals the
rules: KF and KW per stage, RS per block, thW and thF per device; a step changes one to three of them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import product
from random import Random
from time import monotonic

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.bounds.makespan import Paths, find_paths
from weftline.schedule.list.kernel import (
    PATIENCE_FILL,
    PATIENCE_FORWARD,
    RANK_FILL,
    RANK_FIRST,
    RANK_FORWARD,
    ListBoard,
    ListRules,
    ListState,
    list_schedule,
)
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.sequences import SequencePolishParameters, shorten_device_span
from weftline.simulate import Orders

__all__ = ["SCHEDULER", "ListParameters", "ListRun", "ListSearch", "list_orders", "list_variants"]

RANK_OF_KIND = (RANK_FORWARD, RANK_FIRST, RANK_FILL, RANK_FIRST)
"""Of F, B, W, C."""
PATIENCE_TRIED = (0, 400, 900)
"""Thousandths of a span, tried for both thresholds."""
IN_FLIGHT_TRIED = tuple(range(8, 31))
"""Tenths: forward blocks in flight for every one that the path to the backward block needs."""
OVERDUE_TRIED = (2**40, 3, 2)
"""Outstanding weight gradients from which on they go before forward blocks."""


@dataclass(frozen=True)
class ListParameters(SequencePolishParameters):
    """Of the scheduler `list`."""

    offered_orders: int = field(default=4, metadata={"least": 1})
    """Orders of the best rules that are offered."""


@dataclass(frozen=True)
class ListSearchParameters:
    """Annealing of list rules."""

    list_first_temperature_of_value: float = field(default=0.002, metadata={"least": 1e-9})
    """As a part of the value."""
    list_last_temperature_of_value: float = field(default=0.00004, metadata={"least": 1e-9})
    list_operations: int = 400_000
    """Listed in a run without a time limit, about."""
    most_list_steps: int = field(default=400, metadata={"least": 1})
    """In a run without a time limit."""
    longest_list_wait: int = 1500
    """Thousandths of a span, for both thresholds."""


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
        np.array([RANK_OF_KIND[kind] for kind in blocks.table.kind.tolist()], np.int64),
        find_paths(blocks).head,
        1,
        np.full(blocks.n, micro_batches, np.int64),
        np.full(blocks.n, micro_batches + 1, np.int64),
        _reserve(blocks),
        np.zeros(2 * len(blocks.devices), np.int64),
        banker=False,
        hold=False,
    )


def list_variants(blocks: Blocks, micro_batches: int) -> list[ListRules]:
    """The rules that are tried, the usual ones first."""
    usual = usual_rules(blocks, micro_batches)
    paths = find_paths(blocks)
    head, tail = paths.head, paths.tail
    same = np.where(usual.rank == RANK_FILL, RANK_FILL, RANK_FIRST).astype(np.int64)
    several = any(len(block.devices) > 1 for block in blocks.blocks)
    early = int(head.max(initial=0) + tail.max(initial=0)) + 1
    orders = [(usual.rank, head, 1), (usual.rank, tail, 1), (same, head, 1), (same, tail, 1), (same, tail, early)]
    waits = [(a, b) for a, b in product(PATIENCE_TRIED, PATIENCE_TRIED) if a >= b]
    holds, found = (False, True) if several else (False,), []
    for hold, banker, (thw, thf), (rank, key, micro_key) in product(holds, (False, True), waits, orders):
        patience = np.tile(np.array([thw, thf], np.int64), len(blocks.devices))
        reserve = np.zeros_like(usual.reserve) if banker else usual.reserve
        rules = usual._replace(rank=rank, key=key, micro_key=micro_key, reserve=reserve, patience=patience)
        found.append(rules._replace(banker=banker, hold=hold))
    return found + _in_flight_variants(blocks, micro_batches, usual, paths)


def _in_flight_variants(blocks: Blocks, micro_batches: int, usual: ListRules, paths: Paths) -> list[ListRules]:
    """KF in proportion to the time from a forward block to its backward block, counted in periods."""
    partner, period = _partners(blocks), max(blocks.loads)
    pairs = [(i, b) for i, b in enumerate(partner.tolist()) if b >= 0 and blocks.blocks[i].kind == "F"]
    if not len(paths.between) or not pairs:
        return []
    found = []
    weights = usual.rank == RANK_FILL
    for scale, free, late in product(IN_FLIGHT_TRIED, (0, 1), OVERDUE_TRIED if weights.any() else OVERDUE_TRIED[:1]):
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


class ListSearch:
    """One annealing; `run` continues it."""

    def __init__(
        self, search: ScheduleSearch, seed: int, parameters: ListSearchParameters = ListSearchParameters()
    ) -> None:
        self._run = ListRun(search.blocks, search.micro_batches)
        self._parameters = parameters
        self._by_span = search.device_span
        self._random = Random(seed)
        self._knobs = _knobs(search, parameters.longest_list_wait)
        self.best: tuple[int, int] | None = None
        self._best_orders: Orders = ()
        self._best_rules: ListRules | None = None

    def begin(self, seconds: float | None = None) -> None:
        """Take the best of the usual rules."""
        begun = monotonic()
        for rules in list_variants(self._run.blocks, self._run.micro_batches):
            self._cost(rules)
            if seconds is not None and monotonic() - begun > seconds:
                break

    def run(self, *, seconds: float | None = None) -> Orders | None:
        """Anneal from the best rules so far -> the orders of the best, None if no rules end at all."""
        begun, done, parameters = monotonic(), 0, self._parameters
        hot, cold = parameters.list_first_temperature_of_value, parameters.list_last_temperature_of_value
        operations = self._run.micro_batches * self._run.blocks.n
        steps = min(parameters.most_list_steps, max(50, parameters.list_operations // operations))
        rules, cost = self._best_rules, self._value(self.best)
        while rules is not None and self._knobs and cost is not None:
            part = done / steps if seconds is None else (monotonic() - begun) / max(1e-9, seconds)
            if part >= 1:
                break
            done += 1
            temperature = cost * hot * (cold / hot) ** part
            trial = _changed(rules, self._knobs, self._random)
            value = self._cost(trial)
            if value is not None and value <= cost - temperature * math.log(1 - self._random.random()):
                rules, cost = trial, value
        return self._best_orders if self._best_rules is not None else None

    def _cost(self, rules: ListRules) -> float | None:
        makespan = self._run.run(rules)
        if makespan < 0:
            return None
        span = self._run.span()
        rank = (span, makespan) if self._by_span else (makespan, span)
        if self.best is None or rank < self.best:
            self.best, self._best_rules, self._best_orders = rank, rules, self._run.orders()
        return self._value(rank)

    @staticmethod
    def _value(rank: tuple[int, int] | None) -> float | None:
        return None if rank is None else rank[0] + 0.001 * rank[1]


Knob = tuple[str, int, int, int]
"""Field of `ListRules`, its entry, largest value, unit."""


def _knobs(search: ScheduleSearch, longest_wait: int) -> list[Knob]:
    """What may be turned."""
    blocks, count = search.blocks, search.micro_batches
    found: list[Knob] = []
    for i, block in enumerate(blocks.blocks):
        if block.kind == "F":
            found.append(("most", i, count, 1))
        if block.kind == "W":
            found.append(("overdue", i, count + 1, 1))
    table = blocks.table
    for j, change in enumerate(table.device_memory.tolist()):
        if change > 0:
            found.append(("reserve", j, 4 * change, max(1, change // 2)))
    for device in range(len(blocks.devices)):
        found += [("patience", 2 * device + slot, longest_wait, 100) for slot in (PATIENCE_FILL, PATIENCE_FORWARD)]
    return found


def _changed(rules: ListRules, knobs: list[Knob], random: Random) -> ListRules:
    fresh: dict[str, Ints] = {}
    for _ in range(random.randint(1, 3)):
        name, entry, most, unit = random.choice(knobs)
        values = fresh.setdefault(name, getattr(rules, name).copy())
        low = 1 if name in ("most", "overdue") else 0
        if name in ("most", "overdue") and random.random() < 0.3:
            values[entry] = random.randint(low, most)
        else:
            values[entry] = min(most, max(low, values[entry] + random.choice((-3, -2, -1, 1, 2, 3)) * unit))
    return rules._replace(**fresh)  # type: ignore[arg-type]


def list_orders(search: ScheduleSearch, most: int) -> list[Orders]:
    """The orders of the best rules, best first."""
    run = ListRun(search.blocks, search.micro_batches)
    found: dict[tuple[int, int], Orders] = {}
    for rules in list_variants(search.blocks, search.micro_batches):
        makespan = run.run(rules)
        if makespan < 0:
            continue
        values = (makespan, run.span())
        found.setdefault(values[::-1] if search.device_span else values, run.orders())
        left = search.seconds_left
        if left is not None and left <= 0:
            break
    return [found[key] for key in sorted(found)[:most]]


def _solve(search: ScheduleSearch) -> None:
    parameters = search.parameters(ListParameters)
    for orders in list_orders(search, parameters.offered_orders):
        if search.best is not None and search.is_over:
            return
        search.offer(shorten_device_span(search, orders, parameters))
    for release_first in (False, True):
        if search.best is None or not (search.is_over or release_first):
            search.offer(one_after_another(search.blocks, search.micro_batches, release_first=release_first))
    if search.best is None:
        raise InfeasibleError("list scheduling found no order within the memory limits", conflicts=search.refused)


SCHEDULER = Scheduler(
    "list",
    "backward first, then forward, then weight gradients, each when memory allows",
    _solve,
    ListParameters,
)
