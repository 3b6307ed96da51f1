"""Plans that wait, run or are done: a queue of worker processes, and who watches them.

In: `PlanTask`s. Out: `Job`s, whose rows of (seconds, value, bound) grow while they run. Few run at a time. When nobody
has watched for a while they are stopped, and keep their best plans. Simplified: everything lives in memory and in one
folder; the server's end is theirs.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from pathlib import Path
from time import monotonic, time
from typing import Any

from weftline.errors import UsageError
from weftline.ui.models import NotThere, PageLimits
from weftline.ui.process import Process
from weftline.ui.task import PlanTask, Row, Said

__all__ = ["ACTIVE", "Job", "Jobs"]

ACTIVE = ("queued", "running")
MOST_ROWS = 2000
"""Of one job; more are thinned out."""


@dataclass
class Job:
    """One plan, wanted or made."""

    id: int
    task: PlanTask
    folder: Path
    state: str = "queued"
    """queued, running, done, stopped (without a plan) or failed."""
    rows: list[Row] = field(default_factory=list)
    thinned: int = 0
    """How often rows were thinned: then those that a page has are not the first of these any more."""
    note: str = ""
    error: str = ""
    answer: dict[str, Any] | None = None
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
            "model": asked.model.label,
            "weights": asked.model.weights,
            "cluster": asked.cluster_name,
            "objective": asked.objective,
            "stages": asked.stages,
            "solver": asked.solver,
            "limit": asked.seconds,
            "gap_asked": asked.gap,
            "command": ["weftline", *asked.argv],
            "created": self.created,
            "note": self.note,
            "error": self.error,
            "answer": self.answer,
        }

    def hear(self, said: Said) -> None:
        """A line of its worker."""
        self.rows += said.rows
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

    def add(self, make: Callable[[Path], PlanTask]) -> Job:
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
        self._tell()
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
        self._tell()

    async def close(self) -> None:
        """End everything, and wait until it has ended."""
        self.closed = True
        for job in self.all():
            if job.process is not None:
                job.process.kill("the server ended")
        self._tell()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _fill(self) -> None:
        """Start what waits, while there is room."""
        for job in self.all():
            if sum(other.state == "running" for other in self.all()) >= self._limits.running or self.closed:
                return
            if job.state == "queued":
                job.state = "running"
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
        self._tell()

    def _tell(self) -> None:
        for listener in list(self._listeners):
            listener()
