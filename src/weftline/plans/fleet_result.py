"""A fleet plan simulated again, in words that fit every kind of fleet: devices, lanes and shares.

In: a fleet plan, or an ordinary plan for throughput (one lane). Out: `FleetResult`, which tables, pages, pictures and
router files are made of; and `explain_fleet`, why its rate is what it is. Another kind of fleet needs one more function
under `@simulate_fleet.register` and nothing else here. Simplified: the price of a device is that of the plan's bound.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import singledispatch
from typing import Any

import msgspec
import numpy as np

from weftline.errors import InfeasibleError, InputError, UsageError, WeftlineError
from weftline.graph.arrays import Indices
from weftline.plans.bound_words import explain_bound, told_bound
from weftline.plans.fleet import AnyFleet, FleetPlan, hops_of
from weftline.plans.plan import BoundEntry, Plan
from weftline.plans.result import HINT, plan_result
from weftline.plans.summary import gap_words
from weftline.problem import Problem
from weftline.simulate import simulate_latency
from weftline.simulate.fleet import (
    FULL_SECOND,
    RATE_UNITS,
    deployment_violations,
    lane_loads,
    simulate_deployment,
)
from weftline.units import format_bytes, format_name, format_time

__all__ = [
    "FleetResult",
    "FleetStory",
    "FleetUse",
    "LaneUse",
    "explain_fleet",
    "fleet_guarantee",
    "held_words",
    "rate_words",
    "same_fleet",
    "simulate_fleet",
    "way_words",
]

SATURATED_SHARE = 0.999
"""A device that is busy for so much of its time has none left: rates are rounded down."""
FULL_SHARE = 0.9
"""Memory of which more is used is nearly full."""
MOST_HOPS_SHOWN, MOST_NAMES_SHOWN = 4, 8
MOST_RATE = 2**80
"""Of one lane, as the checker has it."""


@dataclass(frozen=True)
class FleetUse:
    """What one device does for a fleet."""

    id: str
    busy: float
    """Share of its time."""
    memory_bytes: int | None
    memory_limit: int | None
    holds: tuple[tuple[int, int], ...]
    """Runs (first part, last + 1) of the model, over all lanes."""
    worth: float | None = None
    """What the bound would rise by, in inputs per second, if the device had one more second in every second."""

    @property
    def saturated(self) -> bool:
        """Whether it works all the time."""
        return self.busy >= SATURATED_SHARE

    @property
    def parts(self) -> int:
        """How many parts of the model it holds."""
        return sum(last - first for first, last in self.holds)


@dataclass(frozen=True)
class LaneUse:
    """A way of an input through the cluster."""

    rate: int
    """Inputs per million seconds."""
    share: float
    depth: int
    latency_ns: int | None
    """Of one input that is alone on its way; None where that is not known."""
    hops: tuple[tuple[int, int, int], ...]
    """(device, first part, last + 1)"""


@dataclass(frozen=True, eq=False)
class FleetResult:
    """A deployment as the simulator has it."""

    model: str
    part: str
    """What the model is made of here: op, layer."""
    names: Sequence[str]
    """Of the parts, in their order."""
    devices: tuple[FleetUse, ...]
    lanes: tuple[LaneUse, ...]
    violations: tuple[str, ...] = ()
    """Limits that it breaks, in words."""
    unit: str = "inputs"
    period_ns: int = 0
    """Of a pipeline, whose period is whole ns; of others it follows from the rate."""

    @property
    def rate_units(self) -> int:
        """Inputs per million seconds."""
        return sum(lane.rate for lane in self.lanes)

    @property
    def rate(self) -> float:
        """Inputs per second."""
        return self.rate_units / RATE_UNITS

    @property
    def value(self) -> int:
        """The period: ns per input, rounded up."""
        return self.period_ns or (-(-FULL_SECOND // self.rate_units) if self.rate_units else 0)

    @property
    def depth(self) -> int:
        """Of the longest lane."""
        return max((lane.depth for lane in self.lanes), default=0)

    @property
    def latency_ns(self) -> tuple[int, int] | None:
        """Of one input alone: on the quickest and on the slowest lane."""
        known = [lane.latency_ns for lane in self.lanes if lane.latency_ns is not None]
        return (min(known), max(known)) if known else None

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        devices = {use.id: {key: value for key, value in asdict(use).items() if key != "id"} for use in self.devices}
        figures = {"rate": self.rate, "value_ns": self.value, "depth": self.depth}
        return {**figures, "devices": devices, "lanes": [asdict(lane) for lane in self.lanes]}


@singledispatch
def simulate_fleet(answer: AnyFleet | Plan) -> FleetResult:
    """Cost the lanes of a fleet again; `InputError` where they cannot be carried out."""
    raise UsageError("this is no plan whose rate can be simulated; give a fleet plan, or a plan for throughput")


@simulate_fleet.register
def _fleet_of_ops(answer: FleetPlan) -> FleetResult:
    problem = answer.load_problem()
    placements = [_placement(problem, lane.hops) for lane in answer.lanes]
    if not placements or any(not 0 < lane.rate <= MOST_RATE for lane in answer.lanes):
        raise InputError("a fleet plan needs lanes with rates above 0", hint=HINT)
    worth = _worth(len(problem.devices), answer.bounds, answer.bound_ns)
    return _simulated(problem, placements, [lane.rate for lane in answer.lanes], worth)


@simulate_fleet.register
def _one_pipeline(answer: Plan) -> FleetResult:
    """A pipeline is a fleet of one lane."""
    if answer.objective != "throughput":
        raise UsageError("a plan for latency has no rate: give a fleet plan, or a plan for throughput")
    problem, result = plan_result(answer)
    if result.value <= 0:
        raise UsageError("a plan that takes no time at all has no rate")
    none = [None] * len(problem.devices)
    return replace(_simulated(problem, [result.placement], [FULL_SECOND // result.value], none), period_ns=result.value)


def _placement(problem: Problem, hops: Sequence[tuple[int, int, int]]) -> Indices:
    placement, at = np.zeros(len(problem.graph.ops), np.int32), 0
    for device, first, last in hops:
        if not (0 <= device < len(problem.devices) and first == at < last <= len(placement)):
            raise InputError("the hops of a lane are not all ops in their order", hint=HINT)
        placement[first:last], at = device, last
    if at < len(placement):
        raise InputError("a lane ends before the last op", hint=HINT)
    return placement


def _simulated(
    problem: Problem, placements: Sequence[Indices], rates: Sequence[int], worth: Sequence[float | None]
) -> FleetResult:
    try:
        found = simulate_deployment(problem, [lane_loads(problem, placement) for placement in placements], rates)
    except (InfeasibleError, OverflowError) as error:
        raise InputError(f"the lanes cannot be carried out: {error}", hint=HINT) from error
    hops, alone = [hops_of(placement) for placement in placements], _alone(problem)
    lanes = tuple(
        LaneUse(rate, float(share), lane.depth, _latency(alone, lane.placement), way)
        for rate, share, lane, way in zip(rates, found.shares, found.lanes, hops, strict=True)
    )
    runs = [[hop[1:] for way in hops for hop in way if hop[0] == d] for d in range(len(problem.devices))]
    devices = tuple(
        FleetUse(
            device.id, found.busy[d] / FULL_SECOND, int(found.peak[d]), device.capacity, _joined(runs[d]), worth[d]
        )
        for d, device in enumerate(problem.devices)
    )
    names = [op.name for op in problem.graph.ops]
    return FleetResult(problem.graph.name, "op", names, devices, lanes, deployment_violations(problem, found))


def _alone(problem: Problem) -> Problem:
    """The same problem, for one input."""
    return problem.with_rules(msgspec.structs.replace(problem.rules, objective="latency", stages=0))


def _latency(problem: Problem, placement: Indices) -> int | None:
    try:
        return simulate_latency(problem, placement).value
    except WeftlineError:
        return None


def _joined(runs: Sequence[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Runs that touch or overlap as one."""
    found: list[tuple[int, int]] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def _worth(devices: int, bounds: Sequence[BoundEntry], best: int) -> list[float | None]:
    """Prices of the best bound: a rate is at most supply / c, and the supply is the sum of all prices."""
    for bound in bounds:
        witness = bound.witness if isinstance(bound.witness, dict) else {}
        if bound.value_ns != best or best <= 1 or witness.get("kind") != "prices":
            continue
        rows = [witness[name] for name in ("compute", "entering", "leaving") if name in witness]
        if not all(isinstance(row, list | tuple) and len(row) == devices for row in rows):
            continue
        each = [sum(prices) for prices in zip(*rows, strict=True)]
        if each and all(type(price) is int and price >= 0 for price in each) and sum(each):
            return [1e9 / (best - 1) * price / sum(each) for price in each]
    return [None] * devices


def same_fleet(answer: AnyFleet, found: FleetResult) -> bool:
    """Whether a plan says what the simulator says: rate, shares of time, memory."""
    devices = {use.id: (use.busy, use.memory_bytes, use.memory_limit) for use in found.devices}
    told = {id: (use.busy, use.memory_bytes, use.memory_limit) for id, use in answer.devices.items()}
    return (answer.value_ns, answer.rate, devices) == (found.value, found.rate, told) and not found.violations


def rate_words(rate: float | None, unit: str = "inputs") -> str:
    """A rate for people."""
    return "breaks a limit" if rate is None else f"{rate:,.6g} {unit}/s" if rate < 1e5 else f"{rate:,.0f} {unit}/s"


def fleet_guarantee(answer: AnyFleet) -> str:
    """The sentence a manager understands."""
    if answer.rate <= 0:
        return "This plan gives nothing, so any other is better."
    if answer.rate_bound is None:
        return "Nothing is known about how much faster another deployment could be."
    more = "No deployment of this model on these devices is faster"
    if answer.bound_ns < answer.value_ns:
        gain = gap_words(answer.rate_bound / answer.rate - 1)
        more = f"No deployment of this model on these devices gives more than {gain} more inputs per second"
    guess = (
        " for these guessed costs" if getattr(answer.problem, "graph", None) and answer.problem.graph.guessed else ""
    )
    how = f"proved{guess}" if answer.proof == "proved" else f"claimed{guess} by weftline's own search, not checked"
    return f"{more}: {how} ({told_bound(answer.bound_by, explain_bound(answer.bound_by))})."


def way_words(found: FleetResult, lane: LaneUse, most: int = MOST_HOPS_SHOWN) -> str:
    """`a whole copy on gpu0`, or the devices in a row with what they run."""
    ids = [use.id for use in found.devices]
    if len({device for device, _, _ in lane.hops}) == 1:
        return f"a whole copy on {ids[lane.hops[0][0]]}"
    words = [f"{ids[device]} ({_count(last - first, found.part)})" for device, first, last in lane.hops]
    left = len(words) - most
    return " > ".join(words[:most]) + (f" and {left} more" if left > 0 else "")


def _several(ids: Sequence[str]) -> str:
    """Some names, and how many more."""
    left = len(ids) - MOST_NAMES_SHOWN
    return ", ".join(ids[:MOST_NAMES_SHOWN]) + (f" and {left} more" if left > 0 else "")


def _count(number: int, part: str) -> str:
    return f"{number:,} {part}{'' if number == 1 else 's'}"


def held_words(found: FleetResult, use: FleetUse) -> str:
    """`the whole model`, or how much of it and from where to where."""
    if not use.holds:
        return "nothing"
    if use.parts == len(found.names):
        return f"the whole model ({_count(use.parts, found.part)})"
    first, last = use.holds[0][0], use.holds[0][1] - 1
    ends = f"{format_name(found.names[first])} .. {format_name(found.names[last])}"
    more = f" and {_count(len(use.holds) - 1, 'more run')}" if len(use.holds) > 1 else ""
    return f"{_count(use.parts, found.part)}: {ends}{more}"


@dataclass(frozen=True, eq=False)
class FleetStory:
    """Why the rate of a fleet is what it is."""

    result: FleetResult
    guarantee: str
    rate_bound: float | None
    baselines: dict[str, float | None]
    """Name -> inputs per second."""

    @property
    def saturated(self) -> tuple[FleetUse, ...]:
        """Devices that work all the time."""
        return tuple(use for use in self.result.devices if use.saturated)

    def gain(self, name: str) -> float | None:
        """How much more the fleet gives than a baseline, as a share."""
        rate = self.baselines[name]
        return None if not rate else self.result.rate / rate - 1

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        told = {"guarantee": self.guarantee, "rate_bound": self.rate_bound}
        compared = {name: {"rate": rate, "gain": self.gain(name)} for name, rate in self.baselines.items()}
        saturated = [use.id for use in self.saturated]
        return {**told, "saturated": saturated, "baselines": compared, "binding": self.lines(), **self.result.to_json()}

    def lines(self) -> list[str]:
        """What binds, in sentences."""
        found, lines = self.result, []
        if self.saturated:
            names = _several([use.id for use in self.saturated])
            lines.append(f"{names}: busy all the time, so more inputs need less work there, or another way")
        else:
            most = max(found.devices, key=lambda use: use.busy)
            lines.append(f"no device is busy all the time; {most.id} is for {most.busy:.1%} of it")
        idle = [use.id for use in found.devices if use.busy == 0.0]
        if idle:
            lines.append(f"{_several(idle)}: does nothing in this plan")
        for (size, limit), ids in self._full().items():
            lines.append(f"{_several(ids)}: memory is nearly full, {size} of {limit}")
        for worth, ids in self._worth().items():
            more = f"raises the bound by {worth:,.6g} {found.unit} per second" if worth else "does not raise the bound"
            each = "each of them" if len(ids) > 1 else "it"
            lines.append(f"{_several(ids)}: one more second of {each} in every second {more}")
        return lines

    def _full(self) -> dict[tuple[str, str], list[str]]:
        """Memory and its limit -> devices that are nearly full."""
        found: dict[tuple[str, str], list[str]] = {}
        for use in self.result.devices:
            if use.memory_limit and use.memory_bytes is not None and use.memory_bytes > FULL_SHARE * use.memory_limit:
                key = (format_bytes(use.memory_bytes), format_bytes(use.memory_limit))
                found.setdefault(key, []).append(use.id)
        return found

    def _worth(self) -> dict[float, list[str]]:
        """What a second is worth -> devices of which it is, the dearest first."""
        found: dict[float, list[str]] = {}
        for use in sorted(self.result.devices, key=lambda use: -(use.worth or 0.0)):
            if use.worth is not None:
                found.setdefault(float(f"{use.worth:.6g}"), []).append(use.id)
        return found

    def __str__(self) -> str:
        head = f"{rate_words(self.result.rate, self.result.unit)}, {format_time(self.result.value)} per input"
        return "\n".join([head, self.guarantee, *self.lines()])


def explain_fleet(answer: AnyFleet) -> FleetStory:
    """Why the rate is what it is; the lanes are simulated again."""
    return FleetStory(simulate_fleet(answer), fleet_guarantee(answer), answer.rate_bound, dict(answer.baselines))
