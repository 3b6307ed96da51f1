"""The published schedules: Blocks and a number of micro-batches -> orders.

The orders depend on the structure alone, never on times. `InfeasibleError` says why one does not apply.
- GPipe, 1F1B, interleaved 1F1B, Chimera: where the backward pass is split, its parts run one after the other; without
  a backward pass its steps are left out.
- 1F1B+: the stages run 1F1B in steps of equal length; a forward block on several devices is inserted just before the
  stage that it feeds, a backward block just behind the stage it comes from.
- ZB-H1, ZB-H2, ZB-V and DualPipeV (without overlap) need a split backward pass. Each device's row is written phase by
  phase from the published counts. A schedule that needs more micro-batches than there are is planned for enough of
  them, and what is too much left out: that waits for nothing new.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence

import numpy as np

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Block, Blocks, Lane
from weftline.schedule.classic.pipeline import BlockPipeline, PipelineStage, read_pipeline, with_links
from weftline.simulate import Orders, simulate_schedule

__all__ = [
    "chimera",
    "dualpipe_v",
    "gpipe",
    "interleaved_1f1b",
    "one_f_one_b",
    "one_f_one_b_plus",
    "one_f_one_b_rows",
    "rows_of",
    "zb_h1",
    "zb_h2",
    "zb_v",
]


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
    return with_links(blocks, micro_batches, rows_of(blocks, (m * blocks.n + i for _, m, _, i in whole)))


def one_f_one_b(blocks: Blocks, micro_batches: int) -> Orders:
    """One stage per device: fill the pipeline, then one backward and one forward in turn."""
    pipeline = read_pipeline(blocks)
    if pipeline.wide:
        raise InfeasibleError("1F1B does not know blocks on several devices (1F1B+ does)")
    return with_links(blocks, micro_batches, one_f_one_b_rows(blocks, pipeline, micro_batches))


def one_f_one_b_rows(blocks: Blocks, pipeline: BlockPipeline, micro_batches: int) -> list[list[int]]:
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
    return with_links(blocks, micro_batches, rows_of(blocks, (op for _, _, op in sorted(slots))))


def rows_of(blocks: Blocks, operations: Iterable[int]) -> list[list[int]]:
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
    return with_links(blocks, micro_batches, rows_of(blocks, whole))


def _steps(blocks: Blocks, pipeline: BlockPipeline, micro_batches: int) -> dict[int, int]:
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


def _after(blocks: Blocks, pipeline: BlockPipeline) -> list[set[int]]:
    """Block -> the stages' blocks that come first behind it, seen through all others."""
    table = blocks.table
    stages = {i for stage in pipeline.stages for i in (stage.forward, *stage.back)}
    found: list[set[int]] = [set() for _ in range(blocks.n)]
    for i in reversed(table.order.tolist()):
        for after in table.after_of[table.after_ptr[i] : table.after_ptr[i + 1]].tolist():
            found[i] |= {after} if after in stages else found[after]
    return found


class _Row:
    """The operations of one device as they are written; every block goes through the micro-batches in order."""

    def __init__(self, chunks: Sequence[PipelineStage], n: int) -> None:
        self.chunks, self.n = chunks, n
        self.operations: list[int] = []
        self.next: dict[int, int] = {}
        self.pending: deque[int] = deque()
        """Chunks whose gradients of weights are still to be done, oldest first."""

    def forward(self, chunk: int = 0) -> None:
        """Run a chunk forward."""
        self._do(self.chunks[chunk].forward)

    def backward(self, chunk: int = 0) -> None:
        """Gradients of inputs; those of weights are kept for later."""
        self._do(self.chunks[chunk].backward)
        self.pending.append(chunk)

    def weight(self) -> None:
        """The oldest gradients of weights."""
        self._do(self.chunks[self.pending.popleft()].weight)

    def whole(self, chunk: int) -> None:
        """The whole backward pass of a chunk at once."""
        self._do(self.chunks[chunk].backward)
        self._do(self.chunks[chunk].weight)

    def rest(self) -> None:
        """All gradients of weights that are left."""
        while self.pending:
            self.weight()

    def _do(self, block: int) -> None:
        micro = self.next.get(block, 0)
        self.next[block] = micro + 1
        self.operations.append(micro * self.n + block)


def zb_h1(blocks: Blocks, micro_batches: int) -> Orders:
    """Memory of 1F1B: rank r fills p - r micro-batches and keeps the weights' work of the last r."""
    return _linear(blocks, micro_batches, lambda p, r: (p - r, r))


def zb_h2(blocks: Blocks, micro_batches: int) -> Orders:
    """Nearly twice that memory: no device waits between its first and its last step when all times are equal."""
    return _linear(blocks, micro_batches, lambda p, r: (2 * (p - r) - 1, 2 * r))


def _linear(blocks: Blocks, micro_batches: int, counts: Callable[[int, int], tuple[int, int]]) -> Orders:
    """`counts`: devices, rank -> forward steps ahead, backward steps whose weights' part is kept back."""
    pipeline, ranks = _split(blocks, 1)
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for r, device in enumerate(ranks):
        ahead, kept = counts(len(ranks), r)
        row = _Row(pipeline.stages[r : r + 1], blocks.n)
        for k in range(micro_batches + ahead):
            if k >= ahead:
                row.backward()
                if len(row.pending) > kept:
                    row.weight()
            if k < micro_batches:
                row.forward()
        row.rest()
        rows[device] = row.operations
    return with_links(blocks, micro_batches, rows)


def zb_v(blocks: Blocks, micro_batches: int) -> Orders:
    """Two chunks per device, there and back: the memory of 1F1B on every device, no wait if all times are equal."""
    return _two_chunks(blocks, micro_batches, _zb_v_row)


def _zb_v_row(row: _Row, p: int, r: int, micro_batches: int) -> None:
    """Fill with the first chunk, let the second come back, then all six kinds of steps in turn, then drain."""
    for _ in range(2 * (p - r) - 1):
        row.forward(0)
    for _ in range(r):
        row.forward(1)
        row.forward(0)
    for _ in range(p - r):
        row.forward(1)
        row.whole(1)
    for k in range(micro_batches - p):
        if k < micro_batches - (2 * p - 1 - r):
            row.forward(0)
        row.whole(0)
        row.forward(1)
        row.whole(1)
    for _ in range(r):
        row.backward(0)
        row.backward(1)
    for _ in range(p - r):
        row.backward(0)
        row.weight()
    row.rest()


def dualpipe_v(blocks: Blocks, micro_batches: int) -> Orders:
    """DualPipe folded to a V: forward of one chunk beside backward of the other; here one after the other."""
    return _two_chunks(blocks, micro_batches, _dualpipe_v_row)


def _dualpipe_v_row(row: _Row, p: int, r: int, micro_batches: int) -> None:
    """The eight phases in the published counts."""
    for _ in range(2 * (p - r - 1)):
        row.forward(0)
    for _ in range(r + 1):
        row.forward(0)
        row.forward(1)
    for _ in range(p - r - 1):
        row.backward(1)
        row.weight()
        row.forward(1)
    for _ in range(micro_batches - 2 * p + r + 1):
        row.forward(0)
        row.whole(1)
        row.forward(1)
        row.whole(0)
    for _ in range(p - r - 1):
        row.whole(1)
        row.forward(1)
        row.whole(0)
    for k in range(2 * (r + 1)):
        # the second half keeps the weights' part back
        (row.whole if k <= r else row.backward)(1 - k % 2)
    for _ in range(p - r - 1):
        row.weight()
        row.backward(0)
    row.rest()


def _two_chunks(blocks: Blocks, micro_batches: int, write: Callable[[_Row, int, int, int], None]) -> Orders:
    pipeline, ranks = _split(blocks, 2)
    p = len(ranks)
    if pipeline.devices != ranks + ranks[::-1]:
        raise InfeasibleError("the schedule needs two chunks on each device, there and back")
    planned = max(micro_batches, 2 * p)
    rows: list[list[int]] = [[] for _ in blocks.devices]
    for r, device in enumerate(ranks):
        row = _Row((pipeline.stages[r], pipeline.stages[2 * p - 1 - r]), blocks.n)
        write(row, p, r, planned)
        rows[device] = [op for op in row.operations if op < micro_batches * blocks.n]
    return with_links(blocks, micro_batches, rows)


def _split(blocks: Blocks, chunks: int) -> tuple[BlockPipeline, tuple[int, ...]]:
    pipeline = read_pipeline(blocks)
    if not pipeline.splits:
        raise InfeasibleError("a zero-bubble schedule needs a split backward pass")
    return pipeline, pipeline.ranks(chunks)
