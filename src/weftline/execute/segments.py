"""Which ops run in one go: a placement -> segments, so that every device runs its segments one after another.

In: a graph, the device of every op, perhaps an order. Out: `Parts`. Segment numbers are a topological order of
the quotient graph, which is acyclic by construction, and each device runs its segments in ascending order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from weftline.errors import InputError, UsageError
from weftline.graph import Graph
from weftline.graph.arrays import Indices

__all__ = ["Parts", "cut_places", "parts_by_level", "parts_by_order", "parts_by_stage"]


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
