"""The local engine: workers on this machine, started, fed, watched, ended.

In: lanes (a `WorkerLayout` each) and what stands for their devices. Out: for each lane when requests were sent and
done, what workers measured, outputs that were asked for. Inputs repeat: request r gets feed r modulo their number, so
that a mix-up of requests shows. A wire waits only for its own or an earlier request, so a lane never deadlocks. A
worker that dies, fails or hangs is an error that names its device; whatever happens, no process, memory or file is
left. Simplified: one parent thread; all lanes run at the same time.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass
from statistics import mean
from typing import Any

import msgspec

from weftline.errors import InputError, WeftlineError
from weftline.run.devices import OrtDevice, SegmentRefused
from weftline.run.local.channel import SLOT_FILLED, SLOT_FREE, Line, PeerGone, SharedBlock, make_memory, require_memory
from weftline.run.local.layout import PARENT_PROCESS, Go, WorkerAnswer, WorkerJob, WorkerLayout
from weftline.run.local.slots import WireSlots
from weftline.worker.child import LastWords
from weftline.worker.parent import Child, ChildFailed, ChildGone, Closing

__all__ = ["HANG_SECONDS", "Arrays", "Engine", "LanePass", "Seat", "WorkerFailed", "WorkerLane"]

Arrays = Mapping[str, Any]
"""Name -> array; or a list, a map or None where the model has sequences, maps and optionals."""


class WorkerLane:
    """Counts requests on their way."""

    def __init__(self, layout: WorkerLayout, blocks: Mapping[int, SharedBlock], lines: Mapping[int, Line]) -> None:
        self.lines = lines
        rings = [(wire, WireSlots(wire, blocks[wire.maker])) for wire in layout.wires]
        self._inputs = [(wire, slots, wire.readers) for wire, slots in rings if wire.maker == PARENT_PROCESS]
        self._outputs = [(wire, slots, wire.maker) for wire, slots in rings if PARENT_PROCESS in wire.readers]
        self._most = 2**62 if layout.pipelined else 1
        self._first = self._sent = self._done = self._end = 0
        self._feeds: Sequence[Arrays] = ()
        self._keep: frozenset[int] = frozenset()
        self.sent_ns: list[int] = []
        self.done_ns: list[int] = []
        self.kept: dict[int, dict[str, Any]] = {}

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
        for wire, _, readers in self._inputs:
            if sent >= wire.slots and not all(lines[reader].has(wire.number, SLOT_FREE) for reader in readers):
                return False
        feed = self._feeds[(sent - self._first) % len(self._feeds)]
        self.sent_ns.append(time.perf_counter_ns())
        for wire, slots, readers in self._inputs:
            if sent >= wire.slots:
                for reader in readers:
                    lines[reader].take(wire.number, SLOT_FREE)
            slots.put_value(sent, feed[wire.name])
            for reader in readers:
                lines[reader].post(wire.number, SLOT_FILLED)
        self._sent += 1
        self._flush()
        return True

    def _complete(self) -> bool:
        if self._done == self._end or (self._done == self._sent and self._inputs):
            return False
        lines, done = self.lines, self._done
        if not all(lines[maker].has(wire.number, SLOT_FILLED) for wire, _, maker in self._outputs):
            return False
        self.done_ns.append(time.perf_counter_ns())
        number = done - self._first
        if number in self._keep:
            self.kept[number] = {wire.name: deepcopy(slots.value(done)) for wire, slots, _ in self._outputs}
        for wire, _, maker in self._outputs:
            lines[maker].take(wire.number, SLOT_FILLED)
            lines[maker].post(wire.number, SLOT_FREE)
        self._done += 1
        self._flush()
        return True

    def _flush(self) -> None:
        for line in self.lines.values():
            line.flush()


class WorkerFailed(WeftlineError):
    """A worker said why it could not go on: most often ONNX Runtime did."""


HANG_SECONDS = 60.0
LOOK_SECONDS = 0.5
"""Seconds between two looks at the clock."""
BLAME_SECONDS = 0.3
"""Seconds in which workers may still say why, after one has ended."""
QUOTED_LINES = 5
"""Of what a worker printed, in an error."""


@dataclass(frozen=True)
class Seat:
    """What stands for a device."""

    runtime: OrtDevice
    speed: float = 1.0


@dataclass(frozen=True)
class LanePass:
    """What one lane did."""

    sent_ns: tuple[int, ...]
    done_ns: tuple[int, ...]
    answers: tuple[WorkerAnswer, ...]
    """Of each worker."""
    kept: dict[int, dict[str, Any]]
    """Request -> its outputs."""

    @property
    def latencies(self) -> list[int]:
        """Ns from sent to done, of each request."""
        return [done - sent for sent, done in zip(self.sent_ns, self.done_ns, strict=True)]

    def taken(self, *, pipelined: bool) -> float:
        """Ns for a request, on average: from completion to completion once a pipeline is full, or its latency.

        An average, as requests a second are: a shared core is now faster, now slower, and a median
        is either the one or the other.
        """
        full = min(len(self.answers), len(self.done_ns) // 3)
        if not pipelined or len(self.done_ns) < full + 2:
            return mean(self.latencies)
        return (self.done_ns[-1] - self.done_ns[full]) / (len(self.done_ns) - 1 - full)


class Engine(Closing):
    """Workers of one or more lanes, for a `with`. `timeout`: so many seconds without a sign of life are a hang."""

    def __init__(
        self, lanes: Sequence[tuple[WorkerLayout, Mapping[str, Seat]]], *, timeout: float = HANG_SECONDS
    ) -> None:
        self.timeout = timeout
        self._selector = selectors.DefaultSelector()
        self._workers: list[list[LocalWorker]] = []
        self._lanes: list[WorkerLane] = []
        self._answers: dict[LocalWorker, WorkerAnswer] = {}
        self._heard = time.monotonic()
        try:
            for layout, seats in lanes:
                self._start(layout, seats)
            self._wait_for("ready")
        except BaseException:
            self.close()
            raise

    @property
    def pids(self) -> list[int]:
        """Of all workers."""
        return [worker.pid for workers in self._workers for worker in workers]

    def run(
        self, counts: Sequence[int], feeds: Sequence[Arrays], *, keep: Sequence[frozenset[int]] | None = None
    ) -> list[LanePass]:
        """Run `counts[lane]` requests on each lane, all lanes at the same time."""
        self._answers.clear()
        self._heard = time.monotonic()
        for number, (lane, workers) in enumerate(zip(self._lanes, self._workers, strict=True)):
            lane.begin(counts[number], feeds, keep[number] if keep else frozenset())
            for worker in workers:
                with suppress(ChildGone):  # one that has ended is noticed when it is listened to
                    worker.send(Go(counts[number]))
        while not all(lane.finished for lane in self._lanes):
            for lane in self._lanes:
                self._careful(lane.step)
            if not all(lane.finished for lane in self._lanes):
                self._poll()
        self._wait_for("done")
        return [
            LanePass(tuple(lane.sent_ns), tuple(lane.done_ns), tuple(self._answers[w] for w in workers), lane.kept)
            for lane, workers in zip(self._lanes, self._workers, strict=True)
        ]

    def close(self) -> None:
        """End every worker and free everything; may be called twice."""
        workers = [worker for workers in self._workers for worker in workers]
        for worker in workers:
            worker.kill()  # all before the first is waited for
        for worker in workers:
            worker.close()
        for lane in self._lanes:
            for line in lane.lines.values():
                line.close()
        self._workers, self._lanes = [], []
        self._selector.close()

    def _start(self, layout: WorkerLayout, seats: Mapping[str, Seat]) -> None:
        require_memory({wire.name: wire.stride * wire.slots for wire in layout.wires})
        processes = (PARENT_PROCESS, *range(len(layout.devices)))
        blocks = {process: make_memory(layout.sizes[process]) for process in processes}
        ends: dict[int, dict[int, tuple[int, int]]] = {process: {} for process in processes}
        opened = [*blocks.values()]
        workers: list[LocalWorker] = []
        self._workers.append(workers)
        try:
            for a in processes:
                for b in sorted(other for other in layout.peers_of(a) if other > a):
                    (there, to_b), (back, to_a) = os.pipe(), os.pipe()
                    ends[a][b], ends[b][a] = (back, to_b), (there, to_a)
                    opened += [there, to_b, back, to_a]
            for me, device in enumerate(layout.devices):
                workers.append(_start_worker(layout, me, seats[device], blocks, ends[me]))
                self._selector.register(workers[-1].reading, selectors.EVENT_READ, workers[-1])
            lines = {process: Line(*pair) for process, pair in ends[PARENT_PROCESS].items()}
            mapped = {process: SharedBlock(descriptor) for process, descriptor in blocks.items()}
            self._lanes.append(WorkerLane(layout, mapped, lines))
            for line in lines.values():
                self._selector.register(line.reading, selectors.EVENT_READ, line)
            mine = {descriptor for pair in ends[PARENT_PROCESS].values() for descriptor in pair}
            opened = [descriptor for descriptor in opened if descriptor not in mine]
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _wait_for(self, kind: str) -> None:
        workers = [worker for workers in self._workers for worker in workers]
        while not all(worker in self._answers and self._answers[worker].kind == kind for worker in workers):
            self._poll()

    def _poll(self) -> None:
        """Wait for something to happen and take it in."""
        events = self._selector.select(LOOK_SECONDS)
        now = time.monotonic()
        if events:
            self._heard = now
        elif now - self._heard > self.timeout:
            raise WeftlineError(self._hang())
        for key, _ in events:
            if isinstance(key.data, Line):
                self._careful(key.data.pump)
                continue
            worker: LocalWorker = key.data
            answers = worker.hear()
            if answers is None or worker.failure:
                self._fail()
            for answer in answers or ():
                self._answers[worker] = answer

    def _careful(self, act: Any) -> None:
        """Do something with lines; if a peer has left, say which and why."""
        try:
            act()
        except PeerGone:
            self._fail()

    def _fail(self) -> None:
        """Some worker failed: listen to all a little longer, then blame the one that did not blame others."""
        workers = [worker for workers in self._workers for worker in workers]
        ended: list[LocalWorker] = []
        until = time.monotonic() + BLAME_SECONDS
        while time.monotonic() < until and len(ended) < len(workers):
            for key, _ in self._selector.select(0.05):
                if isinstance(key.data, Line):
                    self._selector.unregister(key.fileobj)
                elif key.data.hear() is None:
                    ended.append(key.data)
                    self._selector.unregister(key.fileobj)
        silent = [worker for worker in ended if worker.failure is None]
        if silent:
            text = " and ".join(f"of device {worker.device!r} {worker.story()}" for worker in silent)
            raise WeftlineError(f"the worker {text}")
        failed = [(_blame(worker.failure), worker.device, worker.failure) for worker in workers if worker.failure]
        for _, device, words in sorted(failed, key=lambda found: found[0]):
            kinds = {"InputError": InputError, "SegmentRefused": SegmentRefused}
            raise kinds.get(words.kind, WorkerFailed)(f"device {device!r}: {words.what}")
        raise WeftlineError("a worker has left")

    def _hang(self) -> str:
        states = [
            f"{worker.device} ({worker.state()})"
            for workers in self._workers
            for worker in workers
            if worker not in self._answers
        ]
        return (
            f"no worker has given a sign of life for {self.timeout:g} s; not finished: {', '.join(states)}; "
            "a larger timeout allows for slower requests"
        )


class LocalWorker(Child):
    """The process of one device."""

    def __init__(self, device: str, job: WorkerJob, descriptors: Collection[int]) -> None:
        self.device = device
        self.failure: LastWords | None = None
        """What it said before it ended, if it failed."""
        data = msgspec.json.encode(job)
        told = make_memory(len(data))
        try:
            with open(told, "r+b", closefd=False) as file:
                file.write(data)
                file.flush()
                file.seek(0)
            super().__init__("weftline.run.local.worker", str(told), descriptors=(told, *descriptors))
        finally:
            os.close(told)

    def hear(self) -> list[WorkerAnswer] | None:
        """What it has said, once something is there to read; None if it has ended."""
        try:
            return self.listen(WorkerAnswer)
        except ChildFailed as error:
            self.failure = error.words
            return []

    def state(self) -> str:
        """What the system says it does now: running, sleeping, stopped ..."""
        import psutil

        try:
            return str(psutil.Process(self.pid).status())
        except psutil.Error:
            return "gone"

    def story(self) -> str:
        """How it ended, and its last words."""
        code, how = self.end(), ""
        if code < 0:
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-code).name}"
        last = self.printed(QUOTED_LINES)
        return (how or f"ended with exit code {code}") + ("; it said: " + " | ".join(last) if last else "")


def _blame(words: LastWords) -> int:
    """What was asked, ONNX Runtime, a peer that has left."""
    return {"InputError": 0, "SegmentRefused": 0, "PeerGone": 2}.get(words.kind, 1)


def _start_worker(
    layout: WorkerLayout, me: int, seat: Seat, blocks: Mapping[int, int], ends: Mapping[int, tuple[int, int]]
) -> LocalWorker:
    wires = layout.wires_of(me)
    mapped = {wire.maker: blocks[wire.maker] for wire in wires}
    job = WorkerJob(
        me=me,
        parent=os.getpid(),
        runtime=seat.runtime,
        speed=seat.speed,
        folder=layout.folder,
        manifest=layout.manifest,
        segments=layout.segments[me],
        wires=wires,
        blocks=mapped,
        lines=dict(ends),
    )
    return LocalWorker(layout.devices[me], job, {*mapped.values(), *(end for pair in ends.values() for end in pair)})
