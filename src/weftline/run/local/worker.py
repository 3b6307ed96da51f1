"""A worker of the local engine: one device, pinned, one session of ONNX Runtime per segment.

In: a `Job` (JSON, from the descriptor that the command line names), then lines of `Go` on standard input. Out: an
`Answer` for each on standard output. Inputs are read and outputs are written where they lie, in memory that processes
share. It ends when its input ends, so it never outlives its parent. Simplified: fixed shapes, one request at a time.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from weftline.errors import InputError
from weftline.run.local.channel import FILLED, FREE, Block, Line, PeerGone
from weftline.run.local.layout import ELEMENTS, Answer, Go, Job, WireJob
from weftline.run.session import Pace, bind_cores, open_segment

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

    def __init__(self, job: Job) -> None:
        bind_cores(job.runtime.cores)
        self._job, self._pace = job, Pace(job.runtime, job.speed)
        self._blocks = {process: Block(descriptor) for process, descriptor in job.blocks.items()}
        self._start = {process: block.address for process, block in self._blocks.items()}
        self._lines = {process: Line(*ends) for process, ends in job.lines.items()}
        self._steps = [self._step(number) for number in job.segments]
        self._request = 0

    def run(self, requests: int) -> Answer:
        """Run so many; the times are those of computing alone, stretched."""
        taken = [0] * len(self._steps)
        for _ in range(requests):
            for place, step in enumerate(self._steps):
                taken[place] += self._run(step)
            self._request += 1
        now, peak = memory_in_use()
        each = tuple(round(ns / requests) for ns in taken) if requests else ()
        return Answer("done", compute_ns=each, busy_ns=sum(taken), rss=now, peak_rss=peak)

    def _run(self, step: _Step) -> int:
        for wire in step.await_filled:
            self._lines[wire.maker].wait(wire.number, FILLED)
        for wire in step.outputs:
            if self._request >= wire.slots:
                for reader in wire.readers:
                    self._lines[reader].wait(wire.number, FREE)
        slots = tuple([self._request % wire.slots for wire in (*step.inputs, *step.outputs)])
        binding = step.bindings.get(slots) or self._bind(step, slots)
        self._pace.begin()
        step.session.run_with_iobinding(binding)
        taken = self._pace.end()
        told = set()
        for wire in step.outputs:
            for reader in wire.readers:
                self._lines[reader].post(wire.number, FILLED)
                told.add(reader)
        for wire in step.tell_free:
            self._lines[wire.maker].post(wire.number, FREE)
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


def _die_with_parent() -> None:
    """Ask Linux to end this process with its parent; elsewhere the end of standard input does it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def _commands(job: Job) -> queue.SimpleQueue[bytes]:
    """Lines of standard input; at its end the process ends, whatever it does."""
    lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()

    def read() -> None:
        for line in sys.stdin.buffer:
            lines.put(line)
        os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    if os.getppid() != job.parent:
        os._exit(0)
    return lines


def _say(answers: Any, answer: Answer) -> None:
    answers.write(msgspec.json.encode(answer) + b"\n")
    answers.flush()


def main() -> None:
    """Serve until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to answer
    _die_with_parent()
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what a library prints is no answer
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        job = msgspec.json.decode(file.read(), type=Job)
    lines = _commands(job)
    try:
        runner = Runner(job)
        now, peak = memory_in_use()
        _say(answers, Answer("ready", rss=now, peak_rss=peak))
        while True:
            _say(answers, runner.run(msgspec.json.decode(lines.get(), type=Go).requests))
    except PeerGone as error:
        _say(answers, Answer("peer", str(error)))
    except InputError as error:
        _say(answers, Answer("input", str(error)))
    except Exception as error:  # onnxruntime has a type for each of its codes
        _say(answers, Answer("run", str(error)[:2000] or type(error).__name__))
    os._exit(1)


if __name__ == "__main__":
    main()
