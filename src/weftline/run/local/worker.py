"""A worker of the local engine: one device, pinned, one session of ONNX Runtime per segment.

In: a `WorkerJob` (JSON, from the descriptor that the command line names), then lines of `Go` on standard input. Out: an
`WorkerAnswer` for each on standard output. Inputs are read and outputs are written where they lie, in memory that
processes share. It ends when its input ends, so it never outlives its parent. Simplified: fixed shapes, one request at
a time.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

import msgspec

from weftline.run.devices import Pace, bind_cores, open_segment
from weftline.run.local.channel import SLOT_FILLED, SLOT_FREE, Line, SharedBlock
from weftline.run.local.layout import ELEMENTS, Go, WireJob, WorkerAnswer, WorkerJob
from weftline.worker.child import Conversation, die_with, serve

__all__ = ["Runner", "main"]

MOST_BINDINGS = 64
"""Of one segment, kept."""


class _Step(NamedTuple):
    """A segment and what is to do around it."""

    session: Any
    bindings: dict[tuple[int, ...], Any]
    """By the slots that it reads and writes: to bind takes as long as a small op."""
    inputs: tuple[WireJob, ...]
    outputs: tuple[WireJob, ...]
    await_filled: tuple[WireJob, ...]
    """From others, read here for the first time in a request."""
    tell_free: tuple[WireJob, ...]
    """From others, read here for the last time."""


class Runner:
    """Sessions, memory and lines."""

    def __init__(self, job: WorkerJob) -> None:
        bind_cores(job.runtime.cores)
        self._job, self._pace = job, Pace(job.runtime, job.speed)
        self._blocks = {process: SharedBlock(descriptor) for process, descriptor in job.blocks.items()}
        self._start = {process: block.address for process, block in self._blocks.items()}
        self._lines = {process: Line(*ends) for process, ends in job.lines.items()}
        self._steps = [self._step(number) for number in job.segments]
        self._request = 0

    def run(self, requests: int) -> WorkerAnswer:
        """Run so many; the times are those of computing alone, stretched."""
        taken = [0] * len(self._steps)
        for _ in range(requests):
            for place, step in enumerate(self._steps):
                taken[place] += self._run(step)
            self._request += 1
        now, peak = memory_in_use()
        each = tuple(round(ns / requests) for ns in taken) if requests else ()
        return WorkerAnswer("done", compute_ns=each, busy_ns=sum(taken), rss=now, peak_rss=peak)

    def _run(self, step: _Step) -> int:
        for wire in step.await_filled:
            self._lines[wire.maker].wait(wire.number, SLOT_FILLED)
        for wire in step.outputs:
            if self._request >= wire.slots:
                for reader in wire.readers:
                    self._lines[reader].wait(wire.number, SLOT_FREE)
        slots = tuple([self._request % wire.slots for wire in (*step.inputs, *step.outputs)])
        binding = step.bindings.get(slots) or self._bind(step, slots)
        self._pace.begin()
        step.session.run_with_iobinding(binding)
        taken = self._pace.end()
        told = set()
        for wire in step.outputs:
            for reader in wire.readers:
                self._lines[reader].post(wire.number, SLOT_FILLED)
                told.add(reader)
        for wire in step.tell_free:
            self._lines[wire.maker].post(wire.number, SLOT_FREE)
            told.add(wire.maker)
        for process in told:
            self._lines[process].flush()
        return taken

    def _bind(self, step: _Step, slots: tuple[int, ...]) -> Any:
        if len(step.bindings) >= MOST_BINDINGS:
            step.bindings.clear()
        binding = step.bindings[slots] = step.session.io_binding()
        binds = [binding.bind_input] * len(step.inputs) + [binding.bind_output] * len(step.outputs)
        for wire, slot, bind in zip((*step.inputs, *step.outputs), slots, binds, strict=True):
            at = self._start[wire.maker] + wire.offset + slot * wire.stride
            bind(wire.name, "cpu", 0, ELEMENTS[wire.dtype], list(wire.shape), at)
        return binding

    def _step(self, number: int) -> _Step:
        job, segment = self._job, self._job.manifest.segments[number]
        wires = {wire.name: wire for wire in job.wires}
        inputs = tuple(wires[name] for name in segment.inputs)
        foreign = [wire for wire in inputs if wire.maker != job.me]
        read = {other: set(job.manifest.segments[other].inputs) for other in job.segments}
        session = open_segment(Path(job.folder), job.manifest, number, job.runtime)
        return _Step(
            session,
            {},
            inputs,
            tuple(wires[name] for name in segment.outputs),
            tuple(w for w in foreign if not any(w.name in read[o] for o in job.segments if o < number)),
            tuple(w for w in foreign if not any(w.name in read[o] for o in job.segments if o > number)),
        )


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
    runner = Runner(job)
    now, peak = memory_in_use()
    conversation.send(WorkerAnswer("ready", rss=now, peak_rss=peak))
    while True:
        conversation.send(runner.run(conversation.receive(Go).requests))


def main() -> NoReturn:
    """Read the job, serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = msgspec.json.decode(file.read(), type=WorkerJob)
    die_with(job.parent)
    os._exit(serve(lambda conversation: answer(conversation, job)))


if __name__ == "__main__":
    main()
