"""Why a plan takes as long as it does: the chain of waits up to the last op, or the fullest stage; and one op's story.

In: a Plan. Out: rows of text-like records; nothing is re-optimised.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.errors import InputError
from weftline.plan.model import Plan
from weftline.plan.result import plan_result
from weftline.problem import Problem
from weftline.simulate import Timeline
from weftline.units import format_bytes, format_name, format_names, format_time

__all__ = ["Reason", "explain_op", "explain_plan"]


@dataclass(frozen=True)
class Reason:
    """One link of the chain: something that took time, and why it could not begin earlier."""

    what: str
    where: str
    start_ns: int
    end_ns: int
    because: str

    def __str__(self) -> str:
        span = f"{format_time(self.start_ns):>12} .. {format_time(self.end_ns):<12}"
        return f"{span} {self.where:<12} {self.what}  ({self.because})"


def explain_plan(plan: Plan) -> list[Reason]:
    """Latency: the critical chain from time 0 to the end. Throughput: the parts of the slowest stage."""
    problem, result = plan_result(plan)
    if isinstance(result, Timeline):
        return _critical_chain(problem, result)
    worst = int(result.load.argmax())
    device, at, reasons = problem.devices[worst].id, 0, []
    parts = (
        ("tensors that enter", result.entering),
        ("compute", result.compute),
        ("tensors that leave", result.leaving),
    )
    for what, amount in parts:
        reasons.append(Reason(what, device, at, at + int(amount[worst]), "slowest stage"))
        at += 0 if problem.rules.communication == "overlapped" else int(amount[worst])
    return reasons


def _critical_chain(problem: Problem, timeline: Timeline) -> list[Reason]:
    """Walk back from the last op: whatever ended exactly when something began is what it waited for."""
    rows = _activities(problem, timeline)
    chain: list[Reason] = []
    current = max(range(len(rows)), key=lambda r: (rows[r][1], rows[r][0]))
    by_end: dict[int, list[int]] = {}
    for r, row in enumerate(rows):
        by_end.setdefault(row[1], []).append(r)
    while True:
        start, end, what, where, lanes, _, needs = rows[current]
        before = [r for r in by_end.get(start, ()) if r != current]
        data = next((r for r in before if rows[r][5] & needs), None)
        lane = next((r for r in before if rows[r][4] & lanes and rows[r][0] < rows[r][1]), None)
        because = (
            "waits for its input"
            if data is not None
            else "waits for the device, port or bus"
            if lane is not None
            else "first"
        )
        because = "first" if start == 0 else because
        chain.append(Reason(what, where, start, end, because))
        following = data if data is not None else lane
        if following is None or start == 0:
            return chain[::-1]
        current = following


def _activities(problem: Problem, timeline: Timeline) -> list[tuple[int, int, str, str, set[str], set[str], set[str]]]:
    """Everything that takes place: start, end, what, where, resources held, facts made, facts needed."""
    graph, ids = problem.graph, [device.id for device in problem.devices]
    sequential = problem.rules.runtime == "sequential"
    buses = {(a, b): name for a, b, name in problem.buses}
    rows = []
    arrivals: dict[tuple[int, int], str] = {}
    for tensor, source, target, consumer, start, end in timeline.transfers.tolist():
        fact = f"t{tensor}@{target}/{consumer}"
        arrivals[tensor, consumer if consumer >= 0 else ~target] = fact
        lanes = {"clock"} if sequential else {f"send {source}", f"receive {target}"}
        if not sequential and (source, target) in buses:
            lanes.add(f"bus {buses[source, target]}")
        made = {f"op{graph.tensors[tensor].producer}"}
        what = f"send {format_name(graph.tensors[tensor].name)} ({format_bytes(graph.tensors[tensor].bytes)})"
        rows.append((start, end, what, f"{ids[source]}->{ids[target]}", lanes, {fact}, made))
    needs: list[set[str]] = [set() for _ in graph.ops]
    for t, info in enumerate(graph.tensors):
        for op in info.consumers if info.producer >= 0 else ():
            target = int(timeline.placement[op])
            key = arrivals.get((t, op)) or arrivals.get((t, ~target))
            needs[op].add(key if key and int(timeline.placement[info.producer]) != target else f"op{info.producer}")
    for i, form in enumerate(graph.ops):
        device = int(timeline.placement[i])
        lanes = {"clock"} if sequential else {f"device {device}"}
        rows.append(
            (
                int(timeline.start[i]),
                int(timeline.end[i]),
                format_name(form.name),
                ids[device],
                lanes,
                {f"op{i}"},
                needs[i],
            )
        )
    return rows


def explain_op(plan: Plan, name: str) -> list[str]:
    """One op: its device, its times elsewhere, when it runs, and what its inputs cost to bring."""
    problem, result = plan_result(plan)
    if name not in problem.graph.index:
        near = [op for op in problem.graph.index if name.lower() in op.lower()][:5]
        raise InputError(
            f"there is no op {name!r} in this plan",
            hint=f"did you mean {format_names(near)}?" if near else "see plan.json",
        )
    i = problem.graph.index[name]
    op, device = problem.graph.ops[i], int(result.placement[i])
    story = f"{op.kind or 'op'}, {op.flops:,} FLOP, weights {format_bytes(op.weight_bytes)}"
    lines = [f"{name} ({story}) on {problem.devices[device].id}"]
    for d, other in enumerate(problem.devices):
        time = int(problem.cost.time[i, d])
        lines.append(
            f"  on {other.id:<12} "
            + ("cannot run" if time < 0 else format_time(time))
            + (" <- here" if d == device else "")
        )
    if isinstance(result, Timeline):
        lines.append(f"  runs {format_time(int(result.start[i]))} .. {format_time(int(result.end[i]))}")
    arrays = problem.graph.arrays
    for t in arrays.input_of[arrays.input_ptr[i] : arrays.input_ptr[i + 1]].tolist():
        tensor = problem.graph.tensors[t]
        if tensor.producer < 0:
            lines.append(f"  reads {format_name(tensor.name)}: input of the model, present everywhere")
            continue
        home = int(result.placement[tensor.producer])
        cost = int(problem.cost.transfer[problem.cost.transfer_row[t], home, device])
        way = "on the same device" if home == device else f"from {problem.devices[home].id}, {format_time(cost)}"
        lines.append(
            f"  reads {format_name(tensor.name)} ({format_bytes(tensor.bytes)}) "
            f"of {format_name(problem.graph.ops[tensor.producer].name)}: {way}"
        )
    moved = _if_moved(problem, result.placement, i)
    lines += [
        f"  alone on {problem.devices[d].id} the plan's work and transfers would {_change(delta)}" for d, delta in moved
    ]
    return lines


def _change(delta: int) -> str:
    return "not change" if delta == 0 else f"{'grow' if delta > 0 else 'shrink'} by {format_time(abs(delta))}"


def _if_moved(problem: Problem, placement: np.ndarray[tuple[int], np.dtype[np.int32]], i: int) -> list[tuple[int, int]]:
    """Change of op time + transfer time of its edges if the op alone moved; contention is not counted."""
    home = int(placement[i])
    source, target, tensor = problem.graph.arrays.edges()
    touching = np.flatnonzero((source == i) | (target == i))

    def total(device: int) -> int | None:
        time = int(problem.cost.time[i, device])
        for e in touching.tolist():
            a = device if source[e] == i else int(placement[source[e]])
            b = device if target[e] == i else int(placement[target[e]])
            length = int(problem.cost.transfer[problem.cost.transfer_row[tensor[e]], a, b])
            if length < 0:
                return None
            time += length
        return time if problem.cost.time[i, device] >= 0 else None

    here = total(home) or 0
    return [(d, there - here) for d in range(len(problem.devices)) if d != home and (there := total(d)) is not None]
