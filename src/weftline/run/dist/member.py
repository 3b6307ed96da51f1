"""One rank of a plan: its segments of request after request, tensors from and to the others.

In: sessions of the segments, the manifest, inputs. Out: what was measured, and outputs that were made here. A segment
waits only for earlier segments of the same request, and sending only for earlier requests. Simplified: a device with
several segments in a pipeline takes them request by request.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any
from numpy.typing import NDArray
from weftline.run.split.manifest import Manifest
from weftline.run.session import SegmentRun
from weftline.run.dist.job import PlanJob, PlanReport, messages_of, plain_dtype
from weftline.run.dist.wires import Wires, lost

__all__ = ["Arrays", "Member"]

Arrays = Mapping[str, NDArray[Any]]
KEPT_BYTES = 2**28
"""Outputs of so many bytes are kept for the comparison: those of the last requests."""


class Member:
    """One rank with its sessions and messages."""

    def __init__(
        self, job: PlanJob, rank: int, manifest: Manifest, segments: dict[int, SegmentRun], feeds: Sequence[Arrays]
    ) -> None:
        self.job, self.rank, self.manifest, self._segments, self._feeds = job, rank, manifest, segments, feeds
        ids = [device.id for device in job.devices]
        self._total = job.warm_up + job.requests
        messages = messages_of(manifest, ids)
        self.wires = Wires(messages, rank, ids, self._total, job.timeout)
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
