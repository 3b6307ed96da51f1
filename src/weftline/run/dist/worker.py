"""A process of a plan over torch.distributed: one rank is one device of the plan.

In: a folder with the job, the split model and perhaps inputs; a store where the ranks meet. Out: what rank 0 says of
all of them: a `PlanAnswer`. A rank runs its segments of request after request; tensors come and go by `Wires`; the
outputs of the last requests are gathered at rank 0. Simplified: a device with several segments in a pipeline takes
them request by request.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from weftline.errors import InputError, WeftlineError
from weftline.run.devices import OrtDevice
from weftline.run.dist.job import PlanAnswer, PlanJob, PlanReport, StartedRanks, plain_dtype
from weftline.run.dist.member import Arrays, Member, compare, gather
from weftline.run.dist.wires import lost
from weftline.run.session import bind_cores, open_segments
from weftline.run.split.manifest import read_manifest
from weftline.run.train.worker import Task, start

__all__ = ["JOB", "serve", "write_started"]

JOB, INPUTS = "plan-job.json", "inputs.npz"
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
        worst = compare(Path(job.model), feeds, outputs)
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
            plain_dtype(wire.name, wire.dtype)
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
    names = list(feeds[0])
    arrays = {f"{number}-{place}": feed[name] for number, feed in enumerate(feeds) for place, name in enumerate(names)}
    np.savez(folder / INPUTS, allow_pickle=False, **arrays)
    (folder / JOB).write_bytes(msgspec.json.encode(started))


def _load(folder: Path) -> None:
    import torch.distributed  # noqa: F401


def _work(folder: Path, store: Any, rank: int, world: int) -> bytes:
    started = msgspec.json.decode((folder / JOB).read_bytes(), type=StartedRanks)
    with np.load(folder / INPUTS, allow_pickle=False) as file:
        feeds = [
            {name: file[f"{number}-{place}"] for place, name in enumerate(started.inputs)}
            for number in range(started.feeds)
        ]
    return msgspec.json.encode(serve(started.job, started.how[rank], folder, feeds, store, rank))


if __name__ == "__main__":
    sys.exit(start(Task(_load, _work)))
