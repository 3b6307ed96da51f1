"""One chain of workers, seen from the process that feeds it: requests go in, outputs come out.

In: a `Layout` and the lines to its workers. Out: when each request was sent and done, and outputs that are asked for.
Inputs repeat: request r gets feed r modulo their number, so that a mix-up of requests shows. A wire
waits only for its own or an earlier request, so a lane never deadlocks.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from weftline.execute.channel import FILLED, FREE, Block, Line
from weftline.execute.local_job import PARENT, WireJob
from weftline.execute.local_layout import Layout, stored_type

__all__ = ["Arrays", "Lane"]

Arrays = Mapping[str, NDArray[Any]]


class Lane:
    """Counts requests on their way."""

    def __init__(self, layout: Layout, blocks: Mapping[int, Block], lines: Mapping[int, Line]) -> None:
        self.lines = lines
        self._inputs = [(wire, _slots(wire, blocks), wire.readers) for wire in layout.wires if wire.maker == PARENT]
        self._outputs = [(wire, _slots(wire, blocks), wire.maker) for wire in layout.wires if PARENT in wire.readers]
        self._most = 2**62 if layout.pipelined else 1
        self._first = self._sent = self._done = self._end = 0
        self._feeds: Sequence[Arrays] = ()
        self._keep: frozenset[int] = frozenset()
        self.sent_ns: list[int] = []
        self.done_ns: list[int] = []
        self.kept: dict[int, dict[str, NDArray[Any]]] = {}

    @property
    def finished(self) -> bool:
        """No request is left or on its way."""
        return self._done == self._end

    def begin(self, requests: int, feeds: Sequence[Arrays], keep: frozenset[int]) -> None:
        """Get ready for so many; outputs of those in `keep` are kept. Numbers count from here."""
        self._first, self._end = self._done, self._done + requests
        self._feeds, self._keep = feeds, keep
        self.sent_ns, self.done_ns, self.kept = [], [], {}

    def step(self) -> None:
        """Do all that can be done without waiting."""
        while self._complete():
            pass
        while self._send():
            pass

    def _send(self) -> bool:
        if self._sent == self._end or self._sent - self._done >= self._most:
            return False
        lines, sent = self.lines, self._sent
        for wire, slots, readers in self._inputs:
            if sent >= len(slots) and not all(lines[reader].has(wire.number, FREE) for reader in readers):
                return False
        feed = self._feeds[(sent - self._first) % len(self._feeds)]
        self.sent_ns.append(time.perf_counter_ns())
        for wire, slots, readers in self._inputs:
            if sent >= len(slots):
                for reader in readers:
                    lines[reader].take(wire.number, FREE)
            slots[sent % len(slots)][...] = feed[wire.name]
            for reader in readers:
                lines[reader].post(wire.number, FILLED)
        self._sent += 1
        self._flush()
        return True

    def _complete(self) -> bool:
        if self._done == self._end or (self._done == self._sent and self._inputs):
            return False
        lines, done = self.lines, self._done
        if not all(lines[maker].has(wire.number, FILLED) for wire, _, maker in self._outputs):
            return False
        self.done_ns.append(time.perf_counter_ns())
        number = done - self._first
        if number in self._keep:
            self.kept[number] = {wire.name: slots[done % len(slots)].copy() for wire, slots, _ in self._outputs}
        for wire, _, maker in self._outputs:
            lines[maker].take(wire.number, FILLED)
            lines[maker].post(wire.number, FREE)
        self._done += 1
        self._flush()
        return True

    def _flush(self) -> None:
        for line in self.lines.values():
            line.flush()


def _slots(wire: WireJob, blocks: Mapping[int, Block]) -> list[NDArray[Any]]:
    """The tensors of a wire where they lie, made once: the processes that compute share their cores with this one."""
    block, dtype = blocks[wire.maker], stored_type(wire.dtype)
    return [block.array(wire.offset + slot * wire.stride, wire.shape, dtype) for slot in range(wire.slots)]
