"""Relays: transfers with a place of their own in an order. And with them: plans of blocks -> a plan of the whole graph.

The simulator books a transfer when its reader is booked: of an op with several inputs, one that was made early is sent
late, and may keep a port busy that others need. A relay is an instant op beside such a reader: it reads one input, and
the reader reads the relay. Whoever searches for an order of ops and relays then also finds when these inputs are sent.
In: tables of a problem or of a part of it. Out: tables with relays, and timelines without them. Relays stand where
their readers do (they are in one set). Parallel runtime only, and for those who do not count activations: a relay has
none.

`join` puts one block after another, and what stands beside them in the gaps. In: the blocks of a chain, the devices of
its ops, and devices for ops that no block holds. Out: a placement with the actions of a plan. Where the blocks hold
everything it is as long as they are. Elsewhere ops beside the chain are booked just before they are needed, into the
first gap that is long enough: what blocks leave idle they may use.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.latency.anneal.backfill import backfill
from weftline.latency.blocks.spans import Span
from weftline.simulate.kernels.latency import INFEASIBLE, run_order, workspace
from weftline.simulate.tables import Tables, edge_readers
from weftline.simulate.timeline import Timeline

if TYPE_CHECKING:
    from weftline.latency.blocks.decomposition import Decomposition

__all__ = ["ChainPath", "Relayed", "join", "with_relays"]

ChainPath = list[tuple[int, int]]
"""Devices before and after each span."""


@dataclass(frozen=True, eq=False)
class Relayed:
    """Tables with relays. Ops are numbered anew, tensors are not: those of relays come last."""

    table: Tables
    group: Indices
    op: Indices
    """(n + relays,): the op of the original problem, for a relay its reader."""
    place: Indices
    """(n,): number of an op of the original problem."""
    relay: Indices
    """Numbers of the relays."""

    def booked(self, placement: Indices, when: dict[tuple[int, int, int], int], otherwise: Ints) -> Ints:
        """Of each relay: when its input is sent, by (tensor, target, reader or -1); otherwise as given.

        The placement is one of the original problem.
        """
        tensors = self.table.edge_tensor[self.table.edge_ptr[self.relay]].tolist()
        readers = self.op[self.relay].tolist()
        found = [
            when.get((tensor, int(placement[reader]), reader if self.table.per_edge else -1), int(other))
            for tensor, reader, other in zip(tensors, readers, otherwise, strict=True)
        ]
        return np.array(found, np.int64)

    def order(self, plan: Timeline) -> Indices:
        """Ops and relays in the order in which a plan of the original problem has ops and transfers.

        It gives the plan or something earlier if every transfer has a relay; else ops without may have to wait.
        """
        start, lasts = plan.start[self.op], (plan.end > plan.start)[self.op]
        maker = self.op[self.table.edge_maker[self.table.edge_ptr[self.relay]]]
        sent = {(tensor, target, reader): at for tensor, _, target, reader, at, _ in plan.transfers.tolist()}
        start[self.relay] = self.booked(plan.placement, sent, plan.end[maker])
        lasts[self.relay] = False
        return np.lexsort((np.arange(len(start)), lasts, start)).astype(np.int32)

    def timeline(self, placement: Indices, order: Indices) -> Timeline | None:
        """What such an order gives, without the relays; None if it cannot be done."""
        start, end = np.zeros(len(placement), np.int64), np.zeros(len(placement), np.int64)
        sent = np.zeros((len(self.table.consumer_of), 6), np.int64)
        placement = np.ascontiguousarray(placement, np.int32)
        value, count = run_order(self.table, order, placement, start, end, sent, True, workspace(self.table))
        peak = np.zeros(self.table.time.shape[1], np.int64)
        return None if value >= INFEASIBLE else self.without(Timeline(placement, start, end, sent[:count], peak))

    def without(self, timeline: Timeline) -> Timeline:
        """The same, of the original problem."""
        mine, sent = self.place, timeline.transfers.copy()
        sent[:, 3] = np.where(sent[:, 3] < 0, -1, self.op[sent[:, 3]])
        return Timeline(timeline.placement[mine], timeline.start[mine], timeline.end[mine], sent, timeline.peak)


def with_relays(table: Tables, group: Indices, *, every: bool = False) -> Relayed:
    """A relay for every input that takes time to send, of ops with several (or of every op)."""
    n, m = len(table.time), len(table.producer)
    reader, maker, tensor = edge_readers(table), table.edge_maker.astype(np.int64), table.edge_tensor.astype(np.int64)
    costly = table.transfer.max(axis=(1, 2), initial=0)[table.transfer_row[tensor]] > 0
    picked = np.flatnonzero(costly & (every | (np.diff(table.edge_ptr)[reader] > 1)))
    number = np.arange(len(picked))
    place = np.arange(n) + np.searchsorted(reader[picked], np.arange(n), side="right")  # just after its relays
    relay = reader[picked] + number
    op = np.empty(n + len(picked), np.int64)
    op[place], op[relay] = np.arange(n), reader[picked]
    edges = np.stack([place[reader], tensor, place[maker]])
    taken = edges[:, picked].copy()
    edges[1, picked], edges[2, picked] = m + number, relay
    taken[0] = relay
    edges = np.concatenate([edges, taken], axis=1)
    edges = edges[:, np.argsort(edges[0], kind="stable")]
    by_tensor = np.argsort(edges[1], kind="stable")
    producer = np.concatenate([np.where(table.producer >= 0, place[table.producer], -1), relay])
    outputs = np.argsort(producer, kind="stable")[int((producer < 0).sum()) :]
    known = np.concatenate([np.arange(m), tensor[picked]])
    time = table.time[op]
    time[relay] = np.where(time[relay] >= 0, 0, -1)
    real = np.ones(len(op), np.int64)
    real[relay] = 0
    made = table._replace(
        time=np.ascontiguousarray(time),
        transfer_row=table.transfer_row[known],
        producer=producer.astype(np.int32),
        consumer_ptr=row_pointer(edges[1], m + len(picked)),
        consumer_of=edges[0, by_tensor].astype(np.int32),
        edge_ptr=row_pointer(edges[0], len(op)).astype(np.uint32),
        edge_tensor=edges[1].astype(np.uint32),
        edge_maker=edges[2].astype(np.uint32),
        output_ptr=row_pointer(producer[outputs], len(op)),
        output_of=outputs.astype(np.int32),
        tensor_bytes=np.concatenate([table.tensor_bytes, np.zeros(len(picked), np.int64)]),
        is_output=np.concatenate([table.is_output, np.zeros(len(picked), np.bool_)]),
        static_bytes=table.static_bytes[op] * real,
        workspace_bytes=table.workspace_bytes[op] * real,
        backward=table.backward[op],
        tied_of=place[table.tied_of].astype(np.int32),
    )
    return Relayed(made, group[op], op.astype(np.int32), place.astype(np.int32), relay.astype(np.int32))


def join(work: Decomposition, path: ChainPath, rest: Indices) -> tuple[Indices, Ints] | None:
    """Placement and actions along a path; `rest` places ops outside of all blocks. None if a block has no plan yet."""
    placement, rows, complete = rest.astype(np.int32).copy(), [], work.complete
    for span, (k, j) in zip(work.spans, path, strict=True):
        plan = work.arc(span, k, j).plan
        if plan is None and span.whole:
            return None
        if plan is None:
            complete = False
            for op, device in ((span.first, k), (span.last, j)):
                if op >= 0:
                    placement[span.ops[op]] = device
            continue
        placement[span.ops] = plan.placement
        rows.append(_actions(span, plan))
    actions = np.concatenate(rows).astype(np.int64) if rows else np.zeros((0, 3), np.int64)
    if complete:
        return placement, actions
    relayed = work.relayed
    filled = backfill(relayed.table, placement[relayed.op], _late_order(relayed, placement, actions))
    return None if filled is None else (placement, relayed.without(filled).actions(work.table.producer))


def _actions(span: Span, plan: Timeline) -> Ints:
    """Of a block's plan, with the names of the whole graph; its first op belongs to the block before."""
    actions = plan.actions(span.part.table.producer)
    actions = actions[(actions[:, 1] >= 0) | (actions[:, 0] != span.first)]
    moved = actions[:, 1] >= 0
    named = np.zeros(len(actions), np.int64)
    named[moved] = span.tensors[actions[moved, 0]]
    ops = span.ops[np.where(moved, 0, actions[:, 0])]
    reader = np.where(actions[:, 2] >= 0, span.ops[np.maximum(actions[:, 2], 0)], -1)
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
