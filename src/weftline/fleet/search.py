"""How every fleet solver is called: a budget, a pool of lanes, a place to offer rates and bounds.

In: a Problem. A solver adds lanes, which are costed by the one simulator, and offers rates for some of them; the search
rounds the rates down to whole numbers, costs the deployment, and keeps the best that breaks no limit. So a solver that
is stopped (time, work, Ctrl-C) still has its best answer, and none reports its own value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from weftline.errors import InfeasibleError
from weftline.fleet.coverage import CoverageBound
from weftline.fleet.flows import best_deployment
from weftline.fleet.rates import few_copies
from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.problem.layers import LayerInstance, LayerProblem
from weftline.search import Bound, Budget, Event, Termination
from weftline.search.parameters import field_names
from weftline.simulate.fleet import (
    FULL_SECOND,
    RATE_UNITS,
    Deployment,
    LaneLoads,
    deployment_violations,
    lane_latency,
    lane_loads,
    simulate_deployment,
)
from weftline.simulate.layers import LayerDeployment, layer_violations
from weftline.units import format_time

__all__ = ["FleetSearch", "FleetSolver", "FrontPoint", "LayerSearch"]

LEAST_SHARE = 1e-5
"""Of all inputs; a lane that would get less gets nothing."""


@dataclass
class FleetSearch(Budget):
    """One search: what was asked, what was found. Only `add`, `offer` and `offer_bound` change it."""

    problem: Problem
    starts: tuple[Indices, ...] = ()
    """Placements that somebody knows to be good lanes: pipelines."""
    most_depth: int | None = None
    """A lane may have so many devices in a row, each visit counted."""
    most_latency: int | None = None
    """An input that is alone may take so many ns on a lane."""
    most_copies: int | None = None
    """An op may be on so many devices, over all lanes."""
    lanes: dict[bytes, LaneLoads] = field(default_factory=dict)
    """Every lane that was costed and breaks no limit by itself."""
    best: Deployment | None = None
    bound: Bound | None = None

    @property
    def stopped_by(self) -> Termination:
        """The stop rule that has fired; false while none has."""
        value = None if self.best is None else self.best.value
        return self.rule(value, None if self.bound is None else self.bound.value)

    def add(self, placement: Indices) -> LaneLoads | None:
        """Cost a lane, and keep it in the pool; None if it breaks a limit by itself (then `refused` says which)."""
        placement = np.asarray(placement, np.int32)
        key = placement.tobytes()
        if key in self.lanes:
            return self.lanes[key]
        self.offered += 1
        try:
            lane = lane_loads(self.problem, placement)
        except InfeasibleError as error:
            self.refused = (str(error),)
            return None
        self.refused = deployment_violations(self.problem, simulate_deployment(self.problem, [lane], [0]))
        if self.most_depth is not None and lane.depth > self.most_depth:
            self.refused = (f"a lane has {lane.depth} devices in a row, {self.most_depth} are allowed",)
        if self.most_latency is not None and (alone := lane_latency(self.problem, placement)) > self.most_latency:
            allowed = format_time(self.most_latency)
            self.refused = (f"an input alone takes {format_time(alone)} on a lane, {allowed} are allowed",)
        if self.refused:
            return None
        self.lanes[key] = lane
        return lane

    def offer(self, lanes: Sequence[LaneLoads], rates: Sequence[float]) -> Deployment | None:
        """Lanes with rates (inputs per second): the deployment, or None if it breaks a limit."""
        found = self.deployed(lanes, rates)
        if found is not None and (self.best is None or found.rate > self.best.rate):
            self.best = found
            self.tell()
        return found

    def deployed(self, lanes: Sequence[LaneLoads], rates: Sequence[float]) -> Deployment | None:
        """The same, without keeping it."""
        if self.most_copies is not None:
            lanes, rates = few_copies(lanes, rates, self.most_copies)
        least = LEAST_SHARE * sum(rates)
        found = self._whole(lanes, [int(rate * RATE_UNITS) if rate > least else 0 for rate in rates])
        most = max(found.busy, default=0)
        if most > FULL_SECOND:  # by rounding
            found = self._whole(found.lanes, [rate * FULL_SECOND // most for rate in found.rates])
        self.refused = deployment_violations(self.problem, found)
        return None if self.refused or not found.rate else found

    def _whole(self, lanes: Sequence[LaneLoads], rates: Sequence[int]) -> Deployment:
        """The lanes that have a rate at all."""
        kept = [(lane, rate) for lane, rate in zip(lanes, rates, strict=True) if rate > 0]
        return simulate_deployment(self.problem, [lane for lane, _ in kept], [rate for _, rate in kept])

    def offer_bound(self, bound: Bound) -> None:
        """No deployment has a shorter period."""
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound
            self.tell()

    def tell_of(self, event: Event) -> None:
        """Report what a search for one lane says; its bound is none for a deployment."""
        if self.on_event is not None:
            value = event.value if self.best is None or event.value is None else min(event.value, self.best.value)
            self.on_event(Event(self.seconds, self.solver, value, None, event.message))

    def tell(self, message: str = "") -> None:
        """Report progress."""
        if self.on_event is not None:
            value = None if self.best is None else self.best.value
            bound = None if self.bound is None else self.bound.value
            self.on_event(Event(self.seconds, self.solver, value, bound, message))


@dataclass(frozen=True)
class FrontPoint:
    """The best that is known within a limit of depth, and a rate that is refuted for it."""

    depth: int
    found: LayerDeployment
    bound: CoverageBound | None


@dataclass
class LayerSearch(Budget):
    """One search: what was asked, what was found. Only `offer`, `offer_bound` and `offer_front` change it."""

    problem: LayerProblem
    free: bool = False
    """Links and ports limit nothing."""
    best: LayerDeployment | None = None
    bound: CoverageBound | None = None
    """The smallest rate that is refuted."""
    front: dict[int, FrontPoint] = field(default_factory=dict)

    @property
    def limit(self) -> int | None:
        """No deployment has a higher rate."""
        return None if self.bound is None else self.bound.rate - 1

    @property
    def stopped_by(self) -> Termination:
        """The stop rule that has fired; false while none has."""
        return self.rule(self.limit, None if self.best is None else self.best.rate)

    def offer(self, instances: Sequence[LayerInstance]) -> LayerDeployment | None:
        """The best lanes over these instances -> what they give, None if that is nothing, or breaks a limit."""
        self.offered += 1
        return self.adopt(best_deployment(self.problem, instances, free=self.free))

    def adopt(self, found: LayerDeployment) -> LayerDeployment | None:
        """Keep a deployment if it is the best so far."""
        self.refused = layer_violations(self.problem, found)
        if self.refused or not found.rate:
            return None
        if self.best is None or found.rate > self.best.rate:
            self.best = found
            self.tell()
        return found

    def offer_bound(self, bound: CoverageBound) -> None:
        """No deployment reaches this rate."""
        if self.bound is None or bound.rate < self.bound.rate:
            self.bound = bound
            self.tell()

    def offer_front(self, point: FrontPoint) -> None:
        """A point of the front: the best within a limit of depth."""
        self.front[point.depth] = point

    def tell(self, message: str = "") -> None:
        """Report progress, as periods in ns."""
        if self.on_event is not None:
            value = None if self.best is None else _period_ns(self.best.rate)
            bound = None if self.limit is None else _period_ns(self.limit)
            self.on_event(Event(self.seconds, self.solver, value, bound, message))


def _period_ns(rate: int) -> int:
    """Of a rate per million seconds, rounded up."""
    return -(-(10**15) // rate) if rate else 0


@dataclass(frozen=True)
class FleetSolver:
    """One entry of the registry."""

    name: str
    description: str
    solve: Callable[[Any], None]
    """Adds lanes, offers rates and bounds to a FleetSearch until it is done or `stopped_by` says so."""
    layers: bool = False
    """It is for layers on devices with tables, and gets a LayerSearch."""
    baseline: bool = False
    """Reported beside every answer."""
    parameters: type | None = None
    """A frozen dataclass of its numbers, which it reads by `FleetSearch.parameters`."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names that `--set` takes."""
        return field_names(self.parameters)
