"""A worker process as the server sees it: started, listened to, stopped, ended.

In: a task and a limit in seconds. Out: what the worker says, line by line, and how it ended. The worker ends when its
standard input does, so none outlives the server, however that ends. Simplified: memory is looked at twice a second.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import suppress

import msgspec

from weftline.ui.task import Said, Task

__all__ = ["Process"]

MOST_LINE_BYTES = 8 * 2**20
LAST_LETTERS = 2000
LOOK_SECONDS = 0.5
ENDING_SECONDS = 5.0
"""Seconds for the pipes of a process that is being killed."""


class Process:
    """One worker."""

    def __init__(self, process: asyncio.subprocess.Process, most_bytes: int) -> None:
        self._process, self._most = process, most_bytes
        self._words = b""
        self._killed = ""
        self.stopped = False
        """Whether it was asked to stop."""

    @classmethod
    async def start(cls, task: Task, seconds: float, most_bytes: int) -> Process:
        """Start it and hand it the task."""
        data = msgspec.json.encode(task)
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "weftline.ui.worker",
            str(seconds),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=MOST_LINE_BYTES,
            start_new_session=True,
        )
        assert process.stdin is not None
        process.stdin.write(b"%010d" % len(data) + data)
        return cls(process, most_bytes)

    @property
    def pid(self) -> int:
        """Of the watcher, which is the number of the group."""
        return self._process.pid

    async def listen(self) -> AsyncGenerator[Said, None]:
        """What it says until it has ended; the last is an answer or an error, whatever happened."""
        assert self._process.stdout is not None
        hearing, watching = asyncio.create_task(self._hear_errors()), asyncio.create_task(self._watch_memory())
        last = Said()
        try:
            async for line in self._process.stdout:
                last = msgspec.json.decode(line, type=Said)
                yield last
            code = await self._process.wait()
            if last.answer is None and not last.error:
                yield self._story(code)
        except (ValueError, msgspec.DecodeError) as error:  # ValueError: a line that never ends
            yield Said(error=f"the worker spoke nonsense: {error}"[:LAST_LETTERS], kind="Defect")
        finally:
            self.kill()
            watching.cancel()
            with suppress(TimeoutError):  # pipes are read to their ends, so that nothing stays open
                async with asyncio.timeout(ENDING_SECONDS):
                    await hearing
                    while await self._process.stdout.read(2**16):
                        pass
            hearing.cancel()
            await self._process.wait()

    def stop(self) -> None:
        """As Ctrl-C: a search answers with its best plan."""
        self.stopped = True
        if self._process.stdin is not None and not self._process.stdin.is_closing():
            with suppress(OSError, RuntimeError):
                self._process.stdin.write(b"stop\n")

    def kill(self, why: str = "") -> None:
        """End it and everything it started: its watcher does so when its input ends."""
        self._killed = self._killed or why
        if self._process.stdin is not None:
            with suppress(OSError, RuntimeError):
                self._process.stdin.close()

    def _story(self, code: int) -> Said:
        if self.stopped:
            return Said(error="stopped before there was a plan", kind="Stopped")
        words = self._words.decode(errors="replace").strip().splitlines()[-3:]
        how = self._killed or f"the worker ended with code {code}, perhaps out of memory"
        return Said(error=f"{how}{': ' if words else ''}{' | '.join(words)}"[:LAST_LETTERS], kind="Died")

    async def _hear_errors(self) -> None:
        assert self._process.stderr is not None
        while data := await self._process.stderr.read(2**16):
            self._words = (self._words + data)[-LAST_LETTERS:]

    async def _watch_memory(self) -> None:
        import psutil

        with suppress(psutil.Error):
            watcher = psutil.Process(self._process.pid)
            while True:
                await asyncio.sleep(LOOK_SECONDS)
                used = sum(child.memory_info().rss for child in watcher.children(recursive=True))
                if used > self._most:
                    self.kill(f"ended: it took more than {self._most >> 20} MiB of memory")
                    return
