"""Schedules: in what order do many micro-batches run on the placed blocks?

In: `Blocks` (one micro-batch on its devices), the number of micro-batches, memory limits. Out: an order for every
device, costed by the simulator, with the best repeating pattern (the repetend) and lower bounds of period and makespan.
Simplified: spans are fixed numbers; micro-batches are alike and do not depend on each other.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from importlib import import_module
from time import monotonic
from typing import TYPE_CHECKING

from weftline.lazy import lazy_names

if TYPE_CHECKING:
    from weftline.schedule.repetend import Repetend, unroll
    from weftline.schedule.search import Scheduler, ScheduleSearch

__all__ = ["Repetend", "ScheduleSearch", "Scheduler", "prepare", "schedulers", "unroll"]

__getattr__ = lazy_names(
    __name__,
    {
        "Repetend": "weftline.schedule.repetend",
        "ScheduleSearch": "weftline.schedule.search",
        "Scheduler": "weftline.schedule.search",
        "unroll": "weftline.schedule.repetend",
    },
)

_BUILT_IN = (
    "auto",
    "cyclic.cyclic",
    "sequence.sequence",
    "list.priority",
    "cp_sat",
    "classic.classic",
)


@cache
def schedulers() -> dict[str, Scheduler]:
    """All schedulers by name: ours, then those other packages offer as entry points `weftline.schedule`."""
    from weftline.plugins import load_plugins

    found: list[Scheduler] = []
    for name in _BUILT_IN:
        module = import_module(f"weftline.schedule.{name}")
        found += getattr(module, "SCHEDULERS", None) or (module.SCHEDULER,)
    found += load_plugins("weftline.schedule")
    return {scheduler.name: scheduler for scheduler in found}


@cache
def prepare() -> None:
    """Compile (or load) the kernels of schedules before a clock begins, once per process.

    A small question for every method. A kernel that is compiled takes the time of those behind it, so a method is
    called until it ends in time.
    """
    from weftline.errors import InfeasibleError
    from weftline.schedule.make_blocks import make_shape
    from weftline.schedule.search import ScheduleSearch

    seconds, calls = 0.1, 12
    blocks = make_shape("finetune", 4).with_memory(4)  # neither period nor makespan reach their bounds at once
    for method in ("list", "cyclic", "sequence"):
        for _ in range(calls):
            begun = monotonic()
            with suppress(InfeasibleError):
                schedulers()[method].solve(ScheduleSearch(blocks, 6, time_limit=seconds, wants_period=True))
            if monotonic() - begun < 3 * seconds:
                break
