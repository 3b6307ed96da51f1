"""Which ops run in one go: a plan or placement -> segments, so that every device runs its segments one after another.

In: a plan, or a graph, the device of every op and perhaps an order. Out: `Parts`: a pipeline's stages, or the planned
order of each device, cut where others wait for it; of a fleet one for every lane. Segment numbers are a topological
order of the quotient graph, which is acyclic by construction, and each device runs its segments in ascending order. In
a latency plan neighbours on a device become one where the plan is not slower for it: every segment costs a call of the
backend, and a layout that kernels could have kept among themselves. Simplified: segments take the sum of their ops and
a fixed overhead, transfers do not wait for each other; many segments are merged as far as a budget of work goes.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from weftline.errors import InputError, UsageError
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.plans.fleet import FleetPlan
from weftline.plans.plan import Plan
from weftline.problem import Problem

__all__ = [
    "Parts",
    "cut_places",
    "lanes_of_plan",
    "merge_segments",
    "parts_by_lane",
    "parts_by_level",
    "parts_by_order",
    "parts_by_stage",
    "parts_of_plan",
]


@dataclass(frozen=True, eq=False)
class Parts:
    """The segments of a graph."""

    part: Indices
    """(n,): number of the segment of every op."""
    device: tuple[int, ...]
    """Device of every segment: its index in `problem.devices`."""


def cut_places(group: Indices) -> list[int]:
    """Numbers of ops after which the ops, in their order, can be cut without dividing a group."""
    last = {number: op for op, number in enumerate(group.tolist())}
    places, until = [], 0
    for op, number in enumerate(group.tolist()):
        until = max(until, last[number])
        if until == op and op + 1 < len(group):
            places.append(op + 1)
    return places


def parts_by_level(graph: Graph, placement: Indices) -> Parts:
    """One segment per (level, device): the level of an op is how often a path to it changes the device at most."""
    level = _levels(graph, placement, range(len(graph.ops)))
    return _numbered(list(zip(level, placement.tolist(), strict=True)), placement)


def parts_by_stage(graph: Graph, placement: Indices, stages: Sequence[int], hosts: Collection[int] = ()) -> Parts:
    """One segment per device; those of a host, which may serve between stages, are as many as its levels.

    `stages` are devices in pipeline order, which decides where two of them do not wait for each other.
    """
    node = [op if device in hosts else -1 - device for op, device in enumerate(placement.tolist())]
    level = _levels(graph, placement, node)
    rank = {device: position for position, device in enumerate(stages)}
    keys = [(at, rank.get(device, len(rank)), device) for at, device in zip(level, placement.tolist(), strict=True)]
    return _numbered(keys, placement)


def parts_by_lane(graph: Graph, placement: Indices) -> Parts:
    """One segment per device; a device that waits for what another made of its own has one for each of its levels."""
    source, target, _ = graph.arrays.edges()
    devices = list(dict.fromkeys(placement.tolist()))
    links = set(zip(placement[source].tolist(), placement[target].tolist(), strict=True))
    reached = {device: {b for a, b in links if a == device != b} for device in devices}
    for through in devices:  # Warshall: there are few devices
        for device in devices:
            if through in reached[device]:
                reached[device] |= reached[through]
    again = {device for device in devices if device in reached[device]}
    return parts_by_stage(graph, placement, devices, again)


def parts_by_order(graph: Graph, placement: Indices, order: Sequence[int]) -> Parts:
    """Every device runs its ops in this order; a segment begins where it receives and ends where it sends."""
    count = len(graph.ops)
    if sorted(order) != list(range(count)):
        raise InputError(f"the order does not name each of the {count} ops once", hint="try weftline verify")
    receives, sends = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
    source, target, _ = graph.arrays.edges()
    crosses = placement[source] != placement[target]
    receives[target[crosses]], sends[source[crosses]] = True, True
    place = np.empty(count, np.int64)
    place[list(order)] = np.arange(count)
    if (place[source] >= place[target]).any():
        raise InputError("an op stands before one that it waits for in the planned order", hint="try weftline verify")
    part = np.empty(count, np.int32)
    devices: list[int] = []
    current: dict[int, int] = {}
    for op in order:
        device = int(placement[op])
        if device not in current or receives[op]:
            current[device] = len(devices)
            devices.append(device)
        part[op] = current[device]
        if sends[op]:
            del current[device]
    return Parts(part, tuple(devices))


def _levels(graph: Graph, placement: Indices, node: Sequence[int]) -> list[int]:
    """Level of every op, after ops of one `node` were merged: the most changes of device on a path to it."""
    source, target, _ = graph.arrays.edges()
    members: dict[int, list[int]] = {}
    for op, merged in enumerate(node):
        members.setdefault(merged, []).append(op)
    edges = {(node[a], node[b]) for a, b in zip(source.tolist(), target.tolist(), strict=True) if node[a] != node[b]}
    after: dict[int, list[int]] = {}
    waiting = dict.fromkeys(members, 0)
    for a, b in edges:
        after.setdefault(a, []).append(b)
        waiting[b] += 1
    level = dict.fromkeys(members, 0)
    device = {merged: int(placement[ops[0]]) for merged, ops in members.items()}
    ready = [merged for merged, count in waiting.items() if not count]
    done = 0
    while ready:
        a = ready.pop()
        done += 1
        for b in after.get(a, ()):
            level[b] = max(level[b], level[a] + (device[a] != device[b]))
            waiting[b] -= 1
            if not waiting[b]:
                ready.append(b)
    if done < len(members):
        raise UsageError("the stages depend on each other in a cycle, so they cannot run one after another")
    return [level[merged] for merged in node]


def _numbered(keys: Sequence[tuple[int, ...]], placement: Indices) -> Parts:
    """Equal keys are one segment; segments are numbered by their keys."""
    number = {key: position for position, key in enumerate(sorted(set(keys)))}
    part = np.array([number[key] for key in keys], np.int32)
    devices = [0] * len(number)
    for op, segment in enumerate(part.tolist()):
        devices[segment] = int(placement[op])
    return Parts(part, tuple(devices))


OVERHEAD_NS = 50_000
"""Of one segment: the call of the backend, and telling others."""
MOST_WORK = 20_000_000
"""Segments and wires that are looked at, at most; some seconds."""

Wires = dict[tuple[int, int], int]


def merge_segments(problem: Problem, parts: Parts) -> Parts:
    """The same placement and order in fewer segments."""
    chain = _Chain(problem, parts)
    best, work, merged = chain.length(), MOST_WORK, True
    assert best is not None, "segments of a plan do not wait for each other in a circle"
    while merged and work > 0:
        merged = False
        for row in chain.rows.values():
            at = 0
            while at + 1 < len(row) and work > 0:
                work -= len(chain.duration) + len(chain.wires)
                kept = chain.wires, dict(chain.duration)
                second = row.pop(at + 1)
                chain.join(row[at], second)
                length = chain.length()
                if length is not None and length <= best:
                    best, merged = length, True
                    chain.home[second] = row[at]
                else:
                    chain.wires, chain.duration = kept
                    row.insert(at + 1, second)
                    at += 1
    return chain.parts()


class _Chain:
    """Segments, what they wait for, and their order on each device."""

    def __init__(self, problem: Problem, parts: Parts) -> None:
        self._parts = parts
        ops = np.arange(len(parts.part))
        taken = problem.cost.time[ops, np.array(parts.device, np.int64)[parts.part]]
        total = np.bincount(parts.part, taken.astype(np.float64), len(parts.device))
        self.duration = {segment: round(ns) + OVERHEAD_NS for segment, ns in enumerate(total.tolist())}
        self.home = {segment: segment for segment in self.duration}
        self.rows: dict[int, list[int]] = {}
        for segment, device in enumerate(parts.device):
            self.rows.setdefault(device, []).append(segment)
        self.wires: Wires = {}
        part = parts.part.tolist()
        for number, tensor in enumerate(problem.graph.tensors):
            if tensor.producer < 0:
                continue
            a = part[tensor.producer]
            transfer = problem.cost.transfer[problem.cost.transfer_row[number]]
            for b in {part[op] for op in tensor.consumers} - {a}:
                ns = int(transfer[parts.device[a], parts.device[b]])
                self.wires[a, b] = max(self.wires.get((a, b), 0), ns)

    def join(self, first: int, second: int) -> None:
        """One segment of two; the caller takes the second out of its row."""
        wires: Wires = {}
        for (a, b), ns in self.wires.items():
            ends = first if a == second else a, first if b == second else b
            if ends[0] != ends[1]:
                wires[ends] = max(wires.get(ends, 0), ns)
        self.wires = wires
        self.duration[first] += self.duration.pop(second) - OVERHEAD_NS

    def length(self) -> int | None:
        """When the last segment ends; None if they wait for each other in a circle."""
        ends = self._ends()
        return max(ends.values(), default=0) if len(ends) == len(self.duration) else None

    def _ends(self) -> dict[int, int]:
        """Segment -> when it ends, in an order in which they can run; those of a circle are missing."""
        after: dict[int, list[tuple[int, int]]] = {segment: [] for segment in self.duration}
        waiting = dict.fromkeys(self.duration, 0)
        for (a, b), ns in self.wires.items():
            after[a].append((b, ns))
            waiting[b] += 1
        for row in self.rows.values():
            for a, b in pairwise(row):
                after[a].append((b, 0))
                waiting[b] += 1
        start = dict.fromkeys(self.duration, 0)
        ready = [segment for segment, count in waiting.items() if not count]
        ends: dict[int, int] = {}
        for segment in ready:  # grows while it is walked
            ends[segment] = start[segment] + self.duration[segment]
            for other, ns in after[segment]:
                start[other] = max(start[other], ends[segment] + ns)
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        return ends

    def parts(self) -> Parts:
        """Numbered in an order in which they can run."""
        number = {segment: position for position, segment in enumerate(self._ends())}
        part = np.array([number[self._root(segment)] for segment in self._parts.part.tolist()], np.int32)
        return Parts(part, tuple(self._parts.device[segment] for segment in number))

    def _root(self, segment: int) -> int:
        while self.home[segment] != segment:
            segment = self.home[segment]
        return segment


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


def lanes_of_plan(plan: Plan | FleetPlan) -> tuple[tuple[Parts, ...], tuple[int, ...]]:
    """The ways of an input through the model, and how inputs are shared out among them; a plan has one, and no rate."""
    if isinstance(plan, Plan):
        return (parts_of_plan(plan),), ()
    problem = plan.load_problem()
    lanes = tuple(parts_by_lane(problem.graph, placement) for placement in plan.placements())
    return lanes, tuple(lane.rate for lane in plan.lanes)
