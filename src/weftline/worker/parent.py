"""A child process as its parent sees it: started, told, listened to, ended.

In: a module and its arguments. Out: messages (JSON lines over its pipes), or an exception: it failed and said why, it
is gone, or it says nothing. What it prints goes to a file without a name, whose last lines errors quote. Simplified:
not on Windows, whose pipes cannot be waited for.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Self, TypeVar

import msgspec

from weftline.worker.child import FAILURE_MARK, LastWords, LineBuffer

__all__ = ["Child", "ChildFailed", "ChildGone", "ChildSilent", "Closing", "environment_of_children"]

T = TypeVar("T")
ENDING_SECONDS = 10.0
"""For a process that has closed its pipes; after that it is killed."""
TAIL_BYTES = 4096
"""Of what it printed: more is not read."""


class ChildFailed(Exception):
    """It has said why it cannot go on."""

    def __init__(self, words: LastWords) -> None:
        super().__init__(words.what)
        self.words = words


class ChildGone(Exception):
    """It has ended; the message says how: `crashed (signal 9): ...`."""


class ChildSilent(Exception):
    """It has not answered in time."""


class Closing(ABC):
    """Something that is closed by `close` or by the end of a `with`."""

    @abstractmethod
    def close(self) -> None:
        """End everything; may be called twice."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        self.close()


class Child(Closing):
    """A Python process that may die."""

    def __init__(
        self,
        program: str | Path,
        *arguments: str,
        environment: Mapping[str, str] = MappingProxyType({}),
        descriptors: Collection[int] = (),
        folder: Path | None = None,
        answers: bool = True,
    ) -> None:
        """`program`: a module or the path of a script; `descriptors` are inherited; `folder`: where it runs.

        Without `answers` its standard output is for what it prints, too.
        """
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._buffer, self._lines = LineBuffer(), deque[bytes]()
        self._process = subprocess.Popen(
            [sys.executable, "-P", *((str(program),) if isinstance(program, Path) else ("-m", program)), *arguments],
            cwd=folder,
            env={**os.environ, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE if answers else self._errors,
            stderr=self._errors,
            pass_fds=tuple(descriptors),
            bufsize=0,
        )
        self.pid = self._process.pid
        self.reading = -1 if self._process.stdout is None else self._process.stdout.fileno()
        """The descriptor to wait for before `listen`."""

    def send(self, message: object) -> None:
        """One line, or `ChildGone`."""
        self.write(msgspec.json.encode(message) + b"\n")

    def write(self, data: bytes, *, last: bool = False) -> None:
        """Bytes as they are, or `ChildGone`; after the `last` of them its input ends."""
        assert self._process.stdin is not None
        left = memoryview(data)
        try:
            while left:
                left = left[self._process.stdin.write(left) :]
        except OSError:
            raise ChildGone(self.how_it_ended()) from None
        if last:
            self._process.stdin.close()

    def receive(self, kind: type[T], end: float) -> T:
        """The next message, at `end` (monotonic) at the latest: else `ChildSilent`; `ChildFailed`, `ChildGone`."""
        while not self._lines:
            if not select.select([self.reading], [], [], max(end - time.monotonic(), 0.0))[0]:
                raise ChildSilent
            if not self._read():
                raise ChildGone(self.how_it_ended())
        return _decode(self._lines.popleft(), kind)

    def listen(self, kind: type[T]) -> list[T] | None:
        """All that it has said, once something is there to read; None if it has ended; `ChildFailed`."""
        if not self._read():
            return None
        return [_decode(self._lines.popleft(), kind) for _ in range(len(self._lines))]

    @property
    def code(self) -> int | None:
        """Exit code, negative for a signal; None while it runs."""
        return self._process.poll()

    def wait(self, seconds: float) -> int | None:
        """The exit code once it has ended by itself; None if it still runs after so many seconds."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(seconds)
        return None

    def end(self) -> int:
        """Wait until it has ended, not for ever; the exit code."""
        if self.wait(ENDING_SECONDS) is None:
            self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """End it now. A process that is stopped ends, too."""
        self._process.kill()

    def close(self) -> None:
        """End it, wait for it, close everything; may be called twice."""
        self.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout, self._errors):
            if stream is not None:
                with suppress(OSError):
                    stream.close()

    def printed(self, lines: int) -> list[str]:
        """The last lines that it printed."""
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - TAIL_BYTES, 0))
        return self._errors.read().decode("utf-8", "replace").strip().splitlines()[-lines:]

    def how_it_ended(self) -> str:
        """`crashed (signal 11)` or `ended with code 1`, and the last line that it printed."""
        killed = self.wait(ENDING_SECONDS) is None
        if killed:
            self.kill()
        code, last = self.end(), self.printed(1)
        how = f"crashed (signal {-code})" if code < 0 else f"ended with code {code}"
        how = "said no more, did not end and was killed" if killed else how
        return f"{how}: {last[0][:200]}" if last else how

    def _read(self) -> bool:
        data = os.read(self.reading, 2**16)
        self._lines += self._buffer.feed(data)
        return bool(data)


def _decode(line: bytes, kind: type[T]) -> T:
    if line.startswith(FAILURE_MARK):
        raise ChildFailed(msgspec.json.decode(line[len(FAILURE_MARK) :], type=LastWords))
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.DecodeError as error:  # what it is now, nobody knows
        raise ChildGone(f"sent something else than an answer: {error}") from error


@contextmanager
def environment_of_children(values: Mapping[str, str]) -> Iterator[None]:
    """Variables that processes started inside inherit: libraries read them when they are loaded."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
