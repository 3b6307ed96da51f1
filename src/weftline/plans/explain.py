"""Why a plan takes as long as it does: the chain of waits up to the last op, or the parts of the fullest stage.

In: a Plan. Out: rows of text-like records; of a pipeline also its slowest stage, the ops and tensors that cost most
there, and what room is next to it. Simplified: nothing is re-optimised.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from weftline.certify.bound_chain import read_parts
from weftline.certify.problem import Refusal
from weftline.plans.plan import Plan
from weftline.plans.result import Crossing, PlacedOp, crossings, plan_result
from weftline.problem import Problem
from weftline.simulate import Loads, Timeline
from weftline.units import format_bytes, format_name, format_time

__all__ = [
    "MovedTensor",
    "Neighbour",
    "Reason",
    "SlowestStage",
    "explain_blocks",
    "explain_plan",
    "explain_result",
    "explain_stage",
]

MOST_BLOCKS = 4
"""Of a proof by blocks, that are told."""

CLOCK = "what runs before it"
"""The one resource of the sequential runtime."""

Activity = tuple[int, int, str, str, set[str], set[str], set[str], str]


@dataclass(frozen=True)
class Reason:
    """One link of the chain: something that took time, and why it could not begin earlier."""

    what: str
    where: str
    start_ns: int
    end_ns: int
    because: str
    waits_for: str = ""
    """The busy device, port or bus, where that is what it waits for."""
    op: str = ""
    """Its name; of a transfer, the op that made the tensor."""

    def __str__(self) -> str:
        span = f"{format_time(self.start_ns):>12} .. {format_time(self.end_ns):<12}"
        return f"{span} {self.where:<12} {self.what}  ({self.because})"


def explain_plan(plan: Plan) -> list[Reason]:
    """Latency: the critical chain from time 0 to the end. Throughput: the parts of the slowest stage."""
    return explain_result(*plan_result(plan))


def explain_result(problem: Problem, result: Timeline | Loads) -> list[Reason]:
    """The same for a plan that was simulated already."""
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


def explain_blocks(plan: Plan) -> list[str]:
    """What the checker was shown of the blocks of a chain, the hardest first; nothing where the proof is another.

    A file may hold any witness: one that cannot be read tells nothing, and `verify` says why.
    """
    bound = next((bound for bound in plan.bounds if bound.proof == "proved"), None)
    if bound is None or bound.witness is None or bound.witness.get("kind") != "chain":
        return []
    try:
        lines = _block_lines(plan, msgspec.to_builtins(bound.witness))
    except (Refusal, KeyError, IndexError, TypeError, ValueError, AttributeError):
        return []
    return [f"Why none ends before {format_time(bound.value_ns)}:", *lines]


def _block_lines(plan: Plan, witness: dict[str, Any]) -> list[str]:
    names = [format_name(op.name) for op in plan.problem.graph.ops]
    devices = [device.id for device in plan.problem.devices]
    ends = ["the beginning", *(names[op] for op in witness["ops"]), "the end"]
    parts = sorted(read_parts(witness["parts"]), key=lambda part: -len(part["tree"]))
    found = []
    for part in parts[:MOST_BLOCKS]:
        on = [f" ({devices[part[end]]})" if end in part else "" for end in "kj"]
        way = f"from {ends[part['block']]}{on[0]} to {ends[part['block'] + 1]}{on[1]}"
        cases = sum(node[0] not in ("b", "o") for node in part["tree"])
        found.append(f"  {way}: more than {format_time(part['H'])}, in {cases} case{'s' if cases > 1 else ''}")
    more = f"{len(parts) - MOST_BLOCKS} more like these, and " if len(parts) > MOST_BLOCKS else ""
    return [*found, f"  {more}the rest of {len(ends) - 1} blocks by their paths"]


def _critical_chain(problem: Problem, timeline: Timeline) -> list[Reason]:
    """Walk back from the last op: whatever ended exactly when something began is what it waited for."""
    rows = _activities(problem, timeline)
    chain: list[Reason] = []
    current = max(range(len(rows)), key=lambda r: (rows[r][1], rows[r][0]))
    by_end: dict[int, list[int]] = {}
    for r, row in enumerate(rows):
        by_end.setdefault(row[1], []).append(r)
    while True:
        start, end, what, where, lanes, _, needs, name = rows[current]
        before = [r for r in by_end.get(start, ()) if r != current]
        data = next((r for r in before if rows[r][5] & needs), None)
        lane = next((r for r in before if rows[r][4] & lanes and rows[r][0] < rows[r][1]), None)
        busy = min(rows[lane][4] & lanes) if data is None and lane is not None and start else ""
        because = f"waits for {busy}" if busy else "first" if start == 0 or data is None else "waits for its input"
        chain.append(Reason(what, where, start, end, because, busy, name))
        following = data if data is not None else lane
        if following is None or start == 0:
            return chain[::-1]
        current = following


def _activities(problem: Problem, timeline: Timeline) -> list[Activity]:
    """Everything that takes place: start, end, what, where, resources held, facts made, facts needed, op."""
    graph, ids = problem.graph, [device.id for device in problem.devices]
    sequential = problem.rules.runtime == "sequential"
    buses = {(a, b): name for a, b, name in problem.buses}
    rows = []
    arrivals: dict[tuple[int, int], str] = {}
    for tensor, source, target, consumer, start, end in timeline.transfers.tolist():
        fact = f"t{tensor}@{target}/{consumer}"
        arrivals[tensor, consumer if consumer >= 0 else ~target] = fact
        lanes = {CLOCK} if sequential else {f"the send port of {ids[source]}", f"the receive port of {ids[target]}"}
        if not sequential and (source, target) in buses:
            lanes.add(f"bus {format_name(buses[source, target])}")
        made = {f"op{graph.tensors[tensor].producer}"}
        what = f"send {format_name(graph.tensors[tensor].name)} ({format_bytes(graph.tensors[tensor].bytes)})"
        rows.append(
            (
                start,
                end,
                what,
                f"{ids[source]}->{ids[target]}",
                lanes,
                {fact},
                made,
                graph.ops[graph.tensors[tensor].producer].name,
            )
        )
    needs: list[set[str]] = [set() for _ in graph.ops]
    for t, info in enumerate(graph.tensors):
        for op in info.consumers if info.producer >= 0 else ():
            target = int(timeline.placement[op])
            key = arrivals.get((t, op)) or arrivals.get((t, ~target))
            needs[op].add(key if key and int(timeline.placement[info.producer]) != target else f"op{info.producer}")
    for i, form in enumerate(graph.ops):
        device = int(timeline.placement[i])
        lanes = {CLOCK} if sequential else {f"device {ids[device]}"}
        rows.append(
            (
                int(timeline.start[i]),
                int(timeline.end[i]),
                format_name(form.name),
                ids[device],
                lanes,
                {f"op{i}"},
                needs[i],
                form.name,
            )
        )
    return rows


MOST_SHOWN = 5
"""Ops and tensors that are named."""


@dataclass(frozen=True)
class MovedTensor:
    """A tensor that enters or leaves a stage."""

    tensor: str
    time_ns: int
    devices: tuple[str, ...]
    """Where it comes from, or goes to."""


@dataclass(frozen=True)
class Neighbour:
    """The stage before or after."""

    stage: int
    device: str
    load_ns: int
    room_ns: int
    """How much its load may grow before it is the slowest."""


@dataclass(frozen=True)
class SlowestStage:
    """The stage whose load is the period."""

    stage: int
    device: str
    load_ns: int
    compute_ns: int
    in_ns: int
    out_ns: int
    ops: tuple[PlacedOp, ...]
    """The dearest, most time first; so are the tensors."""
    enters: tuple[MovedTensor, ...]
    leaves: tuple[MovedTensor, ...]
    before: Neighbour | None
    after: Neighbour | None

    def lines(self) -> list[str]:
        """For a terminal."""
        parts = (("compute", self.compute_ns), ("tensors that enter", self.in_ns), ("that leave", self.out_ns))
        told = ", ".join(f"{what} {format_time(time)}{_share(time, self.load_ns)}" for what, time in parts)
        lines = [f"The slowest stage is {self.stage} on {self.device}, {format_time(self.load_ns)}: {told}."]
        lines.append("Its dearest ops:")
        lines += [f"{format_time(op.time_ns):>12}  {format_name(op.op)}" for op in self.ops]
        for title, word, tensors in (("enter", "from", self.enters), ("leave", "to", self.leaves)):
            if tensors:
                lines.append(f"The dearest tensors that {title} it:")
            for moved in tensors:
                ends = ", ".join(moved.devices)
                lines.append(f"{format_time(moved.time_ns):>12}  {format_name(moved.tensor)} ({word} {ends})")
        return [*lines, self._room()]

    def _room(self) -> str:
        sides = [(side, next_to) for side, next_to in (("before", self.before), ("after", self.after)) if next_to]
        if not sides:
            return "It is the only stage, so no other has room."
        told = [
            f"stage {n.stage} on {n.device} {side} it "
            + (f"has {format_time(n.room_ns)} of room" if n.room_ns else "has no room")
            for side, n in sides
        ]
        return f"Next to it: {'; '.join(told)}."


def explain_stage(plan: Plan) -> SlowestStage | None:
    """The slowest stage of a pipeline (the first of several); None for a latency plan."""
    problem, loads = plan_result(plan)
    if not isinstance(loads, Loads):
        return None
    order = loads.stages
    place = max(range(len(order)), key=lambda p: int(loads.load[order[p]]))
    device = order[place]
    crossing = [one for one in crossings(problem, loads.placement) if one.device == device]
    return SlowestStage(
        stage=place,
        device=problem.devices[device].id,
        load_ns=int(loads.load[device]),
        compute_ns=int(loads.compute[device]),
        in_ns=int(loads.entering[device]),
        out_ns=int(loads.leaving[device]),
        ops=_costliest_ops(problem, loads, device),
        enters=_costliest(problem, [one for one in crossing if one.enters]),
        leaves=_costliest(problem, [one for one in crossing if not one.enters]),
        before=_neighbour(problem, loads, place - 1),
        after=_neighbour(problem, loads, place + 1),
    )


def _costliest_ops(problem: Problem, loads: Loads, device: int) -> tuple[PlacedOp, ...]:
    time = problem.cost.time[:, device]
    here = [i for i, d in enumerate(loads.placement.tolist()) if d == device]
    first = sorted(here, key=lambda i: (-int(time[i]), i))[:MOST_SHOWN]
    return tuple(PlacedOp(problem.graph.ops[i].name, problem.devices[device].id, int(time[i])) for i in first)


def _costliest(problem: Problem, found: list[Crossing]) -> tuple[MovedTensor, ...]:
    first = sorted(found, key=lambda one: (-one.time_ns, one.tensor))[:MOST_SHOWN]
    ids = [device.id for device in problem.devices]
    return tuple(
        MovedTensor(problem.graph.tensors[one.tensor].name, one.time_ns, tuple(ids[d] for d in one.others))
        for one in first
    )


def _neighbour(problem: Problem, loads: Loads, place: int) -> Neighbour | None:
    if not 0 <= place < len(loads.stages):
        return None
    device = loads.stages[place]
    load = int(loads.load[device])
    return Neighbour(place, problem.devices[device].id, load, loads.value - load)


def _share(part: int, whole: int) -> str:
    return f" ({part / whole:.0%})" if whole else ""
