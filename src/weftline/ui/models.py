"""Model files that were dropped on the page: streamed to disk up to a limit, never read here.

In: chunks of bytes and the name that the browser gives, which is a label and nothing else. Out: `ModelFile`s. The name
on disk is ours; its ending is one of a few that importers look at.

`PageLimits` says how much the page may ask of this machine.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from weftline.errors import InputError, UsageError
from weftline.ui.task import ModelFile
from weftline.units import format_name

__all__ = ["Models", "NotThere", "PageLimits", "stored_bytes"]

MOST_LABEL = 100
ENDINGS = (".onnx", ".xml", ".json", ".xls", ".txt", ".pbtxt", ".toml")
CHUNK_BYTES = 2**20
LOOK_EXPONENT = 24
"""Every so many bytes, as a power of two, an upload looks whether there is room for more."""
SMALLER = "keep weights as external data: planning does not need them"


class NotThere(LookupError):
    """A request names something that is not there, or not any more."""


@dataclass(frozen=True, kw_only=True)
class PageLimits:
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


class Models:
    """The models that are kept."""

    def __init__(self, root: Path, limits: PageLimits) -> None:
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
                if size >> LOOK_EXPONENT != (size + len(chunk)) >> LOOK_EXPONENT or not size:
                    await self._check_room()
                size += len(chunk)
                if size > self._limits.upload_bytes:
                    raise InputError(f"larger than {self._limits.upload_bytes >> 20} MiB", hint=SMALLER)
                waiting += chunk
                if len(waiting) >= CHUNK_BYTES:
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
