"""A worker as its parent sees it: started, told, listened to, ended.

In: a `Job` and the descriptors it names. Out: answers, and in words how a worker ended. What it writes to standard
error goes to a file without a name, whose last lines an error quotes.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Collection
from contextlib import suppress

import msgspec

from weftline.run.local.channel import make_memory
from weftline.run.local.layout import Answer, Go, Job

__all__ = ["Worker"]

QUOTED = 5
"""Lines of standard error."""


class Worker:
    """One process."""

    def __init__(self, device: str, job: Job, descriptors: Collection[int]) -> None:
        self.device, self.speed = device, job.speed
        self.failure: Answer | None = None
        """What it said before it ended, if it failed."""
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115
        self._partial = b""
        told = _file_of(msgspec.json.encode(job))
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "weftline.run.local.worker", str(told)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._errors,
                pass_fds=(told, *descriptors),
                bufsize=0,
            )
        finally:
            os.close(told)
        assert self._process.stdout is not None
        self.reading = self._process.stdout.fileno()

    @property
    def pid(self) -> int:
        """Its number."""
        return self._process.pid

    def go(self, requests: int) -> None:
        """Tell it to run; one that has ended is noticed when it is listened to."""
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):
            self._process.stdin.write(msgspec.json.encode(Go(requests)) + b"\n")

    def listen(self) -> list[Answer] | None:
        """What it has said, once something is there to read; None if it has ended."""
        data = os.read(self.reading, 2**16)
        if not data:
            return None
        *lines, self._partial = (self._partial + data).split(b"\n")
        answers = [msgspec.json.decode(line, type=Answer) for line in lines]
        for answer in answers:
            if answer.kind not in ("ready", "done"):
                self.failure = answer
        return answers

    def state(self) -> str:
        """What the system says it does now: running, sleeping, stopped ..."""
        import psutil

        try:
            return str(psutil.Process(self.pid).status())
        except psutil.Error:
            return "gone"

    def end(self) -> int:
        """Wait until it has ended, a little; the exit code, negative for a signal."""
        with suppress(subprocess.TimeoutExpired):
            return self._process.wait(timeout=2)
        self.kill()
        return self._process.wait()

    def kill(self) -> None:
        """End it now. A process that is stopped ends, too."""
        self._process.kill()

    def close(self) -> None:
        """After `kill`: wait for it, close everything."""
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with suppress(OSError):
                    stream.close()
        self._errors.close()

    def story(self, code: int) -> str:
        """How it ended, and its last words."""
        how = f"ended with exit code {code}"
        if code < 0:
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-code).name}"
        size = self._errors.seek(0, os.SEEK_END)
        self._errors.seek(max(size - 4096, 0))
        last = self._errors.read().decode(errors="replace").strip().splitlines()[-QUOTED:]
        return how + ("; it said: " + " | ".join(last) if last else "")


def _file_of(data: bytes) -> int:
    descriptor = make_memory(len(data))
    with open(descriptor, "r+b", closefd=False) as file:
        file.write(data)
        file.flush()
        file.seek(0)
    return descriptor
