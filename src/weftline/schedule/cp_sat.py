"""Whole schedules by CP-SAT: `full`, the best of all operations at once, and `least-latency`, at a fixed rate.

`full` is for small cases. One interval per operation; devices do one at a time; memory is a reservoir of changes at
starts. The best order so far stays outside the solver and bounds its horizon. Above `most_operations` only list
scheduling and the bound answer.

`least-latency`: requests that arrive at a fixed rate. In: a search whose blocks begin with an arrival
(`with_arrivals`): a block on a lane of its own that takes exactly one period, so that a micro-batch cannot start before
it is there. Out: repetends of one micro-batch with the least latency, and requests served in the order in which they
come. The bound is the longest chain of blocks.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.problem.model import NO_LIMIT
from weftline.schedule.list.priority import SCHEDULER as LIST
from weftline.schedule.repetend import repetend_of_starts
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.sequence import offer_makespan_bound
from weftline.search.cp_sat import run_model
from weftline.simulate import Orders

__all__ = ["FULL", "LEAST_LATENCY", "SCHEDULERS", "FullParameters", "LeastLatencyParameters", "with_arrivals"]

ARRIVAL = "arrival"


@dataclass(frozen=True)
class FullParameters:
    """How far CP-SAT over all operations goes."""

    most_operations: int = 400
    """Above, only list scheduling and the bound answer."""
    deterministic_time_units: float = 20.0
    """Of CP-SAT, under a work limit."""


@dataclass(frozen=True)
class LeastLatencyParameters:
    """How far CP-SAT over one pattern goes."""

    most_blocks: int = 400
    """Above, only list scheduling answers."""
    deterministic_time_units: float = 5.0
    """Of CP-SAT, under a work limit."""


def _solve_full(search: ScheduleSearch) -> None:
    parameters = search.parameters(FullParameters)
    offer_makespan_bound(search)
    with suppress(InfeasibleError):
        LIST.solve(search)
    if search.is_over:
        return
    if search.micro_batches * search.blocks.n > parameters.most_operations or search.from_arrival:
        if search.best is None:
            raise InfeasibleError(f"time-optimal search is for at most {parameters.most_operations} operations")
        return
    _prove(search, parameters.deterministic_time_units)
    if search.best is None:
        raise InfeasibleError("the solver found no schedule within its limits", conflicts=search.refused)


def _prove(search: ScheduleSearch, deterministic_time: float) -> None:
    from ortools import __version__

    by = f"all operations (CP-SAT {__version__})"
    model = _Model(search)
    deterministic = search.work_limit is not None and search.time_limit is None

    def on_bound(value: float) -> None:
        search.offer_bound(_least(search, int(np.ceil(value - 1e-6))), by)

    def on_solution(values: Sequence[int]) -> None:
        if not search.is_over:
            search.offer(model.orders(values))

    outcome = run_model(
        model.model,
        seconds=search.seconds_left,
        work=deterministic_time if deterministic else None,
        seed=search.seed,
        on_solution=on_solution,
        on_bound=on_bound,
        poll=lambda: search.is_over,
    )
    if outcome.infeasible:
        if search.best is None:
            raise InfeasibleError("no order keeps the memory limits", proved=True)
        on_bound(search.value(search.best))  # nothing below the horizon
    elif outcome.solved:
        on_bound(outcome.bound)


def _least(search: ScheduleSearch, bound: int) -> int:
    """A claim is never above what is known to be possible."""
    return bound if search.best is None else min(bound, search.value(search.best))


class _Model:
    """Starts of all operations; better than the best so far."""

    def __init__(self, search: ScheduleSearch) -> None:
        from ortools.sat.python import cp_model

        blocks, count = search.blocks, search.micro_batches
        self._blocks, self._count = blocks, count
        self.model: Any = cp_model.CpModel()
        longest = count * (sum(b.span for b in blocks.blocks) + sum(lag for _, _, lag in blocks.edges))
        best = None if search.best is None else search.best
        horizon = longest if best is None or search.device_span else best.makespan - 1
        self._start = [
            self.model.new_int_var(0, max(0, horizon - blocks.blocks[i].span), "")
            for _ in range(count)
            for i in range(blocks.n)
        ]
        self._add_edges()
        self._add_devices()
        target = self.model.new_int_var(0, horizon, "value")
        if best is not None:
            self.model.add(target <= search.value(best) - 1)
        if search.device_span:
            self._add_spans(target, horizon)
        else:
            for op, start in enumerate(self._start):
                self.model.add(target >= start + blocks.blocks[op % blocks.n].span)
        if search.bound is not None:
            self.model.add(target >= search.bound)
        self.model.minimize(target)

    def _add_edges(self) -> None:
        """Edges; and micro-batches of a block in the order of their numbers, which loses nothing: they are alike."""
        blocks, n = self._blocks, self._blocks.n
        for micro in range(self._count):
            for a, b, lag in blocks.edges:
                self.model.add(self._start[micro * n + b] >= self._start[micro * n + a] + blocks.blocks[a].span + lag)
            for i in range(n if micro else 0):
                before = self._start[(micro - 1) * n + i]
                self.model.add(self._start[micro * n + i] >= before + blocks.blocks[i].span)

    def _add_devices(self) -> None:
        """One operation at a time, and memory: on one device no two start together, so a reservoir counts right."""
        blocks, n = self._blocks, self._blocks.n
        intervals = [
            self.model.new_fixed_size_interval_var(start, blocks.blocks[op % n].span, "")
            for op, start in enumerate(self._start)
        ]
        for device, lane in enumerate(blocks.devices):
            mine = [op for op in range(self._count * n) if device in blocks.blocks[op % n].devices]
            self.model.add_no_overlap([intervals[op] for op in mine])
            changes = [_change(blocks, op % n, device) for op in mine]
            taken = sum(max(0, change) for change in changes)
            if lane.link or lane.room >= NO_LIMIT or taken <= lane.room:
                continue
            used = [(op, change) for op, change in zip(mine, changes, strict=True) if change]
            given = sum(min(0, change) for change in changes)
            self.model.add_reservoir_constraint(
                [self._start[op] for op, _ in used], [change for _, change in used], given, lane.room
            )

    def _add_spans(self, target: Any, horizon: int) -> None:
        """The span of a device: from any start on it to any end on it."""
        blocks, n = self._blocks, self._blocks.n
        for device, lane in enumerate(blocks.devices):
            mine = [op for op in range(self._count * n) if device in blocks.blocks[op % n].devices]
            if lane.link or not mine:
                continue
            first = self.model.new_int_var(0, horizon, "")
            for op in mine:
                self.model.add(first <= self._start[op])
                self.model.add(target >= self._start[op] + blocks.blocks[op % n].span - first)

    def orders(self, values: Sequence[int]) -> Orders:
        """Operations of every device by their starts."""
        n = self._blocks.n
        starts = [values[variable.index] for variable in self._start]
        rows: list[list[int]] = [[] for _ in self._blocks.devices]
        for op in sorted(range(len(starts)), key=lambda op: (starts[op], op)):
            for device in self._blocks.blocks[op % n].devices:
                rows[device].append(op)
        return tuple(np.array(row, np.int64) for row in rows)


def _change(blocks: Blocks, block: int, device: int) -> int:
    row = blocks.blocks[block]
    return row.memory[row.devices.index(device)]


FULL = Scheduler(
    "full", "CP-SAT over all operations: the best schedule of small cases, proved", _solve_full, FullParameters
)


def with_arrivals(blocks: Blocks, period: int) -> Blocks:
    """The same blocks behind an arrival of one micro-batch per period, which becomes the last block."""
    busiest = max(range(len(blocks.devices)), key=lambda d: blocks.loads[d])
    if blocks.loads[busiest] > period:
        raise InfeasibleError(
            f"requests come every {period}, but device {blocks.devices[busiest].id!r} works {blocks.loads[busiest]} "
            "for each of them",
            proved=True,
        )
    lane, number = len(blocks.devices), blocks.n
    targets = {target for _, target, _ in blocks.edges}
    edges = [*blocks.edges, *((number, i, 0) for i in range(number) if i not in targets)]
    arrival = Block("C", period, (lane,), (0,), ARRIVAL)
    return Blocks.of(blocks.name, [*blocks.devices, Lane(ARRIVAL, link=True)], [*blocks.blocks, arrival], edges)


def _solve_least_latency(search: ScheduleSearch) -> None:
    blocks = search.blocks
    arrival = next((i for i, block in enumerate(blocks.blocks) if block.name == ARRIVAL), None)
    if arrival is None:
        raise InfeasibleError("least-latency needs a period at which requests arrive: --period")
    search.run(LIST, wants_period=False)
    parameters = search.parameters(LeastLatencyParameters)
    if blocks.n > parameters.most_blocks or search.is_over:
        return
    period = blocks.blocks[arrival].span
    model, starts = _model(blocks, arrival, period)

    def offer(values: Sequence[int]) -> None:
        found = [Fraction(values[start.index]) for start in starts]
        search.offer_repetend(repetend_of_starts(blocks, 1, Fraction(period), found))

    outcome = run_model(
        model,
        seconds=search.seconds_left,
        work=None if search.work_limit is None else parameters.deterministic_time_units,
        seed=search.seed,
        on_solution=offer,
        poll=lambda: search.is_over,
    )
    if outcome.optimal:
        search.tell("no pattern of one micro-batch has a smaller latency")
    if outcome.infeasible and search.best is None:
        raise InfeasibleError(f"no pattern of period {period} fits into memory")


def _model(blocks: Blocks, arrival: int, period: int) -> tuple[Any, list[Any]]:
    """Starts = phase + period * lag; phases on a device do not overlap, also across the end of the window."""
    from ortools.sat.python import cp_model

    model = cp_model.CpModel()
    longest = sum(b.span for b in blocks.blocks) + sum(lag for _, _, lag in blocks.edges)
    most = longest // period + blocks.n + 1
    phase = [model.new_int_var(0, period - 1, "") for _ in blocks.blocks]
    lag = [model.new_int_var(0, most, "") for _ in blocks.blocks]
    start = [model.new_int_var(0, period * (most + 1), "") for _ in blocks.blocks]
    for i in range(blocks.n):
        model.add(start[i] == phase[i] + period * lag[i])
    model.add(start[arrival] == 0)
    for a, b, wait in blocks.edges:
        model.add(start[b] >= start[a] + blocks.blocks[a].span + wait)
    last = model.new_int_var(0, period * (most + 2), "")
    for i, block in enumerate(blocks.blocks):
        model.add(last >= start[i] + block.span)
    for device in range(len(blocks.devices)):
        _exclude(model, blocks, device, period, phase, lag)
    model.minimize(last)
    return model, start


def _exclude(model: Any, blocks: Blocks, device: int, period: int, phase: list[Any], lag: list[Any]) -> None:
    """One block at a time, and memory: what is held when a block starts depends on lags and on who comes first."""
    mine = [i for i, block in enumerate(blocks.blocks) if device in block.devices]
    change = {i: blocks.blocks[i].memory[blocks.blocks[i].devices.index(device)] for i in mine}
    before: dict[tuple[int, int], Any] = {}
    for x, i in enumerate(mine):
        for j in mine[x + 1 :]:
            first = model.new_bool_var("")
            before[i, j], before[j, i] = first, first.negated()
            for a, b in ((i, j), (j, i)):
                model.add(phase[b] >= phase[a] + blocks.blocks[a].span).only_enforce_if(before[a, b])
                model.add(phase[b] + blocks.blocks[b].span <= phase[a] + period).only_enforce_if(before[a, b])
    if blocks.devices[device].link or not any(change.values()):
        return
    for j in mine:
        if change[j] > 0:
            held = sum(-change[i] * lag[i] for i in mine) + change[j]
            held += sum(change[i] * before[i, j] for i in mine if i != j)
            model.add(held + 0 <= blocks.devices[device].room)


LEAST_LATENCY = Scheduler(
    "least-latency",
    "inference at a given rate: the pattern with the least latency (CP-SAT)",
    _solve_least_latency,
    LeastLatencyParameters,
)
SCHEDULERS = (FULL, LEAST_LATENCY)
