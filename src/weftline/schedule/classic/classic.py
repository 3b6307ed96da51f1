"""The classic schedules by name, those that apply to given blocks, and each of them as a scheduler.

In: Blocks, a number of micro-batches. Out: name -> orders, only where the blocks have the structure that the schedule
was made for; `InfeasibleError` says why one does not apply. The orders depend on the structure alone, never on times.
Devices that always work together count as one: tensor-parallel stages are then stages like others. Memory is not looked
at here: the simulator says what an order needs.

GPipe, 1F1B, interleaved 1F1B, Chimera: where the backward pass is split, its parts run one after the other; without a
backward pass its steps are left out. 1F1B+: the stages run 1F1B in steps of equal length; a forward block on several
devices is inserted just before the stage that it feeds, a backward block just behind the stage it comes from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.classic.pipeline import BlockPipeline, PipelineStage, read_pipeline, with_links
from weftline.schedule.classic.zero_bubble import dualpipe_v, zb_h1, zb_h2, zb_v
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.simulate import Orders, simulate_schedule

__all__ = ["CLASSICS", "SCHEDULERS", "Classic", "by_groups", "classic_schedules"]

Make = Callable[[Blocks, int], Orders]


def gpipe(blocks: Blocks, micro_batches: int) -> Orders:
    """All micro-batches through each block, block after block: any blocks, the memory of all micro-batches."""
    table = blocks.table
    place: dict[int, tuple[int, int]] = {}
    for rank, i in enumerate(table.order.tolist()):
        before = table.before_of[table.before_ptr[i] : table.before_ptr[i + 1]].tolist()
        # gradients of weights run at once behind those of inputs if they wait for nothing else
        at_once = table.kind[i] == 2 and len(before) == 1 and table.kind[before[0]] == 1
        place[i] = (place[before[0]][0], 1) if at_once else (rank, 0)
    whole = sorted((place[i][0], micro, place[i][1], i) for i in range(blocks.n) for micro in range(micro_batches))
    return with_links(blocks, micro_batches, _rows_of(blocks, (m * blocks.n + i for _, m, _, i in whole)))


def one_f_one_b(blocks: Blocks, micro_batches: int) -> Orders:
    """One stage per device: fill the pipeline, then one backward and one forward in turn."""
    pipeline = read_pipeline(blocks)
    if pipeline.wide:
        raise InfeasibleError("1F1B does not know blocks on several devices (1F1B+ does)")
    return with_links(blocks, micro_batches, _one_f_one_b_rows(blocks, pipeline, micro_batches))


def _one_f_one_b_rows(blocks: Blocks, pipeline: BlockPipeline, micro_batches: int) -> list[list[int]]:
    """Device -> its operations, without those on several devices."""
    if len(set(pipeline.devices)) < len(pipeline.stages):
        raise InfeasibleError("1F1B needs one stage on each device")
    depth = [1] * len(pipeline.stages)
    """Stages on the longest path to the end: so many micro-batches fill the pipeline from here."""
    for k in reversed(range(len(depth))):
        depth[k] += max((depth[other] for other in pipeline.after[k]), default=0)
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for k, stage in enumerate(pipeline.stages):
        rows[stage.device] = _alternate([stage], blocks.n, [(0, m) for m in range(micro_batches)], None, depth[k])
    return rows


def interleaved_1f1b(blocks: Blocks, micro_batches: int) -> Orders:
    """Several stages per device, round and round; groups of as many micro-batches as devices take turns (Megatron)."""
    pipeline = read_pipeline(blocks)
    count = len(set(pipeline.devices))
    chunks = len(pipeline.stages) // count
    ranks = pipeline.ranks(chunks)
    if chunks < 2 or pipeline.devices != ranks * chunks:
        raise InfeasibleError("interleaved 1F1B needs the same number (2 or more) of rounds over all devices")
    # whole groups are planned and the micro-batches that are too many left out
    groups = -(-micro_batches // count)
    forward = [(c, g * count + j) for g in range(groups) for c in range(chunks) for j in range(count)]
    backward = [(chunks - 1 - c, m) for c, m in forward]
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for r, device in enumerate(ranks):
        mine = pipeline.stages[r::count]
        ahead = 2 * (count - r - 1) + (chunks - 1) * count + 1
        row = _alternate(mine, blocks.n, forward, backward, ahead)
        rows[device] = [op for op in row if op < micro_batches * blocks.n]
    return with_links(blocks, micro_batches, rows)


def _alternate(
    stages: Sequence[PipelineStage],
    n: int,
    forward: Sequence[tuple[int, int]],
    backward: Sequence[tuple[int, int]] | None,
    ahead: int,
) -> list[int]:
    """`ahead` forward steps, then backward and forward in turn; a step is (stage, micro-batch)."""
    row: list[int] = []
    backward = forward if backward is None else backward
    for k in range(len(forward) + ahead):
        if k >= ahead:
            chunk, micro = backward[k - ahead]
            row += [micro * n + block for block in stages[chunk].back]
        if k < len(forward):
            chunk, micro = forward[k]
            row.append(micro * n + stages[chunk].forward)
    return row


def chimera(blocks: Blocks, micro_batches: int) -> Orders:
    """Two chains in opposite directions: each runs 1F1B in every other slot; units are directly concatenated.

    A unit has p micro-batches (p / 2 for each direction) and 2p slots. In a unit, stage s of its chain runs forward in
    slot s + 2j and backward in slot 2p - 1 - s + 2j: the other direction has just the slots between.
    """
    pipeline = read_pipeline(blocks)
    p = len(pipeline.stages) // 2
    if pipeline.wide or len(pipeline.chains) != 2 or p % 2 or len(pipeline.chains[0]) != p:
        raise InfeasibleError("Chimera needs two separate chains over an even number of devices")
    chains = [[pipeline.stages[k] for k in chain] for chain in pipeline.chains]
    devices = [[stage.device for stage in chain] for chain in chains]
    if not all(map(pipeline.is_path, pipeline.chains)) or devices[0] != devices[1][::-1] or len(set(devices[0])) < p:
        raise InfeasibleError("Chimera needs two chains over the same devices in opposite directions")
    slots: list[tuple[int, int, int]] = []
    for chain in chains:
        for micro in range(micro_batches):
            unit, j = divmod(micro, p // 2) if pipeline.trains else (0, micro)
            for s, stage in enumerate(chain):
                slots.append((2 * p * unit + s + 2 * j, 0, micro * blocks.n + stage.forward))
                slot = 2 * p * unit + 2 * p - 1 - s + 2 * j
                slots += [(slot, part, micro * blocks.n + block) for part, block in enumerate(stage.back)]
    return with_links(blocks, micro_batches, _rows_of(blocks, (op for _, _, op in sorted(slots))))


def _rows_of(blocks: Blocks, operations: Iterable[int]) -> list[list[int]]:
    """Device -> its operations, in the order given; links stay empty."""
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for op in operations:
        for device in blocks.blocks[op % blocks.n].devices:
            if not blocks.devices[device].link:
                rows[device].append(op)
    return rows


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
    return with_links(blocks, micro_batches, _rows_of(blocks, whole))


def _steps(blocks: Blocks, pipeline: BlockPipeline, micro_batches: int) -> dict[int, int]:
    """Operation of a stage -> its step in 1F1B, all steps alike and nothing between them."""
    kept = [i for stage in pipeline.stages for i in (stage.forward, *stage.back)]
    number = {block: k for k, block in enumerate(kept)}
    lanes = [Lane(lane.id) for lane in blocks.devices]
    device = {i: stage.device for stage in pipeline.stages for i in (stage.forward, *stage.back)}
    alone = [Block(blocks.blocks[i].kind, 1, (device[i],), (0,)) for i in kept]
    edges = [(number[i], number[j]) for j in kept for i in pipeline.near[j]]
    rows = _one_f_one_b_rows(blocks, pipeline, micro_batches)
    m, n = len(kept), blocks.n
    orders = [np.array([op // n * m + number[op % n] for op in row], np.int64) for row in rows]
    start = simulate_schedule(Blocks.of("steps", lanes, alone, edges), micro_batches, orders).start
    return {op // m * n + kept[op % m]: int(step) for op, step in enumerate(start)}


def _after(blocks: Blocks, pipeline: BlockPipeline) -> list[set[int]]:
    """Block -> the stages' blocks that come first behind it, seen through all others."""
    table = blocks.table
    stages = {i for stage in pipeline.stages for i in (stage.forward, *stage.back)}
    found: list[set[int]] = [set() for _ in range(blocks.n)]
    for i in reversed(table.order.tolist()):
        for after in table.after_of[table.after_ptr[i] : table.after_ptr[i + 1]].tolist():
            found[i] |= {after} if after in stages else found[after]
    return found


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
    make: Make
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
