"""Chrome trace events (Perfetto, chrome://tracing): one track per device, one per port, memory as counters."""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.plan import Plan, plan_result
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, memory_over_time

__all__ = ["trace_json"]

INPUTS_SHOWN = 6
COMPUTE, TRANSFERS = 1, 2
"""Process numbers of the two groups of tracks."""

Events = list[dict[str, Any]]


def trace_json(plan: Plan) -> bytes:
    """The trace of a plan as JSON bytes. Names are plain JSON strings, so nothing in them can break the file."""
    problem, result = plan_result(plan)
    events = _tracks(problem)
    events += _latency_events(problem, result) if isinstance(result, Timeline) else _pipeline_events(problem, result)
    about = {"tool": "weftline", "objective": plan.objective, "value_ns": plan.value_ns, "bound_ns": plan.bound_ns}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})


def _tracks(problem: Problem) -> Events:
    names = [(COMPUTE, "devices"), (TRANSFERS, "transfers (by sender)")]
    events: Events = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in names]
    for number, device in enumerate(problem.devices):
        for pid, _ in names:
            events.append({"ph": "M", "name": "thread_name", "pid": pid, "tid": number, "args": {"name": device.id}})
    return events


def _span(name: str, pid: int, track: int, start: int, end: int, **about: object) -> dict[str, Any]:
    when = {"ts": start / 1000, "dur": (end - start) / 1000}
    return {"ph": "X", "name": name, "pid": pid, "tid": track, **when, "args": about}


def _latency_events(problem: Problem, timeline: Timeline) -> Events:
    graph, ids = problem.graph, [device.id for device in problem.devices]
    events = [
        _span(
            op.name,
            COMPUTE,
            int(timeline.placement[i]),
            int(timeline.start[i]),
            int(timeline.end[i]),
            kind=op.kind,
            block=op.block,
        )
        for i, op in enumerate(graph.ops)
    ]
    for tensor, source, target, _, start, end in timeline.transfers.tolist():
        about = {"to": ids[target], "bytes": graph.tensors[tensor].bytes}
        events.append(_span(graph.tensors[tensor].name, TRANSFERS, source, start, end, **about))
    for device, steps in enumerate(memory_over_time(problem, timeline)):
        for time, level in steps:
            counter = {"ph": "C", "name": f"memory {ids[device]}", "pid": COMPUTE, "ts": time / 1000}
            events.append({**counter, "args": {"bytes": level}})
    return events


def _pipeline_events(problem: Problem, loads: Loads) -> Events:
    """A few inputs flowing through the stages, one period apart."""
    events: Events = []
    overlapped = problem.rules.communication == "overlapped"
    for place, device in enumerate(loads.stages):
        parts = (("receive", loads.entering), ("compute", loads.compute), ("send", loads.leaving))
        for number in range(INPUTS_SHOWN):
            at = (place + number) * loads.value
            for what, amount in parts:
                length = int(amount[device])
                if length:
                    pid = COMPUTE if what == "compute" else TRANSFERS
                    events.append(_span(f"{what} {number}", pid, device, at, at + length, stage=place))
                at += 0 if overlapped else length
    return events
