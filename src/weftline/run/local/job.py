"""What a worker of the local engine is told, and what it answers: JSON, no code."""

from __future__ import annotations

from typing import Literal

import msgspec

from weftline.run.devices import OrtDevice
from weftline.run.split.manifest import Manifest

__all__ = ["PARENT", "Answer", "Go", "Job", "WireJob"]

PARENT = -1
"""The number of the process that sends inputs and collects outputs; workers count from 0."""


class WireJob(msgspec.Struct, frozen=True):
    """A tensor and the ring of slots it is made in."""

    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    maker: int
    """The process in whose memory it lies."""
    readers: tuple[int, ...]
    """Other processes that read it; each says when it has done so."""
    offset: int
    """Of the first slot, in bytes."""
    stride: int
    """From slot to slot."""
    slots: int


class Job(msgspec.Struct, frozen=True):
    """Once, at the start."""

    me: int
    parent: int
    """Process id; whoever has another parent is an orphan and ends."""
    runtime: OrtDevice
    speed: float
    folder: str
    manifest: Manifest
    segments: tuple[int, ...]
    """Those that run here, ascending."""
    wires: tuple[WireJob, ...]
    """Those that are made or read here."""
    blocks: dict[int, int]
    """Process -> descriptor of the memory in which its tensors lie."""
    lines: dict[int, tuple[int, int]]
    """Process -> descriptors of the tokens from it and to it."""


class Go(msgspec.Struct, frozen=True):
    """Run so many requests, one after another, as their tensors arrive; then answer."""

    requests: int


class Answer(msgspec.Struct, frozen=True):
    """Ready for the first request, done with all of them, or failed."""

    kind: Literal["ready", "done", "input", "run", "peer"]
    """The last three are failures: of what was asked, of ONNX Runtime, of a peer that has left."""
    text: str = ""
    compute_ns: tuple[int, ...] = ()
    """Of each segment that runs here: mean, at the speed of the device."""
    busy_ns: int = 0
    """All computing of all requests, at the speed of the device."""
    rss: int = 0
    """Bytes now."""
    peak_rss: int = 0
