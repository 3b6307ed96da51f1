"""Inside a child process: hear the parent line by line, answer, say why it failed, and never outlive it.

In: standard input and output. Out: messages (JSON lines); whatever libraries print goes where errors go, never between
them. The last line of a child that fails is its `LastWords`. When the input ends the parent is gone: the child ends at
once, wherever it is. Simplified: the message of an exception travels, its traceback goes to standard error at most.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import BinaryIO, TypeVar

import msgspec

from weftline.errors import WeftlineError

__all__ = [
    "FAILURE_MARK",
    "Conversation",
    "LastWords",
    "LineBuffer",
    "die_with",
    "end_with_input",
    "private_output",
    "serve",
]

T = TypeVar("T")
FAILURE_MARK = b"!"
"""Begins a line with `LastWords`; no JSON begins with it."""
MOST_LETTERS = 4000
"""Of last words."""


class LastWords(msgspec.Struct, frozen=True):
    """Why a child has failed."""

    kind: str
    """Name of the exception's class."""
    what: str
    ours: bool
    """It is an error that weftline raises on purpose."""

    @classmethod
    def of(cls, error: Exception, in_short: Callable[[Exception], str] = str) -> LastWords:
        """`in_short` is asked for the message of an error that is not ours."""
        ours, kind = isinstance(error, WeftlineError), type(error).__name__
        return cls(kind, (str(error) if ours else in_short(error))[:MOST_LETTERS] or kind, ours)


class LineBuffer:
    """Bytes in, whole lines out."""

    def __init__(self) -> None:
        self._rest = bytearray()

    def feed(self, data: bytes) -> list[bytes]:
        """Lines that are whole now, without their ends."""
        lines = []
        head, *more = data.split(b"\n")
        self._rest += head
        for part in more:
            lines.append(bytes(self._rest))
            self._rest = bytearray(part)
        return lines


class Conversation:
    """Lines from the parent, and answers to it; `at_end` is called before the process ends because it is gone."""

    def __init__(self, at_end: Callable[[], None] = lambda: None) -> None:
        self._answers = private_output()
        self._lines: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        end_with_input(self._lines.put, at_end)

    @property
    def idle(self) -> bool:
        """Nothing more has been asked so far."""
        return self._lines.empty()

    def receive(self, kind: type[T]) -> T:
        """Wait for the next message."""
        return msgspec.json.decode(self._lines.get(), type=kind)

    def send(self, message: object, mark: bytes = b"") -> None:
        """Answer with one line."""
        self._answers.write(mark + msgspec.json.encode(message) + b"\n")
        self._answers.flush()


def serve(
    talk: Callable[[Conversation], None],
    *,
    at_end: Callable[[], None] = lambda: None,
    in_short: Callable[[Exception], str] = str,
) -> int:
    """Have a conversation; if it fails the parent hears why. The exit code."""
    conversation = Conversation(at_end)
    try:
        talk(conversation)
    except Exception as error:  # libraries have many of their own
        conversation.send(LastWords.of(error, in_short), FAILURE_MARK)
        return 1
    return 0


def private_output() -> BinaryIO:
    """Where answers go; whoever prints to standard output from now on prints to standard error."""
    answers = os.fdopen(os.dup(1), "wb")  # not inherited
    os.dup2(2, 1)
    return answers


def end_with_input(
    hear: Callable[[bytes], None] = lambda line: None, at_end: Callable[[], None] = lambda: None
) -> None:
    """Hear every line of standard input; the parent holds its other end, so when it ends this process does."""

    def listen() -> None:
        # Without the lock of `sys.stdin`: a library that forks here would wait for it for ever.
        buffer = LineBuffer()
        with suppress(OSError):
            while data := os.read(0, 2**16):
                for line in buffer.feed(data):
                    hear(line)
        at_end()
        os._exit(1)

    threading.Thread(target=listen, daemon=True).start()


def die_with(parent: int) -> None:
    """On Linux the kernel ends this process when its parent is gone, whatever this process waits for."""
    if sys.platform == "linux":
        import ctypes

        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
    if os.name == "posix" and os.getppid() != parent:
        os._exit(1)
