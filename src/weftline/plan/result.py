"""A plan simulated again: its placement and order through the simulator -> Timeline or Loads."""

from __future__ import annotations

import numpy as np

from weftline.errors import InputError
from weftline.plan.model import Plan
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, replay, simulate_throughput

__all__ = ["plan_result"]


def plan_result(plan: Plan) -> tuple[Problem, Timeline | Loads]:
    """The embedded problem, and what the simulator says about the plan's decisions."""
    problem = plan.load_problem()
    try:
        devices = [problem.device_index[plan.placement[op.name]] for op in problem.graph.ops]
    except KeyError as error:
        raise InputError(f"the placement lacks {error.args[0]!r}", hint="weftline verify says more") from None
    placement = np.array(devices, np.int32)
    if plan.timeline is None:
        return problem, simulate_throughput(problem, placement)
    n = len(devices)
    start, end = np.zeros(n, np.int64), np.zeros(n, np.int64)
    for op, begin, finish in plan.timeline.ops:
        if not 0 <= op < n:
            raise InputError(f"the timeline holds op {op}, which does not exist", hint="weftline verify says more")
        start[op], end[op] = begin, finish
    transfers = np.array(plan.timeline.transfers, np.int64).reshape(-1, 6)
    if len(transfers) and not 0 <= transfers[:, 0].min() <= transfers[:, 0].max() < len(problem.graph.tensors):
        raise InputError("the timeline holds a tensor that does not exist", hint="weftline verify says more")
    given = Timeline(placement, start, end, transfers, np.zeros(len(problem.devices), np.int64))
    return problem, replay(problem, placement, given.actions(problem.graph.arrays.producer))
