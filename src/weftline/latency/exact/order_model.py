"""The CP-SAT model of placement and order together, for a whole problem or for a block of one.

In: flat tables and a horizon. Out: a plan that ends within the horizon (its timeline, whose actions `simulate.replay`
follows to the same or an earlier end), or the claim that there is none. Simplified: of the memory of activations only
what a single op needs while it runs is in the model. So its bounds hold, but a plan that the simulator refuses has to
be excluded by the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.bounds import windows
from weftline.latency.exact.order_build import OrderBuild
from weftline.search.cp_sat import run_model
from weftline.simulate.tables import Tables
from weftline.simulate.timeline import SENT_END, SENT_START, SENT_TENSOR, Timeline

__all__ = ["OrderAnswer", "OrderModel", "common_unit", "in_units"]

SETTINGS = {"linearization_level": 0, "cp_model_probing_level": 0, "symmetry_level": 0}
"""Blocks of 30 ops are refuted several times as fast without linear relaxations; presolve is short without probing."""


class OrderAnswer(NamedTuple):
    """What CP-SAT found out within its limits."""

    status: str
    """infeasible (nothing ends within the horizon), optimal, feasible or unknown."""
    bound: int
    """No plan of the model ends earlier (ns); the horizon + 1 if there is none within the horizon."""
    placement: Indices | None
    """The best plan found."""
    actions: Ints | None
    """Its ops and transfers in order, as `simulate.replay` reads them."""
    timeline: Timeline | None
    """Its times; the peaks of memory are not filled in."""


class OrderModel:
    """`horizon` and `lower` are in ns, both included; `capacity` is bytes per device (None = no limit at all).

    The first and the last op of a block are held on a device by an absent time everywhere else.
    """

    def __init__(
        self,
        table: Tables,
        *,
        horizon: int,
        lower: int = 0,
        capacity: Ints | None = None,
        group: Indices | None = None,
    ) -> None:
        self._producer, self._capacity, self._horizon, self._lower = table.producer, capacity, horizon, lower
        self.unit = common_unit(table)
        """Everything is counted in this many ns, the greatest common divisor of all times."""
        self._table = in_units(table, self.unit)
        self._group = np.arange(len(table.time), dtype=np.int32) if group is None else group
        self.windows = windows(self._table, horizon // self.unit, self._group)
        """In units."""
        self.refuted = self.windows.stuck >= 0 or lower > horizon
        """The windows (or the lower bound) show by themselves that nothing ends within the horizon."""
        self._built: OrderBuild | None = None

    @property
    def intervals(self) -> int:
        """How many ops and transfers on devices the model has at most, known before it is built."""
        choices = self.windows.able.sum(axis=1, dtype=np.int64)
        readers = np.repeat(np.arange(len(choices)), np.diff(self._table.edge_ptr))
        return int(choices.sum() + (choices[self._table.edge_maker.astype(np.int64)] * choices[readers]).sum())

    def build(self, stop: Callable[[], bool] = lambda: False) -> bool:
        """Make the model, if it is not made yet; False if `stop` said so before its end."""
        if self._built is None and not self.refuted:
            lower = max(0, -(-self._lower // self.unit))
            built = OrderBuild(self._table, self.windows, self._horizon // self.unit, lower, self._group)
            if not built.fill(self._capacity, stop):
                return False
            self._built = built
        return True

    def hint(self, timeline: Timeline) -> None:
        """Begin the search near a known plan (which may end later than the horizon)."""
        if not self.build() or self._built is None:
            return
        built, model, unit = self._built, self._built.model, self.unit
        model.clear_hints()
        hinted: dict[int, tuple[object, int]] = {}
        for x, device in zip(built.place, timeline.placement.tolist(), strict=True):
            hinted |= {literal.index: (literal, int(k == device)) for k, literal in x.items()}
        for start, when in zip(built.start, timeline.start.tolist(), strict=False):  # a sum has no starts
            hinted[start.index] = start, when // unit
        begun = {
            (tensor, target, consumer): start // unit
            for tensor, _, target, consumer, start, _ in timeline.transfers.tolist()
        }
        for sent in built.sent:
            for a, b, _, literal in sent.pairs:
                maker = self._producer[sent.tensor]
                used = (sent.tensor, b, sent.consumer) in begun and timeline.placement[maker] == a
                hinted[literal.index] = literal, int(used)
                if used and sent.start is not None:
                    hinted[sent.start.index] = sent.start, begun[sent.tensor, b, sent.consumer]
        for variable, value in hinted.values():
            model.add_hint(variable, value)

    def exclude(self, placement: Indices) -> None:
        """No plan with exactly this placement."""
        if self.build() and self._built is not None:
            literals = {
                x[device].index: ~x[device]
                for x, device in zip(self._built.place, placement.tolist(), strict=True)
                if device in x
            }
            if all(device in x for x, device in zip(self._built.place, placement.tolist(), strict=True)):
                self._built.model.add_bool_or(list(literals.values()))

    def solve(
        self,
        seconds: float | None,
        stop: Callable[[], bool] = lambda: False,
        *,
        work: float | None = None,
        seed: int = 0,
        workers: int = 1,
        on_plan: Callable[[Timeline], None] = lambda plan: None,
        on_bound: Callable[[int], None] = lambda bound: None,
    ) -> OrderAnswer:
        """Search for `seconds` (None = until the end) or until `stop` says so; with `work`, only for so many units of
        deterministic time. Plans and bounds (ns) are also handed over as they come."""
        if self.refuted:
            return OrderAnswer("infeasible", self._horizon + 1, None, None, None)
        if not self.build(stop) or self._built is None:
            return OrderAnswer("unknown", self._lower, None, None, None)
        last: list[Timeline] = []

        def plan(values: Sequence[int]) -> None:
            last[:] = [self._read(values)]
            on_plan(last[0])

        def raised(bound: float) -> None:
            on_bound(self._in_ns(bound))

        outcome = run_model(
            self._built.model,
            seconds=seconds,
            work=work,
            seed=seed,
            workers=workers,
            settings=SETTINGS,
            on_solution=plan,
            on_bound=raised,
            poll=stop,
        )
        if outcome.infeasible:
            return OrderAnswer("infeasible", self._horizon + 1, None, None, None)
        bound = self._in_ns(outcome.bound)
        if not last:
            return OrderAnswer("unknown", bound, None, None, None)
        timeline = last[0]
        status = "optimal" if outcome.optimal else "feasible"
        return OrderAnswer(status, bound, timeline.placement, timeline.actions(self._producer), timeline)

    def _in_ns(self, bound: float) -> int:
        """A bound in units is a whole number; CP-SAT says it as a float."""
        if not np.isfinite(bound):
            return self._lower
        exact = abs(bound) < 2**52
        return max(self._lower, int(np.ceil(bound - 1e-6) if exact else bound * (1 - 2**-50)) * self.unit)

    def _read(self, values: Sequence[int]) -> Timeline:
        """The plan of a solution, in ns."""
        built, table, unit = self._built, self._table, self.unit
        assert built is not None
        placement = np.array([next(k for k, x in row.items() if values[x.index]) for row in built.place], np.int32)
        rows = []
        for sent in built.sent:
            for a, b, length, literal in sent.pairs:
                if values[literal.index]:
                    begin = 0 if sent.start is None else values[sent.start.index]
                    rows.append((sent.tensor, a, b, sent.consumer, begin * unit, (begin + length) * unit))
        time = table.time[np.arange(len(placement)), placement]
        start = np.array([values[start.index] for start in built.start] or np.zeros(len(placement)), np.int64)
        transfers = np.array(rows, np.int64).reshape(-1, 6)
        peak = np.zeros(table.time.shape[1], np.int64)
        plan = Timeline(placement, start * unit, (start + time) * unit, transfers, peak)
        return _one_after_another(plan, table.producer) if table.sequential else plan


def _one_after_another(plan: Timeline, producer: Indices) -> Timeline:
    """Times for a runtime in which nothing overlaps: ops in the order of the graph, each sending what it made."""
    sent = plan.transfers[np.argsort(producer[plan.transfers[:, SENT_TENSOR]], kind="stable")]
    op_time, sent_time = plan.end - plan.start, sent[:, SENT_END] - sent[:, SENT_START]
    start, clock, row = plan.start.copy(), 0, 0
    for op in range(len(start)):
        start[op] = clock
        clock += int(op_time[op])
        while row < len(sent) and producer[sent[row, SENT_TENSOR]] == op:
            sent[row, SENT_START] = clock
            clock += int(sent_time[row])
            row += 1
    sent[:, SENT_END] = sent[:, SENT_START] + sent_time
    return Timeline(plan.placement, start, start + op_time, sent, plan.peak)


def common_unit(table: Tables) -> int:
    """The greatest common divisor of all times."""
    used = table.transfer[np.unique(table.transfer_row)] if len(table.transfer_row) else table.transfer[:0]
    times = np.concatenate([table.time.ravel(), used.ravel()])
    return max(1, int(np.gcd.reduce(times[times > 0], initial=0)))


def in_units(table: Tables, unit: int) -> Tables:
    """The same tables, with times in units."""

    def scaled(times: Ints) -> Ints:
        return np.where(times >= 0, times // unit, times).astype(np.int64)

    return table._replace(time=scaled(table.time), transfer=scaled(table.transfer))
