"""One rank of a plan: its segments of request after request, tensors from and to the others, outputs to rank 0.

In: sessions of the segments, the manifest, inputs. Out: what was measured, and at rank 0 how far outputs are from the
whole model. A segment waits only for earlier segments of the same request, and sending only for earlier requests.
Simplified: a device with several segments in a pipeline takes them request by request; the whole model runs on the CPU.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.run.dist.job import PlanJob, PlanReport, messages_of, plain_dtype
from weftline.run.dist.wires import WIRE_SLOTS, RankWires, as_bytes, lost
from weftline.run.session import SegmentSession
from weftline.run.split.manifest import MODEL_INPUT, Manifest

__all__ = ["Arrays", "Member", "compare", "gather"]

Arrays = Mapping[str, NDArray[Any]]
KEPT_BYTES = 2**28
"""Outputs of so many bytes are kept for the comparison: those of the last requests."""


class Member:
    """One rank with its sessions and messages."""

    def __init__(
        self, job: PlanJob, rank: int, manifest: Manifest, segments: dict[int, SegmentSession], feeds: Sequence[Arrays]
    ) -> None:
        self.job, self.rank, self.manifest, self._segments, self._feeds = job, rank, manifest, segments, feeds
        ids = [device.id for device in job.devices]
        self._total = job.warm_up + job.requests
        messages = messages_of(manifest, ids)
        self.wires = RankWires(messages, rank, ids, self._total, job.timeout)
        self._sent = [message for message in messages if message.source == rank]
        self._sends = {n: [m for m in self._sent if m.maker == n] for n in segments}
        self._receives = {n: [m for m in messages if m.target == rank and m.reader == n] for n in segments}
        self.messages = messages
        self.outputs = [wire for wire in manifest.tensors if wire.output]
        self.mine = [wire.name for wire in self.outputs if wire.source in segments]
        self.nccl = False

    @property
    def kept(self) -> int:
        """Requests whose outputs are compared: the last ones."""
        size = sum(math.prod(w.shape) * plain_dtype(w.name, w.dtype).itemsize for w in self.outputs)
        return min(self._total, max(2, KEPT_BYTES // max(size, 1))) if self.job.check else 0

    def run(self) -> tuple[PlanReport, list[Arrays]]:
        """All requests -> what was measured, and outputs that this rank made."""
        begun, ended, taken, compute = 0, [], [], []
        kept: list[Arrays] = []
        self.wires.expect(0)
        for request in range(self._total):
            if not self.job.pipeline:
                self._together()
            begin = time.perf_counter_ns()
            busy, made = self._request(request)
            end = time.perf_counter_ns()
            if request >= self._total - self.kept:
                kept.append(made)
            if request < self.job.warm_up:
                begun = end
                continue
            ended.append(end)
            taken.append(end - begin)
            compute.append(busy)
        self.wires.finish(self._sent)
        ops = sum(len(self.manifest.segments[number].ops) for number in self._segments)
        return PlanReport(begun, tuple(ended), tuple(taken), tuple(compute), len(self._segments), ops, self.nccl), kept

    def _together(self) -> None:
        import torch.distributed as dist

        try:
            dist.barrier()
        except (RuntimeError, ValueError) as error:
            raise lost("waited for the other processes", error, self.job.timeout) from error

    def _request(self, request: int) -> tuple[int, Arrays]:
        """Nanoseconds of computing, and outputs of the model that were made here."""
        held: dict[str, NDArray[Any]] = dict(self._feeds[request % len(self._feeds)])
        self.wires.expect(request + 1)
        busy = 0
        for number, segment in self._segments.items():
            for message in self._receives[number]:
                held[message.name] = self.wires.receive(message, request)
            found, taken = segment.run(held)
            busy += taken
            held.update(zip(segment.outputs, found, strict=True))
            for message in self._sends[number]:
                self.wires.send(message, request, held[message.name])
        return busy, {name: held[name] for name in self.mine}


MOST_DIMENSIONS = 64


def gather(member: Member, kept: Sequence[Arrays]) -> list[tuple[int, Arrays]]:
    """At rank 0: the requests that are compared, with all outputs; nothing elsewhere."""
    rank_of = {device.id: rank for rank, device in enumerate(member.job.devices)}
    first = member.job.warm_up + member.job.requests - len(kept)
    tag = WIRE_SLOTS * len(member.messages)
    gathered: list[tuple[int, Arrays]] = []
    for number, made in enumerate(kept):
        found = dict(made)
        for wire in member.outputs:
            source = (
                MODEL_INPUT if wire.source == MODEL_INPUT else rank_of[member.manifest.segments[wire.source].device]
            )
            if source in (MODEL_INPUT, 0):
                continue
            if member.rank == source:
                _send(found[wire.name], tag)
            elif member.rank == 0:
                found[wire.name] = _receive(plain_dtype(wire.name, wire.dtype), source, tag)
        if member.rank == 0:
            gathered.append((first + number, found))
    return gathered


def compare(model: Path, feeds: Sequence[Arrays], outputs: Sequence[tuple[int, Arrays]]) -> float:
    """The largest difference to the whole model."""
    import onnxruntime

    from weftline.run.inputs import difference

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = list(dict.fromkeys(value.name for value in session.get_outputs()))
    expected: dict[int, list[NDArray[Any]]] = {}
    worst = 0.0
    for request, found in outputs:
        which = request % len(feeds)
        if which not in expected:
            expected[which] = session.run(names, dict(feeds[which]))
        everything = {**feeds[which], **found}
        worst = max(worst, difference([everything[name] for name in names], expected[which]))
    return worst


def _send(array: NDArray[Any], tag: int) -> None:
    """The shape, which may depend on data, then the bytes."""
    import torch
    import torch.distributed as dist

    shape = torch.zeros(1 + MOST_DIMENSIONS, dtype=torch.int64)
    shape[: 1 + array.ndim] = torch.tensor([array.ndim, *array.shape])
    dist.send(shape, 0, tag=tag)
    if array.size:
        dist.send(torch.from_numpy(as_bytes(array)), 0, tag=tag)


def _receive(dtype: np.dtype[Any], source: int, tag: int) -> NDArray[Any]:
    import torch
    import torch.distributed as dist

    shape = torch.zeros(1 + MOST_DIMENSIONS, dtype=torch.int64)
    dist.recv(shape, source, tag=tag)
    dimensions = shape[1 : 1 + int(shape[0])].tolist()
    found = np.empty(dimensions, dtype)
    if found.size:
        dist.recv(torch.from_numpy(found.reshape(-1).view(np.uint8)), source, tag=tag)
    return found
