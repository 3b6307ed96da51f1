"""What the processes of a plan over torch.distributed are told, answer, and send each other.

In: a manifest and the devices of the ranks. Out: `PlanJob` and `PlanReport` (they travel as JSON), `TensorMessage`s in
the one order that both ends of every pair keep, and `RankWires`, which move them: isend and irecv with two buffers
each, so that a request is on its way while one is computed; the lanes of a fleet have their own. A message of open
shape is two: a head with type and shape, then the bytes; text, sequences and optionals travel packed (msgpack). Every
message has a tag of its own, and a wait is always for what stands earlier in the one order of all work that every rank
keeps: nothing can wait in a circle. By gloo, or by NCCL through a group for each direction. Simplified: a tensor is
sent once to every process that reads it; NCCL's tensors pass main memory; types that numpy does not have (bfloat16) are
for engine local.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, WeftlineError
from weftline.graph.ir import MODEL_INPUT
from weftline.run.devices import OrtDevice
from weftline.run.local.channel import memory_of_machine, require_memory
from weftline.run.local.layout import ELEMENTS, is_open_wire, stored_type
from weftline.run.local.slots import pack_value, unpack_value
from weftline.run.split.manifest import Manifest

__all__ = [
    "WIRE_SLOTS",
    "MessageHead",
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
    "read_head",
    "require_numpy",
    "write_head",
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
    precision: str
    """The coarsest arithmetic of the model: what outputs may differ by."""


class PlanReport(msgspec.Struct, frozen=True):
    """What one rank saw, without the requests before those that count."""

    begun_ns: int
    """When the last of the uncounted requests ended, by the rank's own clock."""
    ended_ns: tuple[int, ...]
    """By request; of a fleet, by request and segment."""
    taken_ns: tuple[int, ...]
    """The same: from its start, which is a common one when requests run one at a time, to its end here."""
    compute_ns: tuple[int, ...]
    """By request that came here: in its segments, stretched by the device's speed."""
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
    open: bool = False
    """Its real shape comes with it."""
    lane: int = 0

    @property
    def size(self) -> int:
        """In bytes; of its head, if it is open."""
        return HEAD_WORDS * 8 if self.open else math.prod(self.shape) * stored_type(self.dtype).itemsize


HEAD_WORDS = 69
"""Of a head: what it is, its element type, bytes, number of dimensions, dimensions."""
MOST_DIMENSIONS = HEAD_WORDS - 4
PLAIN_TENSOR, PACKED_VALUE = 0, 1


def messages_of(manifest: Manifest, devices: Sequence[str], as_planned: bool = True) -> tuple[TensorMessage, ...]:
    """All messages of a request, by the segment that makes the tensor: the order in which each rank sends.

    `as_planned`: inputs have the shapes of the plan.
    """
    rank = {device: number for number, device in enumerate(devices)}
    found = []
    for wire in manifest.tensors:
        if wire.source == MODEL_INPUT:
            continue
        source = rank[manifest.segments[wire.source].device]
        readers: dict[int, int] = {}
        for target in wire.targets:
            readers.setdefault(rank[manifest.segments[target].device], target)
        for target, reader in readers.items():
            if target != source:
                require_numpy(wire.name, wire.dtype)
                ends = (wire.source, reader, source, target)
                is_open = is_open_wire(wire, as_planned)
                found.append(TensorMessage(0, wire.name, wire.dtype, wire.shape, *ends, is_open, wire.lane))
    found.sort(key=lambda message: (message.maker, message.reader, message.name))
    return tuple(msgspec.structs.replace(message, number=number) for number, message in enumerate(found))


def require_numpy(name: str, dtype: str) -> None:
    """Refuse elements that numpy does not have."""
    if dtype == "bfloat16" or dtype.startswith("float8"):
        raise InputError(
            f"elements of type {dtype!r} cannot be sent",
            where=f"tensor {name[:80]!r}",
            hint="engine local can; or keep the ops that make and read it on one device: [limits] together",
        )


WIRE_SLOTS = 2


class RankWires:
    """Both ends of all messages of one rank. Requests are counted lane by lane; `requests`: how many each lane has."""

    def __init__(
        self,
        messages: Sequence[TensorMessage],
        rank: int,
        devices: Sequence[str],
        requests: Sequence[int],
        timeout: float,
    ) -> None:
        # Nothing is sent where there is nothing to send: both ends know it.
        self._incoming = [message for message in messages if message.target == rank]
        require_memory({message.name: WIRE_SLOTS * message.size for message in messages})
        self._devices, self._requests, self._limit = devices, requests, timeout
        self._posted: dict[tuple[int, int], Any] = {}
        self._sent: dict[tuple[int, int], list[tuple[Any, Any]]] = {}
        self._groups: dict[tuple[int, int], Any] = {}
        self._on_gpu = False
        self._slots: dict[tuple[int, int], Any] = {}

    def use_nccl(self, groups: dict[tuple[int, int], Any]) -> None:
        """Send by these groups: (source, target) -> group."""
        self._groups, self._on_gpu = groups, True

    def expect(self, lane: int, request: int) -> None:
        """Post the receives of a request, if there is such a request."""
        import torch.distributed as dist

        if request >= self._requests[lane]:
            return
        for message in self._incoming:
            if message.size and message.lane == lane:
                key = (message.number, request % WIRE_SLOTS)
                work = dist.irecv(self._slot(message, key), message.source, self._group(message), _tag(*key))
                self._posted[key] = work

    def receive(self, message: TensorMessage, request: int) -> Any:
        """Wait for a value; it is valid until the request is expected that has its slot next."""
        key = (message.number, request % WIRE_SLOTS)
        if not message.size:
            return np.zeros(message.shape, stored_type(message.dtype))
        self._wait(self._posted.pop(key), message, message.source, f"waited for tensor {message.name[:80]!r} from")
        slot = self._slots[key].cpu() if self._on_gpu else self._slots[key]
        if message.open:
            head = read_head(slot.numpy().view(np.int64), message.name)
            return head.value(self._receive_bytes(message, key, head.size) if head.size else b"")
        return np.asarray(slot.numpy().view(stored_type(message.dtype)).reshape(message.shape))

    def _receive_bytes(self, message: TensorMessage, key: tuple[int, int], size: int) -> bytes:
        """What follows a head."""
        import torch
        import torch.distributed as dist

        data = torch.empty(size, dtype=torch.uint8, device="cuda" if self._on_gpu else "cpu")
        tag = _tag(*key) + BODY_TAG
        work = dist.irecv(data, message.source, self._group(message), tag)
        self._wait(work, message, message.source, f"waited for tensor {message.name[:80]!r} from")
        return bytes((data.cpu() if self._on_gpu else data).numpy())

    def send(self, message: TensorMessage, request: int, value: Any) -> None:
        """Start to send a value; waits until the one two requests ago has left."""
        key = (message.number, request % WIRE_SLOTS)
        if message.open:
            head, data = write_head(value, message.name)
            parts = [(head.view(np.uint8), _tag(*key)), (data, _tag(*key) + BODY_TAG)]
        else:
            if value.shape != message.shape or value.dtype != stored_type(message.dtype):
                raise InputError(
                    f"has shape {value.shape} of {value.dtype}, planned was {message.shape} of {message.dtype}",
                    where=f"tensor {message.name[:80]!r}",
                    hint="engine local finds out by itself where a planned shape is wrong",
                )
            parts = [(as_bytes(value), _tag(*key))]
        self._finish(key, message)
        self._sent[key] = [self._start(message, data, tag) for data, tag in parts if data.size]

    def _start(self, message: TensorMessage, data: NDArray[np.uint8], tag: int) -> tuple[Any, Any]:
        import torch
        import torch.distributed as dist

        tensor = torch.from_numpy(data)
        tensor = tensor.cuda() if self._on_gpu else tensor
        return dist.isend(tensor, message.target, self._group(message), tag), tensor

    def finish(self, messages: Sequence[TensorMessage]) -> None:
        """Wait until everything has left."""
        for message in messages:
            for slot in range(WIRE_SLOTS):
                self._finish((message.number, slot), message)

    def _finish(self, key: tuple[int, int], message: TensorMessage) -> None:
        for work, _ in self._sent.pop(key, ()):
            self._wait(work, message, message.target, f"could not send tensor {message.name[:80]!r} to")

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


BODY_TAG = 2**30
"""Added to the tag of a head: what follows it."""


class MessageHead(NamedTuple):
    """What a value of open shape is."""

    state: int
    element: int
    size: int
    shape: tuple[int, ...]

    def value(self, data: bytes) -> Any:
        """The value, from the bytes that followed."""
        if self.state == PACKED_VALUE:
            return unpack_value(data)
        stored = next(stored_type(name) for name, number in ELEMENTS.items() if number == self.element)
        return np.frombuffer(bytearray(data), stored).reshape(self.shape)


def write_head(value: Any, name: str) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
    """The head of a value, and its bytes."""
    head = np.zeros(HEAD_WORDS, np.int64)
    if isinstance(value, np.ndarray) and value.dtype.name in ELEMENTS:
        if value.ndim > MOST_DIMENSIONS:
            raise InputError(f"has {value.ndim} dimensions", where=f"tensor {name[:80]!r}")
        data = as_bytes(value)
        words = (PLAIN_TENSOR, ELEMENTS[value.dtype.name], data.size, value.ndim, *value.shape)
    else:
        data = np.frombuffer(bytearray(pack_value(value)), np.uint8)
        words = (PACKED_VALUE, 0, data.size, 0)
    head[: len(words)] = words
    return head, data


def read_head(words: NDArray[np.int64], name: str) -> MessageHead:
    """A head that arrived."""
    state, element, size, rank = words[:4].tolist()
    plain = state == PLAIN_TENSOR and element in ELEMENTS.values()
    if not (plain or state == PACKED_VALUE) or not 0 <= rank <= MOST_DIMENSIONS or not 0 <= size < memory_of_machine():
        raise WeftlineError(f"tensor {name[:80]!r} arrived in another form than it should")
    return MessageHead(state, element, size, tuple(words[4 : 4 + rank].tolist()))


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
