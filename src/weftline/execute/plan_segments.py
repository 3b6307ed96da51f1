"""The segments of a plan.

In: a plan. Out: `Parts`: a pipeline's stages, or the planned order of each device, cut where others wait for it.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InputError
from weftline.execute.segment_merge import merge_segments
from weftline.execute.segments import Parts, parts_by_level, parts_by_order, parts_by_stage
from weftline.plan.model import Plan

__all__ = ["parts_of_plan"]


def parts_of_plan(plan: Plan) -> Parts:
    """Throughput: one segment per stage. Latency: as the timeline orders the ops, in as few as cost no time."""
    problem = plan.load_problem()
    graph = problem.graph
    try:
        found = [problem.device_index[plan.placement[op.name]] for op in graph.ops]
    except KeyError as error:
        raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint="try weftline verify") from None
    placement = np.array(found, np.int32)
    if plan.objective == "throughput":
        stages = [problem.device_index[stage.device] for stage in plan.stages if stage.device in problem.device_index]
        return parts_by_stage(graph, placement, stages, np.flatnonzero(problem.host).tolist())
    if plan.timeline is None:
        return parts_by_level(graph, placement)
    # Ops of no duration start together with others: then the one that ends first comes first.
    by_time = sorted((start, end, op) for op, start, end in plan.timeline.ops)
    return merge_segments(problem, parts_by_order(graph, placement, [op for _, _, op in by_time]))
