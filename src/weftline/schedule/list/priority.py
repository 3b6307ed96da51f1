"""List scheduling: every device takes, when it is free, the ready block that a fixed priority likes best.

Several priorities are tried; the best few are offered, and one micro-batch after another, which needs least memory.
"""

from __future__ import annotations

from weftline.errors import InfeasibleError
from weftline.schedule.list.rules import ListRun, list_variants, one_after_another
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.polish import shorten_device_span
from weftline.simulate import Orders

__all__ = ["SCHEDULER", "list_orders"]

OFFERED = 4


def list_orders(search: ScheduleSearch, most: int = OFFERED) -> list[Orders]:
    """The orders of the best rules, best first."""
    run = ListRun(search.blocks, search.micro_batches)
    found: dict[tuple[int, int], Orders] = {}
    for rules in list_variants(search.blocks, search.micro_batches):
        makespan = run.run(rules)
        if makespan < 0:
            continue
        values = (makespan, run.span())
        found.setdefault(values[::-1] if search.device_span else values, run.orders())
        left = search.seconds_left
        if left is not None and left <= 0:
            break
    return [found[key] for key in sorted(found)[:most]]


def _solve(search: ScheduleSearch) -> None:
    for orders in list_orders(search):
        if search.best is not None and search.is_over:
            return
        search.offer(shorten_device_span(search, orders))
    for release_first in (False, True):
        if search.best is None or not (search.is_over or release_first):
            search.offer(one_after_another(search.blocks, search.micro_batches, release_first=release_first))
    if search.best is None:
        raise InfeasibleError("list scheduling found no order within the memory limits", conflicts=search.refused)


SCHEDULER = Scheduler("list", "backward first, then forward, then weight gradients, each when memory allows", _solve)
