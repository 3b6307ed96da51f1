"""Devices that always work together count as one: tensor-parallel stages are then stages like others.

In: Blocks. Out: the same with one device for each group, and orders back to all devices. Memory is not looked at.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from weftline.problem.blocks import Blocks
from weftline.simulate import Orders

__all__ = ["by_groups"]

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
