"""A worker of the local engine: one device, pinned, one session of ONNX Runtime per segment.

In: a `WorkerJob` (JSON, from the descriptor that the command line names), then lines of `Go` on standard input. Out: an
`WorkerAnswer` for each on standard output. Inputs are read and outputs are written where they lie, in memory that
processes share; what has an open shape is allocated by ONNX Runtime, and copied with its real shape. Where a planned
shape turns out to be wrong, that segment's outputs are open from then on. A worker of a fleet (`LaneRunner`) takes
whatever is ready, of any lane, the request first that is due first; segments that are the same in several lanes are one
session. It ends when its input ends, so it never outlives its parent. Simplified: one request at a time; weights that
two different segments of a device have are there twice.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import msgspec

from weftline.run.devices import Pace, bind_cores, open_segment
from weftline.run.local.channel import SLOT_FILLED, SLOT_FREE, Line, SharedBlock
from weftline.run.local.layout import ELEMENTS, Go, WireJob, WorkerAnswer, WorkerJob
from weftline.run.local.slots import PlacedTensor, WireSlots
from weftline.worker.child import Conversation, die_with, serve

__all__ = ["LaneRunner", "Runner", "main"]

MOST_BINDINGS = 64
"""Of one segment, kept."""


@dataclass(slots=True, eq=False)
class _Step:
    """A segment and what is to do around it."""

    number: int
    session: Any
    inputs: tuple[WireSlots, ...]
    outputs: tuple[WireSlots, ...]
    await_filled: tuple[WireJob, ...]
    """From others, read here for the first time in a request."""
    tell_free: tuple[WireJob, ...]
    """From others, read here for the last time."""
    open: list[bool]
    """Of each output: ONNX Runtime allocates it."""
    plain: bool
    """Every value is a tensor of numbers."""
    bindings: dict[tuple[PlacedTensor | None, ...], Any] = field(default_factory=dict)
    """By where it reads and writes: to bind takes as long as a small op."""


class Runner:
    """Sessions, memory and lines."""

    def __init__(self, job: WorkerJob) -> None:
        bind_cores(job.runtime.cores)
        self._job, self._pace = job, Pace(job.runtime, job.speed)
        blocks = {process: SharedBlock(descriptor) for process, descriptor in job.blocks.items()}
        self._slots = {(wire.lane, wire.name): WireSlots(wire, blocks[wire.maker]) for wire in job.wires}
        self._sessions: dict[str, Any] = {}
        self._lines = {process: Line(*ends) for process, ends in job.lines.items()}
        self._steps = [self._step(number) for number in job.segments]
        self._request = 0

    def run(self, go: Go) -> WorkerAnswer:
        """Run so many; the times are those of computing alone, stretched."""
        taken = [0] * len(self._steps)
        for _ in range(go.requests):
            for place, step in enumerate(self._steps):
                taken[place] += self._run(step)
            self._request += 1
        return self._answer(taken, [go.requests] * len(taken))

    @staticmethod
    def _answer(taken: list[int], counts: list[int]) -> WorkerAnswer:
        now, peak = memory_in_use()
        each = tuple(round(ns / max(count, 1)) for ns, count in zip(taken, counts, strict=True))
        return WorkerAnswer("done", compute_ns=each, busy_ns=sum(taken), rss=now, peak_rss=peak)

    def _run(self, step: _Step) -> int:
        for wire in step.await_filled:
            self._lines[wire.maker].wait(wire.number, SLOT_FILLED)
        for slots in step.outputs:
            if self._request >= slots.wire.slots:
                for reader in slots.wire.readers:
                    self._lines[reader].wait(slots.wire.number, SLOT_FREE)
        taken = self._compute(step) if step.plain else self._compute_values(step)
        told = set()
        for slots in step.outputs:
            for reader in slots.wire.readers:
                self._lines[reader].post(slots.wire.number, SLOT_FILLED)
                told.add(reader)
        for wire in step.tell_free:
            self._lines[wire.maker].post(wire.number, SLOT_FREE)
            told.add(wire.maker)
        for process in told:
            self._lines[process].flush()
        return taken

    def _compute(self, step: _Step) -> int:
        """Tensors of numbers, where they lie -> ns."""
        now = self._request
        places: list[PlacedTensor | None] = [slots.placed(now) for slots in step.inputs]
        made = zip(step.outputs, step.open, strict=True)
        places += [None if is_open else slots.planned(now) for slots, is_open in made]
        key = tuple(places)
        binding = step.bindings.get(key) or self._bind(step, key)
        for slots, is_open in zip(step.outputs, step.open, strict=True):
            if is_open:  # anew each time: what the last run made would count as memory to write to
                binding.bind_output(slots.wire.name, "cpu")
        self._pace.begin()
        try:
            step.session.run_with_iobinding(binding)
        except Exception:  # onnxruntime has a type for each of its codes
            if all(step.open):
                raise
            step.open = [True] * len(step.outputs)  # some planned shape may be wrong
            step.bindings.clear()
            return self._compute(step)
        taken = self._pace.end()
        found = binding.get_outputs() if any(step.open) else []
        for number, (slots, is_open) in enumerate(zip(step.outputs, step.open, strict=True)):
            if is_open:
                value = found[number]
                placed = PlacedTensor(value.data_ptr(), value.element_type(), tuple(value.shape()))
                slots.put(now, placed, value.tensor_size_in_bytes())
            else:
                slots.fill(now)
        return taken

    def _compute_values(self, step: _Step) -> int:
        """Values of any kind, by way of Python -> ns."""
        feeds = {slots.wire.name: slots.value(self._request) for slots in step.inputs}
        names = [slots.wire.name for slots in step.outputs]
        self._pace.begin()
        made = step.session.run(names, feeds)
        taken = self._pace.end()
        for slots, value in zip(step.outputs, made, strict=True):
            slots.put_value(self._request, value)
        return taken

    def _bind(self, step: _Step, places: tuple[PlacedTensor | None, ...]) -> Any:
        if len(step.bindings) >= MOST_BINDINGS:
            step.bindings.clear()
        binding = step.bindings[places] = step.session.io_binding()
        binds = [binding.bind_input] * len(step.inputs) + [binding.bind_output] * len(step.outputs)
        for slots, place, bind in zip((*step.inputs, *step.outputs), places, binds, strict=True):
            if place is None:
                bind(slots.wire.name, "cpu")
            else:
                bind(slots.wire.name, "cpu", 0, place.element, list(place.shape), place.address)
        return binding

    def _step(self, number: int) -> _Step:
        job, segment = self._job, self._job.manifest.segments[number]
        inputs = tuple(self._slots[segment.lane, name] for name in segment.inputs)
        outputs = tuple(self._slots[segment.lane, name] for name in segment.outputs)
        foreign = [slots.wire for slots in inputs if slots.wire.maker != job.me]
        read = {other: set(job.manifest.segments[other].inputs) for other in job.segments}
        if segment.file not in self._sessions:
            self._sessions[segment.file] = open_segment(Path(job.folder), job.manifest, number, job.runtime)
        return _Step(
            number,
            self._sessions[segment.file],
            inputs,
            outputs,
            tuple(w for w in foreign if not any(w.name in read[o] for o in job.segments if o < number)),
            tuple(w for w in foreign if not any(w.name in read[o] for o in job.segments if o > number)),
            [slots.wire.open for slots in outputs],
            all(slots.wire.dtype in ELEMENTS for slots in (*inputs, *outputs)),
        )


@dataclass(slots=True, eq=False)
class _Queued:
    """A segment of a lane, and what its next request waits for."""

    step: _Step
    rate: int
    arriving: tuple[tuple[Line, int], ...]
    """Wires from others."""
    makers: list[_Queued]
    """Segments here whose outputs it reads."""
    leaving: tuple[tuple[int, list[tuple[Line, int]], list[_Queued]], ...]
    """Of each output: slots, readers elsewhere, readers here."""
    first: int = 0
    """Requests before this run."""
    passed: int = 0
    end: int = 0
    taken: int = 0
    """Ns in this run."""

    @property
    def due(self) -> float:
        """When the next request is due: in turns, by the share of the lane."""
        return (self.passed - self.first + 0.5) / self.rate

    def is_ready(self) -> bool:
        """Have its inputs arrived as often as it needs, and were the slots that it writes read?"""
        number = self.passed
        if number == self.end or any(maker.passed <= number for maker in self.makers):
            return False
        if any(line.count(wire, SLOT_FILLED) <= number for line, wire in self.arriving):
            return False
        return all(
            all(line.count(wire, SLOT_FREE) > number - slots for line, wire in others)
            and all(reader.passed > number - slots for reader in here)
            for slots, others, here in self.leaving
        )


class LaneRunner(Runner):
    """Serves the lanes of a fleet: whatever is ready, the request first that is due first by the rates of the lanes.

    Nothing but counts decide what may run, so a device never waits while it could work. The oldest request of a lane
    always finds free slots on its way, so nothing waits in a circle.
    """

    def __init__(self, job: WorkerJob) -> None:
        super().__init__(job)
        segments = job.manifest.segments
        rates = {step.number: job.manifest.rates[segments[step.number].lane] for step in self._steps}
        queued = [_Queued(step, rates[step.number], (), [], ()) for step in self._steps]
        reading: dict[int, list[_Queued]] = {}
        for one in queued:
            for slots in one.step.inputs:
                reading.setdefault(slots.wire.number, []).append(one)
        for one in queued:
            wires = [slots.wire for slots in one.step.inputs]
            one.arriving = tuple((self._lines[wire.maker], wire.number) for wire in wires if wire.maker != job.me)
            made = [slots.wire for slots in one.step.outputs]
            for wire in made:
                for reader in reading.get(wire.number, ()):
                    reader.makers.append(one)
            one.leaving = tuple(
                (
                    wire.slots,
                    [(self._lines[reader], wire.number) for reader in wire.readers],
                    reading.get(wire.number, []),
                )
                for wire in made
            )
        self._queued, self._reading = queued, reading
        self._told = dict.fromkeys(reading, 0)
        """By wire: requests that were read here, as its maker knows."""
        self._poll, self._by_descriptor = select.poll(), {line.reading: line for line in self._lines.values()}
        for descriptor in self._by_descriptor:
            self._poll.register(descriptor, select.POLLIN)

    def run(self, go: Go) -> WorkerAnswer:
        """Run so many of each lane."""
        for one in self._queued:
            one.first, one.taken = one.passed, 0
            one.end = one.passed + go.lanes[self._job.manifest.segments[one.step.number].lane]
        while any(one.passed < one.end for one in self._queued):
            self._listen(0)
            ready = [one for one in self._queued if one.is_ready()]
            if ready:
                self._take(min(ready, key=lambda one: one.due))
            else:
                self._listen(None)
        return self._answer([one.taken for one in self._queued], [one.end - one.first for one in self._queued])

    def _listen(self, timeout: int | None) -> None:
        for descriptor, _ in self._poll.poll(timeout):
            self._by_descriptor[descriptor].pump()

    def _take(self, one: _Queued) -> None:
        self._request = one.passed
        one.taken += self._compute(one.step) if one.step.plain else self._compute_values(one.step)
        one.passed += 1
        for slots in one.step.outputs:
            for reader in slots.wire.readers:
                self._lines[reader].post(slots.wire.number, SLOT_FILLED)
        for slots in one.step.inputs:
            wire = slots.wire
            read = min(reader.passed for reader in self._reading[wire.number])
            if wire.maker != self._job.me and read > self._told[wire.number]:
                self._told[wire.number] = read
                self._lines[wire.maker].post(wire.number, SLOT_FREE)
        for line in self._lines.values():
            line.flush()


def memory_in_use() -> tuple[int, int]:
    """Resident bytes now, and at most so far."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
        lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
        return int(lines["VmRSS"].split()[0]) * 1024, int(lines["VmHWM"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        import psutil

        now = int(psutil.Process().memory_info().rss)
        return now, now


def answer(conversation: Conversation, job: WorkerJob) -> None:
    """Serve until the input ends."""
    runner = LaneRunner(job) if job.manifest.rates else Runner(job)
    now, peak = memory_in_use()
    conversation.send(WorkerAnswer("ready", rss=now, peak_rss=peak))
    while True:
        conversation.send(runner.run(conversation.receive(Go)))


def main() -> NoReturn:
    """Read the job, serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = msgspec.json.decode(file.read(), type=WorkerJob)
    die_with(job.parent)
    os._exit(serve(lambda conversation: answer(conversation, job)))


if __name__ == "__main__":
    main()
