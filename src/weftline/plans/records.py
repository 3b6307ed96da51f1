"""Tables of plans and schedules as lists of dicts: `pandas.DataFrame(plan.table("timeline"))`.

In: a Plan, Score, Schedule or fleet plan, and the name of a table. Out: rows with the same keys each; times in ns and
memory in bytes (schedules: in the units of their blocks). Simplified: no index, no units in values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weftline.arguments import a_choice
from weftline.simulate.fleet import RATE_UNITS

if TYPE_CHECKING:
    from weftline.plans.fleet import AnyFleet
    from weftline.plans.plan import Plan
    from weftline.plans.schedule import Schedule
    from weftline.plans.score import Score

__all__ = ["FLEET_TABLES", "PLAN_TABLES", "SCHEDULE_TABLES", "fleet_records", "plan_records", "schedule_records"]

Records = list[dict[str, Any]]
PLAN_TABLES = ("timeline", "transfers", "placement", "devices", "stages", "baselines", "bounds")
SCHEDULE_TABLES = ("timeline", "devices", "reached")
FLEET_TABLES = ("devices", "lanes", "hops", "instances", "baselines", "bounds")


def plan_records(plan: Plan | Score, name: str) -> Records:
    """One table of a plan (or score: without baselines and bounds, which it has not)."""
    a_choice(name, "a table", PLAN_TABLES)
    return _MAKERS[name](plan)


def _devices(plan: Plan | Score) -> Records:
    ops = dict.fromkeys(plan.devices, 0)
    for device in plan.placement.values():
        ops[device] += 1
    return [
        {
            "device": device,
            "ops": ops[device],
            "busy_ns": use.load_ns,
            "memory_bytes": use.memory_bytes,
            "memory_limit": use.memory_limit,
        }
        for device, use in plan.devices.items()
    ]


def _stages(plan: Plan | Score) -> Records:
    fields = ("device", "ops", "compute_ns", "in_ns", "out_ns", "load_ns")
    return [{"stage": n, **{field: getattr(stage, field) for field in fields}} for n, stage in enumerate(plan.stages)]


def _baselines(plan: Plan | Score) -> Records:
    known = {"plan": plan.value_ns, **getattr(plan, "baselines", {})}
    return [{"name": name, "value_ns": value} for name, value in known.items()]


def _bounds(plan: Plan | Score) -> Records:
    return [{"by": b.by, "value_ns": b.value_ns, "proof": b.proof} for b in getattr(plan, "bounds", ())]


def _graph_of(plan: Plan | Score) -> Any:
    return plan.problem.graph


def _timeline(plan: Plan | Score) -> Records:
    """Ops by start; nothing for a pipeline, which has no clock of its own."""
    timeline, ops = plan.timeline, _graph_of(plan).ops
    if timeline is None:
        return []
    placement = plan.placement
    return [
        {
            "op": ops[op].name,
            "kind": ops[op].kind,
            "block": ops[op].block,
            "device": placement[ops[op].name],
            "start_ns": start,
            "end_ns": end,
        }
        for op, start, end in timeline.ops
    ]


def _transfers(plan: Plan | Score) -> Records:
    timeline, graph = plan.timeline, _graph_of(plan)
    if timeline is None:
        return []
    ids = [device.id for device in plan.problem.devices]
    return [
        {
            "tensor": graph.tensors[tensor].name,
            "bytes": graph.tensors[tensor].bytes,
            "source": ids[source],
            "target": ids[target],
            "start_ns": start,
            "end_ns": end,
        }
        for tensor, source, target, _, start, end in timeline.transfers
    ]


def _placement(plan: Plan | Score) -> Records:
    placement = plan.placement
    return [
        {"op": op.name, "kind": op.kind, "block": op.block, "device": placement[op.name]} for op in _graph_of(plan).ops
    ]


_MAKERS = {
    "timeline": _timeline,
    "transfers": _transfers,
    "placement": _placement,
    "devices": _devices,
    "stages": _stages,
    "baselines": _baselines,
    "bounds": _bounds,
}


def schedule_records(schedule: Schedule, name: str) -> Records:
    """One table of a schedule."""
    a_choice(name, "a table", SCHEDULE_TABLES)
    if name == "reached":
        return [{"name": method, "makespan": value} for method, value in schedule.reached.items()]
    blocks = schedule.load_blocks()
    if name == "timeline":
        return [
            {
                "device": lane.id,
                "block": blocks.blocks[action.block].name,
                "kind": blocks.blocks[action.block].kind,
                "stage": blocks.blocks[action.block].stage,
                "micro_batch": action.micro_batch,
                "start": action.start,
                "end": action.end,
            }
            for lane, row in zip(blocks.devices, schedule.actions, strict=True)
            for action in row
        ]
    return [
        {
            "device": lane.id,
            "busy": sum(action.end - action.start for action in row),
            "memory": schedule.peak_memory[n],
            "memory_limit": schedule.memory_limit[n],
        }
        for n, (lane, row) in enumerate(zip(blocks.devices, schedule.actions, strict=True))
    ]


def fleet_records(plan: AnyFleet, name: str) -> Records:
    """One table of a fleet plan; rates are inputs per second. Devices, lanes and hops are simulated again."""
    from weftline.plans.fleet_result import simulate_fleet

    a_choice(name, "a table", FLEET_TABLES)
    if name == "instances":
        return [msgspec.to_builtins(one) for one in plan.instances]
    if name == "baselines":
        return [{"name": known, "rate": rate} for known, rate in {"plan": plan.rate, **plan.baselines}.items()]
    if name == "bounds":
        every = [msgspec.to_builtins(bound) for bound in plan.bounds]
        return [{key: value for key, value in bound.items() if key != "witness"} for bound in every]
    found = simulate_fleet(plan)
    if name == "devices":
        fields = ("busy", "parts", "memory_bytes", "memory_limit", "worth")
        return [{"device": use.id, **{field: getattr(use, field) for field in fields}} for use in found.devices]
    if name == "hops":
        return [
            {"lane": n, "device": found.devices[device].id, "first": found.names[first], "last": found.names[last - 1]}
            for n, lane in enumerate(found.lanes)
            for device, first, last in lane.hops
        ]
    return [
        {
            "lane": n,
            "share": lane.share,
            "rate": lane.rate / RATE_UNITS,
            "depth": lane.depth,
            "latency_ns": lane.latency_ns,
        }
        for n, lane in enumerate(found.lanes)
    ]
