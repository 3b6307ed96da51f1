"""A plan simulated again: its placement and order through the simulator -> Timeline or Loads."""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError, InputError, UsageError
from weftline.graph.arrays import Indices
from weftline.plan.model import Plan
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, replay, simulate_throughput

__all__ = ["plan_result"]

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
