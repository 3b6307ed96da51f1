"""Spans: the blocks of a chain with their ends, how early each can end, and the shortest path through them.

A span holds one op of the chain (which has ended: it takes no time), the block after it and the next op of the chain;
its length from device k to device j is the time from the end of the one to the end of the other. The sum of the least
lengths over the best choice of devices is a lower bound on the latency. In: a problem's tables and a chain.

The energetic bound: can a part of the graph end by a horizon? A linear program says no, or how early at best. In: the
tables of a part (ends are fixed by absent times elsewhere). `refute` narrows windows, builds the program of
`energy_rows` and solves it; `least_end` bisects over horizons. Every number it returns was refuted by itself, so the
search for it may be rough. Claimed, not proved: the program is solved in floating point.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.blocks.chain import Chain
from weftline.latency.blocks.energy_rows import Pairs, balance_rows, energy_rows, make_columns, make_items, make_pairs
from weftline.latency.bounds import OUT_OF_REACH, Windows, windows
from weftline.search.lp import Program, nothing_fits
from weftline.simulate.tables import Tables, part_of

__all__ = [
    "FINE_LEVELS",
    "LP_TOLERANCE",
    "NEAR_SHARE",
    "Part",
    "Span",
    "distances",
    "least_end",
    "make_part",
    "make_spans",
    "part_windows",
    "refute",
    "shortest",
    "walk",
]

LP_TOLERANCE = 1e-6
"""Rounding of the linear program that a claim leaves room for, in shares of the horizon."""
USUAL_LEVELS = 7
FINE_LEVELS = 10
NEAR_SHARE = 0.004
"""Bisection ends when the interval is this small a share of its upper end."""
MOST_ENTRIES = 4_000_000


@dataclass(frozen=True, eq=False)
class Part:
    """A part of the graph and what is computed once for it."""

    table: Tables
    pairs: Pairs
    leader: Indices
    """The first op of each op's `together` set."""

    def at(self, ends: dict[int, int]) -> Part:
        """The same part with some ops fixed to devices."""
        if not ends:
            return self
        time = self.table.time.copy()
        for op, device in ends.items():
            kept = time[op, device]
            time[op] = -1
            time[op, device] = kept
        return Part(self.table._replace(time=time), self.pairs, self.leader)


def make_part(table: Tables, group: Indices) -> Part:
    """`group`: number of the `together` set of each op of the part."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    return Part(table, make_pairs(table), first[inverse].astype(np.int32))


def part_windows(part: Part, horizon: int = OUT_OF_REACH) -> Windows | None:
    """Heads and tails, None if nothing ends by the horizon."""
    found = windows(part.table, horizon, part.leader)
    return None if found.stuck >= 0 else found


def refute(
    part: Part,
    horizon: int,
    *,
    levels: int = USUAL_LEVELS,
    seconds: float = 10.0,
    stop: Callable[[], bool] | None = None,
) -> bool:
    """True if nothing ends by the horizon; `stop` ends the search without an answer.

    (A row holds only up to the horizon, so there is no bound but this one.)
    """
    if horizon < 0:
        return True
    found = part_windows(part, horizon)
    if found is None:
        return True
    columns = make_columns(part.table, part.pairs, found, horizon, part.leader)
    items = make_items(part.table, part.pairs, found, columns)
    if len(items.work) * levels * levels > MOST_ENTRIES:
        return False
    sums = balance_rows(part.pairs, columns, part.table, part.leader)
    energy = energy_rows(items, len(sums.low), max(1, horizon), horizon, levels)
    if energy.high[-1] > 1 + 1e-12:
        return True
    if columns.total == 1 or not len(energy.low):
        return False
    most = np.full(columns.total, np.inf)
    most[0] = 1 + LP_TOLERANCE
    return nothing_fits(
        Program(
            np.zeros(columns.total),
            np.zeros(columns.total),
            most,
            np.concatenate([sums.low, energy.low]),
            np.concatenate([sums.high, energy.high[:-1]]),
            np.concatenate([sums.rows, energy.rows]),
            np.concatenate([sums.cols, energy.cols]),
            np.concatenate([sums.values, energy.values]),
        ),
        seconds=seconds,
        stop=stop,
    )


def least_end(
    part: Part,
    low: int,
    high: int,
    *,
    near: float = NEAR_SHARE,
    levels: int = USUAL_LEVELS,
    guess: int | None = None,
    met: bool = False,
    stop: Callable[[], bool] | None = None,
) -> int:
    """A lower bound on the end of everything between two numbers: `low` holds already, above `high` nothing matters.

    `guess`: where to look first, with steps that grow from there. `met`: it is known that a plan ends by `high`.
    """
    if not met and refute(part, high, levels=levels, stop=stop):
        return high + 1
    step, turn = max(1, int(near * high / 2)), 0
    at = None if guess is None else guess - step
    while high - low > near * high and not (stop is not None and stop()):
        middle = at if at is not None and low <= at < high else (low + high) // 2
        if refute(part, middle, levels=levels, stop=stop):
            low, up = middle + 1, 1
        else:
            high, up = middle, -1
        at = None if at is None or turn == -up else at + 2 * up * step
        turn, step = up, 2 * step
    return low


@dataclass(frozen=True, eq=False)
class Span:
    """`low` has one row (column) where the span has no first (last) end: then the device does not matter."""

    ops: Indices
    """Of the whole problem, ascending."""
    tensors: Indices
    part: Part
    first: int
    """Place of the end in `ops`, -1 = open."""
    last: int
    low: Ints
    """(K or 1, K or 1): lower bounds on the length, `OUT_OF_REACH` = impossible."""
    whole: bool
    """False if ops were left out because they are too many: then `low` is all there is."""
    signature: bytes
    """Spans with the same one are the same problem."""
    shape: bytes
    """Spans with the same one have the same ops and edges, but perhaps other times."""

    def ends(self, k: int, j: int) -> dict[int, int]:
        """What the devices of a pair fix."""
        fixed = {} if self.first < 0 else {self.first: k}
        return fixed if self.last < 0 else {**fixed, self.last: j}


def make_spans(table: Tables, group: Indices, chain: Chain) -> list[Span]:
    """One more than the chain has ops: the first and the last are open."""
    made = windows(table, OUT_OF_REACH, group)
    if made.stuck >= 0:
        return []
    found: list[Span] = []
    ends = (-1, *chain.ops, -1)
    for block, a, b in zip(chain.blocks, ends[:-1], ends[1:], strict=True):
        ops = np.sort(np.concatenate([block, [op for op in (a, b) if op >= 0]])).astype(np.int32)
        part, tensors = _part(table, group, ops, a)
        first, last = (int(np.searchsorted(ops, op)) if op >= 0 else -1 for op in (a, b))
        low = _paths(part, first, last)
        signature, shape = _signature(part, first, last), _shape(part, first, last)
        whole = True
        if not len(block) and a < 0:  # perhaps too many: but no plan brings the first op of the chain sooner
            low = np.maximum(low, np.where(made.able[b], made.head[b] + table.time[b], OUT_OF_REACH)[None])
        elif not len(block) and b < 0:
            low = np.maximum(low, np.where(made.able[a], made.tail[a] - table.time[a], OUT_OF_REACH)[:, None])
        if not len(block) and (a < 0 or b < 0):
            whole = bool((low == _paths(part, first, last)).all())
            signature += low.tobytes()
        found.append(Span(ops, tensors, part, first, last, low, whole, signature, shape))
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
    low = np.full((devices if first >= 0 else 1, devices if last >= 0 else 1), OUT_OF_REACH, np.int64)
    for k in range(len(low)):
        fixed = part.at({first: k} if first >= 0 else {})
        if first >= 0 and part.table.time[first, k] < 0:
            continue
        found = part_windows(fixed)
        if found is None:
            continue
        if last >= 0:
            low[k] = np.where(found.able[last], found.head[last] + fixed.table.time[last], OUT_OF_REACH)
        else:
            low[k, 0] = int(np.where(found.able, found.head + found.tail, OUT_OF_REACH).min(axis=1).max())
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
        ahead.append(np.minimum(OUT_OF_REACH, (ahead[-1][:, None] + np.minimum(low, OUT_OF_REACH)).min(axis=0)))
    back: list[Ints] = [np.zeros(1, np.int64)]
    for low in reversed(lengths):
        back.append(np.minimum(OUT_OF_REACH, (np.minimum(low, OUT_OF_REACH) + back[-1][None]).min(axis=1)))
    return ahead, back[::-1]


def shortest(lengths: list[Ints]) -> int:
    """From the start to the end, along the least lengths."""
    return int(distances(lengths)[0][-1][0])


def walk(lengths: list[Ints]) -> list[tuple[int, int]]:
    """The devices (from, to) of every span on the shortest path."""
    _, back = distances(lengths)
    at, found = 0, []
    for b, low in enumerate(lengths):
        to = int((np.minimum(low[at], OUT_OF_REACH) + back[b + 1]).argmin())
        found.append((at, to))
        at = to
    return found
