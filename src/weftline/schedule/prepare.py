"""Compile (or load) the kernels of schedules before a clock begins: a tiny question for every method."""

from __future__ import annotations

from contextlib import suppress
from functools import cache

from weftline.errors import InfeasibleError
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.shapes import make_shape

__all__ = ["prepare"]

METHODS = ("list", "cyclic", "sequence")


@cache
def prepare() -> None:
    """Once per process."""
    from weftline.schedule import schedulers

    for method in METHODS:
        search = ScheduleSearch(make_shape("vshape", 3).with_memory(2), 4, work_limit=12)
        with suppress(InfeasibleError):
            search.run(schedulers()[method])
