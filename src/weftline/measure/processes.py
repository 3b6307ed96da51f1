"""The processes that profile devices: what they are told and answer, how they are started, asked and ended.

In: an `OrtSetup` for each device, then requests to one of them or to all at once; JSON lines over pipes. Out: answers;
a process that fails, dies or hangs is an error that names the device. Simplified: this machine only (not Windows, whose
pipes cannot be waited for).
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType

import msgspec

from weftline.errors import InputError, WeftlineError
from weftline.files import run_folder
from weftline.graph import Graph
from weftline.measure.kernels import RunNode
from weftline.run.devices import OrtDevice
from weftline.worker.parent import Child, ChildFailed, ChildGone, ChildSilent, Closing

__all__ = [
    "ANSWER_SECONDS",
    "LEVELS",
    "DeviceProcess",
    "Measure",
    "OpenvinoSetup",
    "OrtSetup",
    "Prepare",
    "ProfileAnswer",
    "Request",
    "Rest",
    "Workers",
]

LEVELS = {"ALL": "ORT_ENABLE_ALL", "EXTENDED": "ORT_ENABLE_EXTENDED", "NONE": "ORT_DISABLE_ALL"}
"""Our word -> the name in ONNX Runtime."""


class OrtSetup(msgspec.Struct, frozen=True):
    """Once, at the start."""

    model: str
    """Path of an ONNX file."""
    shapes: dict[str, tuple[int, ...]]
    """Of the inputs."""
    device: OrtDevice
    speed: float
    """While others are measured it works for this share of the time, as a worker of that speed does."""
    folder: str
    """For what ONNX Runtime writes; removed at the end, with the folder it stands in."""
    seed: int = 0


class OpenvinoSetup(msgspec.Struct, frozen=True):
    """One device to profile."""

    model: str
    """Path of an IR or ONNX file."""
    graph: Graph
    device: str
    """As OpenVINO knows it."""
    properties: dict[str, str]
    runs: int
    """At least so many, unless `most_seconds` are over and there are three."""
    least_seconds: float
    most_seconds: float
    seed: int = 0


class Prepare(msgspec.Struct, frozen=True, tag=True):
    """Make a session and warm it up."""

    level: str
    kernels: bool
    """Time every kernel, not only whole runs."""
    model: str = ""
    """Another model than that of the setup, such as a stage; its inputs are random."""


class Measure(msgspec.Struct, frozen=True, tag=True):
    """Run the session."""

    runs: int
    """At least so many, unless `most_seconds` are over and there are three."""
    least_seconds: float
    most_seconds: float
    keep: bool = False
    """Go on running after the answer until the next line comes: others are still being measured."""


class Rest(msgspec.Struct, frozen=True, tag=True):
    """All have been measured."""


Request = Prepare | Measure | Rest


class ProfileAnswer(msgspec.Struct, frozen=True):
    """To any of them."""

    version: str = ""
    nodes: tuple[RunNode, ...] = ()
    """Prepared with kernels: what runs."""
    ns: tuple[int, ...] = ()
    """Measured: every run."""
    stolen: float = 0.0
    """Measured on one core: the share of the time in which it did not work for us."""
    kernel_ns: tuple[float, ...] = ()
    """Measured with kernels: each node, mean of the middle half of the runs."""
    kernel_spread: tuple[float, ...] = ()
    threads: int = 1


ANSWER_SECONDS = 600.0
"""Longest time for one answer."""


class DeviceProcess:
    """One process; whatever goes wrong in it is an error that names its device."""

    def __init__(self, id: str, module: str = "weftline.measure.ort_worker") -> None:
        self.id, self.child = id, Child(module)

    def send(self, message: OrtSetup | OpenvinoSetup | Request) -> None:
        """A line."""
        try:
            self.child.send(message)
        except ChildGone as error:
            raise WeftlineError(f"the process of device {self.id!r} {error}") from None

    def receive(self, end: float) -> ProfileAnswer:
        """The line that answers."""
        try:
            return self.child.receive(ProfileAnswer, end)
        except ChildGone as error:
            raise WeftlineError(f"the process of device {self.id!r} {error}") from None
        except ChildSilent:
            raise WeftlineError(f"the process of device {self.id!r} gave no answer in time") from None
        except ChildFailed as error:
            if error.words.ours:
                raise InputError(error.words.what, where=f"device {self.id!r}") from None
            raise WeftlineError(f"ONNX Runtime cannot run the model on device {self.id!r}: {error}") from None


class Workers(Closing):
    """One process for each device; use it in a `with`."""

    def __init__(
        self,
        model: Path | str,
        shapes: Mapping[str, tuple[int, ...]],
        devices: Mapping[str, OrtDevice],
        *,
        speeds: Mapping[str, float] = MappingProxyType({}),
        seed: int = 0,
        seconds: float = ANSWER_SECONDS,
    ) -> None:
        self._limit, self.versions = seconds, dict.fromkeys(devices, "")
        self._ending = ExitStack()
        root = self._ending.enter_context(run_folder())
        self._workers: dict[str, DeviceProcess] = {}
        try:
            for number, (id, device) in enumerate(devices.items()):
                folder = root / str(number)
                folder.mkdir()
                self._workers[id] = DeviceProcess(id)
                setup = OrtSetup(
                    str(Path(model).absolute()), dict(shapes), device, speeds.get(id, 1.0), str(folder), seed
                )
                self._workers[id].send(setup)
            for id in devices:
                self.versions[id] = self._receive(id).version
        except BaseException:
            self.close()
            raise

    def prepare(self, id: str, ask: Prepare) -> ProfileAnswer:
        """A new session for one device."""
        return self._ask(id, ask)

    def measure_together(self, ids: Sequence[str], ask: Measure) -> dict[str, ProfileAnswer]:
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

    def _ask(self, id: str, ask: Request) -> ProfileAnswer:
        self._workers[id].send(ask)
        return self._receive(id)

    def _receive(self, id: str) -> ProfileAnswer:
        return self._workers[id].receive(time.monotonic() + self._limit)

    def close(self) -> None:
        """End all of them."""
        for worker in self._workers.values():
            worker.child.close()
        self._workers.clear()
        self._ending.close()
