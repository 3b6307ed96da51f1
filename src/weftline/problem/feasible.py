"""Infeasibility that can be seen before any search, each kind with the limits that conflict.

Necessary conditions only: passing them does not prove that a plan exists.
"""

from __future__ import annotations

import numpy as np

from weftline.cost import ABSENT
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.problem.model import Problem
from weftline.units import format_bytes, format_names

__all__ = ["allowed_devices", "check_feasible", "least_memory"]


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
    np.logical_and.at(allowed, problem.group, problem.cost.time != ABSENT)
    return allowed


def least_memory(problem: Problem) -> Ints:
    """(groups,): bytes that a `together` set needs on its device whatever the schedule: its own weights."""
    arrays = problem.graph.arrays
    need = np.zeros(int(problem.group.max()) + 1, np.int64)
    own = arrays.weight_bytes + (arrays.workspace_bytes if problem.rules.memory == "static" else 0)
    np.add.at(need, problem.group, own)
    return need


def _check_devices(problem: Problem) -> None:
    alone = np.all(problem.cost.time == ABSENT, axis=1)
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
        raise InfeasibleError(
            f"{format_names(names, 4)} {verb} {format_bytes(int(need[short[0]]))} of weights on one device",
            conflicts=(f"the largest device that can run them holds {format_bytes(int(room[short[0]]))}",),
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
    possible = (problem.cost.time != ABSENT) & (instant | (need[:, None] <= problem.capacity))
    short = np.flatnonzero(~possible.any(axis=1))
    if len(short):
        op = int(short[0])
        raise InfeasibleError(
            f"op {problem.graph.ops[op].name!r} needs {format_bytes(int(need[op]))} while it runs",
            conflicts=tuple(
                f"{device.id} holds {format_bytes(int(capacity))}"
                for device, capacity, time in zip(problem.devices, problem.capacity, problem.cost.time[op], strict=True)
                if time != ABSENT
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
            f"the weights need {format_bytes(total)}",
            conflicts=(f"all usable devices together hold {format_bytes(capacity)}",),
            proved=True,
        )


def _ids(problem: Problem, op: int) -> str:
    return ", ".join(problem.devices[int(d)].id for d in np.flatnonzero(problem.cost.time[op] != ABSENT))
