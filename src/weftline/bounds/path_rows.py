"""Paths as rows of a block's linear program: starts of ops, each after what it reads, in shares of a unit.

In: the columns of `energy_rows` (column 0 = the end of everything) and heads. Out: one more column per op, its start,
and rows that ask for the time of an op and the way of its results between two starts. Where devices are chosen in part,
so are times and transfers. Every plan satisfies the rows, so they may be added to whatever is asked about the block.
"""

from __future__ import annotations

import numpy as np

from weftline.bounds.energy_rows import FIXED, Columns, Entries, Pairs
from weftline.bounds.windows import Windows
from weftline.graph.arrays import Ints
from weftline.simulate.jit import kernel
from weftline.simulate.tables import Tables

__all__ = ["least_starts", "path_rows"]


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
