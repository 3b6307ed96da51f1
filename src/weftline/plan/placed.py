"""Where everything stands, op by op and tensor by tensor. In: a plan's problem and placement. Out: plain records."""

from __future__ import annotations

from dataclasses import dataclass

from weftline.graph.arrays import Indices
from weftline.plan.model import Plan
from weftline.plan.result import plan_result
from weftline.problem import Problem

__all__ = ["Crossing", "PlacedOp", "crossings", "placed_ops"]


@dataclass(frozen=True)
class PlacedOp:
    """One op of a plan."""

    op: str
    device: str
    time_ns: int


@dataclass(frozen=True)
class Crossing:
    """A tensor at one end of its way between stages, and what that end pays for it."""

    tensor: int
    device: int
    others: tuple[int, ...]
    """Devices at the other end: several where a tensor leaves for several stages."""
    time_ns: int
    enters: bool


def placed_ops(plan: Plan) -> list[PlacedOp]:
    """Every op in the graph's order, with its device and its time there."""
    problem, result = plan_result(plan)
    return [
        PlacedOp(op.name, problem.devices[device].id, int(problem.cost.time[i, device]))
        for i, (op, device) in enumerate(zip(problem.graph.ops, result.placement.tolist(), strict=True))
    ]


def crossings(problem: Problem, placement: Indices) -> list[Crossing]:
    """Every tensor that crosses, at each of its ends that pays: see the simulator's loads, to which they add up."""
    found = []
    for t, tensor in enumerate(problem.graph.tensors):
        if tensor.producer < 0:
            continue
        home = int(placement[tensor.producer])
        others = sorted({int(placement[op]) for op in tensor.consumers} - {home})
        length = problem.cost.transfer[problem.cost.transfer_row[t], home]
        found += [Crossing(t, d, (home,), int(length[d]), enters=True) for d in others if not problem.host[d]]
        if others and not problem.host[home]:
            found.append(Crossing(t, home, tuple(others), max(int(length[d]) for d in others), enters=False))
    return found
