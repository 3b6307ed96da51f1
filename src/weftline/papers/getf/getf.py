"""ETF (Hwang, Chow, Anger, Lee 1989) and GETF (Su, Ren, Vardi, Wierman 2020), aware of contention.

ETF: of all ready ops and devices, the pair that starts first. Ties: the op of higher upward rank, then the device where
it ends first. It looks at starts, not at ends, and so may choose a slow device that is free. Simplified: of the ready
ops at most WINDOW_OPS are looked at in each step, those that came first (by rank among those that came together); real
networks are narrower.

GETF: devices in groups of like speed, ops assigned to groups, ETF within the groups. A device's speed is the geometric
mean over ops of mean time / time there, scaled so that the fastest of m devices has speed m; those below 1 are left out
as long as others can take an op. A linear program without communication spreads each op over devices. The fastest group
that holds half of an op's mass together with all faster ones is the least it needs; of that and the faster groups, the
one of greatest total speed takes it. Where memory or links leave no device there, the next faster group takes it, then
any. Where the program does not finish, each op is spread by the speeds of the devices that can run it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from weftline.bounds import group_times
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.favourites import Floats, Program, solve_within
from weftline.latency.list.list_schedule import (
    BookingTables,
    ListSchedule,
    booking_tables,
    clear_board,
    commit,
    earliest_starts,
    make_board,
    timeline_of,
)
from weftline.latency.list.memory_left import (
    Bools,
    Candidate,
    WeightRoom,
    clear_room,
    close_unlinked,
    make_room,
    may_stop,
    offer_leaving_room,
    open_devices,
    possible_devices,
    settle,
)
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.kernels.sorting import pop, push
from weftline.simulate.sentinels import NEVER, NOBODY
from weftline.simulate.tables import Tables, default_order, tables

__all__ = [
    "SOLVER_ETF",
    "SOLVER_GETF",
    "EarliestFirst",
    "assign",
    "device_speeds",
    "getf_program",
    "speed_groups",
]

WINDOW_OPS = 64
"""Ready ops that are looked at in each step."""
OPS_BETWEEN_LOOKS = 5000
"""At the clock."""
WINDOW_COUNT, HEAP_COUNT, TRANSFER_COUNT = 0, 1, 2
"""Slots of `Ready.counts`."""


class Ready(NamedTuple):
    """The ready ops, and how they are ranked. `start`, `device` and `looked` belong to places in the window."""

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
    """Op -> its place in the window, NOBODY = not in it."""
    order: Indices
    position: Ints
    """Ops by their ranks; op -> its place in that order."""
    tier: Indices
    """(groups, K): the preference for a device, 0 first."""


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

    def schedule(self, search: Search, capacity: Ints) -> Candidate | None:
        """None once the search may stop. Raises `InfeasibleError` where no device is left for an op."""
        self._space[1].capacity[:] = capacity
        n, ready = len(self._order), self._ready()
        for first in range(0, n, OPS_BETWEEN_LOOKS):
            if may_stop(search):
                return None
            last = min(first + OPS_BETWEEN_LOOKS, n)
            stuck = _schedule(self._table, *self._space, ready, first, last)
            if stuck >= 0:
                raise InfeasibleError(f"{self._name} finds no device for op {self._problem.graph.ops[stuck].name!r}")
        timeline = timeline_of(self._space[2], int(ready.counts[TRANSFER_COUNT]))
        return Candidate(timeline.placement, timeline=timeline)

    def _ready(self) -> Ready:
        waiting = np.diff(self._table.edge_ptr).astype(np.int64)
        first = np.sort(self._position[waiting == 0])
        later = np.zeros(len(waiting) + 1, np.int64)
        later[: len(first)] = first  # sorted, hence a heap
        return Ready(
            waiting,
            later,
            np.array([0, len(first), 0]),
            window=np.zeros(WINDOW_OPS, np.int64),
            start=np.zeros(WINDOW_OPS, np.int64),
            device=np.zeros(WINDOW_OPS, np.int64),
            looked=np.zeros(WINDOW_OPS, np.int64),
            slot=np.full(len(waiting), NOBODY, np.int64),
            order=self._order,
            position=self._position,
            tier=self._tier,
        )


@part
def _choose(time: Ints, op: int, begin: Ints, tier: Indices, which: int) -> tuple[int, int]:
    """The device for an op -> (its start there, device), or (NEVER, NOBODY)."""
    best, first, first_end, chosen = NEVER, NEVER, NEVER, NOBODY
    for device in range(len(begin)):
        if begin[device] < 0:
            continue
        level, end = int(tier[which, device]), begin[device] + int(time[op, device])
        sooner = begin[device] < first or (begin[device] == first and end < first_end)
        if level < best or (level == best and sooner):
            best, first, first_end, chosen = level, begin[device], end, device
    return first, chosen


@part
def _release(table: Tables, ready: Ready, op: int, heaped: int) -> int:
    """Readers of what the op makes that wait for nothing else are ready -> how many are in the heap."""
    for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
        made = table.output_of[k]
        for c in range(table.consumer_ptr[made], table.consumer_ptr[made + 1]):
            reader = table.consumer_of[c]
            ready.waiting[reader] -= 1
            if ready.waiting[reader] == 0:
                heaped = push(ready.later, heaped, ready.position[reader])
    return heaped


@kernel
def _schedule(
    table: Tables,
    wires: BookingTables,
    room: WeightRoom,
    board: ListSchedule,
    ready: Ready,
    first: int,
    last: int,
) -> int:
    """Put the first..last-th ops on the board -> NOBODY, or an op that no device can take.

    What an op was told stays a lower bound of its start, since ports and devices only fill up; so only the ops that
    seem first are looked at again. A tensor that another op has brought to a device is the one way to start earlier.
    """
    if first == 0:
        clear_room(room)
        clear_board(board)
    window, start, device, looked, slot = ready.window, ready.start, ready.device, ready.looked, ready.slot
    position = ready.position
    is_open, begin = np.zeros(len(board.number), np.bool_), np.zeros(len(board.number), np.int64)
    count, heaped, total = ready.counts[WINDOW_COUNT], ready.counts[HEAP_COUNT], ready.counts[TRANSFER_COUNT]
    for step in range(first + 1, last + 1):
        while count < WINDOW_OPS and heaped > 0:
            op = int(ready.order[pop(ready.later, heaped)])
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
            start[best], device[best] = _choose(wires.time, op, begin, ready.tier, room.group[op])
            looked[best] = step
            if device[best] < 0:
                return int(op)
        settle(room, op, device[best])
        before, total = total, commit(wires, board, op, device[best], False, total)
        count -= 1
        slot[op] = NOBODY
        if best < count:
            window[best], start[best], looked[best] = window[count], start[count], looked[count]
            slot[window[best]] = best
        if not table.per_edge:
            for row in range(before, total):
                tensor = board.sent[row, 0]
                for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                    if slot[table.consumer_of[c]] >= 0:
                        start[slot[table.consumer_of[c]]] = 0
        heaped = _release(table, ready, op, heaped)
    ready.counts[WINDOW_COUNT], ready.counts[HEAP_COUNT], ready.counts[TRANSFER_COUNT] = count, heaped, total
    return NOBODY


def _solve_etf(search: Search) -> None:
    scheduler = EarliestFirst(search.problem, "ETF")
    offer_leaving_room(search, lambda capacity: scheduler.schedule(search, capacity))


SOLVER_ETF = Solver("etf", "ETF: of all ready ops and devices, the pair that starts first", _solve_etf)


def _solve_getf(search: Search) -> None:
    problem = search.problem
    speed = device_speeds(problem)
    level = speed_groups(speed)
    possible = possible_devices(problem)
    mass = np.where(possible, speed, 0.0)
    if (level[level > 0] != level.max()).any():  # with one group there is nothing to assign
        rows = len(possible) + 2 * len(problem.group) + len(tables(problem).edge_maker) + len(speed)
        found = solve_within(search, rows, lambda: getf_program(problem, possible))
        if found is not None:
            mass = found[: possible.size].reshape(possible.shape)
        else:
            search.tell("GETF: the linear program did not finish; ops are spread by speed instead")
    scheduler = EarliestFirst(problem, "GETF", assign(mass, speed, level))

    offer_leaving_room(search, lambda capacity: scheduler.schedule(search, capacity))


def device_speeds(problem: Problem) -> Floats:
    """(K,): scaled so that the fastest has speed K."""
    time = problem.cost.time.astype(np.float64)
    can = (time > 0) & ((time > 0).sum(axis=1) > 0)[:, None]
    mean = np.where(can, time, 0.0).sum(axis=1) / np.maximum(can.sum(axis=1), 1)
    ratio = np.log(np.where(can, mean[:, None], 1.0)) - np.log(np.where(can, time, 1.0))
    speed = np.exp(ratio.sum(axis=0) / np.maximum(can.sum(axis=0), 1))
    scaled: Floats = speed / speed.max() * len(speed)
    return scaled


def speed_groups(speed: Floats) -> Ints:
    """(K,): the group of each device, faster ones higher, 0 = left out."""
    m = len(speed)
    gamma = max(2.0, np.log(m) / max(np.log(np.log(m)), 1e-9)) if m > np.e else 2.0
    level = np.floor(np.log(np.maximum(speed, 1e-300)) / np.log(gamma) + 1e-9).astype(np.int64) + 1
    return np.where(speed >= 1.0 - 1e-9, np.maximum(level, 1), 0)


def getf_program(problem: Problem, possible: Bools) -> Program:
    """Columns: mass of each group of ops on each device, end of each op, length. Times in units of their mean."""
    time = np.maximum(problem.cost.time, 0).astype(np.float64)
    time /= max(float(time.mean()), 1e-9)
    n, k = time.shape
    groups = len(possible)
    total, _ = group_times(problem)
    load = total / max(float(np.maximum(problem.cost.time, 0).mean()), 1e-9)
    source, target, _ = problem.graph.arrays.edges()
    op, edge, one = np.arange(n), np.arange(len(source)), np.ones
    end, length = groups * k + op, groups * k + n
    share = problem.group.astype(np.int64)[:, None] * k + np.arange(k)
    # Mass 1; end >= own time; end(j) >= end(i) + own time(j); load of a device <= length; end <= length.
    first, second, third = groups + n, groups + n + len(source), groups + n + len(source) + k
    entries = [
        (np.repeat(np.arange(groups), k), np.arange(groups * k), one(groups * k)),
        (np.repeat(groups + op, k), share.ravel(), -time.ravel()),
        (groups + op, end, one(n)),
        (np.repeat(first + edge, k), share[target].ravel(), -time[target].ravel()),
        (first + edge, end[target], one(len(edge))),
        (first + edge, end[source], -one(len(edge))),
        (np.tile(second + np.arange(k), groups), np.arange(groups * k), -load.ravel()),
        (second + np.arange(k), np.full(k, length), one(k)),
        (third + op, end, -one(n)),
        (third + op, np.full(n, length), one(n)),
    ]
    rows = third + n
    return Program(
        cost=np.concatenate([np.zeros(length), [1.0]]),
        low=np.zeros(length + 1),
        high=np.concatenate([possible.ravel().astype(np.float64), np.full(n + 1, np.inf)]),
        row_low=np.concatenate([one(groups), np.zeros(rows - groups)]),
        row_high=np.concatenate([one(groups), np.full(rows - groups, np.inf)]),
        rows=np.concatenate([r for r, _, _ in entries]).astype(np.int64),
        columns=np.concatenate([c for _, c, _ in entries]).astype(np.int64),
        values=np.concatenate([v for _, _, v in entries]),
    )


def assign(mass: Floats, speed: Floats, level: Ints) -> Indices:
    """(groups, K): the tier of each device for a group of ops, 0 = the assigned devices, then faster ones, then any."""
    levels = np.unique(level[level > 0])
    power = np.array([speed[level == g].sum() for g in levels])
    in_level = np.stack([mass[:, level == g].sum(axis=1) for g in levels], axis=1)
    as_fast = np.cumsum(in_level[:, ::-1], axis=1)[:, ::-1]
    half = as_fast >= 0.5 * in_level.sum(axis=1, keepdims=True) - 1e-9
    least = half.shape[1] - 1 - half[:, ::-1].argmax(axis=1)  # the fastest that holds half of the mass with its betters
    best = np.array([g + int(power[g:].argmax()) for g in range(len(levels))])[least]
    number = np.searchsorted(levels, level)  # of each device; those left out come last
    above = number - best[:, None]
    tier: Indices = np.where((level > 0) & (above >= 0), above, len(levels) + (level == 0)).astype(np.int32)
    return tier


SOLVER_GETF = Solver("getf", "GETF: ops assigned to groups of like devices by a linear program, then ETF", _solve_getf)
