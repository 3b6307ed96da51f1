"""The classic schedules by name, those that apply to given blocks, and each of them as a scheduler.

In: Blocks, a number of micro-batches. Out: name -> orders, only where the blocks have the structure that the schedule
was made for. Memory is not looked at here: the simulator says what an order needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks
from weftline.schedule.classic_groups import by_groups
from weftline.schedule.classic_orders import chimera, gpipe, interleaved_1f1b, one_f_one_b
from weftline.schedule.classic_plus import one_f_one_b_plus
from weftline.schedule.classic_zero_bubble import dualpipe_v, zb_h1, zb_h2, zb_v
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.simulate import Orders, simulate_schedule

__all__ = ["CLASSICS", "SCHEDULERS", "Classic", "classic_schedules"]


@dataclass(frozen=True)
class Classic:
    """One published schedule."""

    name: str
    description: str
    make: Callable[[Blocks, int], Orders]
    """Orders, or `InfeasibleError` if the blocks are not of its kind."""


CLASSICS = {
    classic.name: classic
    for classic in (
        Classic("gpipe", "all micro-batches forward, then all backward", by_groups(gpipe)),
        Classic("1f1b", "one stage per device, forward and backward in turn", by_groups(one_f_one_b)),
        Classic(
            "interleaved-1f1b", "1F1B with several stages per device, round and round", by_groups(interleaved_1f1b)
        ),
        Classic("1f1b-plus", "1F1B with an extra step for each block on several devices", by_groups(one_f_one_b_plus)),
        Classic("chimera", "two pipelines in opposite directions, directly concatenated", by_groups(chimera)),
        Classic("zb-h1", "split backward pass at the memory of 1F1B", by_groups(zb_h1)),
        Classic("zb-h2", "split backward pass at nearly twice the memory of 1F1B", by_groups(zb_h2)),
        Classic("zb-v", "split backward pass, two chunks per device there and back", by_groups(zb_v)),
        Classic("dualpipe-v", "DualPipe folded to a V, without overlap inside a device", by_groups(dualpipe_v)),
    )
}


def classic_schedules(blocks: Blocks, micro_batches: int) -> dict[str, Orders]:
    """The classic schedules that apply and come to an end, by name."""
    found = {}
    for classic in CLASSICS.values():
        try:
            orders = classic.make(blocks, micro_batches)
            simulate_schedule(blocks, micro_batches, orders)
        except InfeasibleError:
            continue
        found[classic.name] = orders
    return found


def _scheduler(classic: Classic) -> Scheduler:
    def solve(search: ScheduleSearch) -> None:
        if search.offer(classic.make(search.blocks, search.micro_batches)) is None:
            raise InfeasibleError(f"{classic.name} does not fit", conflicts=search.refused)

    return Scheduler(classic.name, classic.description, solve)


SCHEDULERS = tuple(map(_scheduler, CLASSICS.values()))
