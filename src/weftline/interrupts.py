"""Ctrl-C: neither lost nor mistaken for something else.

Python raises KeyboardInterrupt wherever the program happens to be. Inside a destructor it is printed and forgotten;
compiled code and half-done imports turn it into other errors, or drop it. `keep_interrupts` and `interruption` mend
that for a program and for a block of it; `uninterrupted` is for what must not be torn.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

__all__ = ["Interruption", "interruption", "keep_interrupts", "uninterrupted"]

AGAIN = 0.05
"""Seconds until a Ctrl-C that Python has forgotten comes again."""
INSIST = 3.0
"""Seconds after which a block that went on in spite of a Ctrl-C gets it again."""


def keep_interrupts() -> None:
    """From now on a Ctrl-C inside a destructor or the callback of a weak reference (imports have some) is not lost.

    Python prints it and goes on. Here it is not printed, and comes again a moment later.
    """
    before = sys.unraisablehook

    def again(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        timer = threading.Timer(AGAIN, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again


class Interruption:
    """Whether Ctrl-C has ended a block."""

    def __init__(self, *, insist: bool) -> None:
        self.ended = False
        self._insists, self._seen, self._closed = insist, False, False
        self._lock = threading.RLock()

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal inside the block."""
        if self._closed:
            return
        self._seen = True
        if self._insists:
            timer = threading.Timer(INSIST, self._send)
            timer.daemon = True
            timer.start()
        raise KeyboardInterrupt

    def _send(self) -> None:
        with self._lock:
            if not self._closed:
                os.kill(os.getpid(), signal.SIGINT)

    def _close(self) -> None:
        with self._lock:
            self._closed = True

    @contextmanager
    def _around(self) -> Iterator[None]:
        before = signal.getsignal(signal.SIGINT)
        ours = before is signal.default_int_handler or isinstance(before, Interruption)
        if not ours or threading.current_thread() is not threading.main_thread():
            yield
            return
        signal.signal(signal.SIGINT, self)
        try:
            yield
        finally:
            self._close()
            signal.signal(signal.SIGINT, before)


@contextmanager
def interruption(*, insist: bool = False) -> Iterator[Interruption]:
    """Ctrl-C ends the block, and only that; afterwards `ended` says so.

    Whatever exception leaves the block after a Ctrl-C is taken for it: compiled code and imports that are interrupted
    raise others. With `insist` it comes again while the block goes on, for blocks without cleaning up that takes long.
    """
    found = Interruption(insist=insist)
    try:
        with found._around():
            yield found
    except KeyboardInterrupt:
        found.ended = True
    except Exception as error:
        if not found._seen and not isinstance(error.__cause__, KeyboardInterrupt):
            raise
        found.ended = True


@contextmanager
def uninterrupted() -> Iterator[None]:
    """No Ctrl-C inside. Only the main thread gets signals, so only there something is to be done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
