"""Paths as rows of a block's linear program: starts of ops, each after what it reads, in shares of a unit.

In: the columns of `energy_rows` (column 0 = the end of everything) and heads. Out: one more column per op, its start,
and rows that ask for the time of an op and the way of its results between two starts. Where devices are chosen in part,
so are times and transfers. Every plan satisfies the rows, so they may be added to whatever is asked about the block.

What a block between two devices must do on devices and ports if it is no longer than some length.

In: a segment, the devices of its ends, the longest length of interest, prices of resources. Out: the least sum of work
times price, by a linear program in which devices, ports and paths have so long, and how it falls when the block may be
longer. The least is convex in the length, so its tangent holds for every length up to the longest of interest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.latency.blocks.energetic import Part, part_windows
from weftline.latency.blocks.energy_rows import (
    FIXED,
    Columns,
    Entries,
    Items,
    Pairs,
    balance_rows,
    make_columns,
    make_items,
)
from weftline.latency.blocks.spans import Segment
from weftline.latency.blocks.windows import Windows
from weftline.search.lp import Program, minimise
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.tables import Tables

__all__ = ["BlockWork", "block_work", "least_starts", "path_rows"]


@kernel
def path_rows(table: Tables, pairs: Pairs, columns: Columns, first_row: int, unit: int) -> Entries:
    """Rows of all edges, then of the ends of ops that nothing in the block reads. Starts are the last n columns."""
    n, devices = columns.x.shape
    edges = len(table.edge_tensor)
    most = edges * (2 + devices + devices * devices) + n * (2 + devices)
    rows, cols, values = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
    low, high = np.zeros(edges + n), np.full(edges + n, np.inf)
    read = np.zeros(n, np.bool_)
    row, count = 0, 0
    for op in range(n):
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            maker, sent = np.int64(table.edge_maker[e]), table.transfer_row[np.int64(table.edge_tensor[e])]
            read[maker] = True
            rows[count], cols[count], values[count] = first_row + row, columns.total + op, 1.0
            rows[count + 1], cols[count + 1], values[count + 1] = first_row + row, columns.total + maker, -1.0
            count += 2
            for k in range(devices):
                if columns.x[maker, k] == FIXED:
                    low[row] += table.time[maker, k] / unit
                elif columns.x[maker, k] > 0 and table.time[maker, k] > 0:
                    rows[count], cols[count] = first_row + row, columns.x[maker, k]
                    values[count] = -table.time[maker, k] / unit
                    count += 1
                for j in range(devices):
                    which, length = columns.u[pairs.of_edge[e], k, j], table.transfer[sent, k, j]
                    if k == j or length <= 0:
                        continue
                    if which == FIXED:
                        low[row] += length / unit
                    elif which > 0:
                        rows[count], cols[count], values[count] = first_row + row, which, -length / unit
                        count += 1
            row += 1
    for op in range(n):
        if read[op]:
            continue
        rows[count], cols[count], values[count] = first_row + row, 0, 1.0
        rows[count + 1], cols[count + 1], values[count + 1] = first_row + row, columns.total + op, -1.0
        count += 2
        for k in range(devices):
            if columns.x[op, k] == FIXED:
                low[row] += table.time[op, k] / unit
            elif columns.x[op, k] > 0 and table.time[op, k] > 0:
                rows[count], cols[count] = first_row + row, columns.x[op, k]
                values[count] = -table.time[op, k] / unit
                count += 1
        row += 1
    return rows[:count], cols[:count], values[:count], low[:row], high[:row]


def least_starts(found: Windows) -> Ints:
    """(n,): no op starts earlier."""
    starts: Ints = np.where(found.able, found.head, np.iinfo(np.int64).max).min(axis=1)
    return starts


ROOM = 1e-6
SECONDS = 5.0


@dataclass(frozen=True, eq=False)
class BlockWork:
    """A block with fixed ends. Resources: K devices, K send ports, K receive ports, buses."""

    part: Part
    slack: int
    """Longest length of interest, ns."""
    windows: Windows
    columns: Columns
    items: Items
    certain: NDArray[np.float64]
    """By resource: work that is there whatever is chosen, ns."""

    def least(
        self, prices: Mapping[int, float], length: int, stop: Callable[[], bool] | None = None
    ) -> tuple[float, float]:
        """Least work times price if the block is so long, and its change per unit of length (0 or less)."""
        items, unit = self.items, float(max(1, self.slack))
        price = np.zeros(max(len(self.certain), 1 + max(prices)))
        price[list(prices)] = list(prices.values())
        sure = float(self.certain @ price[: len(self.certain)])
        mine = (items.column != FIXED) & (price[items.resource] > 0.0)
        if not mine.any():
            return sure, 0.0
        weight = items.work[mine] * price[items.resource[mine]] / unit
        cost = np.bincount(items.column[mine], weight, self.columns.total).astype(np.float64)
        program, row = self._program(cost, length)
        answer = minimise(program, seconds=SECONDS, stop=stop)
        if not np.isfinite(answer.value):
            return sure, 0.0
        return max(sure, sure + (answer.value - ROOM) * unit), min(0.0, float(answer.prices[row]))

    def _program(self, cost: NDArray[np.float64], length: int) -> tuple[Program, int]:
        """The program, and the row that sets the length."""
        part, items, columns, unit = self.part, self.items, self.columns, float(max(1, self.slack))
        rows, cols, values, low, high = balance_rows(part.pairs, columns, part.table, part.leader)
        open_items = items.column != FIXED
        used, inverse = np.unique(items.resource[open_items], return_inverse=True)
        count, first, n = len(used), len(low), len(part.table.time)
        path = path_rows(part.table, part.pairs, columns, first + count + 1, max(1, self.slack))
        program = Program(
            np.concatenate([cost, np.zeros(n)]),
            np.concatenate([np.zeros(columns.total), least_starts(self.windows) / unit]),
            np.full(columns.total + n, np.inf),
            np.concatenate([low, np.full(count, -np.inf), [length / unit], path[3]]),
            np.concatenate([high, -self.certain[used] / unit, [length / unit], path[4]]),
            np.concatenate([rows, first + inverse, first + np.arange(count), [first + count], path[0]]),
            np.concatenate([cols, items.column[open_items], np.zeros(count, np.int64), [0], path[1]]),
            np.concatenate([values, items.work[open_items] / unit, -np.ones(count), [1.0], path[2]]),
        )
        return program, first + count


def block_work(segment: Segment, k: int, j: int, slack: int) -> BlockWork | None:
    """The block of a segment between two devices; None if it cannot be done within the slack."""
    part = segment.part.at(segment.ends(k, j))
    found = part_windows(part, slack)
    if found is None:
        return None
    columns = make_columns(part.table, part.pairs, found, slack, part.leader)
    items = make_items(part.table, part.pairs, found, columns)
    sure, devices = items.column == FIXED, part.table.time.shape[1]
    resources = 3 * devices + int(part.table.bus.max(initial=-1)) + 1
    certain = np.bincount(items.resource[sure], items.work[sure], resources).astype(np.float64)
    return BlockWork(part, slack, found, columns, items, certain)
