"""A plan simulated again: its placement and order through the simulator -> Timeline or Loads.

Where everything stands, op by op and tensor by tensor. In: a plan's problem and placement. Out: plain records.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.graph.arrays import Indices
from weftline.plans.plan import Plan
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, replay, simulate_throughput

__all__ = ["Crossing", "PlacedOp", "crossings", "placed_ops", "plan_result"]

HINT = "weftline verify says more"


def plan_result(plan: Plan) -> tuple[Problem, Timeline | Loads]:
    """The embedded problem, and what the simulator says about the plan's decisions."""
    problem = plan.load_problem()
    try:
        devices = [problem.device_index[plan.placement[op.name]] for op in problem.graph.ops]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint=HINT) from None
    placement = np.array(devices, np.int32)
    if plan.objective != problem.rules.objective or (plan.timeline is None) != (plan.objective == "throughput"):
        raise InputError("the plan answers another question than its problem", hint=HINT)
    try:
        return problem, _simulate(plan, problem, placement)
    except (UsageError, InfeasibleError, OverflowError) as error:
        raise InputError(f"the plan cannot be carried out: {error}", hint=HINT) from error


def _simulate(plan: Plan, problem: Problem, placement: Indices) -> Timeline | Loads:
    if plan.timeline is None:
        return simulate_throughput(problem, placement)
    n = len(placement)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for op, begin, finish in plan.timeline.ops:
        if not 0 <= op < n:
            raise InputError(f"the timeline holds op {op!s:.30}, which does not exist", hint=HINT)
        start[op], end[op] = begin, finish
    transfers = np.array(plan.timeline.transfers, np.int64).reshape(-1, 6)
    if len(transfers) and not 0 <= transfers[:, 0].min() <= transfers[:, 0].max() < len(problem.graph.tensors):
        raise InputError("the timeline holds a tensor that does not exist", hint=HINT)
    given = Timeline(placement, start, end, transfers, np.zeros(len(problem.devices), np.int64))
    return replay(problem, placement, given.actions(problem.graph.arrays.producer))


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
