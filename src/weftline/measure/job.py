"""What the process that profiles one device is told, and what it answers; JSON lines over its pipes."""

from __future__ import annotations

import msgspec

from weftline.measure.kernels import RunNode
from weftline.run.devices import OrtDevice

__all__ = ["LEVELS", "Measure", "OrtSetup", "Prepare", "ProfileAnswer", "Request", "Rest"]

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
