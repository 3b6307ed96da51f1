"""Lanes over instances that hold layers -> what they give together: the rate, how busy every instance and link is.

In: a LayerProblem, instances, lanes with whole rates. Out: a LayerDeployment. An instance that holds k layers serves at
most what its table says for k, whatever part of them a request uses; links and ports carry at most what they can.
Simplified: nobody waits for anybody (docs/concepts.md); what waiting costs, `simulate/serving.py` says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise

from msgspec import UNSET

from weftline.problem.layers import RATE_SCALE, SINK_NODE, SOURCE_NODE, LayerInstance, LayerLane, LayerProblem

__all__ = ["LayerDeployment", "layer_violations", "simulate_layers"]


@dataclass(frozen=True)
class LayerDeployment:
    """Instances and lanes, simulated. Rates in units per million seconds."""

    instances: tuple[LayerInstance, ...]
    lanes: tuple[LayerLane, ...]
    served: tuple[int, ...]
    """Of every instance."""
    carried: dict[tuple[int, int], int]
    """(from, to) -> rate, between devices and the two ends."""

    @property
    def rate(self) -> int:
        """Of all lanes together."""
        return sum(lane.rate for lane in self.lanes)

    @property
    def depth(self) -> int:
        """Instances in a row on the longest lane."""
        return max((len(lane.hops) for lane in self.lanes), default=0)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Of the requests that each lane gets."""
        return tuple(Fraction(lane.rate, self.rate) for lane in self.lanes)


def simulate_layers(
    problem: LayerProblem, instances: Sequence[LayerInstance], lanes: Sequence[LayerLane]
) -> LayerDeployment:
    """Add the lanes up; whether it can be is what `layer_violations` says."""
    served, carried = [0] * len(instances), Counter[tuple[int, int]]()
    for lane in lanes:
        for instance, _, _ in lane.hops:
            served[instance] += lane.rate
        for link in _links(instances, lane):
            carried[link] += lane.rate
    return LayerDeployment(tuple(instances), tuple(lanes), tuple(served), dict(carried))


def _links(instances: Sequence[LayerInstance], lane: LayerLane) -> Iterator[tuple[int, int]]:
    """What a request of the lane crosses, one after the other."""
    ends = [SOURCE_NODE, *(instances[instance].devices[0] for instance, _, _ in lane.hops), SINK_NODE]
    return pairwise(ends)


def layer_violations(problem: LayerProblem, found: LayerDeployment) -> tuple[str, ...]:
    """What cannot be: units that are none, lanes with holes, tables, links or ports that are exceeded."""
    names = problem.device_names()
    wrong = list(_wrong_instances(problem, found, names)) or list(_wrong_lanes(problem, found))
    if problem.max_copies is not UNSET:
        wrong += _wrong_copies(problem, found.instances)
    if wrong:
        return tuple(wrong)
    for number, (instance, served) in enumerate(zip(found.instances, found.served, strict=True)):
        if served > (most := problem.rate(instance.unit, instance.held)):
            wrong.append(f"instance {number} serves {served / RATE_SCALE:.6g} but can {most / RATE_SCALE:.6g}")
    if problem.links is not None:
        capacity = {(a, b): rate for a, b, rate in problem.links}
        for link, rate in found.carried.items():
            if rate > capacity.get(link, 0):
                wrong.append(f"link {link} carries {rate / RATE_SCALE:.6g}, too much or not there")
    for device, (into, out) in enumerate(problem.ports or ()):
        enters = sum(rate for (_, b), rate in found.carried.items() if b == device)
        leaves = sum(rate for (a, _), rate in found.carried.items() if a == device)
        if enters > into or leaves > out:
            wrong.append(f"more enters or leaves {names[device]} than its port can carry")
    return tuple(wrong)


def _wrong_instances(problem: LayerProblem, found: LayerDeployment, names: list[str]) -> Iterator[str]:
    seen: set[int] = set()
    for number, one in enumerate(found.instances):
        unit = problem.units[one.unit]
        if not 0 <= one.first < one.last <= problem.layers:
            yield f"instance {number} holds no layers of the model"
        elif len(one.devices) != unit.size or {problem.pool_of[device] for device in one.devices} != {unit.pool}:
            yield f"instance {number} is no {unit.name}"
        if twice := seen & set(one.devices):
            yield f"device {names[min(twice)]} stands in two instances"
        seen |= set(one.devices)


def _wrong_copies(problem: LayerProblem, instances: Sequence[LayerInstance]) -> Iterator[str]:
    most, held = problem.copies_limit, Counter(layer for one in instances for layer in range(one.first, one.last))
    if held and max(held.values()) > most:
        layer, count = held.most_common(1)[0]
        yield f"{count} instances hold layer {layer}, {most} are allowed"


def _wrong_lanes(problem: LayerProblem, found: LayerDeployment) -> Iterator[str]:
    for number, lane in enumerate(found.lanes):
        position = 0
        for instance, first, last in lane.hops:
            one = found.instances[instance]
            inside = one.first <= first < last <= one.last
            if first != position or not inside or not (problem.partial or (first, last) == (one.first, one.last)):
                yield f"lane {number} has a hole, or uses a part of what instance {instance} holds"
            position = last
        if position != problem.layers or lane.rate < 0:
            yield f"lane {number} ends at layer {position} of {problem.layers}"
        if problem.max_depth is not None and len(lane.hops) > problem.max_depth:
            yield f"lane {number} has {len(lane.hops)} instances in a row, {problem.max_depth} are allowed"
