"""List scheduling: every device takes, when it is free, the ready block that a fixed priority likes best."""

from __future__ import annotations

from weftline.schedule.search import Scheduler, ScheduleSearch

__all__ = ["SCHEDULER"]


def _solve(search: ScheduleSearch) -> None:
    raise NotImplementedError


SCHEDULER = Scheduler("list", "backward first, then forward, then weight gradients, each when memory allows", _solve)
