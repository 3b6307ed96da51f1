"""Fewer segments for a latency plan: neighbours on a device become one where the plan is not slower for it.

In: a problem and the segments of a plan, cut wherever a device sends or receives. Out: segments that are cut only where
somebody would otherwise wait for too long. Every segment costs a call of the backend, and a layout that kernels could
have kept among themselves. Simplified: segments take the sum of their ops and a fixed overhead, transfers do not wait
for each other; many segments are merged as far as a budget of work goes.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from weftline.execute.segments import Parts
from weftline.problem import Problem

__all__ = ["merge_segments"]

OVERHEAD_NS = 50_000
"""Of one segment: the call of the backend, and telling others."""
WORK = 20_000_000
"""Segments and wires that are looked at, at most; some seconds."""

Wires = dict[tuple[int, int], int]


def merge_segments(problem: Problem, parts: Parts) -> Parts:
    """The same placement and order in fewer segments."""
    chain = _Chain(problem, parts)
    best, work, merged = chain.length(), WORK, True
    assert best is not None, "segments of a plan do not wait for each other in a circle"
    while merged and work > 0:
        merged = False
        for row in chain.rows.values():
            at = 0
            while at + 1 < len(row) and work > 0:
                work -= len(chain.duration) + len(chain.wires)
                kept = chain.wires, dict(chain.duration)
                second = row.pop(at + 1)
                chain.join(row[at], second)
                length = chain.length()
                if length is not None and length <= best:
                    best, merged = length, True
                    chain.home[second] = row[at]
                else:
                    chain.wires, chain.duration = kept
                    row.insert(at + 1, second)
                    at += 1
    return chain.parts()


class _Chain:
    """Segments, what they wait for, and their order on each device."""

    def __init__(self, problem: Problem, parts: Parts) -> None:
        self._parts = parts
        ops = np.arange(len(parts.part))
        taken = problem.cost.time[ops, np.array(parts.device, np.int64)[parts.part]]
        total = np.bincount(parts.part, taken.astype(np.float64), len(parts.device))
        self.duration = {segment: round(ns) + OVERHEAD_NS for segment, ns in enumerate(total.tolist())}
        self.home = {segment: segment for segment in self.duration}
        self.rows: dict[int, list[int]] = {}
        for segment, device in enumerate(parts.device):
            self.rows.setdefault(device, []).append(segment)
        self.wires: Wires = {}
        part = parts.part.tolist()
        for number, tensor in enumerate(problem.graph.tensors):
            if tensor.producer < 0:
                continue
            a = part[tensor.producer]
            transfer = problem.cost.transfer[problem.cost.transfer_row[number]]
            for b in {part[op] for op in tensor.consumers} - {a}:
                ns = int(transfer[parts.device[a], parts.device[b]])
                self.wires[a, b] = max(self.wires.get((a, b), 0), ns)

    def join(self, first: int, second: int) -> None:
        """One segment of two; the caller takes the second out of its row."""
        wires: Wires = {}
        for (a, b), ns in self.wires.items():
            ends = first if a == second else a, first if b == second else b
            if ends[0] != ends[1]:
                wires[ends] = max(wires.get(ends, 0), ns)
        self.wires = wires
        self.duration[first] += self.duration.pop(second) - OVERHEAD_NS

    def length(self) -> int | None:
        """When the last segment ends; None if they wait for each other in a circle."""
        ends = self._ends()
        return max(ends.values(), default=0) if len(ends) == len(self.duration) else None

    def _ends(self) -> dict[int, int]:
        """Segment -> when it ends, in an order in which they can run; those of a circle are missing."""
        after: dict[int, list[tuple[int, int]]] = {segment: [] for segment in self.duration}
        waiting = dict.fromkeys(self.duration, 0)
        for (a, b), ns in self.wires.items():
            after[a].append((b, ns))
            waiting[b] += 1
        for row in self.rows.values():
            for a, b in pairwise(row):
                after[a].append((b, 0))
                waiting[b] += 1
        start = dict.fromkeys(self.duration, 0)
        ready = [segment for segment, count in waiting.items() if not count]
        ends: dict[int, int] = {}
        for segment in ready:  # grows while it is walked
            ends[segment] = start[segment] + self.duration[segment]
            for other, ns in after[segment]:
                start[other] = max(start[other], ends[segment] + ns)
                waiting[other] -= 1
                if not waiting[other]:
                    ready.append(other)
        return ends

    def parts(self) -> Parts:
        """Numbered in an order in which they can run."""
        number = {segment: position for position, segment in enumerate(self._ends())}
        part = np.array([number[self._root(segment)] for segment in self._parts.part.tolist()], np.int32)
        return Parts(part, tuple(self._parts.device[segment] for segment in number))

    def _root(self, segment: int) -> int:
        while self.home[segment] != segment:
            segment = self.home[segment]
        return segment
