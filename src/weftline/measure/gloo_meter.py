"""What moving an array over gloo costs between two processes of this machine, as `run --engine torch` moves them.

In: sizes, cores. Out: `ChannelTimes`, as for the channel of the local engine. The two processes run this module,
started by `torch_launch`. Simplified: half of a round trip is one way; over the loopback, so a network
between hosts is slower.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Sequence
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import msgspec

from weftline.errors import MissingExtra
from weftline.run.local.channel import ChannelTimes, fit
from weftline.run.local.channel_meter import CHANNEL_WARM_UP, ChannelAsk, pin
from weftline.run.train.launch import run_processes
from weftline.run.train.worker import Task, start

__all__ = ["measure_gloo"]

ASK = "ask.json"


def measure_gloo(
    sizes: Iterable[int] = (1024, 2**17, 2**20, 2**24),
    *,
    cores: tuple[Sequence[int], Sequence[int]],
    rounds: int = 30,
    timeout: float = 120.0,
) -> ChannelTimes:
    """Measure between two processes, pinned to `cores`."""
    if find_spec("torch") is None:
        raise MissingExtra("torch", "torch")
    asked = tuple(sorted(set(sizes)))
    with TemporaryDirectory(prefix="weftline-gloo-") as folder:
        ask = ChannelAsk(asked, (tuple(cores[0]), tuple(cores[1])), rounds)
        (Path(folder) / ASK).write_bytes(msgspec.json.encode(ask))
        answer = run_processes("weftline.measure.gloo_meter", Path(folder), 2, timeout)
    times = msgspec.json.decode(answer, type=list[int])
    latency, bandwidth = fit(asked, times)
    return ChannelTimes(asked, tuple(times), latency, bandwidth)


def _load(folder: Path) -> None:
    import torch.distributed  # noqa: F401


def _work(folder: Path, store: Any, rank: int, world: int) -> bytes:
    """Ns for each size: half of the median round."""
    import torch
    import torch.distributed as dist

    ask = msgspec.json.decode((folder / ASK).read_bytes(), type=ChannelAsk)
    pin(ask.cores[rank])
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    found = []
    for size in ask.sizes:
        array, taken = torch.zeros(size, dtype=torch.uint8), []
        for _ in range(ask.rounds + CHANNEL_WARM_UP):
            begin = time.monotonic_ns()
            if rank == 0:
                dist.send(array, 1)
                dist.recv(array, 1)
            else:
                dist.recv(array, 0)
                dist.send(array, 0)
            taken.append((time.monotonic_ns() - begin) // 2)
        found.append(round(median(taken[CHANNEL_WARM_UP:])))
    dist.barrier()
    dist.destroy_process_group()
    return msgspec.json.encode(found)


if __name__ == "__main__":
    sys.exit(start(Task(_load, _work)))
