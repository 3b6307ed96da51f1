"""The local engine: workers on this machine, started, fed, watched, ended.

In: teams of workers (a `WorkerLayout` each) and what stands for their devices. Out: a `LanePass` for each team. Inputs
repeat: request r gets feed r modulo their number, so that a mix-up of requests shows. A worker that dies, fails or
hangs is an error that names its device; whatever happens, no process, memory or file is left. Simplified: one parent
thread; all lanes run at the same time.
"""

from __future__ import annotations

import os
import selectors
import signal
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import msgspec

from weftline.errors import InputError, WeftlineError
from weftline.run.devices import OrtDevice, SegmentRefused
from weftline.run.local.channel import Line, PeerGone, SharedBlock, make_memory, require_memory
from weftline.run.local.lanes import Arrays, LanePass, WorkerLane
from weftline.run.local.layout import PARENT_PROCESS, Go, WorkerAnswer, WorkerJob, WorkerLayout
from weftline.run.turns import lane_turns
from weftline.worker.child import LastWords
from weftline.worker.parent import Child, ChildFailed, ChildGone, Closing

__all__ = ["HANG_SECONDS", "Engine", "LanePass", "Seat", "WorkerFailed", "WorkerLost"]


class WorkerFailed(WeftlineError):
    """A worker said why it could not go on: most often ONNX Runtime did."""


class WorkerLost(WeftlineError):
    """Workers have ended without a word."""

    def __init__(self, message: str, devices: frozenset[str]) -> None:
        super().__init__(message)
        self.devices = devices


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


class Engine(Closing):
    """Workers of one or more teams, for a `with`. `timeout`: so many seconds without a sign of life are a hang."""

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
        self,
        counts: Sequence[int],
        feeds: Sequence[Arrays],
        *,
        keep: Sequence[frozenset[int]] | None = None,
        turns: Sequence[Sequence[int]] | None = None,
    ) -> list[LanePass]:
        """Run `counts[team]` requests on each team, all teams at the same time.

        `turns`: the lanes of a fleet's requests, where they are others than their rates say.
        """
        self._answers.clear()
        self._heard = time.monotonic()
        for number, (lane, workers) in enumerate(zip(self._lanes, self._workers, strict=True)):
            order = turns[number] if turns else lane_turns(lane.rates, counts[number])
            lane.begin(order, feeds, keep[number] if keep else frozenset())
            go = Go(counts[number], tuple(order.count(at) for at in range(len(lane.rates))))
            for worker in workers:
                with suppress(ChildGone):  # one that has ended is noticed when it is listened to
                    worker.send(go)
        while not all(lane.finished for lane in self._lanes):
            for lane in self._lanes:
                self._careful(lane.step)
            if not all(lane.finished for lane in self._lanes):
                self._poll()
        self._wait_for("done")
        return [
            LanePass(
                tuple(lane.sent_ns),
                tuple(lane.done_ns),
                tuple(self._answers[w] for w in workers),
                lane.kept,
                tuple(lane.turns) if lane.rates else (),
            )
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
            raise WorkerLost(f"the worker {text}", frozenset(worker.device for worker in silent))
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
