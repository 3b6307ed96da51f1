"""The parent's side of a team of workers: requests are sent, outputs are taken; and what was seen of it.

In: a `WorkerLayout`, its memory and lines. Out: `WorkerLane`, which does what can be done without waiting, and a
`LanePass` at the end. The lanes of a fleet share workers; requests go to them in turns (`lane_turns`), in their order:
if the lane that is next has no free slot, all later requests wait, so that shares are kept and little is on its way.
Outputs are taken when they are there, and told in the order of their requests. A wire waits only for its own or an
earlier request of its lane, so nothing deadlocks. Simplified: what the caller does with outputs takes no time.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from statistics import mean
from typing import Any

from weftline.run.local.channel import SLOT_FILLED, SLOT_FREE, Line, SharedBlock
from weftline.run.local.layout import PARENT_PROCESS, WorkerAnswer, WorkerLayout
from weftline.run.local.slots import WireSlots

__all__ = ["Arrays", "LanePass", "WorkerLane"]

LEAST_COUNTED = 3
"""Requests of a lane from which its rate is told."""

Arrays = Mapping[str, Any]
"""Name -> array; or a list, a map or None where the model has sequences, maps and optionals."""


class WorkerLane:
    """Counts requests on their way, for each lane that these workers serve."""

    def __init__(self, layout: WorkerLayout, blocks: Mapping[int, SharedBlock], lines: Mapping[int, Line]) -> None:
        self.lines, self.rates = lines, layout.rates
        rings = [(wire, WireSlots(wire, blocks[wire.maker])) for wire in layout.wires]
        lanes = range(layout.manifest.lanes)
        inputs = [(wire, slots, wire.readers) for wire, slots in rings if wire.maker == PARENT_PROCESS]
        outputs = [(wire, slots, wire.maker) for wire, slots in rings if PARENT_PROCESS in wire.readers]
        self._inputs = [[ring for ring in inputs if ring[0].lane == lane] for lane in lanes]
        self._outputs = [[ring for ring in outputs if ring[0].lane == lane] for lane in lanes]
        self._most = 2**62 if layout.pipelined else 1
        self._sent, self._done = [0 for _ in lanes], [0 for _ in lanes]
        self._waiting: list[deque[int]] = [deque() for _ in lanes]
        self._next = self._left = 0
        self._feeds: Sequence[Arrays] = ()
        self._keep: frozenset[int] = frozenset()
        self.turns: Sequence[int] = ()
        self.sent_ns: list[int] = []
        self.done_ns: list[int] = []
        self.kept: dict[int, dict[str, Any]] = {}

    @property
    def finished(self) -> bool:
        """No request is left or on its way."""
        return not self._left

    def begin(self, turns: Sequence[int], feeds: Sequence[Arrays], keep: frozenset[int]) -> None:
        """Get ready for as many as there are turns; outputs of those in `keep` are kept. Numbers count from here."""
        self.turns, self._next, self._left = turns, 0, len(turns)
        self._feeds, self._keep = feeds, keep
        self.sent_ns, self.done_ns, self.kept = [0] * len(turns), [0] * len(turns), {}

    def step(self) -> None:
        """Do all that can be done without waiting."""
        while any(self._complete(lane) for lane in range(len(self._done))) or self._send():
            pass

    def _send(self) -> bool:
        number = self._next
        if number == len(self.turns) or number + self._left - len(self.turns) >= self._most:
            return False
        lines, lane = self.lines, self.turns[number]
        sent = self._sent[lane]
        for wire, _, readers in self._inputs[lane]:
            if sent >= wire.slots and not all(lines[reader].has(wire.number, SLOT_FREE) for reader in readers):
                return False
        feed = self._feeds[number % len(self._feeds)]
        self.sent_ns[number] = time.perf_counter_ns()
        for wire, slots, readers in self._inputs[lane]:
            if sent >= wire.slots:
                for reader in readers:
                    lines[reader].take(wire.number, SLOT_FREE)
            slots.put_value(sent, feed[wire.name])
            for reader in readers:
                lines[reader].post(wire.number, SLOT_FILLED)
        self._waiting[lane].append(number)
        self._sent[lane] += 1
        self._next += 1
        self._flush()
        return True

    def _complete(self, lane: int) -> bool:
        lines, done = self.lines, self._done[lane]
        if not self._waiting[lane]:
            return False
        if not all(lines[maker].has(wire.number, SLOT_FILLED) for wire, _, maker in self._outputs[lane]):
            return False
        number = self._waiting[lane].popleft()
        self.done_ns[number] = time.perf_counter_ns()
        if number in self._keep:
            self.kept[number] = {wire.name: deepcopy(slots.value(done)) for wire, slots, _ in self._outputs[lane]}
        for wire, _, maker in self._outputs[lane]:
            lines[maker].take(wire.number, SLOT_FILLED)
            lines[maker].post(wire.number, SLOT_FREE)
        self._done[lane] += 1
        self._left -= 1
        self._flush()
        return True

    def _flush(self) -> None:
        for line in self.lines.values():
            line.flush()


@dataclass(frozen=True)
class LanePass:
    """What one team of workers did."""

    sent_ns: tuple[int, ...]
    done_ns: tuple[int, ...]
    answers: tuple[WorkerAnswer, ...]
    """Of each worker."""
    kept: dict[int, dict[str, Any]]
    """Request -> its outputs."""
    turns: tuple[int, ...] = ()
    """A fleet: lane of each request."""

    @property
    def latencies(self) -> list[int]:
        """Ns from sent to done, of each request."""
        return [done - sent for sent, done in zip(self.sent_ns, self.done_ns, strict=True)]

    def taken(self, *, pipelined: bool) -> float:
        """Ns for a request, on average: from completion to completion once a pipeline is full, or its latency.

        An average, as requests a second are: a shared core is now faster, now slower, and a median
        is either the one or the other.
        """
        ended, full, last = self._window()
        if not pipelined or len(ended) < full + 2:
            return mean(self.latencies)
        return (ended[last] - ended[full]) / (last - full)

    def lane_rates(self) -> dict[int, float]:
        """Requests per second of every lane of a fleet that had some, in the same time as all of them."""
        if not self.turns:
            return {}
        ended, full, last = self._window()
        begin, end = (ended[full], ended[last]) if len(ended) >= full + 2 else (min(self.sent_ns), ended[-1])
        found = Counter(lane for lane, done in zip(self.turns, self.done_ns, strict=True) if begin < done <= end)
        return {lane: count * 1e9 / max(end - begin, 1) for lane, count in found.items() if count >= LEAST_COUNTED}

    def _window(self) -> tuple[list[int], int, int]:
        """When requests were done, in that order, and the first and last of them that count.

        The lanes of a fleet run dry one after another: there completions count until the last request was sent, if
        these are half of them.
        """
        ended = sorted(self.done_ns)
        full = min(len(self.answers), len(ended) // 3)
        last = bisect_right(ended, max(self.sent_ns)) - 1 if self.turns else -1
        return ended, full, last if 2 * (last - full) >= len(ended) else len(ended) - 1
