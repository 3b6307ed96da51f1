"""Infeasibility that can be seen before any search, each kind with the limits that conflict.

Pins, forbids and `together` patterns of a cluster file become absent times and disjoint sets of ops. Simplified:
necessary conditions only; passing them does not prove that a plan exists.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from difflib import get_close_matches
from fnmatch import translate

import numpy as np

from weftline.cluster import Limits
from weftline.cost import NO_TIME, CostTable
from weftline.errors import InfeasibleError, InputError
from weftline.graph import Graph
from weftline.graph.arrays import Ints
from weftline.graph.describe import halved_weights, precision
from weftline.graph.stack import layers_of_graph, path_of
from weftline.problem.model import Problem
from weftline.units import format_bytes, format_names

__all__ = [
    "allowed_devices",
    "apply_limits",
    "check_feasible",
    "keep_layers",
    "least_memory",
    "merge_together",
    "some_devices",
]

WHOLE_LAYERS = "layers"
"""Stands for all layers that are found, by names or by structure."""

MOST_MATCHES = 50_000_000
"""Patterns times ops: about a minute."""
LEAST_SHARED = 2
"""Letters at the beginning that make two names alike."""
MOST_COMPARED = 2_000
"""Names that are compared letter by letter, which takes long."""


def check_feasible(problem: Problem) -> Problem:
    """Return the problem, or raise `InfeasibleError` with what stands in the way."""
    _check_devices(problem)
    _check_single_sets(problem)
    _check_activations(problem)
    _check_total(problem)
    return problem


def allowed_devices(problem: Problem) -> np.ndarray[tuple[int, int], np.dtype[np.bool_]]:
    """(groups, K): devices on which every op of a `together` set (or a single op) can run."""
    allowed = np.ones((int(problem.group.max()) + 1, len(problem.devices)), np.bool_)
    np.logical_and.at(allowed, problem.group, problem.cost.time != NO_TIME)
    return allowed


def least_memory(problem: Problem) -> Ints:
    """(groups,): bytes that a `together` set needs on its device whatever the schedule: its own weights."""
    arrays = problem.graph.arrays
    need = np.zeros(int(problem.group.max()) + 1, np.int64)
    own = arrays.weight_bytes + (arrays.workspace_bytes if problem.rules.memory == "static" else 0)
    np.add.at(need, problem.group, own)
    return need


def some_devices(problem: Problem, kept: Sequence[int]) -> Problem:
    """The same question for some of the devices."""
    number = {device: place for place, device in enumerate(kept)}
    table, where = problem.cost, list(kept)
    cost = CostTable(
        np.ascontiguousarray(table.time[:, where]),
        np.ascontiguousarray(table.transfer[:, where][:, :, where]),
        table.transfer_row,
        table.source,
    )
    buses = tuple((number[a], number[b], bus) for a, b, bus in problem.buses if a in number and b in number)
    return replace(problem, devices=tuple(problem.devices[d] for d in kept), cost=cost, buses=buses)


def _check_devices(problem: Problem) -> None:
    alone = np.all(problem.cost.time == NO_TIME, axis=1)
    if alone.any():
        name = problem.graph.ops[int(np.flatnonzero(alone)[0])].name
        raise InfeasibleError(f"no device can run op {name!r}", proved=True)
    allowed = allowed_devices(problem)
    for g, members in enumerate(problem.together):
        if not allowed[g].any():
            names = [problem.graph.ops[op].name for op in members]
            reasons = tuple(f"{name!r} runs on {_ids(problem, problem.graph.index[name])}" for name in names[:6])
            raise InfeasibleError(
                f"the ops {format_names(names)} must share a device, but none can run them all",
                conflicts=reasons,
                proved=True,
            )


def _check_single_sets(problem: Problem) -> None:
    need, allowed = least_memory(problem), allowed_devices(problem)
    room = np.where(allowed, problem.capacity, -1).max(axis=1)
    short = np.flatnonzero(need > room)
    if len(short):
        ops = np.flatnonzero(problem.group == short[0])
        names = [problem.graph.ops[int(op)].name for op in ops]
        verb = "needs" if len(names) == 1 else "need"
        needed, largest = int(need[short[0]]), max(0, int(room[short[0]]))
        raise InfeasibleError(
            f"{format_names(names, 4)} {verb} {format_bytes(needed)} of weights on one device{_counted(problem.graph)}",
            conflicts=(
                f"the largest device that can run them holds {format_bytes(largest)}",
                *_in_half(problem.graph, needed, largest),
            ),
            proved=True,
        )


def _check_activations(problem: Problem) -> None:
    """While an op runs, its weights, inputs, outputs and workspace are all on its device."""
    if problem.rules.memory == "static":
        return
    arrays = problem.graph.arrays
    need = arrays.weight_bytes + arrays.workspace_bytes
    readers = np.repeat(np.arange(len(arrays.producer)), np.diff(arrays.consumer_ptr))
    np.add.at(need, arrays.consumer_of, arrays.tensor_bytes[readers])
    made = arrays.producer >= 0
    np.add.at(need, arrays.producer[made], arrays.tensor_bytes[made])
    # An op that takes no time holds nothing; a stage of a pipeline counts every op.
    instant = (
        problem.cost.time == 0 if problem.rules.objective == "latency" else np.zeros_like(problem.cost.time, np.bool_)
    )
    possible = (problem.cost.time != NO_TIME) & (instant | (need[:, None] <= problem.capacity))
    short = np.flatnonzero(~possible.any(axis=1))
    if len(short):
        op = int(short[0])
        raise InfeasibleError(
            f"op {problem.graph.ops[op].name!r} needs {format_bytes(int(need[op]))} while it runs",
            conflicts=tuple(
                f"{device.id} holds {format_bytes(int(capacity))}"
                for device, capacity, time in zip(problem.devices, problem.capacity, problem.cost.time[op], strict=True)
                if time != NO_TIME
            )[:8],
            proved=True,
        )


def _check_total(problem: Problem) -> None:
    total = int(least_memory(problem).sum() + problem.graph.arrays.tied_bytes.sum())
    capacity = sum(sorted(problem.capacity.tolist(), reverse=True)[: problem.stage_limit])
    if problem.rules.objective == "latency":
        capacity = sum(problem.capacity.tolist())
    if total > capacity:
        raise InfeasibleError(
            f"the weights need {format_bytes(total)}{_counted(problem.graph)}",
            conflicts=(
                f"all usable devices together hold {format_bytes(capacity)}",
                *_in_half(problem.graph, total, capacity),
            ),
            proved=True,
        )


def _counted(graph: Graph) -> str:
    """The precision in which weights are counted, where it is known."""
    return f" in {precision(graph)}" if halved_weights(graph) else ""


def _in_half(graph: Graph, need: int, room: int) -> tuple[str, ...]:
    """What 16-bit weights would need, if the model has others."""
    if not halved_weights(graph):
        return ()
    half = (need + 1) // 2
    fits = "which fits" if half <= room else "which does not fit either"
    return (f"in half precision (fp16 or bf16) they would need {format_bytes(half)}, {fits}",)


def _ids(problem: Problem, op: int) -> str:
    return ", ".join(problem.devices[int(d)].id for d in np.flatnonzero(problem.cost.time[op] != NO_TIME))


def apply_limits(
    graph: Graph, device_index: dict[str, int], cost: CostTable, limits: Limits
) -> tuple[CostTable, tuple[tuple[int, ...], ...]]:
    """Fold pins and forbids into the times; resolve `together`. A pattern that matches no op is an error."""
    _check_matches(graph, limits)
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
            if time[op, keep] == NO_TIME:
                raise InfeasibleError(
                    f"op {graph.ops[op].name!r} is pinned to a device that cannot run it",
                    conflicts=(f"pin {entry.op!r} -> {entry.device}",),
                    proved=True,
                )
            time[op, np.arange(time.shape[1]) != keep] = NO_TIME
    reasons = {op: ["pin {!r} -> {}".format(*pin)] for op, pin in pinned.items()}
    for entry in limits.forbid:
        column, reason = device_index[entry.device], f"forbid {entry.op!r} on {entry.device}"
        for op in _matches(graph, entry.op, "forbid"):
            if time[op, column] == NO_TIME and op in reasons:
                continue
            time[op, column] = NO_TIME
            reasons.setdefault(op, []).append(reason)
            if np.all(time[op] == NO_TIME):
                what = f"no device is left for op {graph.ops[op].name!r}"
                raise InfeasibleError(what, conflicts=tuple(reasons[op]), proved=True)
    sets = [[op for pattern in patterns for op in _matches(graph, pattern, "together")] for patterns in limits.together]
    sets += [ops for pattern in limits.block for ops in _blocks(graph, pattern)]
    return cost.with_time(time), merge_together(sets)


def _check_matches(graph: Graph, limits: Limits) -> None:
    """`InputError` where so many patterns would be looked for among so many ops that nobody could wait for it."""
    patterns = [entry.op for entry in (*limits.pin, *limits.forbid)]
    patterns += [pattern for patterns in limits.together for pattern in patterns] + list(limits.block)
    wild = sum(pattern not in graph.index for pattern in patterns)
    if wild * len(graph.ops) > MOST_MATCHES:
        what = f"{wild} patterns for {len(graph.ops)} ops are more than can be looked for"
        raise InputError(what, where="limits", hint="one pattern may stand for many ops: encoder/layer.3/*")


def keep_layers(problem: Problem) -> Problem:
    """The same problem with every layer whole on one device; ops between layers stay free."""
    layers = layers_of_graph(problem.graph)
    try:
        return check_feasible(replace(problem, together=merge_together([*problem.together, *layers])))
    except InfeasibleError as error:
        conflicts = (*error.conflicts, f"each of {len(layers)} layers stays whole on one device, as asked")
        raise InfeasibleError(error.what, conflicts=conflicts, proved=error.proved) from error


def _blocks(graph: Graph, pattern: str) -> list[list[int]]:
    """The ops of each block of that name: the shortest beginning of an op's path that matches."""
    if pattern == WHOLE_LAYERS:
        return [list(ops) for ops in layers_of_graph(graph)]
    expression = re.compile(translate(pattern.strip("/")))
    found: dict[str, list[int]] = {}
    for i, op in enumerate(graph.ops):
        path = path_of(op)
        ends = [*(at.start() for at in re.finditer(r"[./]", path)), len(path)]
        name = next((path[:end] for end in ends if end and expression.match(path[:end])), None)
        if name is not None:
            found.setdefault(name, []).append(i)
    if not found:
        known = list(dict.fromkeys(path for op in graph.ops if (path := path_of(op))))
        hint = f"blocks are named like {format_names(known, 3)}" if known else "its ops have no blocks; try 'layers'"
        raise InputError(f"{pattern!r} matches no block of {graph.name!r}", where="limits.block", hint=hint)
    return list(found.values())


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
        names = ", ".join(repr(name) for name in _nearest(graph, pattern))
        raise InputError(
            f"{pattern!r} matches no op of {graph.name!r}", where=f"limits.{what}", hint=f"the nearest ops: {names}"
        )
    return found


def _nearest(graph: Graph, pattern: str, most: int = 3) -> list[str]:
    """Names of ops that begin as the pattern does, for as long as possible; where none does, names like it."""
    stem = re.split(r"[*?\[]", pattern, maxsplit=1)[0].rstrip("/") or pattern
    shared = {op.name: _shared_letters(op.name.casefold(), stem.casefold()) for op in graph.ops}
    longest = max(shared.values(), default=0)
    if longest < LEAST_SHARED:
        word = pattern.strip("*")
        inside = [name for name in shared if word.casefold() in name.casefold()]
        alike = inside or get_close_matches(word, list(shared)[:MOST_COMPARED], n=most, cutoff=0.3)
        return alike[:most] or list(shared)[:most]
    return [name for name, length in shared.items() if length == longest][:most]


def _shared_letters(a: str, b: str) -> int:
    return next((place for place, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
