"""A process of a plan over torch.distributed: one rank is one device of the plan.

In: a folder with the job, the split model and perhaps inputs; a store where the ranks meet. Out: what rank 0 says of
all of them: a `PlanAnswer`, with how far outputs are from the whole model. A rank runs its segments of request after
request; tensors come and go by `RankWires`; the outputs of the last requests are gathered at rank 0. A segment waits
only for earlier segments of the same request, and sending only for earlier requests. Simplified: a device with several
segments in a pipeline takes them request by request; the whole model runs on the CPU.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec

from weftline.errors import InputError, WeftlineError
from weftline.graph.ir import MODEL_INPUT
from weftline.run.compare import PRECISIONS, Precision, output_difference
from weftline.run.devices import OrtDevice, SegmentSession, bind_cores, open_segments
from weftline.run.dist.messages import (
    HEAD_WORDS,
    WIRE_SLOTS,
    PlanAnswer,
    PlanJob,
    PlanReport,
    RankWires,
    StartedRanks,
    lost,
    messages_of,
    read_head,
    require_numpy,
    write_head,
)
from weftline.run.feeds import as_planned
from weftline.run.local.layout import ELEMENTS, stored_type
from weftline.run.local.slots import pack_value, unpack_value
from weftline.run.split.manifest import Manifest, read_manifest
from weftline.run.train.launch import Task, start
from weftline.run.turns import lane_turns

__all__ = ["JOB", "Arrays", "Member", "compare", "gather", "serve", "write_started"]

Arrays = Mapping[str, Any]
"""Name -> array; or a list, a map or None where the model has sequences, maps and optionals."""
MOST_LATER = 3
"""Requests that a late segment stands later in the order of work: less than twice `WIRE_SLOTS`."""
KEPT_BYTES = 2**28
"""Outputs of so many bytes are kept for the comparison: those of the last requests."""


class Member:
    """One rank with its sessions and messages."""

    def __init__(
        self, job: PlanJob, rank: int, manifest: Manifest, segments: dict[int, SegmentSession], feeds: Sequence[Arrays]
    ) -> None:
        self.job, self.rank, self.manifest, self._segments, self._feeds = job, rank, manifest, segments, feeds
        ids = [device.id for device in job.devices]
        self.turns = [number % manifest.lanes for number in range(job.warm_up)]
        self.turns += lane_turns(manifest.rates, job.requests)
        """Lane of every request."""
        messages = messages_of(manifest, ids, as_planned(manifest, feeds))
        counts = [self.turns.count(lane) for lane in range(manifest.lanes)]
        self.wires = RankWires(messages, rank, ids, counts, job.timeout)
        self._sent = [message for message in messages if message.source == rank]
        self._sends = {n: [m for m in self._sent if m.maker == n] for n in segments}
        self._receives = {n: [m for m in messages if m.target == rank and m.reader == n] for n in segments}
        self.messages = messages
        self.outputs = [wire for wire in manifest.tensors if wire.output]
        self.nccl = False

    @property
    def kept(self) -> int:
        """Requests whose outputs are compared: the last ones."""
        size = sum(math.prod(w.shape) * (stored_type(w.dtype).itemsize if w.dtype in ELEMENTS else 16)
                   for w in self.outputs if w.lane == 0)  # fmt: skip
        return min(len(self.turns), max(2, KEPT_BYTES // max(size, 1))) if self.job.check else 0

    def work(self) -> list[tuple[int, list[int]]]:
        """Requests and the segments of them that run here, in the order in which they do.

        One order of all that all ranks do: by request, and late segments of a fleet's lanes up to `MOST_LATER` requests
        later. That is less than the requests after which a slot is written again, so no wait is for something later.
        """
        parts = self.manifest.segments
        lanes = [[s.number for s in parts if s.lane == lane] for lane in range(self.manifest.lanes)]
        if not self.manifest.rates:
            return [(request, list(self._segments)) for request in range(len(self.turns))]
        later = {n: MOST_LATER * at / len(lane) for lane in lanes for at, n in enumerate(lane)}
        found = [
            (request >= self.job.warm_up, request + later[number], request, number)
            for request, lane in enumerate(self.turns)
            for number in lanes[lane]
            if number in self._segments
        ]
        return [(request, [number]) for _, _, request, number in sorted(found)]

    def run(self) -> tuple[PlanReport, dict[int, Arrays]]:
        """All requests -> what was measured, and outputs that this rank made, by request."""
        work = self.work()
        left = Counter(request for request, _ in work)
        index = _places(self.turns)
        begun = time.perf_counter_ns()
        ended, taken, compute = list[int](), list[int](), Counter[int]()
        held: dict[int, dict[str, Any]] = {}
        kept: dict[int, Arrays] = {}
        for lane in range(self.manifest.lanes):
            for ahead in range(WIRE_SLOTS):
                self.wires.expect(lane, ahead)
        for request, numbers in work:
            lane = self.turns[request]
            if not self.job.pipeline:
                self._together()
            begin = time.perf_counter_ns()
            values = held.setdefault(request, dict(self._feeds[request % len(self._feeds)]))
            busy = self._run(numbers, index[request], values)
            left[request] -= 1
            if not left[request]:
                del held[request]
                self.wires.expect(lane, index[request] + WIRE_SLOTS)
                if request >= len(self.turns) - self.kept:
                    made = [wire.name for wire in self.outputs if wire.lane == lane and wire.source in self._segments]
                    kept[request] = {name: values[name] for name in made}
            end = time.perf_counter_ns()
            if request < self.job.warm_up:
                begun = end
                continue
            ended.append(end)
            taken.append(end - begin)
            compute[request] += busy
        self.wires.finish(self._sent)
        ops = len({op for number in self._segments for op in self.manifest.segments[number].ops})
        each = tuple(compute.values())
        return PlanReport(begun, tuple(ended), tuple(taken), each, len(self._segments), ops, self.nccl), kept

    def _together(self) -> None:
        import torch.distributed as dist

        try:
            dist.barrier()
        except (RuntimeError, ValueError) as error:
            raise lost("waited for the other processes", error, self.job.timeout) from error

    def _run(self, numbers: Sequence[int], request: int, held: dict[str, Any]) -> int:
        """Segments of one request, which is the lane's so many-th -> ns of computing."""
        busy = 0
        for number in numbers:
            segment = self._segments[number]
            for message in self._receives[number]:
                held[message.name] = self.wires.receive(message, request)
            found, taken = segment.run(held)
            busy += taken
            held.update(zip(segment.outputs, found, strict=True))
            for message in self._sends[number]:
                self.wires.send(message, request, held[message.name])
        return busy


def _places(turns: Sequence[int]) -> list[int]:
    """Of each request: how many of its lane came before it."""
    seen, found = Counter[int](), []
    for lane in turns:
        found.append(seen[lane])
        seen[lane] += 1
    return found


def gather(member: Member, kept: Mapping[int, Arrays]) -> list[tuple[int, Arrays]]:
    """At rank 0: the requests that are compared, with all outputs; nothing elsewhere."""
    rank_of = {device.id: rank for rank, device in enumerate(member.job.devices)}
    tag = WIRE_SLOTS * len(member.messages)
    gathered: list[tuple[int, Arrays]] = []
    total = len(member.turns)
    for request in range(total - member.kept, total):
        found = dict(kept.get(request, {}))
        for wire in member.outputs:
            source = (
                MODEL_INPUT if wire.source == MODEL_INPUT else rank_of[member.manifest.segments[wire.source].device]
            )
            if source in (MODEL_INPUT, 0) or wire.lane != member.turns[request]:
                continue
            if member.rank == source:
                _send(found[wire.name], wire.name, tag)
            elif member.rank == 0:
                found[wire.name] = _receive(wire.name, source, tag)
        if member.rank == 0:
            gathered.append((request, found))
    return gathered


def compare(model: Path, feeds: Sequence[Arrays], outputs: Sequence[tuple[int, Arrays]], precision: Precision) -> float:
    """The largest difference to the whole model."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    names = list(dict.fromkeys(value.name for value in session.get_outputs()))
    expected: dict[int, list[Any]] = {}
    worst = 0.0
    for request, found in outputs:
        which = request % len(feeds)
        if which not in expected:
            expected[which] = session.run(names, dict(feeds[which]))
        everything = {**feeds[which], **found}
        for name, wanted in zip(names, expected[which], strict=True):
            worst = max(worst, output_difference(everything[name], wanted, precision))
    return worst


def _send(value: Any, name: str, tag: int) -> None:
    """The shape, which may depend on data, then the bytes."""
    import torch
    import torch.distributed as dist

    head, data = write_head(value, name)
    dist.send(torch.from_numpy(head), 0, tag=tag)
    if data.size:
        dist.send(torch.from_numpy(data), 0, tag=tag)


def _receive(name: str, source: int, tag: int) -> Any:
    import torch
    import torch.distributed as dist

    words = torch.zeros(HEAD_WORDS, dtype=torch.int64)
    dist.recv(words, source, tag=tag)
    head = read_head(words.numpy(), name)
    data = torch.empty(head.size, dtype=torch.uint8)
    if head.size:
        dist.recv(data, source, tag=tag)
    return head.value(bytes(data.numpy()))


JOB, INPUTS = "plan-job.json", "inputs.msgpack"
WRONG_DIFFERENCE = 1e300
"""An infinite difference in an answer: JSON, by which it travels, has no infinity."""


def serve(job: PlanJob, how: OrtDevice, folder: Path, feeds: Sequence[Arrays], store: Any, rank: int) -> PlanAnswer:
    """Run all requests; the answer of rank 0 is whole, those of others hold their own report."""
    import torch.distributed as dist

    limit = timedelta(seconds=job.timeout)
    store.set_timeout(limit)
    cores = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else set()
    ids = [device.id for device in job.devices]
    try:
        dist.init_process_group("gloo", store=store, rank=rank, world_size=len(ids), timeout=limit)
    except (RuntimeError, ValueError) as error:
        raise lost("the processes did not meet", error, job.timeout) from error
    member = _ready(job, how, folder, feeds, store, rank)
    report, kept = member.run()
    try:
        outputs = gather(member, kept)
        reports = tell(store, "report", rank, len(ids), msgspec.json.encode(report))
        dist.barrier()
        dist.destroy_process_group()
    except (RuntimeError, ValueError) as error:
        raise lost("what was measured could not be gathered", error, job.timeout) from error
    del member
    bind_cores(sorted(cores))
    worst = 0.0
    if rank == 0 and job.check:
        worst = compare(Path(job.model), feeds, outputs, PRECISIONS[job.precision])
    decoded = tuple(msgspec.json.decode(found, type=PlanReport) for found in reports)
    return PlanAnswer(decoded, min(worst, WRONG_DIFFERENCE), len(outputs), "nccl" if report.nccl else "gloo")


def tell(store: Any, key: str, rank: int, world: int, said: bytes) -> list[bytes]:
    """Every rank says something and hears what all say."""
    store.set(f"{key}-{rank}", said)
    return [bytes(store.get(f"{key}-{other}")) for other in range(world)]


class _Status(msgspec.Struct, frozen=True):
    """What a rank says of itself before the run."""

    digest: str
    error: str = ""
    outside: bool = False
    """The error is that of a file or value from outside."""
    cuda: bool = False


def _ready(job: PlanJob, how: OrtDevice, folder: Path, feeds: Sequence[Arrays], store: Any, rank: int) -> Member:
    """Open sessions; if any rank cannot, all say which one and why."""
    ids = [device.id for device in job.devices]
    failed: Exception | None = None
    member = None
    try:
        manifest = read_manifest(folder)
        bind_cores(how.cores)  # not the threads of gloo, which run already
        device = job.devices[rank]
        member = Member(job, rank, manifest, open_segments(folder, manifest, device.id, how, device.speed), feeds)
        for wire in member.outputs:
            require_numpy(wire.name, wire.dtype)
    except Exception as error:
        failed = error
    said_wrong = str(failed)[:2000] if failed else ""
    status = _Status(job.digest, said_wrong, isinstance(failed, InputError), _cuda(how))
    said = [
        msgspec.json.decode(found, type=_Status)
        for found in tell(store, "ready", rank, len(ids), msgspec.json.encode(status))
    ]
    if failed is not None:
        raise failed
    for other, found in enumerate(said):
        if found.error:
            kind = InputError if found.outside else WeftlineError
            raise kind(f"device {ids[other]!r} (rank {other}) did not start: {found.error}")
        if found.digest != job.digest:
            raise InputError(
                f"ranks {rank} and {other} have different plans, models, inputs or options",
                hint="give every host the same files and the same command",
            )
    assert member is not None
    if all(found.cuda for found in said) and member.messages:
        _use_nccl(member, how)
    return member


def _cuda(how: OrtDevice) -> bool:
    """Whether this rank can send by NCCL."""
    if how.provider != "CUDAExecutionProvider":
        return False
    import torch
    import torch.distributed as dist

    return bool(torch.cuda.is_available() and dist.is_nccl_available())


def _use_nccl(member: Member, how: OrtDevice) -> None:
    """A group for each direction of each pair, made in the same order everywhere: they do not wait for each other."""
    import torch
    import torch.distributed as dist

    torch.cuda.set_device(int(how.options.get("device_id", "0")))
    limit = timedelta(seconds=member.job.timeout)
    pairs = sorted({(message.source, message.target) for message in member.messages})
    groups = {pair: dist.new_group(sorted(pair), timeout=limit, backend="nccl") for pair in pairs}
    member.wires.use_nccl(groups)
    member.nccl = True


def write_started(folder: Path, started: StartedRanks, feeds: Sequence[Arrays]) -> None:
    """What processes of this machine read."""
    (folder / INPUTS).write_bytes(pack_value([dict(feed) for feed in feeds]))
    (folder / JOB).write_bytes(msgspec.json.encode(started))


def _load(folder: Path) -> None:
    import torch.distributed  # noqa: F401


def _work(folder: Path, store: Any, rank: int, world: int) -> bytes:
    started = msgspec.json.decode((folder / JOB).read_bytes(), type=StartedRanks)
    feeds = unpack_value((folder / INPUTS).read_bytes())
    return msgspec.json.encode(serve(started.job, started.how[rank], folder, feeds, store, rank))


if __name__ == "__main__":
    sys.exit(start(Task(_load, _work)))
