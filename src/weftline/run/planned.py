"""What a plan or fleet plan says of one input: where its ops run, and what that takes of each device.

In: either kind of plan. Out: a placement for each lane, devices, computing times. A plan is a fleet of one lane. Times
are those of a problem that is given, for a watched run believes others than the plan was made from. Simplified: of a
fleet, the mean of its lanes by their shares.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from weftline.plans.fleet import FleetPlan
from weftline.plans.plan import Plan
from weftline.run.result import LaneRun
from weftline.run.split.segments import lanes_of_plan
from weftline.simulate.fleet import RATE_UNITS

if TYPE_CHECKING:
    from weftline.cluster import Device
    from weftline.graph.arrays import Indices
    from weftline.problem import Problem

__all__ = ["lane_runs", "lane_shares", "placements_of", "planned_compute", "used_devices"]


def placements_of(plan: Plan | FleetPlan) -> tuple[Mapping[str, str], ...]:
    """Of each lane: op -> device."""
    if isinstance(plan, Plan):
        return (plan.placement,)
    names = [op.name for op in plan.problem.graph.ops]
    ids = [device.id for device in plan.problem.devices]
    return tuple(dict(zip(names, _ids(placement, ids), strict=True)) for placement in plan.placements())


def _ids(placement: Indices, ids: list[str]) -> list[str]:
    return [ids[device] for device in placement.tolist()]


def used_devices(plan: Plan | FleetPlan, problem: Problem) -> list[Device]:
    """Those that run something, in the order of the problem."""
    named = {id for placement in placements_of(plan) for id in placement.values()}
    return [device for device in problem.devices if device.id in named]


def lane_shares(plan: Plan | FleetPlan) -> tuple[float, ...]:
    """Of the inputs that each lane gets."""
    if isinstance(plan, Plan):
        return (1.0,)
    total = sum(lane.rate for lane in plan.lanes)
    return tuple(lane.rate / total for lane in plan.lanes)


def planned_compute(plan: Plan | FleetPlan, problem: Problem) -> dict[str, int]:
    """Device that is used -> ns of computing for an input, on average."""
    planned = {device.id: 0.0 for device in used_devices(plan, problem)}
    rows = np.arange(len(problem.graph.ops))
    for share, placement in zip(lane_shares(plan), placements_of(plan), strict=True):
        columns = np.array([problem.device_index[placement[op.name]] for op in problem.graph.ops], np.int64)
        taken = np.bincount(columns, problem.cost.time[rows, columns].astype(np.float64), len(problem.devices))
        for id in planned:
            planned[id] += share * float(taken[problem.device_index[id]])
    return {id: round(ns) for id, ns in planned.items()}


def lane_runs(plan: Plan | FleetPlan, turns: Sequence[int], measured: Mapping[int, float]) -> tuple[LaneRun, ...]:
    """The lanes of a fleet as they ran; `measured` are inputs per second. A plan has none."""
    if isinstance(plan, Plan):
        return ()
    found = []
    parts, _ = lanes_of_plan(plan)
    for lane, (share, placement) in enumerate(zip(lane_shares(plan), placements_of(plan), strict=True)):
        devices = tuple(dict.fromkeys(placement.values()))
        rate = plan.lanes[lane].rate / RATE_UNITS
        count = len(parts[lane].device)
        found.append(LaneRun(lane, devices, count, share, turns.count(lane), rate, measured.get(lane)))
    return tuple(found)
