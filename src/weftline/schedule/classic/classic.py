"""The classic schedules by name, those that apply to given blocks, and each of them as a scheduler.

In: Blocks, a number of micro-batches. Out: name -> orders, only where the blocks have the structure that the schedule
was made for. Devices that always work together count as one: tensor-parallel stages are then stages like others. Memory
is not looked at here: the simulator says what an order needs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks
from weftline.schedule.classic.orders import (
    chimera,
    dualpipe_v,
    gpipe,
    interleaved_1f1b,
    one_f_one_b,
    one_f_one_b_plus,
    zb_h1,
    zb_h2,
    zb_v,
)
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.simulate import Orders, simulate_schedule

__all__ = ["CLASSICS", "SCHEDULERS", "Classic", "by_groups", "classic_schedules"]

Make = Callable[[Blocks, int], Orders]


def by_groups(make: Make) -> Make:
    """The same schedule, where a group of devices may stand for each device."""

    def made(blocks: Blocks, micro_batches: int) -> Orders:
        first = _first_of_group(blocks)
        kept = sorted(set(first))
        if len(kept) == len(first):
            return make(blocks, micro_batches)
        orders = make(_of_groups(blocks, first), micro_batches)
        return tuple(orders[kept.index(device)] for device in first)

    return made


def _first_of_group(blocks: Blocks) -> list[int]:
    """Device -> the first device with the same blocks."""
    mine: list[list[int]] = [[] for _ in blocks.devices]
    for i, block in enumerate(blocks.blocks):
        for device in block.devices:
            mine[device].append(i)
    seen: dict[tuple[bool, tuple[int, ...]], int] = {}
    return [seen.setdefault((lane.link, tuple(mine[d])), d) for d, lane in enumerate(blocks.devices)]


def _of_groups(blocks: Blocks, first: list[int]) -> Blocks:
    kept = sorted(set(first))
    rows = []
    for block in blocks.blocks:
        pairs = [(d, m) for d, m in zip(block.devices, block.memory, strict=True) if first[d] == d]
        rows.append(replace(block, devices=tuple(kept.index(d) for d, _ in pairs), memory=tuple(m for _, m in pairs)))
    return Blocks.of(blocks.name, [blocks.devices[d] for d in kept], rows, blocks.edges)


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
