"""`full`: the best schedule of all operations at once, by CP-SAT; for small cases.

One interval per operation; devices do one at a time; memory is a reservoir of changes at starts. The best order so far
stays outside the solver and bounds its horizon. Above `most_operations` only list scheduling and the bound answer.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.list.priority import SCHEDULER as LIST
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.sequence import offer_makespan_bound
from weftline.search.cp_sat import run_model
from weftline.simulate import Orders

__all__ = ["PARAMETERS", "SCHEDULER", "FullParameters"]


@dataclass(frozen=True)
class FullParameters:
    """How far CP-SAT over all operations goes."""

    most_operations: int = 400
    """Above, only list scheduling and the bound answer."""
    deterministic_time_units: float = 20.0
    """Of CP-SAT, under a work limit."""


PARAMETERS = FullParameters()


def _solve(search: ScheduleSearch) -> None:
    offer_makespan_bound(search)
    with suppress(InfeasibleError):
        LIST.solve(search)
    if search.is_over:
        return
    if search.micro_batches * search.blocks.n > PARAMETERS.most_operations or search.from_arrival:
        if search.best is None:
            raise InfeasibleError(f"time-optimal search is for at most {PARAMETERS.most_operations} operations")
        return
    _prove(search)
    if search.best is None:
        raise InfeasibleError("the solver found no schedule within its limits", conflicts=search.refused)


def _prove(search: ScheduleSearch) -> None:
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
        work=PARAMETERS.deterministic_time_units if deterministic else None,
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
            if lane.link or lane.memory >= NO_LIMIT or taken <= lane.memory:
                continue
            used = [(op, change) for op, change in zip(mine, changes, strict=True) if change]
            given = sum(min(0, change) for change in changes)
            self.model.add_reservoir_constraint(
                [self._start[op] for op, _ in used], [change for _, change in used], given, lane.memory
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


SCHEDULER = Scheduler("full", "CP-SAT over all operations: the best schedule of small cases, proved", _solve)
