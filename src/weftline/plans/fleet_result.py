"""A fleet plan simulated again, in words that fit every kind of fleet: devices, lanes and shares.

In: a fleet plan, or an ordinary plan for throughput (one lane). Out: `FleetResult`, which tables, pages, pictures,
stories and router files are made of. Another kind of fleet needs one more function under `@simulate_fleet.register`.
Simplified: the price of a device is that of the plan's bound.
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
from weftline.plans.fleet import AnyFleet, FleetPlan, hops_of
from weftline.plans.layers import LayerPlan
from weftline.plans.plan import BoundEntry, Plan
from weftline.plans.result import HINT, plan_result
from weftline.problem import Problem
from weftline.problem.layers import check_layers
from weftline.simulate import simulate_latency
from weftline.simulate.fleet import (
    FULL_SECOND,
    RATE_UNITS,
    deployment_violations,
    lane_loads,
    simulate_deployment,
)
from weftline.simulate.layers import layer_violations, simulate_layers
from weftline.units import format_name

__all__ = [
    "FleetResult",
    "FleetUse",
    "LaneUse",
    "held_words",
    "rate_words",
    "same_fleet",
    "simulate_fleet",
    "unit_of",
    "way_words",
]

SATURATED_SHARE = 0.999
"""A device that is busy for so much of its time has none left: rates are rounded down."""
MOST_HOPS_SHOWN = 4
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
def _fleet_of_layers(answer: LayerPlan) -> FleetResult:
    """Rows are instances, one device or a group that works as one, then devices that hold nothing."""
    problem = check_layers(answer.problem)
    for lane in answer.lanes:
        if any(not 0 <= hop[0] < len(answer.instances) or not hop[1] < hop[2] for hop in lane.hops) or lane.rate < 0:
            raise InputError("a lane goes over an instance that does not exist, or over no layers", hint=HINT)
    try:
        found = simulate_layers(problem, answer.placed(), answer.lanes)
    except KeyError as error:
        raise InputError(f"an instance is of no known device or unit: {error.args[0]!r:.80}", hint=HINT) from None
    if not found.rate:
        raise InputError("a fleet plan needs lanes with rates above 0", hint=HINT)
    most = [problem.rate(one.unit, one.held) for one in found.instances]
    rows = [
        FleetUse("+".join(told.devices), served / max(rate, 1), None, None, ((one.first, one.last),))
        for told, one, served, rate in zip(answer.instances, found.instances, found.served, most, strict=True)
    ]
    used = {name for told in answer.instances for name in told.devices}
    rows += [FleetUse(name, 0.0, None, None, ()) for name in problem.device_names() if name not in used]
    lanes = tuple(
        LaneUse(lane.rate, float(share), len(lane.hops), None, lane.hops)
        for lane, share in zip(found.lanes, found.shares, strict=True)
        if lane.rate
    )
    names = [f"layer {number}" for number in range(problem.layers)]
    wrong = layer_violations(problem, found)
    return FleetResult(problem.name, "layer", names, tuple(rows), lanes, wrong, unit_of(answer))


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
    if isinstance(answer, LayerPlan):
        same = (answer.value_ns, answer.rate, answer.depth) == (found.value, found.rate, found.depth)
        return same and not found.violations
    devices = {use.id: (use.busy, use.memory_bytes, use.memory_limit) for use in found.devices}
    told = {id: (use.busy, use.memory_bytes, use.memory_limit) for id, use in answer.devices.items()}
    return (answer.value_ns, answer.rate, devices) == (found.value, found.rate, told) and not found.violations


def rate_words(rate: float | None, unit: str = "inputs") -> str:
    """A rate for people."""
    return "breaks a limit" if rate is None else f"{rate:,.6g} {unit}/s" if rate < 1e5 else f"{rate:,.0f} {unit}/s"


def unit_of(answer: AnyFleet | Plan) -> str:
    """Of what a rate counts so many in a second."""
    return "units" if isinstance(answer, LayerPlan) else "inputs"


def way_words(found: FleetResult, lane: LaneUse, most: int = MOST_HOPS_SHOWN) -> str:
    """`a whole copy on gpu0`, or the devices in a row with what they run."""
    ids = [use.id for use in found.devices]
    if len({device for device, _, _ in lane.hops}) == 1:
        return f"a whole copy on {ids[lane.hops[0][0]]}"
    words = [f"{ids[device]} ({_count(last - first, found.part)})" for device, first, last in lane.hops]
    left = len(words) - most
    return " > ".join(words[:most]) + (f" and {left} more" if left > 0 else "")


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
