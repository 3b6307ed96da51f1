"""Files of the page: models that were dropped on it, and what is made from a plan when somebody asks.

In: chunks of bytes and the name that the browser gives, which is a label and nothing else; or a job that is done. Out:
`ModelFile`s, streamed to disk up to a limit and never read here; a report, a trace or an export, made once by a worker
process, however many ask at the same time. `Limits` says how much the page may ask of this machine.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weftline.errors import InputError, LimitReached, UsageError
from weftline.ui.jobs import Job
from weftline.ui.process import Process
from weftline.ui.requests import FileRequest
from weftline.ui.task import FileTask, ModelFile, Said, Task
from weftline.units import format_name

__all__ = ["Desk", "Limits", "Models", "NotThere", "file_names", "stored_bytes"]


class NotThere(LookupError):
    """A request names something that is not there, or not any more."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """All of them; a request beyond one is refused with a sentence."""

    upload_bytes: int = 512 * 2**20
    """Of one model file."""
    stored_bytes: int = 4 * 2**30
    """Of all files together: models, plans, exports."""
    models: int = 20
    """Uploaded models that are kept."""
    plans: int = 50
    """Plans that are kept, queued or running."""
    running: int = 2
    """Searches at the same time; the others wait."""
    tasks: int = 2
    """Short works (a report, an export, a comparison) at the same time."""
    waiting: int = 64
    """Short works that may wait for their turn."""
    streams: int = 32
    """Pages that watch."""
    body_bytes: int = 2 * 2**20
    """Of a request that is no upload: a cluster file of 1 MiB fits in."""
    longest: float = 3600.0
    """Seconds that a search may be given."""
    grace: float = 300.0
    """Seconds beyond them for reading a model, compiling kernels once, and the certificate."""
    task_seconds: float = 300.0
    """For a short work."""
    memory_share: float = 0.8
    """Of this machine's memory, for one process."""
    away: float = 30.0
    """Seconds without any page that watches, after which searches are stopped; the best plans so far are kept."""


MOST_LABEL = 100
ENDINGS = (".onnx", ".xml", ".json", ".xls", ".txt", ".pbtxt", ".toml")
CHUNK = 2**20
LOOK = 24
"""Every so many bytes, as a power of two, an upload looks whether there is room for more."""
SMALLER = "keep weights as external data: planning does not need them"


class Models:
    """The models that are kept."""

    def __init__(self, root: Path, limits: Limits) -> None:
        self._root, self._limits = root, limits
        self._models: dict[int, ModelFile] = {}
        self._number = self._coming = 0

    def find(self, number: int) -> ModelFile:
        """The model of that number, or `NotThere`."""
        if number not in self._models:
            raise NotThere(str(number))
        return self._models[number]

    def all(self) -> list[dict[str, object]]:
        """For the page."""
        return [{"id": number, "label": model.label} for number, model in self._models.items()]

    async def add(self, name: str, chunks: AsyncIterator[bytes]) -> tuple[int, int]:
        """Take an upload -> its number and its size."""
        if len(self._models) + self._coming >= self._limits.models:
            raise UsageError(f"{self._limits.models} models are kept at most; remove some")
        self._number += 1
        number, label = self._number, clean_label(name)
        folder = self._root / f"model-{number}"
        folder.mkdir(mode=0o700)
        ending = next((ending for ending in ENDINGS if label.lower().endswith(ending)), "")
        path = folder / f"model{ending}"
        self._coming += 1
        try:
            size = await self._receive(path, chunks)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        finally:
            self._coming -= 1
        self._models[number] = ModelFile(path=str(path), label=label)
        return number, size

    async def remove(self, number: int) -> None:
        """Forget a model; plans of it stay."""
        model = self.find(number)
        del self._models[number]
        await asyncio.to_thread(shutil.rmtree, Path(model.path).parent, True)

    async def _receive(self, path: Path, chunks: AsyncIterator[bytes]) -> int:
        size, waiting = 0, bytearray()
        with path.open("xb") as file:
            async for chunk in chunks:
                if size >> LOOK != (size + len(chunk)) >> LOOK or not size:
                    await self._check_room()
                size += len(chunk)
                if size > self._limits.upload_bytes:
                    raise InputError(f"larger than {self._limits.upload_bytes >> 20} MiB", hint=SMALLER)
                waiting += chunk
                if len(waiting) >= CHUNK:
                    await asyncio.to_thread(file.write, bytes(waiting))
                    waiting.clear()
            await asyncio.to_thread(file.write, bytes(waiting))
        if not size:
            raise InputError("the file is empty")
        return size

    async def _check_room(self) -> None:
        if await asyncio.to_thread(stored_bytes, self._root) > self._limits.stored_bytes:
            raise InputError("no room is left for it", hint="remove models or plans")


def clean_label(name: str) -> str:
    """The last part of a name, printable and short."""
    last = name.replace("\\", "/").rpartition("/")[2]
    return format_name(last)[-MOST_LABEL:].strip() or "model"


def stored_bytes(root: Path) -> int:
    """What lies in the folder."""
    total = 0
    for path in root.rglob("*"):
        with suppress(OSError):  # it may be gone by now
            total += path.lstat().st_size
    return total


LONGEST_KEY = 60
_ENDS = {"report": ("report.html", "text/html; charset=utf-8"), "trace": ("trace.json", "application/json")}


def file_names(key: str) -> tuple[str, str]:
    """The key of a file in an address -> (its name, its kind); `NotThere` for a key that nobody made."""
    if key == "plan":
        return "plan.json", "application/json"
    if key in _ENDS:
        return _ENDS[key]
    target = key.removeprefix("export-")
    plain = target.replace("-", "").replace("_", "").replace(".", "")
    if target == key or len(key) > LONGEST_KEY or not plain.isalnum():
        raise NotThere(key)
    return f"{target}.zip", "application/zip"


class Desk:
    """Does short works, a few at a time."""

    def __init__(self, limits: Limits, most_bytes: int) -> None:
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
            raise UsageError("there is no plan yet")
        if path.exists():
            return key, path
        if path not in self._making:
            # With or without weights: what an exporter cannot do without them it says itself.
            model = job.task.model if Path(job.task.model.path).exists() else None
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
