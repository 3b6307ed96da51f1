"""Orders of ops for the decoder: by upward rank, with a mean over devices that can lean towards the fast ones.

In: a Problem and the power of the mean. Out: a topological order. Power 1 is the plain mean of HEFT and cPEFT; -1 is
the harmonic mean, under which a very slow device hardly counts. Powers are rounded to quarters, and orders are kept.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices
from weftline.latency.list.decoder import Floats
from weftline.latency.list.memory_left import possible_devices
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.order import default_order
from weftline.simulate.tables import Tables, tables

__all__ = ["POWERS", "Orders", "rounded"]

POWERS = (-4.0, 3.0)
"""The least and the largest power."""
STEPS = 4
"""Per whole number."""


def rounded(power: float) -> float:
    """The nearest power for which there is an order."""
    return round(min(max(power, POWERS[0]), POWERS[1]) * STEPS) / STEPS


class Orders:
    """The orders of one problem."""

    def __init__(self, problem: Problem) -> None:
        table = tables(problem)
        self._problem, self._table = problem, table
        possible = possible_devices(problem)[problem.group]
        time = np.where(possible, np.maximum(table.time, 1), 1).astype(np.float64)
        self._largest = time.max(axis=1)
        self._relative = time / self._largest[:, None]
        self._share = possible / np.maximum(possible.sum(axis=1, keepdims=True), 1)
        between = (table.transfer >= 0) & ~np.eye(table.time.shape[1], dtype=np.bool_)
        count = np.maximum(between.sum(axis=(1, 2)), 1)
        self._transfer: Floats = np.where(between, table.transfer, 0).sum(axis=(1, 2)) / count
        self._found: dict[float, Indices] = {}

    def order(self, power: float) -> Indices:
        """(n,): by descending rank."""
        power = rounded(power)
        if power not in self._found:
            self._found[power] = default_order(self._problem) if power == 1.0 else self._by(power)
        return self._found[power]

    def _by(self, power: float) -> Indices:
        if power == 0.0:
            mean = np.exp((np.log(self._relative) * self._share).sum(axis=1))
        else:
            mean = ((self._relative**power) * self._share).sum(axis=1) ** (1.0 / power)
        rank = _rank(self._table, np.maximum(mean, 1e-12) * self._largest, self._transfer)
        return np.argsort(-rank, kind="stable").astype(np.int32)


@kernel
def _rank(table: Tables, time: Floats, transfer: Floats) -> Floats:
    """Longest path to the end."""
    rank = time.copy()
    for op in range(len(rank) - 1, -1, -1):
        longest = 0.0
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                longest = max(longest, transfer[table.transfer_row[tensor]] + rank[table.consumer_of[c]])
        rank[op] += longest
    return rank
