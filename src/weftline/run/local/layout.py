"""What workers of the local engine are told and answer, and where every tensor lies: a manifest -> a `WorkerLayout`.

In: a `Manifest`. Out: one worker per device, which serves all lanes of a fleet, one block of memory per process;
`WorkerJob`, `Go` and `WorkerAnswer` travel as JSON, no code. A tensor that waits longer, because its reader stands
further down the pipeline, has more slots, so that it does not hold its maker up. Every slot begins with room for the
real shape (`slots.py`), and what is larger than planned finds room elsewhere. Simplified: a segment that makes nothing
anyone reads is not run.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import Any, Literal

import msgspec
import numpy as np

from weftline.errors import InputError
from weftline.graph.ir import MODEL_INPUT
from weftline.run.devices import OrtDevice
from weftline.run.split.manifest import Manifest, ModelWire

__all__ = [
    "ELEMENTS",
    "HEADER_BYTES",
    "PARENT_PROCESS",
    "Go",
    "WireJob",
    "WorkerAnswer",
    "WorkerJob",
    "WorkerLayout",
    "is_open_wire",
    "lay_out",
    "stored_type",
]

PARENT_PROCESS = -1
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
    open: bool = False
    """Its real shape may be another than planned: ONNX Runtime says where it lies, and it is copied."""
    lane: int = 0


class WorkerJob(msgspec.Struct, frozen=True):
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
    lanes: tuple[int, ...] = ()
    """A fleet: how many of each lane. A worker takes those that are ready, the one first that is due first."""


class WorkerAnswer(msgspec.Struct, frozen=True):
    """Ready for the first request, or done with all of them."""

    kind: Literal["ready", "done"]
    compute_ns: tuple[int, ...] = ()
    """Of each segment that runs here: mean of its requests, at the speed of the device."""
    busy_ns: int = 0
    """All computing of all requests, at the speed of the device."""
    rss: int = 0
    """Bytes now."""
    peak_rss: int = 0


ALIGNMENT_BYTES = 128
HEADER_BYTES = 640
"""Before the data of a slot: what is in it, where, and its shape."""
OPEN_BYTES = 2**20
"""Room that a tensor of open shape, or a value that is no plain tensor, gets at first."""
REQUESTS_AHEAD = 6
"""A stage may be so many more requests ahead of its reader; else each waits for whoever is slower at the moment."""
AHEAD_BYTES = 2**26
"""What lies ready of one tensor is no larger."""
ELEMENTS = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "uint16": 4,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "uint32": 12,
    "uint64": 13,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "float8_e4m3fn": 17,
    "float8_e4m3fnuz": 18,
    "float8_e5m2": 19,
    "float8_e5m2fnuz": 20,
}
"""Name of an element type -> its number in ONNX; other values travel in a packed form."""


@dataclass(frozen=True)
class WorkerLayout:
    """Workers, tensors, memory."""

    manifest: Manifest
    folder: str
    devices: tuple[str, ...]
    """Device of every worker, in the order of their first segments."""
    segments: tuple[tuple[int, ...], ...]
    """What each worker runs."""
    wires: tuple[WireJob, ...]
    sizes: dict[int, int]
    """Process -> bytes of its block."""
    pipelined: bool

    @property
    def most_slots(self) -> int:
        """Requests after which every slot of every ring was used."""
        return max(wire.slots for wire in self.wires)

    @property
    def rates(self) -> tuple[int, ...]:
        """How requests are shared out among the lanes; one lane has no need of it."""
        return self.manifest.rates

    def wires_of(self, process: int) -> tuple[WireJob, ...]:
        """Those that a process makes or reads."""
        return tuple(wire for wire in self.wires if process == wire.maker or process in wire.readers)

    def peers_of(self, process: int) -> set[int]:
        """Processes that it exchanges tokens with."""
        made = {reader for wire in self.wires if wire.maker == process for reader in wire.readers}
        return made | {wire.maker for wire in self.wires if process in wire.readers}


def stored_type(dtype: str) -> np.dtype[Any]:
    """The type that numpy moves an element as; it has none for bfloat16 and eight bits."""
    return np.dtype(np.uint16 if dtype == "bfloat16" else np.uint8 if dtype.startswith("float8") else dtype)


def lay_out(manifest: Manifest, folder: str, *, pipelined: bool, as_planned: bool = True) -> WorkerLayout:
    """One worker per device. `pipelined`: several requests are on their way at once; `as_planned`: inputs have the
    shapes of the plan."""
    live = [segment for segment in manifest.segments if segment.outputs]
    devices = tuple(dict.fromkeys(segment.device for segment in live))
    worker = {segment.number: devices.index(segment.device) for segment in live}
    segments = tuple(tuple(s.number for s in live if s.device == device) for device in devices)
    sizes = dict.fromkeys((PARENT_PROCESS, *range(len(devices))), 0)
    wires = []
    for number, wire in enumerate(manifest.tensors):
        maker = PARENT_PROCESS if wire.source == MODEL_INPUT else worker[wire.source]
        readers = {worker[target] for target in wire.targets if target in worker}
        readers |= {PARENT_PROCESS} if wire.output else set()
        inside = bool(manifest.rates) and maker in readers
        readers -= {maker}
        if maker == PARENT_PROCESS and not readers:
            continue
        is_open = is_open_wire(wire, as_planned)
        stride = HEADER_BYTES + -(-_room(wire, is_open) // ALIGNMENT_BYTES) * ALIGNMENT_BYTES
        far = len(devices) if inside or manifest.rates else _way(maker, readers, len(devices))
        slots = _slots(far, stride) if pipelined and (readers or inside) else 1
        offset = sizes[maker]
        sizes[maker] += stride * slots
        job = WireJob(number, wire.name, wire.dtype, wire.shape, maker, tuple(sorted(readers)), offset, stride, slots)
        wires.append(msgspec.structs.replace(job, open=is_open, lane=wire.lane))
    if not any(PARENT_PROCESS in wire.readers for wire in wires):
        raise InputError("the model computes none of its outputs, so there is nothing to run")
    return WorkerLayout(manifest, folder, devices, segments, tuple(wires), sizes, pipelined)


def _way(maker: int, readers: set[int], workers: int) -> int:
    """Stages from the one that makes a tensor to the last that reads it."""
    last = max((workers if reader == PARENT_PROCESS else reader for reader in readers), default=maker)
    return max(abs(last - maker), 1)


def _slots(stages: int, stride: int) -> int:
    """One that is being made, one for each stage on the way to the last reader, and some that lie ready.

    A power of two, so that a segment's wires come round together: few bindings serve all requests.
    """
    ahead = min(REQUESTS_AHEAD, AHEAD_BYTES // max(stride, 1))
    return 1 << (stages + ahead).bit_length()


def is_open_wire(wire: ModelWire, as_planned: bool) -> bool:
    """May its real shape be another than planned, or is it no plain tensor?"""
    unsure = wire.dtype not in ELEMENTS or wire.guessed or bool(wire.dynamic)
    return unsure or (bool(wire.symbolic) and not as_planned)


def _room(wire: ModelWire, is_open: bool) -> int:
    """Bytes of a slot."""
    size = prod(wire.shape) * stored_type(wire.dtype).itemsize if wire.dtype in ELEMENTS else OPEN_BYTES
    return min(size, OPEN_BYTES) if is_open else size
