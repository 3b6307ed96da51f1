"""Lanes with rates -> what a deployment gives: inputs per second, how busy every device is, what it holds.

A lane is a way of an input through the cluster: a device for every op, any of them more than once. Whole copies of the
model are lanes of one device, a pipeline is one lane, copied stages are lanes that share devices. A device has a second
in every second: rate x load, added up over the lanes, is at most that; with overlapped communication this holds for
compute, entering and leaving tensors apart. A device holds the weights of every op that any of its lanes runs there.
Simplified: devices never wait for each other (queues between them are long enough); a device works on one input at a
time, so of the activations of its lanes only the largest count, once for each visit of that lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.latency import INFEASIBLE
from weftline.simulate.memory import weights_held
from weftline.simulate.tables import check_placement, tables
from weftline.simulate.throughput import LOAD_REASONS, PART_LOAD, add_loads, stage_peaks
from weftline.units import format_bytes

__all__ = [
    "FULL_SECOND",
    "RATE_UNITS",
    "Deployment",
    "LaneLoads",
    "deployment_violations",
    "lane_latency",
    "lane_loads",
    "simulate_deployment",
]

RATE_UNITS = 10**6
"""Rates are whole numbers of inputs per million seconds."""
FULL_SECOND = 10**9 * RATE_UNITS
"""What a device has: rate (in RATE_UNITS) x load (in ns) may not be more."""


@dataclass(frozen=True, eq=False)
class LaneLoads:
    """What one input costs on its way. Times in ns."""

    placement: Indices
    limited: Ints
    """(1 or 3, K): what takes a device's time, or with overlapped communication compute, entering and leaving."""
    activations: Ints
    """(K,): bytes beside the weights, once for each visit."""
    depth: int
    """Devices in a row on the longest path, each visit counted."""


@dataclass(frozen=True, eq=False)
class Deployment:
    """Lanes and rates, simulated."""

    lanes: tuple[LaneLoads, ...]
    rates: tuple[int, ...]
    """Of each lane: inputs per million seconds."""
    busy: tuple[int, ...]
    """Of each device, in parts of FULL_SECOND: the most of what is limited."""
    peak: Ints
    """(K,): bytes."""

    @property
    def rate(self) -> int:
        """Inputs per million seconds."""
        return sum(self.rates)

    @property
    def value(self) -> int:
        """The period: ns per input, rounded up."""
        return -(-FULL_SECOND // self.rate) if self.rate else 0

    @property
    def depth(self) -> int:
        """Of the longest lane."""
        return max((lane.depth for lane in self.lanes), default=0)

    @property
    def shares(self) -> tuple[Fraction, ...]:
        """Of the inputs that each lane gets."""
        return tuple(Fraction(rate, self.rate) for rate in self.rates)


def lane_loads(problem: Problem, placement: Indices) -> LaneLoads:
    """Cost one lane. `InfeasibleError` if an op has no time on its device, or a tensor no link."""
    table, placement = tables(problem), check_placement(problem, placement)
    parts = np.zeros((4, len(problem.devices)), np.int64)
    value = add_loads(table, placement, parts)
    if value >= INFEASIBLE:
        raise InfeasibleError(LOAD_REASONS[value - INFEASIBLE])
    visits, depth = _visits(problem, placement)
    beside = stage_peaks(table, placement) - weights_held(table, placement)
    limited = parts[:PART_LOAD] if problem.rules.communication == "overlapped" else parts[PART_LOAD:]
    return LaneLoads(placement, limited, beside * np.maximum(visits, 1), depth)


def _visits(problem: Problem, placement: Indices) -> tuple[Ints, int]:
    """How often an input comes to each device, and the devices in a row on its longest path."""
    device, level = placement.tolist(), [0] * len(placement)
    for tensor in sorted(problem.graph.tensors, key=lambda tensor: tensor.producer):
        maker = tensor.producer
        for reader in tensor.consumers if maker >= 0 else ():
            level[reader] = max(level[reader], level[maker] + (device[maker] != device[reader]))
    found = set(zip(device, level, strict=True))
    visits = np.bincount([d for d, _ in found], minlength=len(problem.devices)).astype(np.int64)
    return visits, 1 + max(level, default=0)


def lane_latency(problem: Problem, placement: Indices) -> int:
    """What an input that is alone takes at most, in ns: every op and every transfer of its way, one after another."""
    time, transfer, row = problem.cost.time, problem.cost.transfer, problem.cost.transfer_row
    total = sum(time[np.arange(len(placement)), placement].tolist())
    device = placement.tolist()
    for number, tensor in enumerate(problem.graph.tensors):
        if tensor.producer >= 0:
            home = device[tensor.producer]
            total += sum(int(transfer[row[number], home, to]) for to in {device[c] for c in tensor.consumers} - {home})
    return int(total)


def simulate_deployment(problem: Problem, lanes: Sequence[LaneLoads], rates: Sequence[int]) -> Deployment:
    """What the lanes give together; whether it can be is what `deployment_violations` says."""
    k = len(problem.devices)
    busy = [0] * k
    for d in range(k):
        rows = zip(*(lane.limited[:, d].tolist() for lane in lanes), strict=True)
        busy[d] = max((sum(rate * ns for rate, ns in zip(rates, row, strict=True)) for row in rows), default=0)
    return Deployment(tuple(lanes), tuple(rates), tuple(busy), _peaks(problem, lanes))


def _peaks(problem: Problem, lanes: Sequence[LaneLoads]) -> Ints:
    """Weights of all ops that a device runs for any lane, tied ones once, and the largest activations of a lane."""
    table, k = tables(problem), len(problem.devices)
    held = np.zeros((len(problem.graph.ops), k), np.bool_)
    for lane in lanes:
        held[np.arange(len(held)), lane.placement] = True
    peak = (held * table.static_bytes[:, None]).sum(axis=0).astype(np.int64)
    for number, weight in enumerate(problem.graph.tied):
        peak += held[list(weight.ops)].any(axis=0) * int(table.tied_bytes[number])
    beside: Ints = np.max([lane.activations for lane in lanes], axis=0, initial=0)
    total: Ints = peak + beside
    return total


def deployment_violations(problem: Problem, found: Deployment) -> tuple[str, ...]:
    """Time above a second per second, memory above the capacity, `together` sets torn apart."""
    wrong = []
    for d, device in enumerate(problem.devices):
        if found.busy[d] > FULL_SECOND:
            wrong.append(f"device {device.id} is busy for {found.busy[d] / FULL_SECOND:.6f} s in a second")
        if found.peak[d] > problem.capacity[d]:
            needs, holds = format_bytes(int(found.peak[d])), format_bytes(int(problem.capacity[d]))
            wrong.append(f"device {device.id} needs {needs} but holds {holds}")
    for members in problem.together:
        for lane in found.lanes:
            if len(np.unique(lane.placement[list(members)])) > 1:
                names = [problem.graph.ops[op].name for op in members[:4]]
                wrong.append(f"ops {names} must share a device, but not in every lane they do")
    return tuple(wrong)
