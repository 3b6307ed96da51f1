"""Outputs of requests, gathered at rank 0 and compared there with the whole model.

In: what every rank has kept. Out: the largest difference. Simplified: the whole model runs on the CPU.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
import numpy as np
from numpy.typing import NDArray
from weftline.run.split.manifest import INPUT
from weftline.run.dist.job import plain_dtype
from weftline.run.dist.member import Arrays, Member
from weftline.run.dist.wires import SLOTS, as_bytes

__all__ = ["compare", "gather"]

MOST_DIMENSIONS = 64


def gather(member: Member, kept: Sequence[Arrays]) -> list[tuple[int, Arrays]]:
    """At rank 0: the requests that are compared, with all outputs; nothing elsewhere."""
    rank_of = {device.id: rank for rank, device in enumerate(member.job.devices)}
    first = member.job.warm_up + member.job.requests - len(kept)
    tag = SLOTS * len(member.messages)
    gathered: list[tuple[int, Arrays]] = []
    for number, made in enumerate(kept):
        found = dict(made)
        for wire in member.outputs:
            source = INPUT if wire.source == INPUT else rank_of[member.manifest.segments[wire.source].device]
            if source in (INPUT, 0):
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
