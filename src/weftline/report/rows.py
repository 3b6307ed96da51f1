"""The rows of a plan's tables as text, shared by the terminal and Markdown."""

from __future__ import annotations

from weftline.plan import Plan, placed_ops
from weftline.units import format_bytes, format_name, format_time

__all__ = ["Rows", "comparison_rows", "device_rows", "placement_rows", "stage_rows"]

Rows = list[tuple[str, ...]]


def comparison_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
    """The plan, every baseline, and the bound: value, and how many times as long as the plan."""
    what = "latency" if plan.objective == "latency" else "period"
    rows: Rows = [(f"this plan ({plan.solver})", format_time(plan.value_ns), "1.00x")]
    for name, value in sorted(plan.baselines.items(), key=lambda item: (item[1] is None, item[1] or 0)):
        if value is None:
            rows.append((name, "breaks a limit", ""))
        else:
            rows.append((name, format_time(value), f"{value / plan.value_ns:.2f}x" if plan.value_ns else ""))
    share = f"{plan.bound_ns / plan.value_ns:.2f}x" if plan.value_ns else ""
    rows.append((f"lower bound ({plan.bound_by}, {plan.proof})", format_time(plan.bound_ns), share))
    return ("", what, "against the plan"), rows


def device_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
    """Every device: ops, busy time, memory."""
    ops = dict.fromkeys(plan.devices, 0)
    for device in plan.placement.values():
        ops[device] += 1
    rows: Rows = []
    for device, use in plan.devices.items():
        busy = f"{use.load_ns / plan.value_ns:.0%}" if plan.value_ns else ""
        limit = "no limit" if use.memory_limit is None else format_bytes(use.memory_limit)
        rows.append((device, str(ops[device]), format_time(use.load_ns), busy, format_bytes(use.memory_bytes), limit))
    return ("device", "ops", "load", "busy", "memory", "limit"), rows


def _ends(plan: Plan) -> tuple[dict[str, str], dict[str, str]]:
    """The first and the last op of each device, in the graph's order."""
    first: dict[str, str] = {}
    last: dict[str, str] = {}
    for op, device in plan.placement.items():
        name = format_name(op)
        first.setdefault(device, name)
        last[device] = name
    return first, last


def stage_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
    """Every stage of a pipeline, in order."""
    first, last = _ends(plan)
    rows: Rows = [
        (
            str(number),
            stage.device,
            f"{stage.ops}: {first[stage.device]} .. {last[stage.device]}",
            format_time(stage.compute_ns),
            format_time(stage.in_ns),
            format_time(stage.out_ns),
            format_time(stage.load_ns),
        )
        for number, stage in enumerate(plan.stages)
    ]
    return ("stage", "device", "ops", "compute", "enters", "leaves", "load"), rows


def placement_rows(plan: Plan) -> tuple[tuple[str, ...], Rows]:
    """Every op in the graph's order."""
    rows: Rows = [(format_name(op.op), op.device, format_time(op.time_ns)) for op in placed_ops(plan)]
    return ("op", "device", "time"), rows
