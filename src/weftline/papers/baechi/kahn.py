"""Kahn's order with a queue: the topological order that Baechi and Placeto go by."""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.tables import Tables, tables

__all__ = ["kahn_order"]


def kahn_order(problem: Problem) -> Indices:
    """A topological order as a queue makes it: first come, first served."""
    return _kahn(tables(problem))


@kernel
def _kahn(table: Tables) -> Indices:
    n = len(table.time)
    waiting = np.zeros(n, np.int64)
    order = np.empty(n, np.int32)
    count = 0
    for op in range(n):
        waiting[op] = np.int64(table.edge_ptr[op + 1]) - np.int64(table.edge_ptr[op])
        if waiting[op] == 0:
            order[count] = op
            count += 1
    for position in range(n):
        op = order[position]
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                waiting[reader] -= 1
                if waiting[reader] == 0:
                    order[count] = reader
                    count += 1
    return order
