"""1F1B+: 1F1B of the stages, with each block on several devices as one more step beside its neighbour.

In: Blocks, a number of micro-batches. Out: orders. The stages run 1F1B in steps of equal length; a forward block on
several devices is inserted just before the stage that it feeds, a backward block just behind the stage it comes from.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.classic_links import with_links
from weftline.schedule.classic_orders import one_f_one_b_rows, rows_of
from weftline.schedule.classic_pipeline import Pipeline, read_pipeline
from weftline.simulate import Orders, simulate_schedule

__all__ = ["one_f_one_b_plus"]


def one_f_one_b_plus(blocks: Blocks, micro_batches: int) -> Orders:
    """Insert the blocks on several devices into 1F1B."""
    pipeline = read_pipeline(blocks)
    if not pipeline.wide:
        raise InfeasibleError("1F1B+ needs blocks on several devices")
    steps = _steps(blocks, pipeline, micro_batches)
    rank = {int(i): k for k, i in enumerate(blocks.table.order)}
    n = blocks.n
    place = {op: (step, 1, rank[op % n]) for op, step in steps.items()}
    after = _after(blocks, pipeline)
    for wide in pipeline.wide:
        kind = blocks.blocks[wide].kind
        before = [i for i in pipeline.near[wide] if blocks.blocks[i].kind == kind]
        behind = [i for i in after[wide] if blocks.blocks[i].kind == kind]
        feeds = bool(behind) if kind == "F" else not before
        beside = (behind or after[wide]) if feeds else (before or pipeline.near[wide])
        for base in range(0, micro_batches * n, n):
            if not beside:
                place[base + wide] = (base // n, 0, rank[wide])
            elif feeds:
                place[base + wide] = (min(steps[base + i] for i in beside), 0, rank[wide])
            else:
                place[base + wide] = (max(steps[base + i] for i in beside), 2, rank[wide])
    whole = sorted(place, key=lambda op: (place[op], op))
    return with_links(blocks, micro_batches, rows_of(blocks, whole))


def _steps(blocks: Blocks, pipeline: Pipeline, micro_batches: int) -> dict[int, int]:
    """Operation of a stage -> its step in 1F1B, all steps alike and nothing between them."""
    kept = [i for stage in pipeline.stages for i in (stage.forward, *stage.back)]
    number = {block: k for k, block in enumerate(kept)}
    lanes = [Lane(lane.id) for lane in blocks.devices]
    device = {i: stage.device for stage in pipeline.stages for i in (stage.forward, *stage.back)}
    alone = [Block(blocks.blocks[i].kind, 1, (device[i],), (0,)) for i in kept]
    edges = [(number[i], number[j]) for j in kept for i in pipeline.near[j]]
    rows = one_f_one_b_rows(blocks, pipeline, micro_batches)
    m, n = len(kept), blocks.n
    orders = [np.array([op // n * m + number[op % n] for op in row], np.int64) for row in rows]
    start = simulate_schedule(Blocks.of("steps", lanes, alone, edges), micro_batches, orders).start
    return {op // m * n + kept[op % m]: int(step) for op, step in enumerate(start)}


def _after(blocks: Blocks, pipeline: Pipeline) -> list[set[int]]:
    """Block -> the stages' blocks that come first behind it, seen through all others."""
    table = blocks.table
    stages = {i for stage in pipeline.stages for i in (stage.forward, *stage.back)}
    found: list[set[int]] = [set() for _ in range(blocks.n)]
    for i in reversed(table.order.tolist()):
        for after in table.after_of[table.after_ptr[i] : table.after_ptr[i + 1]].tolist():
            found[i] |= {after} if after in stages else found[after]
    return found
