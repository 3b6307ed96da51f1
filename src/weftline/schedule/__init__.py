"""Schedules: in what order do many micro-batches run on the placed blocks?

In: `Blocks` (one micro-batch on its devices), the number of micro-batches, memory limits. Out: an order for every
device, costed by the simulator, with the best repeating pattern (the repetend) and lower bounds of period and makespan.
Simplified: spans are fixed numbers; micro-batches are alike and do not depend on each other.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
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
    "cyclic",
    "sequence.sequence",
    "list.priority",
    "cp_sat",
    "classic",
)
_SMALL = {
    "list": {"offered_orders": "1"},
    "cyclic": {
        "most_micro_batches": "1",
        "threads": "1",
        "starts_of_one_micro_batch": "6",
        "trials_per_item": "10",
        "most_items_to_prove": "0",
        "repetends_without_improvement": "0",
    },
    "sequence": {"most_trials_per_operation": "1", "list_operations": "1", "long_runs_without_time_limit": "1"},
}
"""Method -> settings with which it soon ends."""


@cache
def schedulers() -> dict[str, Scheduler]:
    """All schedulers by name: ours, then those other packages offer as entry points `weftline.schedule`."""
    from weftline.plugins import registered

    found: list[Scheduler] = []
    for name in _BUILT_IN:
        module = import_module(f"weftline.schedule.{name}")
        found += getattr(module, "SCHEDULERS", None) or (module.SCHEDULER,)
    return registered("weftline.schedule", found)


@cache
def prepare() -> None:
    """Compile (or load) the kernels of schedules before a clock begins, once per process.

    A small question for every method that has kernels, with limits of work alone: always the same kernels.
    """
    from weftline.schedule.make_blocks import make_shape
    from weftline.schedule.search import ScheduleSearch

    blocks = make_shape("finetune", 4).with_memory(4)  # neither period nor makespan reach their bounds at once
    for method, options in _SMALL.items():
        search = ScheduleSearch(blocks, 6, work_limit=20, wants_period=True, options=options)
        schedulers()[method].solve(search)
