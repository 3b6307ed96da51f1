"""The processes that profile devices: start them, ask them one at a time or all at once, and leave nothing behind.

In: a `Setup` for each device. Out: answers; a process that fails, dies or hangs is an error that names the device.
Simplified: this machine only (not Windows, whose pipes cannot be waited for).
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType, TracebackType

import msgspec

from weftline.errors import InputError, WeftlineError
from weftline.measure.job import Answer, Measure, Prepare, Request, Rest, Setup
from weftline.run.devices import OrtDevice
from weftline.run.openvino.job import OpenvinoSetup

__all__ = ["SECONDS", "Worker", "Workers"]

SECONDS = 600.0
"""Longest time for one answer."""


class Worker:
    """One process."""

    def __init__(self, id: str, folder: Path, module: str = "weftline.measure.ort_worker") -> None:
        self.id, self.pending = id, b""
        folder.mkdir()
        self._said = folder.with_suffix(".txt")
        with self._said.open("wb") as said:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", module],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
            )

    def send(self, message: Setup | OpenvinoSetup | Request) -> None:
        """A line."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(msgspec.json.encode(message) + b"\n")
        except OSError:
            raise WeftlineError(self._last_words()) from None

    def receive(self, end: float) -> Answer:
        """The line that answers."""
        assert self.process.stdout is not None
        while b"\n" not in self.pending:
            ready, _, _ = select.select([self.process.stdout], [], [], max(end - time.monotonic(), 0.0))
            if not ready:
                raise WeftlineError(f"the process of device {self.id!r} gave no answer in time")
            part = os.read(self.process.stdout.fileno(), 2**16)
            if not part:
                raise WeftlineError(self._last_words())
            self.pending += part
        line, self.pending = self.pending.split(b"\n", 1)
        answer = msgspec.json.decode(line, type=Answer)
        if answer.kind == "input":
            raise InputError(answer.error, where=f"device {self.id!r}")
        if answer.error:
            raise WeftlineError(f"ONNX Runtime cannot run the model on device {self.id!r}: {answer.error}")
        return answer

    def close(self) -> None:
        """End it."""
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()

    def _last_words(self) -> str:
        code = self.process.wait()
        said = self._said.read_bytes()[-2000:].decode("utf-8", "replace").strip()
        why = f"crashed (signal {-code})" if code < 0 else f"ended with code {code}"
        return f"the process of device {self.id!r} {why}" + (f": {said.splitlines()[-1][:200]}" if said else "")


class Workers:
    """One process for each device; use it in a `with`."""

    def __init__(
        self,
        model: Path | str,
        shapes: Mapping[str, tuple[int, ...]],
        devices: Mapping[str, OrtDevice],
        *,
        speeds: Mapping[str, float] = MappingProxyType({}),
        seed: int = 0,
        seconds: float = SECONDS,
    ) -> None:
        self._limit, self.versions = seconds, dict.fromkeys(devices, "")
        self._folder = TemporaryDirectory(prefix="weftline-profile-", ignore_cleanup_errors=True)
        self._workers: dict[str, Worker] = {}
        try:
            for number, (id, device) in enumerate(devices.items()):
                folder = Path(self._folder.name) / str(number)
                self._workers[id] = Worker(id, folder)
                setup = Setup(str(Path(model).absolute()), dict(shapes), device, speeds.get(id, 1.0), str(folder), seed)
                self._workers[id].send(setup)
            for id in devices:
                self.versions[id] = self._receive(id).version
        except BaseException:
            self.close()
            raise

    def prepare(self, id: str, ask: Prepare) -> Answer:
        """A new session for one device."""
        return self._ask(id, ask)

    def measure_together(self, ids: Sequence[str], ask: Measure) -> dict[str, Answer]:
        """All at the same time; none ends before the last has answered, and each rests as its speed says."""
        if len(ids) == 1:
            return {ids[0]: self._ask(ids[0], ask)}
        busy = msgspec.structs.replace(ask, keep=True)
        for id in ids:
            self._workers[id].send(busy)
        answers = {id: self._receive(id) for id in ids}
        for id in ids:
            self._ask(id, Rest())
        return answers

    def _ask(self, id: str, ask: Request) -> Answer:
        self._workers[id].send(ask)
        return self._receive(id)

    def _receive(self, id: str) -> Answer:
        return self._workers[id].receive(time.monotonic() + self._limit)

    def close(self) -> None:
        """End all of them."""
        for worker in self._workers.values():
            worker.close()
        self._workers.clear()
        self._folder.cleanup()

    def __enter__(self) -> Workers:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
