"""One placement -> one Timeline, from an order of ops (transfers follow) or from an explicit list of actions."""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.latency import INFEASIBLE, run_actions, run_order, workspace
from weftline.simulate.memory import latency_peaks
from weftline.simulate.order import default_order
from weftline.simulate.tables import Tables, tables
from weftline.simulate.timeline import Timeline

__all__ = ["check_placement", "replay", "simulate_latency"]


def simulate_latency(problem: Problem, placement: Indices, order: Indices | None = None) -> Timeline:
    """Book the ops in `order` (default: descending upward rank), each op's transfers just before it."""
    table, placement = tables(problem), check_placement(problem, placement)
    order = default_order(problem) if order is None else _check_order(problem, order)
    start, end, sent = _space(table)
    value, count = run_order(table, order, placement, start, end, sent, True, workspace(table))
    if value >= INFEASIBLE:
        raise InfeasibleError(_why_not(problem, placement))
    return _timeline(table, placement, start, end, sent[:count])


def replay(problem: Problem, placement: Indices, actions: Ints) -> Timeline:
    """Follow a list of ops and transfers (see `Timeline.actions`)."""
    table, placement = tables(problem), check_placement(problem, placement)
    start, end, sent = _space(table)
    actions = np.ascontiguousarray(actions, np.int64)
    _check_actions(problem, actions, len(sent))
    wrong, count = run_actions(table, actions, placement, start, end, sent, workspace(table))
    if wrong:
        what, target, _ = actions[wrong - 1].tolist()
        name = problem.graph.ops[what].name if target < 0 else f"transfer of {problem.graph.tensors[what].name}"
        raise InfeasibleError(f"{name!r} cannot be done when the list comes to it: an input is missing, or it is done")
    return _timeline(table, placement, start, end, sent[:count])


def _space(table: Tables) -> tuple[Ints, Ints, Ints]:
    n = len(table.time)
    return np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((len(table.consumer_of), 6), np.int64)


def _timeline(table: Tables, placement: Indices, start: Ints, end: Ints, sent: Ints) -> Timeline:
    return Timeline(placement, start, end, sent, latency_peaks(table, placement, start, end, sent))


def check_placement(problem: Problem, placement: Indices) -> Indices:
    """A placement as kernels want it: one existing device per op."""
    placement = np.ascontiguousarray(placement, np.int32)
    if placement.shape != (len(problem.graph.ops),):
        raise UsageError(f"a placement needs one device for each of the {len(problem.graph.ops)} ops")
    if placement.min() < 0 or placement.max() >= len(problem.devices):
        raise UsageError(f"a placement holds device numbers 0..{len(problem.devices) - 1}")
    return placement


def _check_order(problem: Problem, order: Indices) -> Indices:
    order = np.ascontiguousarray(order, np.int32)
    if not np.array_equal(np.sort(order), np.arange(len(problem.graph.ops))):
        raise UsageError("an order holds every op exactly once")
    return order


def _check_actions(problem: Problem, actions: Ints, most_transfers: int) -> None:
    n, m, k = len(problem.graph.ops), len(problem.graph.tensors), len(problem.devices)
    if actions.ndim != 2 or actions.shape[1] != 3:
        raise UsageError("actions are rows of three numbers")
    ops = actions[:, 1] < 0
    if not np.array_equal(np.sort(actions[ops, 0]), np.arange(n)):
        raise UsageError("the list of actions must hold every op exactly once")
    sends = actions[~ops]
    if len(sends) > most_transfers or np.any(sends < [0, 0, -1]) or np.any(sends >= [m, k, n]):
        raise UsageError("the list of actions names a tensor, device or consumer that does not exist")


def _why_not(problem: Problem, placement: Indices) -> str:
    for op, device in enumerate(placement.tolist()):
        if problem.cost.time[op, device] < 0:
            return f"device {problem.devices[device].id!r} cannot run op {problem.graph.ops[op].name!r}"
    for a, b, tensor in zip(*(column.tolist() for column in problem.graph.arrays.edges()), strict=True):
        source, target = int(placement[a]), int(placement[b])
        if problem.cost.transfer[problem.cost.transfer_row[tensor], source, target] < 0:
            pair = f"{problem.devices[source].id} to {problem.devices[target].id}"
            return f"there is no link from {pair} for tensor {problem.graph.tensors[tensor].name!r}"
    return "the order of ops is not topological"
