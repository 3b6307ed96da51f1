"""One placement -> one Timeline, from an order of ops (transfers follow) or from an explicit list of actions.

`evaluate`: many placements of one problem at once, for search and learning, latency or throughput.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.kernels.latency import INFEASIBLE, Workspace, run_actions, run_order, workspace
from weftline.simulate.memory import latency_peaks
from weftline.simulate.tables import Tables, check_placement, default_order, once_per_problem, reordered, tables
from weftline.simulate.throughput import stage_loads, stage_peaks
from weftline.simulate.timeline import Timeline

__all__ = ["INFEASIBLE", "Evaluation", "evaluate", "replay", "simulate_latency"]


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


@dataclass(frozen=True, eq=False)
class Evaluation:
    """B placements."""

    value: Ints
    """(B,): latency or period in ns; INFEASIBLE or more where the placement cannot run at all."""
    peak: Ints | None
    """(B, K): bytes, if asked for."""


def evaluate(
    problem: Problem, placements: Indices, orders: Indices | None = None, *, memory: bool = False
) -> Evaluation:
    """Value of every row of `placements` (B, n), under one order for all or one each (latency only)."""
    table = tables(problem)
    placements = np.ascontiguousarray(np.atleast_2d(placements), np.int32)
    n, devices = table.time.shape
    if placements.shape[1] != n or (placements.size and not 0 <= placements.min() <= placements.max() < devices):
        raise UsageError(f"placements are rows of {n} device numbers 0..{devices - 1}")
    values = np.zeros(len(placements), np.int64)
    peaks = np.zeros((len(placements), devices), np.int64) if memory else None
    if problem.rules.objective == "throughput":
        _loads_batch(table, placements, values, np.zeros((0, 0), np.int64) if peaks is None else peaks)
        return Evaluation(values, peaks)
    numbers = np.zeros(0, np.int32)
    if orders is None:
        numbers, table = _in_default_order(problem)
        orders = np.arange(n, dtype=np.int32)[None]
    orders = np.ascontiguousarray(np.atleast_2d(orders), np.int32)
    if orders.shape[1] != n or len(orders) not in (1, len(placements)) or not 0 <= orders.min() <= orders.max() < n:
        raise UsageError("orders are rows of op numbers, one row for all placements or one each")
    room = np.zeros((0, 0), np.int64) if peaks is None else peaks
    _latency_batch(table, numbers, orders, placements, values, room, workspace(table))
    return Evaluation(values, peaks)


@once_per_problem
def _in_default_order(problem: Problem) -> tuple[Indices, Tables]:
    """The default order, and the problem's tables in it."""
    order = default_order(problem)
    return order, reordered(tables(problem), order)


@kernel
def _latency_batch(
    table: Tables, numbers: Indices, orders: Indices, placements: Indices, values: Ints, peaks: Ints, space: Workspace
) -> None:
    """Fill values (and peaks, if there is room). `numbers`: which op each row of the table is, where renumbered."""
    n = len(table.time)
    start, end, renumbered = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros(len(numbers), np.int32)
    sent = np.zeros((len(table.consumer_of) + 1 if len(peaks) else 1, 6), np.int64)
    for row in range(len(placements)):
        placement = placements[row]
        if len(numbers):
            for op in range(n):
                renumbered[op] = placement[numbers[op]]
            placement = renumbered
        order = orders[row if len(orders) > 1 else 0]
        value, count = run_order(table, order, placement, start, end, sent, len(peaks) > 0, space)
        values[row] = value
        if len(peaks) and value < INFEASIBLE:
            peaks[row] = latency_peaks(table, placement, start, end, sent[:count])


@kernel
def _loads_batch(table: Tables, placements: Indices, values: Ints, peaks: Ints) -> None:
    parts = np.zeros((4, table.time.shape[1]), np.int64)
    rank = np.zeros(table.time.shape[1], np.int64)
    for row in range(len(placements)):
        values[row] = stage_loads(table, placements[row], parts, rank)
        if len(peaks) and values[row] < INFEASIBLE:
            peaks[row] = stage_peaks(table, placements[row])
