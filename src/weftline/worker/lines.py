"""Standard input and output of a process that answers line by line, for a caller that may die.

In: nothing. Out: a queue of the lines that arrive, and where answers go. Whatever libraries print goes where errors go,
never between the answers. When the input ends the caller is gone: the process ends at once, wherever it is.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from typing import BinaryIO

__all__ = ["open_lines"]


def open_lines(at_end: Callable[[], None] = lambda: None) -> tuple[queue.Queue[bytes], BinaryIO]:
    """(lines, answers); `at_end` is called before the process ends because its caller is gone."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)  # not inherited
    os.dup2(2, 1)
    lines: queue.Queue[bytes] = queue.Queue()
    threading.Thread(target=_listen, args=(lines, at_end), daemon=True).start()
    return lines, answers


def _listen(lines: queue.Queue[bytes], at_end: Callable[[], None]) -> None:
    """Read without the lock of `sys.stdin`: a library that forks here would wait for it for ever."""
    pending = b""
    while part := os.read(0, 2**16):
        *whole, pending = (pending + part).split(b"\n")
        for line in whole:
            lines.put(line)
    at_end()
    os._exit(0)
