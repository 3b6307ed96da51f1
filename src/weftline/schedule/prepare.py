"""Compile (or load) the kernels of schedules before a clock begins: a small question for every method, again and again.

A kernel that is compiled takes the time of those behind it, so a method is called until it ends in time.
"""

from __future__ import annotations

from contextlib import suppress
from functools import cache
from time import monotonic

from weftline.errors import InfeasibleError
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.shapes import make_shape

__all__ = ["prepare"]

METHODS = ("list", "cyclic", "sequence")
SECONDS, CALLS = 0.1, 12


@cache
def prepare() -> None:
    """Once per process."""
    from weftline.schedule import schedulers

    blocks = make_shape("finetune", 4).with_memory(4)  # neither period nor makespan reach their bounds at once
    for method in METHODS:
        for _ in range(CALLS):
            begun = monotonic()
            with suppress(InfeasibleError):
                schedulers()[method].solve(ScheduleSearch(blocks, 6, time_limit=SECONDS, wants_period=True))
            if monotonic() - begun < 3 * SECONDS:
                break
