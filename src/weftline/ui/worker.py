"""A process that does one task: `python -m weftline.ui.worker`, a task on its standard input, answers on its output.

It forks at once: the child works, the parent watches. When standard input ends, because the server ended in whatever
way, when the deadline is over, or when the child has ended, the watcher ends everything that is left in the group. A
line `stop` interrupts the child as Ctrl-C would: a search answers with its best plan.
"""

from __future__ import annotations

import os
import select
import signal
import sys
from contextlib import suppress
from time import monotonic
from typing import NoReturn

from weftline.worker.child import die_with, private_output

__all__ = ["main"]

STOPPING_SECONDS = 30.0
"""Seconds that a child has to answer after it was stopped."""


def main() -> int:
    """Fork; the exit code is the child's."""
    task = _task()
    limit = float(sys.argv[1])
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        _work(task, os.getppid())
    os.close(write)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    return _watch(child, read, monotonic() + limit)


def _task() -> bytes:
    """Ten digits, then so many bytes; not a byte more is taken from the input."""
    return _exactly(int(_exactly(10)))


def _exactly(count: int) -> bytes:
    found = bytearray()
    while len(found) < count:
        data = os.read(0, count - len(found))
        if not data:
            os._exit(1)
        found += data
    return bytes(found)


def _watch(child: int, alive: int, deadline: float) -> int:
    """Until the child has ended; `alive` is the end of a pipe that it holds and never uses."""
    inputs, stopped = [0, alive], False
    while True:
        ready, _, _ = select.select(inputs, [], [], max(0.0, deadline - monotonic()))
        if alive in ready:
            os.killpg(0, signal.SIGTERM)  # whoever the child has left behind; we ignore it
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 0xFF
        if (0 in ready and not os.read(0, 4096)) or (not ready and stopped):
            os.killpg(0, signal.SIGKILL)
        if not stopped:
            stopped, deadline = True, monotonic() + STOPPING_SECONDS
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGINT)


def _work(task: bytes, parent: int) -> NoReturn:
    die_with(parent)
    answers = private_output()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    from weftline.interrupts import keep_interrupts

    keep_interrupts()
    from weftline.ui.work import do_task

    do_task(task, answers)
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
