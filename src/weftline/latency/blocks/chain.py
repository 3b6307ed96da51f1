"""A chain of ops that cuts the graph into blocks, chosen so that little lies outside of them; and its hub.

In: the tables of a problem and the most ops a block may have. Out: the ops of the chain and who comes before whom. All
ops between two neighbours of the chain run after the first has ended and before the second begins, so the least ends of
the blocks add up: any chain gives a bound. What no block holds (ops beside the chain, edges that jump over it) is lost
to the bound, so the chain with the most work and communication inside its blocks is taken, by a longest-path program.

Where much jumps over the chain, a hub is an op whose outputs do, and which feeds the ops beside the chain. Out: the
chain with it in, and in which spans each of the ops beside the chain can run. `hub_search` makes a bound of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.tables import Tables, edge_readers

__all__ = [
    "MOST_OPS",
    "Chain",
    "Chains",
    "Hub",
    "candidates",
    "chain_of",
    "make_hub",
    "pick_hub",
    "reach",
    "through",
]

MOST_OPS = 12_000
"""Above it the table of who comes before whom (a byte per pair) is not made."""
MOST_CANDIDATES = 1_800
"""Ops that may stand in the chain: products of matrices of this size are made."""
MOST_PRODUCTS = 4e9
"""Ops x candidates x candidates: so many products are made, twice."""
OPS_PER_STRETCH = 30
"""Where not all ops can be candidates: of ops with about as many before them, the best come first."""
EDGE_SHARE = 0.3
"""How much communication inside a block counts beside work: it makes blocks harder only in part."""
BLOCK_BONUS = 1e-6
"""For every block, in shares of all work: smaller blocks are easier."""

HUB_CANDIDATES = 8
KEPT_SHARE = 0.95
"""Share of what the blocks hold that must remain when the chain goes through the hub."""

Floats = NDArray[np.float32]
Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Chain:
    """Ops c_0 < c_1 < ... and what lies between them."""

    ops: tuple[int, ...]
    blocks: tuple[Indices, ...]
    """Ops strictly between neighbours, ascending; before the first and after the last come first and last.
    An open end with too many ops is empty."""
    inside: float
    """Share of all work and communication that lies in the blocks."""

    @property
    def largest(self) -> int:
        """Most ops of a block."""
        return max(len(block) for block in self.blocks)


@kernel
def reach(table: Tables) -> Bools:
    """(n, n): [v, u] = op u must end before op v begins."""
    n = len(table.time)
    before = np.zeros((n, n), np.bool_)
    for op in range(n):
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            maker = np.int64(table.edge_maker[e])
            if not before[op, maker]:
                for u in range(maker):
                    before[op, u] |= before[maker, u]
                before[op, maker] = True
    return before


class Chains:
    """Chains of one problem for several sizes of blocks; what they share is computed once."""

    def __init__(self, table: Tables, before: Bools) -> None:
        self._table, self._before = table, before
        work, wire = _least_work(table), _least_transfers(table)
        total = float(work.sum() + EDGE_SHARE * wire.sum()) or 1.0
        work, wire = work / total, wire / total
        self._able = candidates(before, min(MOST_CANDIDATES, int((MOST_PRODUCTS / max(1, len(work))) ** 0.5)))
        self._count, self._held = _between(table, before, self._able, work.astype(np.float32), wire.astype(np.float32))
        self._ends = _open_ends(table, before, self._able, work, wire)
        self._own = work[self._able]

    def pick(self, most: int) -> Chain:
        """The best chain whose blocks have at most so many ops."""
        able, before = self._able, self._before
        (early, early_ops), (late, late_ops) = self._ends
        early, late = np.where(early_ops > most, 0.0, early), np.where(late_ops > most, 0.0, late)
        places = _longest(self._count, self._held, before[np.ix_(able, able)], self._own, early, late, most)
        return chain_of(self._table, before, able[places], most)


def candidates(before: Bools, most: int) -> Indices:
    """At most so many ops that may stand in the chain, ascending: from all stretches of the graph, in each those first
    that come before or after most others."""
    ahead = before.sum(axis=1, dtype=np.int64)
    comparable = before.sum(axis=0, dtype=np.int64) + ahead
    stretch = ahead // OPS_PER_STRETCH
    ranked = np.lexsort((-comparable, stretch))
    rank = np.arange(len(ahead)) - np.searchsorted(stretch[ranked], stretch[ranked])
    return np.sort(ranked[np.lexsort((-comparable[ranked], rank))][:most]).astype(np.int32)


def chain_of(table: Tables, before: Bools, ops: Indices, most: int) -> Chain:
    """The blocks of some ops of which each comes before the next; open ends have at most so many ops."""
    blocks = [np.flatnonzero(before[ops[0]])]
    blocks += [np.flatnonzero(before[b] & before[:, a]) for a, b in pairwise(ops)]
    blocks.append(np.flatnonzero(before[:, ops[-1]]))
    for end in (0, -1):
        if len(blocks[end]) > most:
            blocks[end] = np.zeros(0, np.int64)
    work, wire = _least_work(table), _least_transfers(table)
    total = float(work.sum() + EDGE_SHARE * wire.sum()) or 1.0
    inside = _inside(table, ops, blocks, work, wire) / total
    return Chain(tuple(ops.tolist()), tuple(block.astype(np.int32) for block in blocks), inside)


def through(table: Tables, before: Bools, chain: Chain, op: int, most: int) -> Chain:
    """The chain with another op in it, without those that neither come before it nor after it."""
    if op in chain.ops:
        return chain
    kept = [other for other in chain.ops if before[op, other]] + [op] + [c for c in chain.ops if before[c, op]]
    return chain_of(table, before, np.array(kept, np.int32), most)


def _least_work(table: Tables) -> NDArray[np.float64]:
    able = np.where(table.time >= 0, table.time, np.iinfo(np.int64).max)
    least: NDArray[np.float64] = able.min(axis=1).astype(np.float64)
    return least


def _least_transfers(table: Tables) -> NDArray[np.float64]:
    """Of every edge: the shortest transfer between two devices."""
    devices = table.time.shape[1]
    if devices < 2 or not len(table.edge_tensor):
        return np.zeros(len(table.edge_tensor))
    links = table.transfer[:, ~np.eye(devices, dtype=np.bool_)].astype(np.float64)
    least = np.where(links >= 0, links, np.inf).min(axis=1)
    row = table.transfer_row[table.edge_tensor]
    found: NDArray[np.float64] = np.where(np.isinf(least), links.max(initial=0), least)[row]
    return found


def _open_ends(
    table: Tables, before: Bools, able: Indices, work: NDArray[np.float64], wire: NDArray[np.float64]
) -> list[tuple[NDArray[np.float64], Ints]]:
    """Before each candidate, then after it: work and communication, and how many ops."""
    target, source = edge_readers(table), table.edge_maker.astype(np.int64)
    found: list[tuple[NDArray[np.float64], Ints]] = []
    for near, end in ((before[able], target), (before[:, able].T, source)):
        closed = near.copy()
        closed[np.arange(len(able)), able] = True
        value = near.astype(np.float64) @ work + closed[:, end].astype(np.float64) @ (EDGE_SHARE * wire)
        found.append((value, near.sum(axis=1, dtype=np.int64)))
    return found


def _between(table: Tables, before: Bools, able: Indices, work: Floats, wire: Floats) -> tuple[Floats, Floats]:
    """(c, c) of candidates v, u: number of ops between u and v; work and communication between them, ends included."""
    up, down = before[able].astype(np.float32), np.ascontiguousarray(before[:, able].astype(np.float32))
    count: Floats = up @ down
    held: Floats = ((up * work) @ down).astype(np.float32)
    target = edge_readers(table)
    up[np.arange(len(able)), able] = 1.0
    down[able, np.arange(len(able))] = 1.0
    held += _gathered(up, target, table.edge_maker.astype(np.int64), wire) @ down * np.float32(EDGE_SHARE)
    return count, held


@kernel
def _gathered(up: Floats, target: NDArray[np.int64], source: NDArray[np.int64], wire: Floats) -> Floats:
    """(c, n): communication of the edges that leave an op and end at or before a candidate."""
    found = np.zeros(up.shape, np.float32)
    for e in range(len(source)):
        for v in range(len(up)):
            found[v, source[e]] += up[v, target[e]] * wire[e]
    return found


@kernel
def _longest(
    count: Floats,
    held: Floats,
    before: Bools,
    own: NDArray[np.float64],
    early: NDArray[np.float64],
    late: NDArray[np.float64],
    most: int,
) -> Indices:
    """Places of the best chain among the candidates."""
    size = len(own)
    best = np.zeros(size)
    last = np.full(size, -1, np.int32)
    for v in range(size):
        best[v] = early[v]
        for u in range(v):
            if before[v, u] and count[v, u] <= most:
                value = best[u] + held[v, u] + BLOCK_BONUS
                if value > best[v]:
                    best[v], last[v] = value, u
        best[v] += own[v]
    end = 0
    for v in range(size):
        if best[v] + late[v] > best[end] + late[end]:
            end = v
    length, at = 0, end
    while at >= 0:
        length += 1
        at = last[at]
    found = np.empty(length, np.int32)
    at = end
    for i in range(length - 1, -1, -1):
        found[i] = at
        at = last[at]
    return found


def _inside(
    table: Tables,
    ops: Indices,
    blocks: list[NDArray[np.int64]],
    work: NDArray[np.float64],
    wire: NDArray[np.float64],
) -> float:
    """Work and communication that some block holds."""
    place = np.full(len(work), -9, np.int64)
    place[ops] = 2 * np.arange(len(ops)) + 1
    for b, block in enumerate(blocks):
        place[block] = 2 * b
    held = place >= 0
    # An edge lies in a block if it goes from its first end, or from inside, to its inside or to its last end.
    target = edge_readers(table)
    left, right = place[table.edge_maker.astype(np.int64)], place[target]
    near = (right // 2 - left // 2 <= 1) & ~((left % 2 == 0) & (right // 2 > left // 2))
    kept = (left >= 0) & (right >= 0) & near
    return float(work[held].sum() + EDGE_SHARE * wire[kept].sum())


@dataclass(frozen=True, eq=False)
class Hub:
    """An op of the chain whose outputs jump over much of it, and the ops that stand beside the chain."""

    place: int
    """In the chain."""
    op: int
    beside: tuple[int, ...]
    """Ops beside the chain."""
    begin: Ints
    """First span in which an op beside the chain can run."""
    end: Ints
    """Last one."""


def pick_hub(table: Tables, before: Bools, chain: Chain, most: int) -> tuple[int, Chain] | None:
    """The op whose outputs jump over most of the chain, weighed by what they cost to send, and the chain with it in.

    None if nothing jumps, or if the chain would lose too much by going through what does.
    """
    chain_ops = np.array(chain.ops)
    after = before[:, chain_ops].sum(axis=1)  # ops of the chain before an op: they come first
    after[chain_ops] += 1
    target = edge_readers(table)
    source = table.edge_maker.astype(np.int64)
    ends = after[target] - np.isin(target, chain_ops)
    beside = ~_held(before, chain)[target]  # what waits for nothing else of the chain is needed only where it is read
    ends[beside] = (len(chain_ops) - before[chain_ops].sum(axis=0))[target[beside]]
    cost = table.transfer.max(axis=(1, 2)).astype(np.float64)[table.transfer_row[table.edge_tensor]]
    weight = np.bincount(source, np.maximum(ends - after[source], 0) * cost, len(after))
    for op in np.argsort(-weight, kind="stable")[:HUB_CANDIDATES].tolist():
        if weight[op] > 0.0:
            longer = through(table, before, chain, op, most)
            if longer.inside >= KEPT_SHARE * chain.inside:
                return op, longer
    return None


def make_hub(before: Bools, chain: Chain, op: int) -> Hub | None:
    """A hub that stands in the chain; None if no op stands beside the chain."""
    chain_ops = np.array(chain.ops)
    beside = np.flatnonzero(~_held(before, chain))
    if not len(beside):
        return None
    begin = before[beside][:, chain_ops].sum(axis=1).astype(np.int64)
    end = (len(chain_ops) - before[chain_ops][:, beside].sum(axis=0)).astype(np.int64)
    return Hub(chain.ops.index(op), op, tuple(beside.tolist()), begin, end)


def _held(before: Bools, chain: Chain) -> Bools:
    """(n,): ops of the chain or of a block."""
    held = np.zeros(len(before), np.bool_)
    held[list(chain.ops)] = True
    for block in chain.blocks:
        held[block] = True
    return held
