"""The rows of the energetic linear program of a block: who runs where, what is sent, what every resource has to do.

Columns: 0 = the end of everything, then x(op, device) of ops that still have a choice, u(pair, k, j) of dependent ops
that both have one, v(tensor, k, j) of tensors that several ops read. Rows: each op somewhere, u agrees with x, v covers
u, and for every resource (device, send port, receive port, bus) and every choice of a head a and a tail b: the work of
items that start no earlier than a and are followed by no less than b fits between them. `path_rows`: one more column
per op, its start, and rows that ask for the time of an op and the path of its results between two starts, in shares of
a unit. Where devices are chosen in part, so are times and transfers. Every plan satisfies the rows.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.bounds import Windows
from weftline.simulate.kernels.jit import kernel, part
from weftline.simulate.tables import Tables, edge_readers

__all__ = [
    "IS_CERTAIN",
    "Columns",
    "Items",
    "Pairs",
    "balance_rows",
    "energy_rows",
    "make_columns",
    "make_items",
    "make_pairs",
    "path_rows",
]

NOT_POSSIBLE, IS_CERTAIN, HAS_SEVERAL = -1, -2, -3
"""Instead of a column: impossible, certain, several columns (until they get one of their own)."""


class Pairs(NamedTuple):
    """Dependent ops, each pair once, and the pair of every edge (in the order of `Tables.edge_*`)."""

    maker: Indices
    reader: Indices
    of_edge: Indices


class Columns(NamedTuple):
    """Column numbers, or NOT_POSSIBLE, or IS_CERTAIN."""

    x: Indices
    """(n, K)"""
    u: Indices
    """(pairs, K, K)"""
    v: Indices
    """(tensors, K, K)"""
    total: int


class Items(NamedTuple):
    """What may occupy a resource."""

    resource: Indices
    head: Ints
    tail: Ints
    work: Ints
    column: Indices


class Entries(NamedTuple):
    """Entries of a linear program (row, column, value), and the lower and upper limits of its rows."""

    rows: Ints
    cols: Ints
    values: NDArray[np.float64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]


def make_pairs(table: Tables) -> Pairs:
    """The distinct (maker, reader) of a problem."""
    n = len(table.time)
    reader = edge_readers(table)
    key, of_edge = np.unique(table.edge_maker.astype(np.int64) * max(1, n) + reader, return_inverse=True)
    return Pairs((key // max(1, n)).astype(np.int32), (key % max(1, n)).astype(np.int32), of_edge.astype(np.int32))


@part
def _tensor_columns(table: Tables, pairs: Pairs, u: Indices, count: int) -> tuple[Indices, int]:
    """v: a tensor from a device to another -> columns, and the next free number."""
    devices = u.shape[1]
    v = np.full((len(table.producer), devices, devices), NOT_POSSIBLE, np.int32)
    if not table.per_edge:
        for e in range(len(table.edge_tensor)):
            tensor, p = table.edge_tensor[e], pairs.of_edge[e]
            for k in range(devices):
                for j in range(devices):
                    if k != j and u[p, k, j] != NOT_POSSIBLE and v[tensor, k, j] != IS_CERTAIN:
                        if v[tensor, k, j] == NOT_POSSIBLE or u[p, k, j] == IS_CERTAIN:
                            v[tensor, k, j] = u[p, k, j]
                        elif v[tensor, k, j] != u[p, k, j]:
                            v[tensor, k, j] = HAS_SEVERAL
        for tensor in range(len(v)):
            for k in range(devices):
                for j in range(devices):
                    if v[tensor, k, j] == HAS_SEVERAL:
                        v[tensor, k, j] = count
                        count += 1
    return v, count


@kernel
def make_columns(table: Tables, pairs: Pairs, found: Windows, horizon: int, leader: Indices) -> Columns:
    """Number what is still open. `leader`: the first op of each op's group; ops of a group share their columns.

    Invariant: numbers 1..count-1 are given, each to one choice (or to several that hold together); 0 is not given here.
    tests/latency/test_spans.py covers it (no horizon that the optimum meets is refuted). It has no reference.
    """
    # 1. x: an op on a device.
    n, devices = found.able.shape
    count = 1
    x = np.full((n, devices), NOT_POSSIBLE, np.int32)
    for op in range(n):
        if leader[op] != op:
            x[op] = x[leader[op]]
            continue
        left = 0
        for k in range(devices):
            left += found.able[op, k]
        for k in range(devices):
            if found.able[op, k]:
                x[op, k] = IS_CERTAIN if left == 1 else count
                count += left > 1
    longest = np.zeros((len(pairs.maker), devices, devices), np.int64)
    for op in range(n):
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            row = table.transfer_row[table.edge_tensor[e]]
            for k in range(devices):
                for j in range(devices):
                    old, new = longest[pairs.of_edge[e], k, j], table.transfer[row, k, j]
                    longest[pairs.of_edge[e], k, j] = -1 if old < 0 or new < 0 else max(old, new)
    # 2. u: maker and reader of a pair on two devices.
    u = np.full((len(pairs.maker), devices, devices), NOT_POSSIBLE, np.int32)
    for p in range(len(pairs.maker)):
        a, b = pairs.maker[p], pairs.reader[p]
        for k in range(devices):
            for j in range(devices):
                if x[a, k] == NOT_POSSIBLE or x[b, j] == NOT_POSSIBLE or longest[p, k, j] < 0:
                    continue
                if found.head[a, k] + table.time[a, k] + longest[p, k, j] + found.tail[b, j] > horizon:
                    continue
                if leader[a] == leader[b]:
                    u[p, k, j] = x[a, k] if k == j else NOT_POSSIBLE
                elif x[a, k] == IS_CERTAIN:
                    u[p, k, j] = x[b, j]
                elif x[b, j] == IS_CERTAIN:
                    u[p, k, j] = x[a, k]
                else:
                    u[p, k, j] = count
                    count += 1
    v, count = _tensor_columns(table, pairs, u, count)
    return Columns(x, u, v, count)


@kernel
def make_items(table: Tables, pairs: Pairs, found: Windows, columns: Columns) -> Items:
    """Everything that may take time on a device, a port or a bus. Resources: K devices, K send, K receive, buses."""
    n, devices = found.able.shape
    edges = len(table.edge_tensor)
    most = n * devices + 3 * edges * devices * devices
    resource, column = np.empty(most, np.int32), np.empty(most, np.int32)
    head, tail, work = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.int64)
    count = 0
    for op in range(n):
        for k in range(devices):
            if columns.x[op, k] != NOT_POSSIBLE and table.time[op, k] > 0:
                resource[count], column[count], work[count] = k, columns.x[op, k], table.time[op, k]
                head[count], tail[count] = found.head[op, k], found.tail[op, k] - table.time[op, k]
                count += 1
    follow = np.zeros((len(table.producer), devices, devices), np.int64)
    if not table.per_edge:
        _followed_by(table, pairs, found, columns, follow)
    for op in range(n):
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            tensor, maker = np.int64(table.edge_tensor[e]), table.edge_maker[e]
            row = table.transfer_row[tensor]
            for k in range(devices):
                for j in range(devices):
                    length = table.transfer[row, k, j]
                    if k == j or length <= 0:
                        continue
                    if table.per_edge:
                        which, after = columns.u[pairs.of_edge[e], k, j], found.tail[op, j]
                    else:
                        which, after = columns.v[tensor, k, j], follow[tensor, k, j]
                        follow[tensor, k, j] = -1  # once per tensor
                    if which == NOT_POSSIBLE or after < 0:
                        continue
                    for kind in range(3):
                        where = (devices + k, 2 * devices + j, 3 * devices + table.bus[k, j])[kind]
                        if kind < 2 or table.bus[k, j] >= 0:
                            resource[count], column[count], work[count] = where, which, length
                            head[count], tail[count] = found.head[maker, k] + table.time[maker, k], after
                            count += 1
    return Items(resource[:count], head[:count], tail[:count], work[:count], column[:count])


@part
def _followed_by(table: Tables, pairs: Pairs, found: Windows, columns: Columns, follow: Ints) -> None:
    """(tensors, K, K): least time after the arrival of a tensor, -1 if nobody can read it there.

    The least over possible readers; the most over certain ones.
    """
    devices = found.able.shape[1]
    certain = np.zeros(follow.shape, np.bool_)
    follow[:] = -1
    for op in range(len(found.able)):
        for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
            tensor = np.int64(table.edge_tensor[e])
            for k in range(devices):
                for j in range(devices):
                    which, after = columns.u[pairs.of_edge[e], k, j], found.tail[op, j]
                    if which == IS_CERTAIN:
                        follow[tensor, k, j] = max(after, follow[tensor, k, j]) if certain[tensor, k, j] else after
                        certain[tensor, k, j] = True
                    elif which != NOT_POSSIBLE and not certain[tensor, k, j]:
                        old = follow[tensor, k, j]
                        follow[tensor, k, j] = after if old < 0 else min(old, after)


@kernel
def balance_rows(pairs: Pairs, columns: Columns, table: Tables, leader: Indices) -> Entries:
    """Each op somewhere; u agrees with x on both sides; v covers u."""
    n, devices = columns.x.shape
    edges = len(table.edge_tensor)
    most = n * devices + 2 * len(pairs.maker) * devices * (devices + 1) + 2 * edges * devices * devices
    rows, cols, values = np.empty(most, np.int64), np.empty(most, np.int64), np.empty(most, np.float64)
    limit = n + 2 * len(pairs.maker) * devices + edges * devices * devices
    low, high = np.zeros(limit), np.zeros(limit)
    row, count = 0, 0
    for op in range(n):
        if leader[op] == op and columns.x[op].max() > 0:
            for k in range(devices):
                if columns.x[op, k] > 0:
                    rows[count], cols[count], values[count] = row, columns.x[op, k], 1.0
                    count += 1
            low[row], high[row] = 1.0, 1.0
            row += 1
    for p in range(len(pairs.maker)):
        a, b = pairs.maker[p], pairs.reader[p]
        if columns.x[a].max() <= 0 or columns.x[b].max() <= 0 or leader[a] == leader[b]:
            continue
        for side in range(2):
            for k in range(devices):
                own = columns.x[b if side else a, k]
                if own <= 0:
                    continue
                rows[count], cols[count], values[count] = row, own, -1.0
                count += 1
                for j in range(devices):
                    which = columns.u[p, j, k] if side else columns.u[p, k, j]
                    if which > 0:
                        rows[count], cols[count], values[count] = row, which, 1.0
                        count += 1
                row += 1
    if not table.per_edge:
        for e in range(edges):
            for k in range(devices):
                for j in range(devices):
                    one, all_of = columns.u[pairs.of_edge[e], k, j], columns.v[np.int64(table.edge_tensor[e]), k, j]
                    if k != j and one > 0 and all_of > 0 and one != all_of:
                        rows[count], cols[count], values[count] = row, all_of, -1.0
                        rows[count + 1], cols[count + 1], values[count + 1] = row, one, 1.0
                        low[row] = -np.inf
                        count += 2
                        row += 1
    return Entries(rows[:count], cols[:count], values[:count], low[:row], high[:row])


@kernel
def energy_rows(items: Items, first_row: int, horizon: int, least: int, levels: int) -> Entries:
    """Work of the items between a head and a tail <= end - head - tail, in shares of the horizon.

    The last entry of `high` is above 1 if fixed work alone does not fit.
    """
    total = len(items.resource)
    resources = items.resource.max() + 1 if total > 0 else 0
    most_rows = resources * levels * levels + 1
    low, high = np.full(most_rows, -np.inf), np.zeros(most_rows)
    order = np.argsort(items.resource)
    need = 0
    for pass_ in range(2):  # the first counts entries
        rows, cols, values = np.empty(need, np.int64), np.empty(need, np.int64), np.empty(need, np.float64)
        row, count, begin, worst = 0, 0, 0, 0
        while begin < total:
            stop = begin
            while stop < total and items.resource[order[stop]] == items.resource[order[begin]]:
                stop += 1
            mine = order[begin:stop]
            begin = stop
            heads, tails = _levels(items.head, mine, levels), _levels(items.tail, mine, levels)
            for h in range(len(heads)):
                for t in range(len(tails)):
                    a, b, certain, possible, open_items = horizon, horizon, 0, 0, 0
                    for i in mine:
                        if items.head[i] >= heads[h] and items.tail[i] >= tails[t]:
                            a, b = min(a, items.head[i]), min(b, items.tail[i])
                            if items.column[i] == IS_CERTAIN:
                                certain += items.work[i]
                            else:
                                possible += items.work[i]
                                open_items += 1
                    if certain > 0:
                        worst = max(worst, certain + a + b)
                    same = (h + 1 < len(heads) and a >= heads[h + 1]) or (t + 1 < len(tails) and b >= tails[t + 1])
                    if open_items == 0 or certain + possible + a + b <= least or same:
                        continue  # nothing is open, or it never binds, or another level has the same items
                    if pass_ == 0:
                        need += open_items + 1
                        continue
                    rows[count], cols[count], values[count] = first_row + row, 0, -1.0
                    count += 1
                    for i in mine:
                        if items.head[i] >= heads[h] and items.tail[i] >= tails[t] and items.column[i] != IS_CERTAIN:
                            rows[count], cols[count] = first_row + row, items.column[i]
                            values[count] = items.work[i] / horizon
                            count += 1
                    high[row] = -(a + b + certain) / horizon
                    row += 1
    high[row] = worst / horizon
    return Entries(rows, cols, values, low[:row], high[: row + 1])


@part
def _levels(values: Ints, mine: Ints, levels: int) -> Ints:
    """Up to so many quantiles of some values, the least among them, ascending."""
    found = np.unique(values[mine])
    if len(found) <= levels:
        return found
    picked = np.empty(levels, np.int64)
    for i in range(levels):
        picked[i] = found[i * (len(found) - 1) // (levels - 1)]
    return picked


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
                if columns.x[maker, k] == IS_CERTAIN:
                    low[row] += table.time[maker, k] / unit
                elif columns.x[maker, k] > 0 and table.time[maker, k] > 0:
                    rows[count], cols[count] = first_row + row, columns.x[maker, k]
                    values[count] = -table.time[maker, k] / unit
                    count += 1
                for j in range(devices):
                    which, length = columns.u[pairs.of_edge[e], k, j], table.transfer[sent, k, j]
                    if k == j or length <= 0:
                        continue
                    if which == IS_CERTAIN:
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
            if columns.x[op, k] == IS_CERTAIN:
                low[row] += table.time[op, k] / unit
            elif columns.x[op, k] > 0 and table.time[op, k] > 0:
                rows[count], cols[count] = first_row + row, columns.x[op, k]
                values[count] = -table.time[op, k] / unit
                count += 1
        row += 1
    return Entries(rows[:count], cols[:count], values[:count], low[:row], high[:row])
