"""The end of a search: time for the certificate is set aside, and Ctrl-C waits while it is made."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["searching_time", "uninterrupted"]

PER_OP = 1e-4
"""Seconds for the certificate of a large answer, for each op or operation in it."""


def searching_time(time_limit: float, operations: int) -> float:
    """What is left of a time limit for the search, half of it at least."""
    return max(time_limit / 2, time_limit - PER_OP * operations)


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Only the main thread gets signals, so only there something is to be done."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
