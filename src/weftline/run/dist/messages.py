"""What the processes of a plan over torch.distributed are told, answer, and send each other.

In: a manifest and the devices of the ranks. Out: `PlanJob` and `PlanReport` (they travel as JSON), `TensorMessage`s in
the one order that both ends of every pair keep, and `RankWires`, which move them: isend and irecv with two buffers
each, so that a request is on its way while one is computed. Per pair of ranks and direction the order is that of
requests, then of messages, and a wait is always for an earlier request or segment: nothing can wait in a circle. By
gloo, or by NCCL through a group for each direction. Simplified: a tensor is sent once to every process that reads it;
NCCL's tensors pass main memory.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, WeftlineError
from weftline.graph.ir import MODEL_INPUT
from weftline.run.devices import OrtDevice
from weftline.run.split.manifest import Manifest

__all__ = [
    "WIRE_SLOTS",
    "PlanAnswer",
    "PlanJob",
    "PlanReport",
    "RankDevice",
    "RankWires",
    "StartedRanks",
    "TensorMessage",
    "as_bytes",
    "lost",
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


WIRE_SLOTS = 2


class RankWires:
    """Both ends of all messages of one rank."""

    def __init__(
        self, messages: Sequence[TensorMessage], rank: int, devices: Sequence[str], requests: int, timeout: float
    ) -> None:
        # Nothing is sent where there is nothing to send: both ends know it.
        self._incoming = [message for message in messages if message.target == rank]
        self._devices, self._requests, self._limit = devices, requests, timeout
        self._posted: dict[tuple[int, int], Any] = {}
        self._sent: dict[tuple[int, int], tuple[Any, Any]] = {}
        self._groups: dict[tuple[int, int], Any] = {}
        self._on_gpu = False
        self._slots: dict[tuple[int, int], Any] = {}

    def use_nccl(self, groups: dict[tuple[int, int], Any]) -> None:
        """Send by these groups: (source, target) -> group."""
        self._groups, self._on_gpu = groups, True

    def expect(self, request: int) -> None:
        """Post the receives of a request, if there is such a request."""
        import torch.distributed as dist

        if request >= self._requests:
            return
        for message in self._incoming:
            if message.size:
                key = (message.number, request % WIRE_SLOTS)
                work = dist.irecv(self._slot(message, key), message.source, self._group(message), _tag(*key))
                self._posted[key] = work

    def receive(self, message: TensorMessage, request: int) -> NDArray[Any]:
        """Wait for a tensor; it is valid until the request after the next is expected."""
        key = (message.number, request % WIRE_SLOTS)
        if not message.size:
            return np.zeros(message.shape, message.dtype)
        self._wait(self._posted.pop(key), message, message.source, f"waited for tensor {message.name[:80]!r} from")
        slot = self._slots[key].cpu() if self._on_gpu else self._slots[key]
        return np.asarray(slot.numpy().view(message.dtype).reshape(message.shape))

    def send(self, message: TensorMessage, request: int, array: NDArray[Any]) -> None:
        """Start to send a tensor; waits until the one two requests ago has left."""
        import torch
        import torch.distributed as dist

        if array.shape != message.shape or array.dtype != np.dtype(message.dtype):
            raise InputError(
                f"has shape {array.shape} of {array.dtype}, planned was {message.shape} of {message.dtype}",
                where=f"tensor {message.name[:80]!r}",
                hint="only shapes that do not depend on data can go from one device to another",
            )
        if not message.size:
            return
        key = (message.number, request % WIRE_SLOTS)
        self._finish(key, message)
        tensor = torch.from_numpy(as_bytes(array))
        tensor = tensor.cuda() if self._on_gpu else tensor
        work = dist.isend(tensor, message.target, self._group(message), _tag(*key))
        self._sent[key] = (work, tensor)

    def finish(self, messages: Sequence[TensorMessage]) -> None:
        """Wait until everything has left."""
        for message in messages:
            for slot in range(WIRE_SLOTS):
                self._finish((message.number, slot), message)

    def _finish(self, key: tuple[int, int], message: TensorMessage) -> None:
        if key in self._sent:
            work, _ = self._sent[key]
            self._wait(work, message, message.target, f"could not send tensor {message.name[:80]!r} to")
            del self._sent[key]

    def _slot(self, message: TensorMessage, key: tuple[int, int]) -> Any:
        import torch

        if key not in self._slots:
            device = "cuda" if self._on_gpu else "cpu"
            self._slots[key] = torch.empty(message.size, dtype=torch.uint8, device=device)
        return self._slots[key]

    def _group(self, message: TensorMessage) -> Any:
        return self._groups.get((message.source, message.target))

    def _wait(self, work: Any, message: TensorMessage, peer: int, what: str) -> None:
        try:
            work.wait(timedelta(seconds=self._limit))
        except (RuntimeError, ValueError) as error:  # torch's errors of communication are RuntimeErrors
            raise lost(f"{what} device {self._devices[peer]!r} (rank {peer})", error, self._limit) from error


def as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """One dimension of bytes; no copy if the array lies in one piece."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return flat if flat.flags.writeable else flat.copy()


def lost(what: str, error: BaseException, timeout: float) -> WeftlineError:
    """An error of communication in words."""
    said = str(error)
    if "imed out" in said or "imeout" in said:
        return WeftlineError(f"{what}: no answer for {timeout:g} s. Connection given up; try a larger --timeout")
    return WeftlineError(f"{what}: that process is gone. Connection: {said.splitlines()[0][-200:] if said else 'lost'}")


def _tag(number: int, slot: int) -> int:
    return WIRE_SLOTS * number + slot
