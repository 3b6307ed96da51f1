"""Which device holds what, where not every device can hold the whole model.

In: a FleetSearch and lanes that fit. Out: deployments. A device that cannot hold all groups holds a window of them, in
the order of the graph, as large as its memory allows; where each window begins is searched by moving one at a time. A
choice is judged by a linear program without transfers, the best few by making lanes for them. Activations that overflow
make the windows smaller, and the choice is made again. Bounds come from lanes that fit by themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import group_times
from weftline.errors import InfeasibleError
from weftline.fleet.columns import (
    LanesParameters,
    copies_on_equals,
    equal_devices,
    generate_lanes,
    price_seconds,
    shared_prices,
)
from weftline.fleet.prices import Shares, adapted_shares, cheapest_lane, whole_prices
from weftline.fleet.rates import NS_PER_SECOND, best_rates
from weftline.fleet.search import FleetSearch
from weftline.graph.arrays import Ints
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.problem.model import NO_LIMIT
from weftline.search.lp import Program, minimise
from weftline.simulate.fleet import LaneLoads, lane_loads

__all__ = ["memory_bound", "solve_holdings"]

Held = NDArray[np.bool_]
"""(groups, K)"""


def solve_holdings(search: FleetSearch, first: Sequence[LaneLoads]) -> None:
    """Bounds from lanes that fit alone; deployments from windows."""
    numbers = search.parameters(LanesParameters)
    memory_bound(search)
    windows = _Windows(search.problem, first)
    for _ in range(numbers.most_shrinks):
        if search.stopped_by:
            return
        overflow = np.zeros(len(search.problem.devices), np.int64)
        for held in _choices(search, windows, numbers):
            lanes = [lane for lane in search.lanes.values() if windows.fits(held, lane)]
            if not lanes:
                lanes = _any_lane(search, windows, held)
            if lanes:
                before = search.best
                generate_lanes(search, lanes, held=held)
                if search.best is before and search.refused:
                    overflow = np.maximum(overflow, windows.overflow(lanes))
            if search.stopped_by:
                return
        if search.best is not None and not overflow.any():
            return
        if not overflow.any():
            overflow = windows.smallest_step()
        windows.room = np.maximum(windows.room - overflow, 0)


def memory_bound(search: FleetSearch) -> None:
    """Bounds from prices of time and of bytes: the linear program of ways that need not fit one by one, but on average.

    Each round the cheapest way at the program's prices joins it, and proves a bound.
    """
    numbers, problem = search.parameters(LanesParameters), search.problem
    equal, k, shares = equal_devices(problem), len(problem.devices), Shares()
    limited = problem.capacity < NO_LIMIT
    room = np.where(limited, np.maximum(problem.capacity, 1), 1).astype(np.float64)
    need, begun, columns = least_memory(problem), search.seconds, dict[bytes, NDArray[np.float64]]()
    placements: list[Ints] = [np.full(len(problem.graph.ops), d, np.int64) for d in range(k)]
    for _ in range(numbers.bound_rounds):
        for placement in placements:
            key = placement.astype(np.int32).tobytes()
            try:
                lane = lane_loads(problem, placement.astype(np.int32))
            except InfeasibleError:
                continue
            held = np.bincount(placement, (need[problem.group] / np.bincount(problem.group)[problem.group]), k)
            columns[key] = np.concatenate([lane.limited.ravel(), np.where(limited, held / room - 1, 0.0)])
        if not columns:
            return
        times, prices, bytes_prices = _relaxed(np.array(list(columns.values())), k)
        if not times:
            return
        whole = whole_prices(problem, shared_prices(prices, equal))
        unit = max(whole.compute) / max(float(shared_prices(prices, equal).max()), 1e-300)
        memory = shared_prices(bytes_prices[None, :], equal)[0] / room * unit * limited
        seconds = price_seconds(search, numbers.bound_seconds)
        found = cheapest_lane(problem, whole, shares, memory=memory, seconds=seconds)
        if found is None:
            return
        search.offer_bound(found.bound)
        key = found.placement.tobytes()
        if key in columns:
            before, shares = shares, adapted_shares(problem, shares, found.placement)
            if shares == before:
                return
        placements = [lane.astype(np.int64) for lane in copies_on_equals(found.placement, equal)]
        late = search.work_limit is None and search.seconds > begun + numbers.bound_seconds
        if search.stopped_by or late:
            return


def _relaxed(columns: NDArray[np.float64], k: int) -> tuple[float, NDArray[np.float64], NDArray[np.float64]]:
    """The largest sum of rates -> it, prices of ns (1 or 3, K), prices of whole memories (K,)."""
    count, rows = columns.shape
    times = rows - k
    scale = max(float(columns[:, :times].max(initial=0.0)), 1.0)
    table = columns.copy()
    table[:, :times] /= scale
    column, row = np.nonzero(table)
    high = np.concatenate([np.ones(times), np.zeros(k)])
    answer = minimise(
        Program(
            -np.ones(count),
            np.zeros(count),
            np.full(count, np.inf),
            np.full(rows, -np.inf),
            high,
            row.astype(np.int64),
            column.astype(np.int64),
            table[column, row],
        )
    )
    if not np.isfinite(answer.value) or answer.value >= 0:
        return 0.0, np.zeros((times // k, k)), np.zeros(k)
    prices = np.maximum(-answer.prices, 0.0)
    return -answer.value, prices[:times].reshape(-1, k) / scale, prices[times:]


class _Windows:
    """Groups in the order of the graph, what each needs, and what devices have room for."""

    def __init__(self, problem: Problem, lanes: Sequence[LaneLoads]) -> None:
        self.problem = problem
        self.need, (self.time, self.able) = least_memory(problem), group_times(problem)
        self.tied = sum(weight.bytes for weight in problem.graph.tied)
        first_op = np.full(len(self.need), len(problem.group))
        np.minimum.at(first_op, problem.group, np.arange(len(problem.group)))
        self.order = np.argsort(first_op, kind="stable")
        beside = np.max([lane.activations for lane in lanes], axis=0, initial=0) if lanes else _guess(problem)
        self.room = problem.capacity - np.minimum(beside + self.tied, problem.capacity)
        self.whole = self.room >= self.need.sum()

    def window(self, device: int, begin: int) -> Held:
        """The groups from a place on, as many as fit; what does not fit any more at the end fits before the begin."""
        held = np.zeros(len(self.need), np.bool_)
        left = int(self.room[device])
        for group in (*self.order[begin:].tolist(), *self.order[:begin][::-1].tolist()):
            if self.need[group] > left:
                if group in self.order[begin:]:
                    break
                return held
            held[group] = True
            left -= int(self.need[group])
        return held

    def held(self, begins: Ints) -> Held:
        """All windows."""
        rows = [
            np.ones(len(self.need), np.bool_) if self.whole[d] else self.window(d, int(begin))
            for d, begin in enumerate(begins.tolist())
        ]
        return np.stack(rows, axis=1) & self.able

    def fits(self, held: Held, lane: LaneLoads) -> bool:
        """Does a lane run every op where it is held?"""
        return bool(held[self.problem.group, lane.placement].all())

    def overflow(self, lanes: Sequence[LaneLoads]) -> Ints:
        """Bytes of activations beyond the room that was left for them."""
        beside = np.max([lane.activations for lane in lanes], axis=0, initial=0)
        left: Ints = self.problem.capacity - self.room - self.tied
        return np.where(self.whole, 0, np.maximum(beside - left, 0))

    def smallest_step(self) -> Ints:
        """A few percent of the room of windows."""
        return np.where(self.whole, 0, self.room // 20 + 1)

    def rate(self, held: Held) -> float:
        """Inputs per second without transfers, or minus the share of groups that nobody holds."""
        missing = ~held.any(axis=1)
        if missing.any():
            return -float(missing.mean())
        key = np.concatenate([np.where(held, self.time, -1)], axis=1)
        classes, count = np.unique(key, axis=0, return_counts=True)
        return _fluid_rate(classes.astype(np.float64), count.astype(np.float64))


def _guess(problem: Problem) -> Ints:
    """Room for activations before any lane is known: the largest tensors of the model, twice."""
    largest = sorted((tensor.bytes for tensor in problem.graph.tensors), reverse=True)[:4]
    return np.full(len(problem.devices), 2 * sum(largest), np.int64)


def _fluid_rate(time: NDArray[np.float64], count: NDArray[np.float64]) -> float:
    """Classes of groups (time by device, -1 = not held) and how many there are: the rate if transfers were free."""
    c, k = time.shape
    scale = max(float(time.max(initial=0.0)), 1.0)
    kind, device = np.nonzero(time >= 0)
    columns = np.arange(len(kind))
    rows = np.concatenate([kind, c + device, np.arange(c)])
    places = np.concatenate([columns, columns, np.full(c, len(kind))])
    values = np.concatenate([np.ones(len(kind)), time[kind, device] * count[kind] / scale, -np.ones(c)])
    cost = np.zeros(len(kind) + 1)
    cost[-1] = -1.0
    high = np.concatenate([np.zeros(c), np.ones(k)])
    low = np.concatenate([np.zeros(c), np.full(k, -np.inf)])
    answer = minimise(Program(cost, np.zeros(len(cost)), np.full(len(cost), np.inf), low, high, rows, places, values))
    return -answer.value * NS_PER_SECOND / scale if np.isfinite(answer.value) else 0.0


def _choices(search: FleetSearch, windows: _Windows, numbers: LanesParameters) -> Iterator[Held]:
    """Good choices, the best first: each device's window is moved as long as that helps."""
    dice = np.random.default_rng(search.seed)
    count, k = len(windows.order), len(windows.whole)
    seen: dict[bytes, tuple[float, Held]] = {}
    moves, entered = 0, search.seconds

    def judged(begins: Ints) -> float:
        nonlocal moves
        held = windows.held(begins)
        key = held.tobytes()
        if key not in seen:
            moves += 1
            seen[key] = windows.rate(held), held
        return seen[key][0]

    steps = sorted({max(1, count // part) for part in (2, 4, 8, 16, 32, 64, 128)}, reverse=True)
    spread = np.linspace(0, count, k, endpoint=False).astype(np.int64)
    for begun in range(numbers.most_begins):
        if moves >= numbers.most_moves or search.stopped_by:
            break
        begins = dice.permutation(spread) if begun else spread
        best, better = judged(begins), True
        while better and moves < numbers.most_moves and not search.stopped_by:
            better = False
            for d in np.flatnonzero(~windows.whole).tolist():
                for step in (*steps, *(-step for step in steps)):
                    tried = begins.copy()
                    tried[d] = min(max(int(begins[d]) + step, 0), count - 1)
                    value = judged(tried)
                    if value > best:
                        begins, best, better = tried, value, True
        if search.work_limit is None and search.seconds > entered + numbers.choice_seconds:
            break
    ranked = sorted(seen.values(), key=lambda found: -found[0])
    yield from (held for value, held in ranked[: numbers.most_choices] if value > 0)


def _any_lane(search: FleetSearch, windows: _Windows, held: Held) -> list[LaneLoads]:
    """A first lane for a choice: at equal prices."""
    rows = 3 if search.problem.rules.communication == "overlapped" else 1
    prices = whole_prices(search.problem, np.ones((rows, len(search.problem.devices))))
    found = cheapest_lane(search.problem, prices, {}, held=held, seconds=price_seconds(search, 1.0))
    lane = None if found is None else search.add(found.placement)
    if lane is not None:
        search.offer([lane], best_rates([lane]).rates.tolist())
    return [] if lane is None else [lane]
