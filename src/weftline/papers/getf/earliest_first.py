"""ETF's loop (Hwang, Chow, Anger, Lee 1989), aware of contention: of all ready ops and devices, the pair that starts
first.

In: a Problem and, for each group of ops, which devices it prefers (tiers). Out: a Plan. Ties: the op of higher
upward rank, then the device where it ends first. Simplified: of the ready ops at most WINDOW are looked at in each
step, those that came first (by rank among those that came together); real networks are narrower.

ETF (Hwang, Chow, Anger, Lee 1989), aware of contention: of all ready ops and devices, the pair that starts first.

It looks at starts, not at ends, and so may choose a slow device that is free.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.list_schedule import (
    BookingTables,
    booking_tables,
    clear_board,
    commit,
    earliest_starts,
    make_board,
    timeline_of,
)
from weftline.latency.list.list_schedule import ListSchedule as Board
from weftline.latency.list.memory_left import Candidate as Plan
from weftline.latency.list.memory_left import (
    WeightRoom,
    clear_room,
    close_unlinked,
    make_room,
    may_stop,
    offer_leaving_room,
    open_devices,
    settle,
)
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import pop, push
from weftline.simulate.tables import Tables, default_order, tables

__all__ = ["SOLVER", "EarliestFirst"]

WINDOW = 64
STEPS = 5000
"""Ops between two looks at the clock."""
NEVER = 2**62


class Ready(NamedTuple):
    """The ready ops. `start`, `device` and `looked` belong to places in the window."""

    waiting: Ints
    """(n,): inputs that are not made yet."""
    later: Ints
    """(n,): a heap of the ready ops outside the window, as positions in the order of ranks."""
    counts: Ints
    """(3,): ops in the window, in the heap; transfers so far."""
    window: Ints
    start: Ints
    device: Ints
    looked: Ints
    """In which step its start was exact."""
    slot: Ints
    """Op -> its place in the window, -1 = not in it."""


class EarliestFirst:
    """Schedules one problem, also again with less memory. `tier` is (groups, K): a device of the lowest tier that has
    memory and links is taken, whatever starts earlier elsewhere.
    """

    def __init__(self, problem: Problem, name: str, tier: Indices | None = None) -> None:
        self._problem, self._table, self._name = problem, tables(problem), name
        self._space = booking_tables(self._table), make_room(problem), make_board(problem)
        self._tier = np.zeros(self._space[1].possible.shape, np.int32) if tier is None else tier
        self._order = default_order(problem)
        self._position = np.empty(len(problem.group), np.int64)
        self._position[self._order] = np.arange(len(problem.group))

    def schedule(self, search: Search, capacity: Ints) -> Plan | None:
        """None once the search may stop. Raises `InfeasibleError` where no device is left for an op."""
        self._space[1].capacity[:] = capacity
        n, ready = len(self._order), self._ready()
        for first in range(0, n, STEPS):
            if may_stop(search):
                return None
            last = min(first + STEPS, n)
            stuck = _schedule(self._table, *self._space, ready, self._order, self._position, self._tier, first, last)
            if stuck >= 0:
                raise InfeasibleError(f"{self._name} finds no device for op {self._problem.graph.ops[stuck].name!r}")
        timeline = timeline_of(self._space[2], int(ready.counts[2]))
        return Plan(timeline.placement, timeline=timeline)

    def _ready(self) -> Ready:
        waiting = np.diff(self._table.edge_ptr).astype(np.int64)
        first = np.sort(self._position[waiting == 0])
        later = np.zeros(len(waiting) + 1, np.int64)
        later[: len(first)] = first  # sorted, hence a heap
        return Ready(
            waiting,
            later,
            np.array([0, len(first), 0]),
            window=np.zeros(WINDOW, np.int64),
            start=np.zeros(WINDOW, np.int64),
            device=np.zeros(WINDOW, np.int64),
            looked=np.zeros(WINDOW, np.int64),
            slot=np.full(len(waiting), -1, np.int64),
        )


@part
def _choose(time: Ints, op: int, begin: Ints, tier: Indices, which: int) -> tuple[int, int]:
    """The device for an op -> (its start there, device), or (NEVER, -1)."""
    best, first, first_end, chosen = NEVER, NEVER, NEVER, -1
    for device in range(len(begin)):
        if begin[device] < 0:
            continue
        level, end = int(tier[which, device]), begin[device] + int(time[op, device])
        sooner = begin[device] < first or (begin[device] == first and end < first_end)
        if level < best or (level == best and sooner):
            best, first, first_end, chosen = level, begin[device], end, device
    return first, chosen


@kernel
def _schedule(
    table: Tables,
    wires: BookingTables,
    room: WeightRoom,
    board: Board,
    ready: Ready,
    order: Indices,
    position: Ints,
    tier: Indices,
    first: int,
    last: int,
) -> int:
    """Put the first..last-th ops on the board -> -1, or an op that no device can take.

    What an op was told stays a lower bound of its start, since ports and devices only fill up; so only the ops that
    seem first are looked at again. A tensor that another op has brought to a device is the one way to start earlier.
    """
    if first == 0:
        clear_room(room)
        clear_board(board)
    window, start, device, looked, slot = ready.window, ready.start, ready.device, ready.looked, ready.slot
    is_open, begin = np.zeros(len(board.number), np.bool_), np.zeros(len(board.number), np.int64)
    count, heaped, total = ready.counts[0], ready.counts[1], ready.counts[2]
    for step in range(first + 1, last + 1):
        while count < WINDOW and heaped > 0:
            op = int(order[pop(ready.later, heaped)])
            heaped -= 1
            window[count], start[count], looked[count], slot[op] = op, 0, 0, count
            count += 1
        while True:
            best = 0
            for i in range(1, count):
                if start[i] < start[best] or (start[i] == start[best] and position[window[i]] < position[window[best]]):
                    best = i
            op = window[best]
            if looked[best] == step:
                break
            open_devices(room, op, is_open)
            if room.gaps:
                close_unlinked(table, room, op, is_open)
            earliest_starts(wires, board, op, False, is_open, begin)
            start[best], device[best] = _choose(wires.time, op, begin, tier, room.group[op])
            looked[best] = step
            if device[best] < 0:
                return int(op)
        settle(room, op, device[best])
        before, total = total, commit(wires, board, op, device[best], False, total)
        count -= 1
        slot[op] = -1
        if best < count:
            window[best], start[best], looked[best] = window[count], start[count], looked[count]
            slot[window[best]] = best
        if not table.per_edge:
            for row in range(before, total):
                tensor = board.sent[row, 0]
                for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                    if slot[table.consumer_of[c]] >= 0:
                        start[slot[table.consumer_of[c]]] = 0
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            made = table.output_of[k]
            for c in range(table.consumer_ptr[made], table.consumer_ptr[made + 1]):
                reader = table.consumer_of[c]
                ready.waiting[reader] -= 1
                if ready.waiting[reader] == 0:
                    heaped = push(ready.later, heaped, position[reader])
    ready.counts[0], ready.counts[1], ready.counts[2] = count, heaped, total
    return -1


def _solve(search: Search) -> None:
    scheduler = EarliestFirst(search.problem, "ETF")
    offer_leaving_room(search, lambda capacity: scheduler.schedule(search, capacity))


SOLVER = Solver("etf", "ETF: of all ready ops and devices, the pair that starts first", _solve)
