"""Plans and schedules that wait, run or are done: a queue of worker processes, and the pages that watch them.

In: tasks. Out: `Job`s, whose rows of (seconds, value, bound) grow while they run; `EventStream`, the server-sent events
of one page: `plan` (one job with the rows that the page does not have yet), `gone` (a number), `state`. Few jobs run at
a time. When nobody has watched for a while they are stopped, and keep their best answers. A page that reads slowly gets
fewer and larger events: nothing is queued for it, and nobody waits for it. Simplified: everything lives in memory and
in one folder; the server's end is theirs.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from weftline.errors import UsageError
from weftline.ui.models import NotThere, PageLimits
from weftline.ui.process import Process
from weftline.ui.task import Row, Said, SearchTask

__all__ = ["ACTIVE", "EventStream", "Job", "Jobs"]

ACTIVE = ("queued", "running")
MOST_ROWS = 2000
"""Of one job; more are thinned out."""


@dataclass
class Job:
    """One plan or schedule, wanted or made."""

    id: int
    task: SearchTask
    folder: Path
    state: str = "queued"
    """queued, running, done, stopped (without a plan) or failed."""
    rows: list[Row] = field(default_factory=list)
    thinned: int = 0
    """How often rows were thinned: then those that a page has are not the first of these any more."""
    phase: str = ""
    note: str = ""
    error: str = ""
    answer: dict[str, Any] | None = None
    begun: float | None = None
    """When its process was started, by `monotonic`."""
    created: float = field(default_factory=time)
    version: int = 0
    process: Process | None = None
    stopping: bool = False

    @property
    def plan(self) -> Path:
        """Its file, once it is done."""
        return Path(self.task.output)

    def about(self) -> dict[str, Any]:
        """Everything but the rows, for a page."""
        asked = self.task
        return {
            "id": self.id,
            "state": self.state,
            "stopping": self.stopping and self.state in ACTIVE,
            **asked.about(),
            "objective": asked.objective,
            "solver": asked.solver,
            "limit": asked.seconds,
            "gap_asked": asked.gap,
            "command": ["weftline", *asked.argv],
            "created": self.created,
            "running": None if self.begun is None else round(monotonic() - self.begun, 2),
            "phase": self.phase,
            "note": self.note,
            "error": self.error,
            "answer": self.answer,
        }

    def hear(self, said: Said) -> None:
        """A line of its worker."""
        self.rows += said.rows
        if said.phase and said.phase != self.phase:
            self.phase, self.note = said.phase, ""  # what was said about the phase before is over
        self.note = said.note or self.note
        if len(self.rows) > MOST_ROWS:
            self.rows = [*self.rows[:-1:2], self.rows[-1]]
            self.thinned += 1
        if said.answer is not None:
            self.answer, self.state = said.answer, "done"
        elif said.error:
            self.error, self.state = said.error, "stopped" if said.kind == "Stopped" else "failed"


class Jobs:
    """All of them, and the one loop that starts, stops and ends them."""

    def __init__(self, root: Path, limits: PageLimits, most_bytes: int) -> None:
        self._root, self._limits, self._most_bytes = root, limits, most_bytes
        self._jobs: dict[int, Job] = {}
        self._number = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._listeners: set[Callable[[], None]] = set()
        self._watched = monotonic()
        self.closed = False

    def all(self) -> list[Job]:
        """Oldest first."""
        return list(self._jobs.values())

    def find(self, number: int) -> Job:
        """The job of that number, or `NotThere`."""
        if number not in self._jobs:
            raise NotThere(str(number))
        return self._jobs[number]

    def check_room(self) -> None:
        """`UsageError` if no more are kept."""
        if len(self._jobs) >= self._limits.plans:
            raise UsageError(f"{self._limits.plans} plans are kept at most; remove some")

    def add(self, make: Callable[[Path], SearchTask]) -> Job:
        """Queue a task, which is told its folder."""
        self.check_room()
        self._number += 1
        folder = self._root / f"plan-{self._number}"
        folder.mkdir(mode=0o700)
        job = self._jobs[self._number] = Job(self._number, make(folder), folder)
        if not self._listeners:
            self._watched = monotonic()
        self._change(job)
        self._fill()
        return job

    def stop(self, job: Job) -> None:
        """Stop a search; its best plan is kept."""
        if job.state == "queued":
            job.state, job.error = "stopped", "stopped before it began"
        elif job.state == "running":
            job.stopping = True
            if job.process is not None:
                job.process.stop()
        self._change(job)

    async def remove(self, job: Job) -> None:
        """End it, and forget it with its files."""
        self._jobs.pop(job.id, None)
        if job.state == "queued":
            job.state = "stopped"
        if job.process is not None:
            job.process.kill("removed")
        self.tell()
        if job.state != "running":
            await asyncio.to_thread(shutil.rmtree, job.folder, True)

    def watch(self, listener: Callable[[], None]) -> None:
        """A page is open: it is told when something has changed."""
        if len(self._listeners) >= self._limits.streams:
            raise UsageError(f"{self._limits.streams} pages watch already; close some")
        self._listeners.add(listener)

    def leave(self, listener: Callable[[], None]) -> None:
        """A page was closed."""
        self._listeners.discard(listener)
        self._watched = monotonic()

    async def look_after(self) -> None:
        """Stop searches that nobody has watched for a while."""
        while not self.closed:
            await asyncio.sleep(min(1.0, self._limits.away / 4))
            if self._listeners or monotonic() - self._watched < self._limits.away:
                continue
            for job in self.all():
                if job.state in ACTIVE and not job.stopping:
                    self.stop(job)

    def end_streams(self) -> None:
        """The server ends soon: pages that watch are let go."""
        self.closed = True
        self.tell()

    async def close(self) -> None:
        """End everything, and wait until it has ended."""
        self.closed = True
        for job in self.all():
            if job.process is not None:
                job.process.kill("the server ended")
        self.tell()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        """Start what waits, while there is room."""
        for job in self.all():
            if sum(other.state == "running" for other in self.all()) >= self._limits.running or self.closed:
                return
            if job.state == "queued":
                job.state, job.begun = "running", monotonic()
                task = asyncio.create_task(self._run(job))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)

    async def _run(self, job: Job) -> None:
        try:
            seconds = job.task.seconds + self._limits.grace
            job.process = await Process.start(job.task, seconds, self._most_bytes)
            if job.id not in self._jobs:
                job.process.kill("removed")
            elif job.stopping:
                job.process.stop()
            async with aclosing(job.process.listen()) as lines:
                async for said in lines:
                    job.hear(said)
                    self._change(job)
        except OSError as error:
            job.hear(Said(error=f"cannot be started: {error.strerror or error}", kind="Died"))
        finally:
            if job.state == "running":
                job.state, job.error = "failed", "ended"
            job.process = None
            if job.id not in self._jobs:
                shutil.rmtree(job.folder, ignore_errors=True)
            self._change(job)
            self._fill()

    def _change(self, job: Job) -> None:
        job.version += 1
        self.tell()

    def tell(self) -> None:
        """Something has changed that pages are told."""
        for listener in list(self._listeners):
            listener()


BEAT_SECONDS = 10.0
"""Seconds between two signs of life; without them a dead connection is noticed late."""
GATHER_SECONDS = 0.08
"""Seconds in which changes are gathered."""


class EventStream:
    """One page's view, as an ASGI response. It is counted as watching from its beginning to its end."""

    def __init__(self, jobs: Jobs, extra: Callable[[], dict[str, Any]]) -> None:
        self._jobs, self._extra = jobs, extra
        self._told: dict[int, tuple[int, int, int]] = {}
        """Job -> (version, times thinned, rows) that the page has."""
        self._extra_told = ""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Until the page or the server leaves."""
        changed = asyncio.Event()
        try:
            self._jobs.watch(changed.set)
        except UsageError as error:
            await PlainTextResponse(f"{error}\n", 503)(scope, receive, send)
            return
        leaving = asyncio.create_task(self._wait_for_end(receive, changed))
        try:
            headers = [(b"content-type", b"text/event-stream"), (b"x-accel-buffering", b"no")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            await self._send(send, "retry: 1000\n\n")
            while not leaving.done() and not self._jobs.closed:
                changed.clear()
                text = self.news()
                await self._send(send, text or ": here\n\n")
                await asyncio.sleep(GATHER_SECONDS)
                try:
                    await asyncio.wait_for(changed.wait(), BEAT_SECONDS)
                except TimeoutError:
                    continue
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except OSError:
            pass  # the page has left
        finally:
            self._jobs.leave(changed.set)
            leaving.cancel()

    def news(self) -> str:
        """The events that bring the page up to date."""
        lines = []
        jobs = {job.id: job for job in self._jobs.all()}
        for number in [number for number in self._told if number not in jobs]:
            del self._told[number]
            lines.append(_event("gone", number))
        lines += [_event("plan", self._change(job)) for job in jobs.values() if self._is_new(job)]
        extra = json.dumps(self._extra())
        if extra != self._extra_told:
            self._extra_told = extra
            lines.append(f"event: state\ndata: {extra}\n\n")
        return "".join(lines)

    def _is_new(self, job: Job) -> bool:
        return self._told.get(job.id, (-1, 0, 0))[0] != job.version

    def _change(self, job: Job) -> dict[str, Any]:
        _, thinned, count = self._told.get(job.id, (0, -1, 0))
        since = count if thinned == job.thinned else 0
        self._told[job.id] = (job.version, job.thinned, len(job.rows))
        return {**job.about(), "since": since, "rows": job.rows[since:]}

    @staticmethod
    async def _wait_for_end(receive: Receive, changed: asyncio.Event) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        changed.set()

    @staticmethod
    async def _send(send: Send, text: str) -> None:
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


def _event(kind: str, data: object) -> str:
    return f"event: {kind}\ndata: {json.dumps(data, allow_nan=False)}\n\n"
