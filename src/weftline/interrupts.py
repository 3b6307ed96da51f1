"""Ctrl-C: neither lost nor mistaken for something else.

Python raises KeyboardInterrupt wherever the program happens to be. Inside a destructor it is printed and forgotten;
compiled code and half-done imports turn it into other errors, or drop it. `keep_interrupts` and `Interruption` mend
that for a program and for a block of it; `uninterrupted` is for what must not be torn.
"""

from __future__ import annotations

import atexit
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any, NoReturn, Self

from weftline._start import PROGRAM, leave

__all__ = ["Interruption", "end_program", "ignore_interrupts", "keep_interrupts", "uninterrupted"]

AGAIN_SECONDS = 0.05
"""Seconds until a Ctrl-C that Python has forgotten comes again."""
INSIST_SECONDS = 3.0
"""Seconds after which a block that went on in spite of a Ctrl-C gets it again."""


def keep_interrupts() -> None:
    """From now on a Ctrl-C inside a destructor or the callback of a weak reference (imports have some) is not lost.

    Python prints it and goes on. Here it is not printed, and comes again a moment later. SIGTERM, which `timeout` and
    `docker stop` send, is answered as Ctrl-C is: by the best plan so far, and without files left behind.
    """
    if signal.getsignal(signal.SIGINT) is leave:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _as_interrupt)
    before = sys.unraisablehook

    def again(lost: Any) -> None:
        if not issubclass(lost.exc_type, KeyboardInterrupt):
            before(lost)
            return
        timer = threading.Timer(AGAIN_SECONDS, os.kill, (os.getpid(), signal.SIGINT))
        timer.daemon = True
        timer.start()

    sys.unraisablehook = again


def _as_interrupt(number: int, frame: FrameType | None) -> None:
    answer = signal.getsignal(signal.SIGINT)
    if callable(answer):
        answer(signal.SIGINT, frame)


def ignore_interrupts() -> None:
    """While Python ends nothing is lost any more, so a Ctrl-C changes nothing: the exit code stays what it was."""
    atexit.register(signal.signal, signal.SIGINT, signal.SIG_IGN)


def end_program(code: int) -> NoReturn:
    """Leave with this code after a Ctrl-C.

    Where libraries run Python code from C and that was interrupted, Python would end the program by the signal instead,
    long after everybody has dealt with it.
    """
    if not PROGRAM:
        sys.exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(code)


class Interruption:
    """For a `with`: Ctrl-C ends the block, and only that; afterwards `ended` says so.

    Whatever exception leaves the block after a Ctrl-C is taken for it: compiled code and imports that are interrupted
    raise others. With `insist` it comes again while the block goes on. A program that answers Ctrl-C in its own way
    keeps that; threads beside the main one get no signals.
    """

    def __init__(self, *, insist: bool = False) -> None:
        self.ended = False
        self._insists, self._seen, self._closed = insist, False, False
        self._before: Any = None
        self._sending = threading.Lock()

    @property
    def seen(self) -> bool:
        """A Ctrl-C has come, whatever became of it."""
        return self._seen

    def __enter__(self) -> Self:
        before = signal.getsignal(signal.SIGINT)
        ours = before is signal.default_int_handler or isinstance(before, Interruption)
        if ours and threading.current_thread() is threading.main_thread():
            self._before = before
            signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> bool:
        self._closed = True  # from here on nothing is raised
        if self._before is not None:
            with self._sending:  # what is on its way arrives here
                pass
            signal.signal(signal.SIGINT, self._before)
        became = isinstance(error, Exception) and (self._seen or isinstance(error.__cause__, KeyboardInterrupt))
        self.ended = became or isinstance(error, KeyboardInterrupt)
        return self.ended

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """The handler of the signal inside the block."""
        if self._closed:
            return
        self._seen = True
        if self._insists:
            timer = threading.Timer(INSIST_SECONDS, self._send)
            timer.daemon = True
            timer.start()
        raise KeyboardInterrupt

    def _send(self) -> None:
        with self._sending:
            if not self._closed:
                os.kill(os.getpid(), signal.SIGINT)


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
