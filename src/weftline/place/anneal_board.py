"""What the latency annealer knows about a problem and never changes, as flat arrays made once.

In: Tables (op numbers are topological), a memory limit per device, the `together` set of every op. A transfer that has
no link takes `penalty` ns, more than any real schedule: so a start that uses one can be mended by moves, and what still
uses one at the end is recognised by its value.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.place.dominators import dominator_ranges, post_dominator_ranges
from weftline.simulate.jit import kernel
from weftline.simulate.tables import Tables, Unsigned

__all__ = ["Board", "make_board"]


class Board(NamedTuple):
    """n ops, E edges, m tensors, K devices, G groups, W tied weights."""

    cost: Ints
    """(n, K, 2): time of an op (-1 = cannot run), and a lower bound of what follows its end."""
    edge_ptr: Unsigned
    edge: Unsigned
    """(E, 3): maker, row of transfer times, tensor."""
    transfer: Ints
    """(rows, K, K): a missing link takes `penalty`."""
    bus: Indices
    before_ptr: Indices
    before_of: Indices
    after_ptr: Indices
    after_of: Indices
    """Op -> ops it reads from; ops that read from it, and the row of each such transfer."""
    after_row: Indices
    group: Indices
    group_ptr: Indices
    group_of: Indices
    allowed: NDArray[np.bool_]
    """(G, K): every member can run there."""
    tree: Indices
    """(2, 3, n): dominator and post-dominator subtrees as ranges: ops, place, size."""
    static_bytes: Ints
    tied_ptr: Indices
    tied_of: Indices
    """Op -> tied weights it uses."""
    tied_bytes: Ints
    tensors: int
    buses: int
    penalty: int
    per_edge: bool
    sequential: bool


def make_board(table: Tables, group: Indices) -> Board:
    """The arrays of some tables."""
    n, k = table.time.shape
    time = table.time.astype(np.int64)
    transfer = table.transfer.astype(np.int64)
    maker = table.edge_maker.astype(np.int32)
    before_ptr = table.edge_ptr.astype(np.int32)
    reader = np.repeat(np.arange(n, dtype=np.int32), before_ptr[1:] - before_ptr[:-1])
    row = table.transfer_row[table.edge_tensor]
    dearest = transfer.max(axis=(1, 2), initial=0)
    penalty = min(2**60, 1 + int(time.max(axis=1, initial=0).sum()) + int(dearest[row].sum()))
    transfer = np.where(transfer < 0, penalty, transfer)
    by_maker = np.argsort(maker, kind="stable")
    after_ptr = row_pointer(maker, n)
    after_of = reader[by_maker]
    users = np.repeat(np.arange(len(table.tied_bytes), dtype=np.int32), np.diff(table.tied_ptr))
    by_user = np.argsort(table.tied_of, kind="stable")
    groups = int(group.max(initial=-1)) + 1
    allowed = np.ones((groups, k), np.bool_)
    np.logical_and.at(allowed, group, time >= 0)
    tree = np.empty((2, 3, n), np.int32)
    tree[0] = dominator_ranges(before_ptr, maker)
    tree[1] = post_dominator_ranges(after_ptr, after_of)
    cost = np.zeros((n, k, 2), np.int64)
    cost[:, :, 0] = time
    board = Board(
        cost=cost,
        edge_ptr=table.edge_ptr,
        edge=np.ascontiguousarray(np.stack([maker, row, table.edge_tensor], axis=1).astype(np.uint32)),
        transfer=np.ascontiguousarray(transfer),
        bus=np.ascontiguousarray(table.bus),
        before_ptr=before_ptr,
        before_of=maker,
        after_ptr=after_ptr,
        after_of=after_of,
        after_row=row[by_maker],
        group=np.ascontiguousarray(group, np.int32),
        group_ptr=row_pointer(group, groups),
        group_of=np.argsort(group, kind="stable").astype(np.int32),
        allowed=allowed,
        tree=tree,
        static_bytes=np.ascontiguousarray(table.static_bytes),
        tied_ptr=row_pointer(table.tied_of, n),
        tied_of=users[by_user],
        tied_bytes=table.tied_bytes,
        tensors=len(table.producer),
        buses=int(table.bus.max(initial=-1)) + 1,
        penalty=penalty,
        per_edge=bool(table.per_edge),
        sequential=bool(table.sequential),
    )
    _bound_what_follows(board)
    return board


@kernel
def _bound_what_follows(board: Board) -> None:
    """Fill `cost[:, :, 1]`: the longest path after an op on a device, each later op on its best device at once."""
    cost, transfer, edge_ptr, edge = board.cost, board.transfer, board.edge_ptr, board.edge
    n, devices = cost.shape[0], cost.shape[1]
    for op in range(n - 1, -1, -1):
        for e in range(np.int64(edge_ptr[op]), np.int64(edge_ptr[op + 1])):
            maker, row = np.int64(edge[e, 0]), np.int64(edge[e, 1])
            for k in range(devices):
                least = np.int64(2**61)
                for to in range(devices):
                    if cost[op, to, 0] >= 0:
                        least = min(least, transfer[row, k, to] + cost[op, to, 0] + cost[op, to, 1])
                cost[maker, k, 1] = max(cost[maker, k, 1], min(least, board.penalty))
