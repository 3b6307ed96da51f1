"""The pictures of a plan as data: timeline and memory of a latency plan, stages of a pipeline, what crosses.

In: a Plan (simulated again). Out: plain values that the page's scripts draw. Simplified: a pipeline has no clock of its
own, so its stages are shown by what they cost per inference.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.plans import Plan, explain_plan, plan_result
from weftline.plans.plan import thinned
from weftline.problem import NO_LIMIT, Problem
from weftline.report.html.pack import PageBudget, packed_spans, short_name, short_names, thinned_steps
from weftline.simulate import Loads, Timeline, memory_over_time
from weftline.units import format_name

__all__ = ["memory_lane", "plan_data"]

MOST_TENSORS = 6
"""Tensors that are named on a route between two devices."""
MOST_ROUTES = 400


def plan_data(plan: Plan, budget: PageBudget) -> dict[str, Any]:
    """Everything the page draws."""
    problem, result = plan_result(plan)
    ids = [device.id for device in problem.devices]
    data: dict[str, Any] = {
        "kind": plan.objective,
        "unit": "ns",
        "value": plan.value_ns,
        "bound": plan.bound_ns,
        "devices": ids,
        "ops": _ops(problem, result, budget),
        "progress": [] if isinstance(plan.progress, msgspec.UnsetType) else thinned(list(plan.progress)),
    }
    if isinstance(result, Timeline):
        data["timeline"] = _timeline(problem, result, budget)
        data["timeline"]["chain"] = _chain(plan, problem)
        data["memory"] = _memory(problem, result, budget)
        first = [int(result.start[result.placement == d].min(initial=2**62)) for d in range(len(ids))]
        used = [d for d in np.argsort(first, kind="stable").tolist() if (result.placement == d).any()]
        busy = [int((result.end - result.start)[result.placement == d].sum()) for d in range(len(ids))]
        data["graph"] = _graph(problem, result.placement, used, busy, list(range(len(used))))
    else:
        used = list(result.stages)
        data["stages"] = [
            {
                "name": ids[d],
                "compute": int(result.compute[d]),
                "receive": int(result.entering[d]),
                "send": int(result.leaving[d]),
                "load": int(result.load[d]),
            }
            for d in used
        ]
        data["overlapped"] = problem.rules.communication == "overlapped"
        busy = result.load.tolist()
        data["graph"] = _graph(problem, result.placement, used, busy, _layers(problem, result, used))
    return data


def _ops(problem: Problem, result: Timeline | Loads, budget: PageBudget) -> dict[str, Any]:
    """Columns over ops; of a latency plan the page reads times from the timeline."""
    kinds = sorted({op.kind for op in problem.graph.ops})
    number = {kind: i for i, kind in enumerate(kinds)}
    columns: dict[str, Any] = {
        "names": short_names([op.name for op in problem.graph.ops], budget.characters),
        "kinds": [short_name(kind, 40) for kind in kinds],
        "kind": [number[op.kind] for op in problem.graph.ops],
        "device": result.placement.tolist(),
    }
    if isinstance(result, Loads):
        columns["time"] = problem.cost.time[np.arange(len(result.placement)), result.placement].tolist()
    return columns


def _timeline(problem: Problem, timeline: Timeline, budget: PageBudget) -> dict[str, Any]:
    """Per device: ops, and below them what it receives and sends."""
    total = len(timeline.start) + 2 * len(timeline.transfers)
    share = min(1.0, budget.spans / max(total, 1))
    tensors = np.unique(timeline.transfers[:, 0])
    place = np.searchsorted(tensors, timeline.transfers[:, 0])
    lanes = []
    for d, device in enumerate(problem.devices):
        mine = np.flatnonzero(timeline.placement == d)
        rows: list[tuple[str, Ints, Ints, Ints, list[int]]]
        rows = [("compute", timeline.start[mine], timeline.end[mine], mine.astype(np.int64), [])]
        for role, column, other in (("receive", 2, 1), ("send", 1, 2)):
            here = np.flatnonzero(timeline.transfers[:, column] == d)
            begin, end = timeline.transfers[here, 4], timeline.transfers[here, 5]
            order = np.lexsort((end, begin))
            here = here[order]
            rows.append((role, begin[order], end[order], place[here], timeline.transfers[here, other].tolist()))
        for role, begin, end, item, peer in rows:
            if role != "compute" and not len(begin):
                continue
            most = max(200, int(share * len(begin)))
            lane: dict[str, Any] = {"device": d, "name": device.id, "role": role}
            lane |= packed_spans(begin, end, item, most)
            if len(begin) <= most:
                lane["peer"] = peer
            lanes.append(lane)
    names = short_names([problem.graph.tensors[t].name for t in tensors.tolist()], budget.characters // 2)
    sizes = problem.graph.arrays.tensor_bytes[tensors].tolist()
    return {"end": timeline.value, "lanes": lanes, "tensors": names, "sizes": sizes, "marks": []}


def _chain(plan: Plan, problem: Problem) -> list[int]:
    """The ops of the chain of waits that decides the value."""
    chain = (reason for reason in explain_plan(plan) if reason.what == format_name(reason.op))  # no transfers
    return sorted({problem.graph.index[reason.op] for reason in chain})


def _memory(problem: Problem, timeline: Timeline, budget: PageBudget) -> dict[str, Any]:
    most = max(100, budget.steps // len(problem.devices))
    lanes = []
    for device, steps in zip(problem.devices, memory_over_time(problem, timeline), strict=True):
        thin = np.array(thinned_steps(steps, most), np.int64).reshape(-1, 2)
        limit = None if device.capacity is None or device.capacity >= NO_LIMIT else device.capacity
        lanes.append(memory_lane(device.id, thin, limit))
    return {"end": timeline.value, "lanes": lanes}


def memory_lane(name: str, steps: Ints, limit: int | None) -> dict[str, Any]:
    """One level over time: (time, level) rows."""
    peak = int(steps[:, 1].max(initial=0))
    times = np.diff(steps[:, 0], prepend=0).tolist()
    return {"name": name, "time": times, "level": steps[:, 1].tolist(), "limit": limit, "peak": peak}


def _graph(
    problem: Problem, placement: Indices, used: Sequence[int], busy: Sequence[int], layers: Sequence[int]
) -> dict[str, Any]:
    """Nodes are the devices that are used; an edge is every tensor that goes from one to another."""
    node = {device: number for number, device in enumerate(used)}
    count = np.bincount(placement, minlength=len(problem.devices))
    routes: dict[tuple[int, int], list[int]] = {}
    for t, tensor in enumerate(problem.graph.tensors):
        if tensor.producer < 0:
            continue
        home = int(placement[tensor.producer])
        for device in {int(placement[op]) for op in tensor.consumers} - {home}:
            routes.setdefault((node[home], node[device]), []).append(t)
    size = problem.graph.arrays.tensor_bytes
    edges = [_route(problem, a, b, found, size) for (a, b), found in routes.items()]
    edges.sort(key=lambda edge: (-edge["bytes"], edge["from"], edge["to"]))
    nodes = [
        {"name": problem.devices[d].id, "device": d, "ops": int(count[d]), "load": int(busy[d]), "layer": layer}
        for d, layer in zip(used, layers, strict=True)
    ]
    return {"nodes": nodes, "edges": edges[:MOST_ROUTES], "left": max(0, len(edges) - MOST_ROUTES)}


def _route(problem: Problem, source: int, target: int, tensors: list[int], size: Ints) -> dict[str, Any]:
    largest = sorted(tensors, key=lambda t: (-int(size[t]), t))[:MOST_TENSORS]
    return {
        "from": source,
        "to": target,
        "bytes": int(size[tensors].sum()),
        "count": len(tensors),
        "largest": [[short_name(problem.graph.tensors[t].name, 80), int(size[t])] for t in largest],
    }


def _layers(problem: Problem, loads: Loads, used: list[int]) -> list[int]:
    """Longest path from the first stages, along tensors that go forward in the pipeline."""
    rank = {device: number for number, device in enumerate(used)}
    layer = [0] * len(used)
    source, target, _ = problem.graph.arrays.edges()
    pairs = {
        (rank[int(loads.placement[a])], rank[int(loads.placement[b])]) for a, b in zip(source, target, strict=True)
    }
    for a, b in sorted(pairs):
        if a < b:
            layer[b] = max(layer[b], layer[a] + 1)
    return layer
