"""Orders in which ops may be booked: the default is descending upward rank, HEFT's priority."""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.tables import Tables, once_per_problem, tables

__all__ = ["default_order", "upward_rank"]


@once_per_problem
def upward_rank(problem: Problem) -> Ints:
    """(n,): longest path to the end, with mean times over devices and mean transfers over links."""
    time = problem.cost.time
    mean_time = np.where(time >= 0, time, 0).sum(axis=1) // np.maximum((time >= 0).sum(axis=1), 1)
    links = problem.cost.transfer.reshape(len(problem.cost.transfer), len(problem.devices) ** 2)
    between = ~np.eye(len(problem.devices), dtype=np.bool_).ravel()
    usable = (links >= 0) & between
    mean_transfer = np.where(usable, links, 0).sum(axis=1) // np.maximum(usable.sum(axis=1), 1)
    return _rank(tables(problem), mean_time, mean_transfer)


def default_order(problem: Problem) -> Indices:
    """(n,): ops by descending upward rank; a topological order, since ties keep the order of the graph."""
    return np.argsort(-upward_rank(problem), kind="stable").astype(np.int32)


@kernel
def _rank(table: Tables, mean_time: Ints, mean_transfer: Ints) -> Ints:
    rank = mean_time.copy()
    for op in range(len(rank) - 1, -1, -1):
        longest = 0
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                longest = max(longest, mean_transfer[table.transfer_row[tensor]] + rank[table.consumer_of[c]])
        rank[op] += longest
    return rank
