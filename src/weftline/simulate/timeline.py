"""What the simulator returns: a Timeline for latency, Loads for throughput; and which limits it breaks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.units import format_bytes

__all__ = [
    "ACTION_CONSUMER",
    "ACTION_TARGET",
    "ACTION_WHAT",
    "SENT_CONSUMER",
    "SENT_END",
    "SENT_SOURCE",
    "SENT_START",
    "SENT_TARGET",
    "SENT_TENSOR",
    "TRANSFER_COLUMNS",
    "Loads",
    "Timeline",
    "violations",
]

TRANSFER_COLUMNS = ("tensor", "source", "target", "consumer", "start", "end")
"""Columns of `Timeline.transfers`; consumer is -1 where a tensor is sent once for all consumers of a device."""
SENT_TENSOR, SENT_SOURCE, SENT_TARGET, SENT_CONSUMER, SENT_START, SENT_END = range(6)
"""Their numbers."""
ACTION_WHAT, ACTION_TARGET, ACTION_CONSUMER = range(3)
"""Columns of `Timeline.actions`: an op or tensor, where it goes (-1 = it is an op), for whom."""


@dataclass(frozen=True, eq=False)
class Timeline:
    """When everything happens, for one inference. Times in ns from 0."""

    placement: Indices
    """(n,): device of each op."""
    start: Ints
    end: Ints
    """(n,): of each op."""
    transfers: Ints
    """(T, 6): see TRANSFER_COLUMNS. Transfers that take no time are left out."""
    peak: Ints
    """(K,): largest number of bytes each device holds at any time."""

    @property
    def value(self) -> int:
        """The latency."""
        return int(self.end.max())

    @property
    def order(self) -> Indices:
        """Ops by start; of those that start together, the instant ones first, in their topological order."""
        lasts = self.end > self.start
        return np.lexsort((np.arange(len(self.start)), lasts, self.start)).astype(np.int32)

    def actions(self, producer: Indices) -> Ints:
        """(A, 3) rows in time order: (op, -1, -1), or (tensor, target device, consumer or -1) for a transfer.

        Replaying them gives this timeline or an earlier one. `producer` is `graph.arrays.producer`.
        """
        n = len(self.placement)
        # At equal times an op of no duration comes before everything that takes time, and before ops that depend on it.
        when = np.concatenate([self.start, self.transfers[:, SENT_START]])
        lasts = np.concatenate([self.end, self.transfers[:, SENT_END]]) > when
        rank = np.concatenate([2 * np.arange(n), 2 * producer[self.transfers[:, SENT_TENSOR]].astype(np.int64) + 1])
        rows = np.full((n + len(self.transfers), 3), -1, np.int64)
        rows[:n, 0] = np.arange(n)
        rows[n:] = self.transfers[:, [SENT_TENSOR, SENT_TARGET, SENT_CONSUMER]]
        return rows[np.lexsort((rank, lasts, when))]


@dataclass(frozen=True, eq=False)
class Loads:
    """How busy each device is per inference in the steady state of a pipeline. Times in ns."""

    placement: Indices
    compute: Ints
    entering: Ints
    """(K,): transfers of tensors that enter, each once."""
    leaving: Ints
    """(K,): transfers of tensors that leave, each once."""
    load: Ints
    """(K,): what counts, by the rule of communication."""
    peak: Ints
    """(K,): bytes."""
    stages: tuple[int, ...]
    """The devices used, in pipeline order."""

    @property
    def value(self) -> int:
        """The period: the largest load."""
        return int(self.load.max())


def violations(problem: Problem, result: Timeline | Loads) -> tuple[str, ...]:
    """Memory above the capacity, `together` sets torn apart. (What cannot run at all, the simulator refuses itself.)"""
    found = []
    for device, peak, capacity in zip(problem.devices, result.peak.tolist(), problem.capacity.tolist(), strict=True):
        if peak > capacity:
            found.append(f"device {device.id} needs {format_bytes(peak)} but holds {format_bytes(capacity)}")
    for members in problem.together:
        used = np.unique(result.placement[list(members)])
        if len(used) > 1:
            names = [problem.graph.ops[op].name for op in members[:4]]
            found.append(f"ops {names} must share a device but stand on {[problem.devices[d].id for d in used]}")
    return tuple(found)
