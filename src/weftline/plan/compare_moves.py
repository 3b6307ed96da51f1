"""Ops that moved from plan to plan, as groups of neighbours, and what a plan sends. In: plans. Out: plain records."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from weftline.errors import InputError
from weftline.plan.model import Plan
from weftline.plan.result import HINT
from weftline.units import format_bytes, format_name, format_time

__all__ = ["MovedGroup", "Traffic", "moved_groups", "traffic"]


@dataclass(frozen=True)
class MovedGroup:
    """Ops that hang together in the graph and moved from one device to another."""

    source: str
    target: str
    ops: tuple[str, ...]
    """In the order of the first plan's graph."""
    compute_ns: tuple[int | None, int | None]
    """Their time before and after, each by its own plan's costs; None where a plan has no such time."""

    def __str__(self) -> str:
        first, last = format_name(self.ops[0]), format_name(self.ops[-1])
        named = first if len(self.ops) == 1 else f"{len(self.ops)} ops, {first} .. {last}"
        spent = " -> ".join("?" if time is None else format_time(time) for time in self.compute_ns)
        return f"{named}: compute {spent}"


@dataclass(frozen=True)
class Traffic:
    """What is sent between devices for one inference."""

    count: int
    bytes: int
    time_ns: int

    def __str__(self) -> str:
        return f"{self.count} ({format_bytes(self.bytes)}, {format_time(self.time_ns)})" if self.count else "none"


def traffic(plan: Plan) -> Traffic:
    """Every transfer of the timeline; of a pipeline, every tensor once for each stage that it enters."""
    tensors = plan.problem.graph.tensors
    if plan.timeline is not None:
        if any(not 0 <= row[0] < len(tensors) for row in plan.timeline.transfers):
            raise InputError("the timeline holds a tensor that does not exist", hint=HINT)
        sent = [(tensors[row[0]].bytes, row[5] - row[4]) for row in plan.timeline.transfers]
    else:
        number = {device.id: d for d, device in enumerate(plan.problem.devices)}
        try:
            home = [number[plan.placement[op.name]] for op in plan.problem.graph.ops]
        except KeyError as error:
            raise InputError(f"the placement does not fit: {error.args[0]!r:.80}", hint=HINT) from None
        width, sent = len(number), []
        for t, tensor in enumerate(tensors):
            if tensor.producer >= 0:
                source = home[tensor.producer]
                row = plan.problem.transfer_rows[plan.problem.transfer_row[t]]
                for target in {home[op] for op in tensor.consumers} - {source}:
                    sent.append((tensor.bytes, row[source * width + target]))
    return Traffic(len(sent), sum(size for size, _ in sent), sum(time for _, time in sent))


def moved_groups(a: Plan, b: Plan, moved: dict[str, tuple[str, str]]) -> tuple[MovedGroup, ...]:
    """Connected ops (by tensors of the first plan's graph) that went the same way, most ops first."""
    graph = a.problem.graph
    leader = {i: i for i, op in enumerate(graph.ops) if op.name in moved}

    def root(op: int) -> int:
        while leader[op] != op:
            leader[op] = leader[leader[op]]
            op = leader[op]
        return op

    for tensor in graph.tensors:
        ends = [op for op in (tensor.producer, *tensor.consumers) if op in leader]
        # Readers of one tensor are neighbours too: they share what they read.
        by_way: dict[tuple[str, str], int] = {}
        for op in ends:
            first = by_way.setdefault(moved[graph.ops[op].name], op)
            x, y = sorted((root(first), root(op)))
            leader[y] = x
    members = defaultdict(list)
    for op in leader:
        members[root(op)].append(graph.ops[op].name)
    times = _times(a), _times(b)
    found = []
    for names in members.values():
        source, target = moved[names[0]]
        spent = (_sum(times[0], names, source), _sum(times[1], names, target))
        found.append(MovedGroup(source, target, tuple(names), spent))
    return tuple(sorted(found, key=lambda group: -len(group.ops)))


def _times(plan: Plan) -> dict[tuple[str, str], int]:
    """(op, device) -> ns for the devices that ops stand on."""
    problem, number = plan.problem, {device.id: d for d, device in enumerate(plan.problem.devices)}
    found = {}
    for op, row in zip(problem.graph.ops, problem.time_row, strict=True):
        device = plan.placement.get(op.name, "")
        if device in number:
            found[op.name, device] = problem.time_rows[row][number[device]]
    return found


def _sum(times: dict[tuple[str, str], int], names: list[str], device: str) -> int | None:
    spent = [times.get((name, device)) for name in names]
    return None if any(time is None for time in spent) else sum(time or 0 for time in spent)
