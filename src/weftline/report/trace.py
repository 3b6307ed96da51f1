"""Chrome trace events (Perfetto, chrome://tracing): one track per device or link, one per port, memory as counters.

In: a Plan or Schedule. Out: JSON. Simplified: the trace of a pipeline is schematic: a few inputs one period apart, and
each transfer at both of its ends.
"""

from __future__ import annotations

from typing import Any

import msgspec

from weftline.plans import Plan, plan_result
from weftline.plans.result import Crossing, crossings
from weftline.plans.schedule import Schedule
from weftline.plans.score import Score
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline, memory_over_time

__all__ = ["schedule_trace", "trace_json"]

INPUTS_SHOWN = 6
COMPUTE_TRACKS, TRANSFER_TRACKS, RECEIVE_TRACKS = 1, 2, 3
"""Process numbers of the groups of tracks."""
SCHEMATIC = (
    "schematic: a few inputs pass the stages one period apart; a transfer is drawn twice, as `send X` at the stage it "
    "leaves and as `receive X` at each stage it enters"
)

Events = list[dict[str, Any]]


def trace_json(plan: Plan | Score) -> bytes:
    """The trace of a plan as JSON bytes. Names are plain JSON strings, so nothing in them can break the file."""
    problem, result = plan_result(plan) if isinstance(plan, Plan) else (plan.problem, plan.result)
    about: dict[str, object] = {"tool": "weftline", "objective": plan.objective, "value_ns": plan.value_ns}
    if isinstance(plan, Plan):
        about["bound_ns"] = plan.bound_ns
    if isinstance(result, Timeline):
        events = _tracks(problem, {COMPUTE_TRACKS: "devices", TRANSFER_TRACKS: "transfers (by sender)"})
        events += _latency_events(problem, result)
    else:
        events = _tracks(problem, {COMPUTE_TRACKS: "devices", TRANSFER_TRACKS: "sends", RECEIVE_TRACKS: "receives"})
        events += _pipeline_events(problem, result)
        about["note"] = SCHEMATIC
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about})


def _tracks(problem: Problem, names: dict[int, str]) -> Events:
    groups = names.items()
    events: Events = [{"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}} for pid, name in groups]
    for number, device in enumerate(problem.devices):
        for pid in names:
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
            COMPUTE_TRACKS,
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
        events.append(_span(graph.tensors[tensor].name, TRANSFER_TRACKS, source, start, end, **about))
    for device, steps in enumerate(memory_over_time(problem, timeline)):
        for time, level in steps:
            counter = {"ph": "C", "name": f"memory {ids[device]}", "pid": COMPUTE_TRACKS, "ts": time / 1000}
            events.append({**counter, "args": {"bytes": level}})
    return events


def _pipeline_events(problem: Problem, loads: Loads) -> Events:
    """A few inputs flowing through the stages, one period apart: receive, compute, send (at once if overlapped)."""
    events: Events = []
    overlapped = problem.rules.communication == "overlapped"
    ends = crossings(problem, loads.placement)
    for place, device in enumerate(loads.stages):
        receives = [end for end in ends if end.device == device and end.enters]
        sends = [end for end in ends if end.device == device and not end.enters]
        for number in range(INPUTS_SHOWN):
            about = {"stage": place, "input": number}
            at = begin = (place + number) * loads.value
            at = _transfers(events, problem, receives, RECEIVE_TRACKS, at, about)
            at = begin if overlapped else at
            length = int(loads.compute[device])
            if length:
                events.append(_span(f"compute {number}", COMPUTE_TRACKS, device, at, at + length, **about))
            _transfers(events, problem, sends, TRANSFER_TRACKS, begin if overlapped else at + length, about)
    return events


def _transfers(events: Events, problem: Problem, ends: list[Crossing], pid: int, at: int, about: dict[str, int]) -> int:
    """One end of several transfers, one after another -> when the last is over."""
    verb, side = ("receive", "from") if pid == RECEIVE_TRACKS else ("send", "to")
    for end in ends:
        tensor = problem.graph.tensors[end.tensor]
        told = {**about, side: ", ".join(problem.devices[d].id for d in end.others), "bytes": tensor.bytes}
        if end.time_ns:
            events.append(_span(f"{verb} {tensor.name}", pid, end.device, at, at + end.time_ns, **told))
        at += end.time_ns
    return at


def schedule_trace(schedule: Schedule) -> bytes:
    """Times are drawn as if their unit were the nanosecond."""
    blocks = schedule.load_blocks()
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": f"devices of {schedule.name}"}}
    ]
    for device, (lane, row) in enumerate(zip(blocks.devices, schedule.actions, strict=True)):
        events.append({"ph": "M", "name": "thread_name", "pid": 1, "tid": device, "args": {"name": lane.id}})
        level = lane.reserved
        for action in row:
            block = blocks.blocks[action.block]
            times = {"ts": action.start / 1000, "dur": (action.end - action.start) / 1000}
            about = {"kind": block.kind, "micro_batch": action.micro_batch, "stage": block.stage}
            name = f"{block.name} mb{action.micro_batch}"
            events.append({"ph": "X", "name": name, "pid": 1, "tid": device, **times, "args": about})
            level += block.memory[block.devices.index(device)]
            if not lane.link:
                counter = {"ph": "C", "name": f"memory {lane.id}", "pid": 1, "ts": action.start / 1000}
                events.append({**counter, "args": {"held": level}})
    about_all = {"tool": "weftline", "makespan": schedule.makespan, "period": schedule.period_exact}
    return msgspec.json.encode({"traceEvents": events, "displayTimeUnit": "ns", "otherData": about_all})
