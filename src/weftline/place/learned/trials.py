"""Trials: many placements at once, costed by the simulator; what is a new best is offered to the search.

In: devices of nodes, a batch at a time. Out: values in ns, INFEASIBLE where a limit is broken. The best few are kept
as starts for the polish. Another meter (a real machine, say) can take the simulator's place for the values that a
network learns from; what is offered is always costed by the search.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.annealer import Start
from weftline.place.learned.nodes import Nodes
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.simulate.batch import INFEASIBLE, evaluate
from weftline.simulate.tables import tables

__all__ = ["KEPT", "Meter", "Trials", "offer_single_devices", "simulated"]

KEPT = 6
"""Placements that are kept."""
SMALL = 4096
"""If there are no more different placements, it is noticed when all have been tried."""


class Meter(Protocol):
    """What gives placements their values."""

    def __call__(self, placements: Indices, /) -> Ints:
        """(B, n) placements of ops -> (B,) values in ns, INFEASIBLE or more where one cannot run."""
        ...

    @property
    def over(self) -> bool:
        """Nothing more will be measured."""
        ...

    @property
    def samples(self) -> int:
        """Placements that may be asked for at a time."""
        ...


class Trials:
    """All trials of one search."""

    def __init__(self, search: Search, nodes: Nodes, meter: Meter | None = None) -> None:
        self.search, self.nodes = search, nodes
        self._meter = simulated(search.problem) if meter is None else meter
        self.kept: list[tuple[int, Indices]] = []
        """(value, device per node), best first."""
        self.count = 0
        self._seen: set[bytes] | None = set() if nodes.choices <= SMALL else None

    @property
    def exhausted(self) -> bool:
        """Every placement there is has been tried, or no more may be."""
        return self._meter.over or (self._seen is not None and len(self._seen) >= self.nodes.choices)

    @property
    def best(self) -> int:
        """The least value so far, INFEASIBLE if there is none."""
        return self.kept[0][0] if self.kept else INFEASIBLE

    def begin(self, singles: Mapping[int, int]) -> None:
        """Keep what single devices gave. If the search has no answer yet, offer every node where it is fastest."""
        for device, value in singles.items():
            self.keep(value, np.full(self.nodes.count, device, np.int32))
        if self.search.best is None:
            self.search.offer(self.nodes.lift(self.nodes.fastest)[0])

    def values(self, devices: Indices) -> Ints:
        """(B, N) devices of nodes -> (B,) values; the best is offered if it is new."""
        values = self._meter(self.nodes.lift(devices))
        self.count += len(devices)
        if self._seen is not None:
            self._seen.update(row.tobytes() for row in np.ascontiguousarray(devices, np.int32))
        best = int(values.argmin())
        if values[best] < self.best:
            self.offer(int(values[best]), devices[best])
        return values

    def offer(self, value: int, devices: Indices) -> None:
        """A placement that is better than those kept."""
        self.keep(value, devices)
        if not self.search.is_over:
            self.search.offer(self.nodes.lift(devices)[0])

    def keep(self, value: int, devices: Indices) -> None:
        """Among the best few, each value once."""
        if value >= INFEASIBLE or any(value == other for other, _ in self.kept):
            return
        self.kept = sorted([*self.kept, (value, devices.copy())], key=lambda entry: entry[0])[:KEPT]

    def starts(self) -> list[Start]:
        """Where annealing op by op begins: chains that were one node may come apart there."""
        starts: list[Start] = [(self.nodes.lift(devices)[0], None) for _, devices in self.kept]
        best = self.search.best
        if isinstance(best, Timeline):
            starts.append((best.placement, best.order))
        return starts


def offer_single_devices(search: Search, meter: Meter | None = None) -> dict[int, int]:
    """Offer everything on one device, for each device, even after the limit if there is no answer -> their values.

    This needs neither nodes nor a network, so it comes first, and a search without time still has an answer. The values
    are those of `meter` if there is one.
    """
    values: dict[int, int] = {}
    for device in range(len(search.problem.devices)):
        if search.is_over and search.best is not None:
            break
        value = search.offer(np.full(len(search.problem.graph.ops), device, np.int32))
        if value is not None:
            values[device] = value
    if meter is None or not values:
        return values
    n = len(search.problem.graph.ops)
    found = meter(np.stack([np.full(n, device, np.int32) for device in values])).tolist()
    return {device: value for device, value in zip(values, found, strict=True) if value < INFEASIBLE}


class _Simulated:
    """The simulator with its default order, memory included where it can bind."""

    over = False
    samples = 2**30

    def __init__(self, problem: Problem) -> None:
        table = tables(problem)
        most = int(table.static_bytes.sum() + table.tied_bytes.sum() + table.workspace_bytes.sum())
        most += int((table.tensor_bytes * (1 + np.diff(table.consumer_ptr))).sum())
        self._problem, self._binds = problem, bool((most > problem.capacity).any())

    def __call__(self, placements: Indices, /) -> Ints:
        """Costed, INFEASIBLE where memory overflows."""
        found = evaluate(self._problem, placements, memory=self._binds)
        if found.peak is None:
            return found.value
        return np.where((found.peak <= self._problem.capacity).all(axis=1), found.value, INFEASIBLE)


def simulated(problem: Problem) -> Meter:
    """The meter that learned solvers have by default: the one simulator."""
    return _Simulated(problem)
