"""Activations in the latency annealer: it counts weights alone, so a state that would be a new best is asked here.

Where activations overflow a device, part of its memory is set aside, so that the annealer turns elsewhere; what is set
aside is given back bit by bit when nothing overflows any more, or when nothing at all fits.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.latency_kernel import run_order, workspace
from weftline.simulate.memory import latency_peaks
from weftline.simulate.tables import Tables

__all__ = ["ActivationRoom"]


class ActivationRoom:
    """Memory set aside for activations."""

    def __init__(self, table: Tables, capacity: Ints) -> None:
        self._table, self._capacity = table, capacity
        self._aside, self._asked = np.zeros(len(capacity), np.int64), False
        copies = 1 + int(table.per_edge)
        readers = np.diff(table.consumer_ptr) if table.per_edge else 1
        most = int(table.static_bytes.sum()) + int(table.tied_bytes.sum()) + int(table.workspace_bytes.max(initial=0))
        most += copies * int((table.tensor_bytes * np.maximum(readers, 1)).sum())
        self.binds = bool(table.dynamic and (most > capacity).any())
        """False if no schedule can overflow anything but by weights."""

    def overflow(self, placement: Indices, order: Indices) -> Ints:
        """(K,): bytes above what each device holds."""
        table = self._table
        n = len(placement)
        start, end, sent = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((len(table.consumer_of), 6), np.int64)
        _, count = run_order(table, order, placement, start, end, sent, True, workspace(table))
        peak: Ints = latency_peaks(table, placement, start, end, sent[:count])
        above: Ints = np.maximum(peak - self._capacity, 0)
        return above

    def leave(self, overflow: Ints) -> Ints:
        """Set part of the overflow aside -> bytes to take from each device."""
        self._asked = True
        more = (overflow + 3) // 4
        self._aside += more
        return more

    def give_back(self, *, stuck: bool) -> Ints:
        """After a cycle -> bytes to give back to each device."""
        if self._asked and not stuck:
            self._asked = False
            return np.zeros_like(self._aside)
        back: Ints = (self._aside + 1) // 2
        self._aside -= back
        return back
