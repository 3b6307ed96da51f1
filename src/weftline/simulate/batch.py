"""`evaluate`: many placements of one problem at once, for search and learning."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.errors import UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.kernels.latency import INFEASIBLE, Workspace, run_order, workspace
from weftline.simulate.memory import latency_peaks
from weftline.simulate.order import default_order
from weftline.simulate.tables import Tables, once_per_problem, reordered, tables
from weftline.simulate.throughput import stage_loads, stage_peaks

__all__ = ["INFEASIBLE", "Evaluation", "evaluate"]


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
