"""Files that are made from a plan or schedule when somebody asks: a report, a trace, an export; and other short works.

In: a job that is done. Out: a file in its folder, made once by a worker process, however many ask at the same time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import aclosing
from pathlib import Path
from typing import Any

from weftline.errors import InputError, LimitReached, UsageError
from weftline.ui.jobs import Job
from weftline.ui.models import NotThere, PageLimits
from weftline.ui.process import Process
from weftline.ui.requests import FileRequest
from weftline.ui.task import FileTask, PlanTask, Said, Task

__all__ = ["Desk", "file_names"]

LONGEST_KEY = 60
_ENDS = {
    "plan": ("plan.json", "application/json"),
    "schedule": ("sched.json", "application/json"),
    "picture": ("picture.json", "application/json"),
    "cluster": ("cluster.toml", "application/toml"),
    "report": ("report.html", "text/html; charset=utf-8"),
    "trace": ("trace.json", "application/json"),
}


def file_names(key: str) -> tuple[str, str]:
    """The key of a file in an address -> (its name, its kind); `NotThere` for a key that nobody made."""
    if key in _ENDS:
        return _ENDS[key]
    target = key.removeprefix("export-")
    plain = target.replace("-", "").replace("_", "").replace(".", "")
    if target == key or len(key) > LONGEST_KEY or not plain.isalnum():
        raise NotThere(key)
    return f"{target}.zip", "application/zip"


class Desk:
    """Does short works, a few at a time."""

    def __init__(self, limits: PageLimits, most_bytes: int) -> None:
        self._limits, self._most_bytes = limits, most_bytes
        self._turn = asyncio.Semaphore(limits.tasks)
        self._waiting = 0
        self._making: dict[Path, asyncio.Task[dict[str, Any]]] = {}
        self._processes: set[Process] = set()

    async def do(self, task: Task) -> dict[str, Any]:
        """The answer of a worker; its error is an `InputError` here."""
        if self._waiting >= self._limits.waiting:
            raise LimitReached("too many requests wait already; try again later")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._run(task)
        finally:
            self._waiting -= 1

    async def make(self, job: Job, asked: FileRequest) -> tuple[str, Path]:
        """The key and the path of a file, which exists now."""
        key = asked.what if asked.what != "export" else f"export-{asked.target}"
        path = job.folder / file_names(key)[0]
        if job.state != "done":
            raise UsageError("there is no answer yet")
        if path.exists():
            return key, path
        if path not in self._making:
            # With or without weights: what an exporter cannot do without them it says itself.
            model = job.task.model if isinstance(job.task, PlanTask) and Path(job.task.model.path).exists() else None
            task = FileTask(plan=str(job.plan), what=asked.what, target=asked.target, model=model, output=str(path))
            making = self._making[path] = asyncio.create_task(self.do(task))
            making.add_done_callback(lambda _: self._making.pop(path, None))
        await _unless_cancelled(self._making[path])
        return key, path

    def close(self) -> None:
        """End all workers."""
        for process in self._processes:
            process.kill("the server ended")

    async def _run(self, task: Task) -> dict[str, Any]:
        process = await Process.start(task, self._limits.task_seconds, self._most_bytes)
        self._processes.add(process)
        last = Said()
        try:
            async with aclosing(process.listen()) as lines:
                async for said in lines:
                    last = said
        finally:
            self._processes.discard(process)
        if last.answer is None:
            raise InputError(last.error)
        return last.answer


async def _unless_cancelled(work: Awaitable[dict[str, Any]]) -> None:
    """Wait for a work of several; that one of them leaves does not end it."""
    await asyncio.shield(work)
