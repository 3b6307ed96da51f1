"""The verbs that use this machine: detect, train.

In: options. Out: a cluster; a file of weights. Simplified: everything heavy is imported when a verb is called.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from weftline.arguments import a_flag, a_function, a_path, a_whole_number, seconds

if TYPE_CHECKING:
    from weftline.cluster import Cluster
    from weftline.search import Event

__all__ = ["detect", "train"]


def detect(
    devices: int | None = None,
    *,
    quick: bool = False,
    time_limit: float | str = 60.0,
    on_event: Callable[[str], None] | None = None,
) -> Cluster:
    """Measure this machine: compute and memory rates of its cores, transfer rates between them.

    `devices` splits the cores evenly into that many devices (default: one for each physical core, one for all beside
    accelerators, which are those that nvidia-smi, rocm-smi or system_profiler list, with rates of data sheets); `quick`
    measures tiny sizes; after `time_limit` seconds it raises `LimitReached`.
    """
    from weftline.cluster import detect as measure

    count = None if devices is None else a_whole_number(devices, "devices", 1, 4096)
    limit = seconds(time_limit)
    return measure(
        count,
        quick=a_flag(quick, "quick"),
        time_limit=60.0 if limit is None else limit,
        on_event=a_function(on_event, "on_event"),
    )


def train(
    output: Path | str,
    *,
    time_limit: float | str | None = None,
    steps: int | None = None,
    seed: int = 0,
    resume: bool = False,
    on_event: Callable[[Event], None] | None = None,
) -> Path:
    """Train the network of solver `policy`, for seconds or steps -> the file of weights.

    Use it by `wl.plan(..., solver="policy", settings={"weights": file})`. `resume` goes on from its checkpoint.
    """
    from weftline.latency.policy.train import train_policy

    return train_policy(
        a_path(output, "output"),
        seconds=seconds(time_limit),
        steps=None if steps is None else a_whole_number(steps, "steps", 1, 2**31),
        seed=a_whole_number(seed, "seed", 0, 2**31 - 1),
        resume=a_flag(resume, "resume"),
        on_event=a_function(on_event, "on_event"),
    )
