"""The pictures of a schedule as data: what each device does when, which part of it repeats, memory over time.

In: a Schedule. Out: plain values that the page's scripts draw. The repetend is marked where the timetable really
repeats: from one repetition to the next every block starts exactly one length later.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from weftline.graph.arrays import Ints
from weftline.plans.schedule import Schedule
from weftline.problem.blocks import KINDS, Blocks
from weftline.report.html.pack import Room, packed_spans, short_name, short_names, thinned_steps
from weftline.report.html.plan import memory_lane
from weftline.simulate import Timetable

__all__ = ["repeats", "schedule_data"]


def schedule_data(schedule: Schedule, room: Room) -> dict[str, Any]:
    """Everything the page draws."""
    blocks, found = schedule.load_blocks(), schedule.timetable()
    total = sum(len(order) for order in found.orders)
    share = min(1.0, room.spans / max(total, 1))
    lanes, memory = [], []
    for d, (lane, order) in enumerate(zip(blocks.devices, found.orders, strict=True)):
        spans = packed_spans(found.start[order], found.end[order], order, max(200, int(share * len(order))))
        name = short_name(lane.id, 64)
        lanes.append({"device": d, "name": name, "role": "link" if lane.link else "block", **spans})
        if not lane.link:
            steps = thinned_steps(_levels(blocks, found, d), max(100, room.steps // len(blocks.devices)))
            memory.append(memory_lane(name, np.array(steps, np.int64).reshape(-1, 2), schedule.memory_limit[d]))
    where = repeats(schedule, found)
    return {
        "kind": "schedule",
        "unit": "ns" if "plan" in schedule.provenance.inputs else "",
        "value": schedule.value,
        "bound": schedule.bound,
        "devices": [short_name(lane.id, 64) for lane in blocks.devices],
        "timeline": {
            "end": found.makespan,
            "lanes": lanes,
            "blocks": short_names(
                [block.name or f"block {i}" for i, block in enumerate(blocks.blocks)], room.characters
            ),
            "kinds": [KINDS.index(block.kind) for block in blocks.blocks],
            "stages": [block.stage for block in blocks.blocks],
            "marks": [] if where is None else _marks(*where, found.makespan),
            "chain": [],
        },
        "repeats": None if where is None else {"from": where[0], "to": where[1], "times": where[2]},
        "memory": {"end": found.makespan, "lanes": memory},
        "progress": [],
    }


def repeats(schedule: Schedule, found: Timetable) -> tuple[int, int, int] | None:
    """The longest stretch that repeats: begin, end, how many lengths of the repetend; None if less than one does."""
    pattern = schedule.repetend
    if pattern is None or pattern.scaled_length % pattern.scale or not 0 < pattern.micro_batches < found.micro_batches:
        return None
    length, shift = pattern.scaled_length // pattern.scale, pattern.micro_batches * found.blocks.n
    good = np.zeros(len(found.start), np.bool_)
    good[:-shift] = found.start[shift:] - found.start[:-shift] == length
    order = np.argsort(found.start, kind="stable")
    start, first = np.unique(found.start[order], return_index=True)
    same = np.logical_and.reduceat(good[order], first)
    edges = np.flatnonzero(np.diff(np.concatenate(([False], same, [False])).astype(np.int8)))
    stretches = [(int(start[a]), int(start[b - 1])) for a, b in zip(edges[::2], edges[1::2], strict=True)]
    best = max(stretches, key=lambda stretch: stretch[1] - stretch[0], default=None)
    if best is None:
        return None
    begin, end = best[0], min(best[1] + length, found.makespan)
    times = (end - begin) // length
    return (begin, begin + times * length, times) if times >= 1 else None


def _marks(begin: int, end: int, times: int, makespan: int) -> list[dict[str, Any]]:
    parts = [
        ("warm-up", 0, begin),
        (f"repetend, {times} times" if times > 1 else "repetend", begin, end),
        ("cool-down", end, makespan),
    ]
    return [{"name": name, "from": a, "to": b} for name, a, b in parts if b > a]


def _levels(blocks: Blocks, found: Timetable, device: int) -> list[tuple[int, int]]:
    """(time, level): every block changes the memory of its devices when it starts."""
    order: Ints = found.orders[device]
    change = {
        i: block.memory[block.devices.index(device)] for i, block in enumerate(blocks.blocks) if device in block.devices
    }
    level, steps = 0, [(0, 0)]
    for operation in order.tolist():
        level += change[operation % blocks.n]
        steps.append((int(found.start[operation]), level))
    return steps
