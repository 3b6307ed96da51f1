"""Segments: the blocks of a chain with their ends, and the shortest way through them.

A segment holds one op of the chain (which has ended: it takes no time), the block after it and the next op of the
chain; its length from device k to device j is the time from the end of the one to the end of the other. The sum of the
least lengths over the best choice of devices is a lower bound on the latency. In: a problem's tables and a chain.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.blocks.chain import Chain
from weftline.latency.blocks.energetic import Part, make_part, part_windows
from weftline.latency.blocks.windows import NEVER, windows
from weftline.simulate.tables import Tables, part_of

__all__ = ["Segment", "distances", "make_segments", "walk"]


@dataclass(frozen=True, eq=False)
class Segment:
    """`low` has one row (column) where the segment has no first (last) end: then the device does not matter."""

    ops: Indices
    """Of the whole problem, ascending."""
    tensors: Indices
    part: Part
    first: int
    """Place of the end in `ops`, -1 = open."""
    last: int
    low: Ints
    """(K or 1, K or 1): lower bounds on the length, `NEVER` = impossible."""
    whole: bool
    """False if ops were left out because they are too many: then `low` is all there is."""
    signature: bytes
    """Segments with the same one are the same problem."""
    shape: bytes
    """Segments with the same one have the same ops and edges, but perhaps other times."""

    def ends(self, k: int, j: int) -> dict[int, int]:
        """What the devices of a pair fix."""
        fixed = {} if self.first < 0 else {self.first: k}
        return fixed if self.last < 0 else {**fixed, self.last: j}


def make_segments(table: Tables, group: Indices, chain: Chain) -> list[Segment]:
    """One more than the chain has ops: the first and the last are open."""
    made = windows(table, NEVER, group)
    if made.stuck >= 0:
        return []
    found: list[Segment] = []
    ends = (-1, *chain.ops, -1)
    for block, a, b in zip(chain.blocks, ends[:-1], ends[1:], strict=True):
        ops = np.sort(np.concatenate([block, [op for op in (a, b) if op >= 0]])).astype(np.int32)
        part, tensors = _part(table, group, ops, a)
        first, last = (int(np.searchsorted(ops, op)) if op >= 0 else -1 for op in (a, b))
        low = _paths(part, first, last)
        signature, shape = _signature(part, first, last), _shape(part, first, last)
        whole = True
        if not len(block) and a < 0:  # perhaps too many: but no plan brings the first op of the chain sooner
            low = np.maximum(low, np.where(made.able[b], made.head[b] + table.time[b], NEVER)[None])
        elif not len(block) and b < 0:
            low = np.maximum(low, np.where(made.able[a], made.tail[a] - table.time[a], NEVER)[:, None])
        if not len(block) and (a < 0 or b < 0):
            whole = bool((low == _paths(part, first, last)).all())
            signature += low.tobytes()
        found.append(Segment(ops, tensors, part, first, last, low, whole, signature, shape))
    return found


def _part(table: Tables, group: Indices, ops: Indices, first: int) -> tuple[Part, Indices]:
    inner = part_of(table, ops)
    if first >= 0:
        place = int(np.searchsorted(ops, first))
        inner.time[place] = np.where(inner.time[place] >= 0, 0, -1)
    made = np.flatnonzero(np.isin(table.producer, ops)).astype(np.int32)
    return make_part(inner, group[ops]), made


def _paths(part: Part, first: int, last: int) -> Ints:
    """Lengths along paths alone."""
    devices = part.table.time.shape[1]
    low = np.full((devices if first >= 0 else 1, devices if last >= 0 else 1), NEVER, np.int64)
    for k in range(len(low)):
        fixed = part.at({first: k} if first >= 0 else {})
        if first >= 0 and part.table.time[first, k] < 0:
            continue
        found = part_windows(fixed)
        if found is None:
            continue
        if last >= 0:
            low[k] = np.where(found.able[last], found.head[last] + fixed.table.time[last], NEVER)
        else:
            low[k, 0] = int(np.where(found.able, found.head + found.tail, NEVER).min(axis=1).max())
    return low


def _signature(part: Part, first: int, last: int) -> bytes:
    rows = part.table.transfer[part.table.transfer_row]
    return _bytes(part.table.time, rows) + _shape(part, first, last)


def _shape(part: Part, first: int, last: int) -> bytes:
    table = part.table
    fields = (table.producer, table.edge_ptr, table.edge_tensor, table.consumer_of, part.leader)
    return _bytes(*fields) + bytes(repr((first, last)), "ascii")


def _bytes(*fields: NDArray[Any]) -> bytes:
    return b"".join(np.ascontiguousarray(field).tobytes() for field in fields)


def distances(lengths: list[Ints]) -> tuple[list[Ints], list[Ints]]:
    """From the start to every (op of the chain, device), and from there to the end, along the least lengths."""
    ahead: list[Ints] = [np.zeros(1, np.int64)]
    for low in lengths:
        ahead.append(np.minimum(NEVER, (ahead[-1][:, None] + np.minimum(low, NEVER)).min(axis=0)))
    back: list[Ints] = [np.zeros(1, np.int64)]
    for low in reversed(lengths):
        back.append(np.minimum(NEVER, (np.minimum(low, NEVER) + back[-1][None]).min(axis=1)))
    return ahead, back[::-1]


def walk(lengths: list[Ints]) -> list[tuple[int, int]]:
    """The devices (from, to) of every segment on the shortest way."""
    _, back = distances(lengths)
    at, found = 0, []
    for b, low in enumerate(lengths):
        to = int((np.minimum(low[at], NEVER) + back[b + 1]).argmin())
        found.append((at, to))
        at = to
    return found
