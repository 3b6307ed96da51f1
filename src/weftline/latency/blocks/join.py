"""Plans of blocks -> a plan of the whole graph: one block after another, and what stands beside them in the gaps.

In: the blocks of a chain, the devices of its ops, and devices for ops that no block holds. Out: a placement with the
actions of a plan. Where the blocks hold everything it is as long as they are. Elsewhere ops beside the chain are booked
just before they are needed, into the first gap that is long enough: what blocks leave idle they may use.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.backfill import backfill
from weftline.latency.blocks.decomposition import Decomposition
from weftline.latency.blocks.relays import Relayed
from weftline.latency.blocks.spans import Segment
from weftline.simulate.timeline import Timeline

__all__ = ["Way", "join"]

Way = list[tuple[int, int]]
"""Devices before and after each segment."""


def join(work: Decomposition, way: Way, rest: Indices) -> tuple[Indices, Ints] | None:
    """Placement and actions along a way; `rest` places ops outside of all blocks. None if a block has no plan yet."""
    placement, rows, complete = rest.astype(np.int32).copy(), [], work.complete
    for segment, (k, j) in zip(work.segments, way, strict=True):
        plan = work.arc(segment, k, j).plan
        if plan is None and segment.whole:
            return None
        if plan is None:
            complete = False
            for op, device in ((segment.first, k), (segment.last, j)):
                if op >= 0:
                    placement[segment.ops[op]] = device
            continue
        placement[segment.ops] = plan.placement
        rows.append(_actions(segment, plan))
    actions = np.concatenate(rows).astype(np.int64) if rows else np.zeros((0, 3), np.int64)
    if complete:
        return placement, actions
    relayed = work.relayed
    filled = backfill(relayed.table, placement[relayed.op], _late_order(relayed, placement, actions))
    return None if filled is None else (placement, relayed.without(filled).actions(work.table.producer))


def _actions(segment: Segment, plan: Timeline) -> Ints:
    """Of a block's plan, with the names of the whole graph; its first op belongs to the block before."""
    actions = plan.actions(segment.part.table.producer)
    actions = actions[(actions[:, 1] >= 0) | (actions[:, 0] != segment.first)]
    moved = actions[:, 1] >= 0
    named = np.zeros(len(actions), np.int64)
    named[moved] = segment.tensors[actions[moved, 0]]
    ops = segment.ops[np.where(moved, 0, actions[:, 0])]
    reader = np.where(actions[:, 2] >= 0, segment.ops[np.maximum(actions[:, 2], 0)], -1)
    return np.stack([np.where(moved, named, ops), actions[:, 1], reader], axis=1)


def _late_order(relayed: Relayed, placement: Indices, actions: Ints) -> Indices:
    """A topological order in which those of the blocks keep theirs, and the rest comes as late as it can."""
    table, n = relayed.table, len(relayed.op)
    key, ops = np.full(n, -1.0), np.flatnonzero(actions[:, 1] < 0)
    key[relayed.place[actions[ops, 0]]] = ops
    sent = {(int(tensor), int(to), int(reader)): i for i, (tensor, to, reader) in enumerate(actions) if to >= 0}
    key[relayed.relay] = relayed.booked(placement, sent, np.full(len(relayed.relay), -1))
    for op in range(n - 1, -1, -1):
        if key[op] < 0:
            outputs = table.output_of[table.output_ptr[op] : table.output_ptr[op + 1]]
            readers = [table.consumer_of[table.consumer_ptr[t] : table.consumer_ptr[t + 1]] for t in outputs]
            key[op] = min((key[each].min() for each in readers if len(each)), default=float(len(actions) + n)) - 1e-6
    made = np.zeros(n)  # of the inputs of one op, what is made first is sent first
    made[relayed.relay] = key[table.edge_maker[table.edge_ptr[relayed.relay]]]
    return np.lexsort((np.arange(n), made, key)).astype(np.int32)
