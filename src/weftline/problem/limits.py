"""Pins, forbids and `together` patterns of a cluster file -> absent times and disjoint sets of ops."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import translate

import numpy as np

from weftline.cluster import Limits
from weftline.cost import ABSENT, CostTable
from weftline.errors import InfeasibleError, InputError
from weftline.graph import Graph

__all__ = ["apply_limits", "merge_together"]


def apply_limits(
    graph: Graph, device_index: dict[str, int], cost: CostTable, limits: Limits
) -> tuple[CostTable, tuple[tuple[int, ...], ...]]:
    """Fold pins and forbids into the times; resolve `together`. A pattern that matches no op is an error."""
    time = cost.time.copy()
    pinned: dict[int, tuple[str, str]] = {}
    for entry in (*limits.pin, *limits.forbid):
        if entry.device not in device_index:
            raise InputError(
                f"{entry.op!r} is limited to or from an unknown device {entry.device[:64]!r}",
                hint=f"the devices are {', '.join(list(device_index)[:16])}",
            )
    for entry in limits.pin:
        keep = device_index[entry.device]
        for op in _matches(graph, entry.op, "pin"):
            pattern, device = pinned.setdefault(op, (entry.op, entry.device))
            if device != entry.device:
                raise InfeasibleError(
                    f"op {graph.ops[op].name!r} is pinned to two devices",
                    conflicts=(f"pin {pattern!r} -> {device}", f"pin {entry.op!r} -> {entry.device}"),
                    proved=True,
                )
            if time[op, keep] == ABSENT:
                raise InfeasibleError(
                    f"op {graph.ops[op].name!r} is pinned to a device that cannot run it",
                    conflicts=(f"pin {entry.op!r} -> {entry.device}",),
                    proved=True,
                )
            time[op, np.arange(time.shape[1]) != keep] = ABSENT
    reasons = {op: ["pin {!r} -> {}".format(*pin)] for op, pin in pinned.items()}
    for entry in limits.forbid:
        for op in _matches(graph, entry.op, "forbid"):
            time[op, device_index[entry.device]] = ABSENT
            reasons.setdefault(op, []).append(f"forbid {entry.op!r} on {entry.device}")
            if np.all(time[op] == ABSENT):
                what = f"no device is left for op {graph.ops[op].name!r}"
                raise InfeasibleError(what, conflicts=tuple(reasons[op]), proved=True)
    sets = [[op for pattern in patterns for op in _matches(graph, pattern, "together")] for patterns in limits.together]
    return cost.with_time(time), merge_together(sets)


def merge_together(sets: Iterable[Iterable[int]]) -> tuple[tuple[int, ...], ...]:
    """Sets that share an op become one; sets of fewer than two ops vanish."""
    parent: dict[int, int] = {}

    def root(op: int) -> int:
        while parent.setdefault(op, op) != op:
            parent[op] = parent[parent[op]]
            op = parent[op]
        return op

    for members in sets:
        first, *rest = list(members) or [-1]
        for op in rest:
            a, b = sorted((root(first), root(op)))
            parent[b] = a
    merged: dict[int, list[int]] = {}
    for op in sorted(parent):
        merged.setdefault(root(op), []).append(op)
    return tuple(tuple(members) for members in merged.values() if len(members) > 1)


def _matches(graph: Graph, pattern: str, what: str) -> list[int]:
    if pattern in graph.index:
        return [graph.index[pattern]]
    expression = re.compile(translate(pattern))
    found = [i for i, op in enumerate(graph.ops) if expression.match(op.name)]
    if not found:
        near = ", ".join(repr(op.name) for op in graph.ops[:3])
        raise InputError(
            f"{pattern!r} matches no op of {graph.name!r}", where=f"limits.{what}", hint=f"ops are named like {near}"
        )
    return found
