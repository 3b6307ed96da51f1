"""What the processes of a plan over torch.distributed are told and what they answer, and which tensor goes where.

In: a manifest and the devices of the ranks. Out: `PlanJob`, `PlanReport` (they travel as JSON), and `TensorMessage`s in
the one order that both ends of every pair keep. Simplified: a tensor is sent once to every process that reads it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np

from weftline.errors import InputError
from weftline.run.devices import OrtDevice
from weftline.run.split.manifest import MODEL_INPUT, Manifest

__all__ = [
    "PlanAnswer",
    "PlanJob",
    "PlanReport",
    "RankDevice",
    "StartedRanks",
    "TensorMessage",
    "messages_of",
    "plain_dtype",
]


class RankDevice(msgspec.Struct, frozen=True):
    """The device of the plan that a rank stands for."""

    id: str
    speed: float


class PlanJob(msgspec.Struct, frozen=True):
    """A plan to run."""

    digest: str
    """Of plan, model, inputs and options: the ranks of all hosts must have the same."""
    model: str
    """Path of the whole model."""
    pipeline: bool
    """Requests flow one after another; else one at a time."""
    devices: tuple[RankDevice, ...]
    """Rank -> device."""
    requests: int
    warm_up: int
    """Requests before those that count."""
    check: bool
    timeout: float
    """Seconds that a process waits for another."""


class PlanReport(msgspec.Struct, frozen=True):
    """What one rank saw, without the requests before those that count."""

    begun_ns: int
    """When the last of the uncounted requests ended, by the rank's own clock."""
    ended_ns: tuple[int, ...]
    """By request."""
    taken_ns: tuple[int, ...]
    """By request: from its start, which is a common one when requests run one at a time, to its end here."""
    compute_ns: tuple[int, ...]
    """By request: in its segments, stretched by the device's speed."""
    segments: int
    ops: int
    nccl: bool


class PlanAnswer(msgspec.Struct, frozen=True):
    """What rank 0 knows at the end."""

    reports: tuple[PlanReport, ...]
    difference: float
    compared: int
    """Requests whose outputs were compared."""
    backend: str


class StartedRanks(msgspec.Struct, frozen=True):
    """What processes of this machine are told."""

    job: PlanJob
    how: tuple[OrtDevice, ...]
    """Rank -> how it runs."""
    inputs: tuple[str, ...]
    """Names, in the order of the stored arrays."""
    feeds: int
    """Number of different inputs."""


class TensorMessage(msgspec.Struct, frozen=True):
    """A tensor on its way from one rank to another, once per request."""

    number: int
    name: str
    dtype: str
    shape: tuple[int, ...]
    maker: int
    """Segment."""
    reader: int
    """The first segment of the target that reads it."""
    source: int
    target: int

    @property
    def size(self) -> int:
        """In bytes."""
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize


def messages_of(manifest: Manifest, devices: Sequence[str]) -> tuple[TensorMessage, ...]:
    """All messages of a request, by the segment that makes the tensor: the order in which each rank sends."""
    rank = {device: number for number, device in enumerate(devices)}
    found: list[tuple[int, int, str, str, tuple[int, ...], int, int]] = []
    for wire in manifest.tensors:
        if wire.source == MODEL_INPUT:
            continue
        source = rank[manifest.segments[wire.source].device]
        readers: dict[int, int] = {}
        for target in wire.targets:
            readers.setdefault(rank[manifest.segments[target].device], target)
        for target, reader in readers.items():
            if target != source:
                dtype = plain_dtype(wire.name, wire.dtype).name
                found.append((wire.source, reader, wire.name, dtype, wire.shape, source, target))
    found.sort(key=lambda message: message[:3])
    return tuple(
        TensorMessage(number, name, dtype, shape, maker, reader, source, target)
        for number, (maker, reader, name, dtype, shape, source, target) in enumerate(found)
    )


def plain_dtype(name: str, dtype: str) -> np.dtype[np.generic]:
    """numpy's type of a tensor that is sent."""
    try:
        found = np.dtype(dtype or "?!")
    except TypeError:
        found = None
    if found is None or found.kind not in "biufc":
        raise InputError(
            f"elements of type {dtype or 'unknown'!r} cannot be sent",
            where=f"tensor {name[:80]!r}",
            hint="keep the ops that make and read it on one device: [limits] together in the cluster file",
        )
    return found
