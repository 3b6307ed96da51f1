"""Pieces: the parts that a pipeline can be cut into, numbered so that every forward edge goes up.

Ops that must share a device are one piece, and so is everything on a cycle once they are joined (forward ops alone
count: backward ops follow their forward op). Tensors that stay inside a piece are gone. A set that could stand on a
host device is an exception, since its ops need not be contiguous there: as one piece it loses such plans (`exact` is
false); split, its ops are pieces of their own, listed in `same`. In: a Problem. Out: `Pieces`; `merge` makes coarser
ones of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from weftline.cost import NO_TIME
from weftline.cost.table import distinct_rows
from weftline.graph.arrays import Indices, Ints, row_pointer
from weftline.problem import Problem
from weftline.reduce.reduction import device_of_each

__all__ = ["Pieces", "compressed_rows", "make_pieces", "merge"]


@dataclass(frozen=True, eq=False)
class Pieces:
    """P pieces, M tensors between them, K devices. Row i of `*_ptr` / `*_of` is `*_of[ptr[i]:ptr[i + 1]]`."""

    problem: Problem
    of: Indices
    """(n,): piece of each op."""
    time: Ints
    """(P, K): total time on each device, `NO_TIME` where a piece cannot run."""
    size: Ints
    """(P,): number of ops."""
    weight: Ints
    """(P,): bytes that a piece holds on its device all the time (tied weights are not counted)."""
    next_ptr: Indices
    next_of: Indices
    """Piece -> pieces that need a forward tensor of it, each once, ascending. This alone orders the pieces."""
    maker: Indices
    """(M,): piece that makes a tensor."""
    reader_ptr: Indices
    reader_of: Indices
    """Tensor -> other pieces that read it, each once, ascending; never none. May lie before the maker (training)."""
    row: Indices
    """(M,): row of `transfer`."""
    transfer: Ints
    """(rows, K, K): ns from device to device. Flat tensors of the same maker and readers are added up."""
    ceiling: int | None = None
    """Plans below it are not lost, so a bound of these pieces holds for the problem up to it. None = always."""
    same: tuple[tuple[int, ...], ...] = ()
    """Sets of pieces that must share a device (only where pieces were split)."""
    exact: bool = True
    """False if merging may have lost good plans: then no bound of these pieces holds for the problem."""

    @property
    def small(self) -> Pieces:
        """Pieces are a problem of their own: a device for each."""
        return self

    def lift(self, device: Indices) -> Indices:
        """Device of each piece -> device of each op."""
        return np.asarray(device, np.int32)[self.of]

    def lower(self, placement: Indices) -> Indices | None:
        """Device of each op -> device of each piece; None where the ops of a piece stand apart."""
        device = self.nearest(placement)
        return device if np.array_equal(device[self.of], placement) else None

    def nearest(self, placement: Indices) -> Indices:
        """Like `lower`; where the ops of a piece stand apart, the piece is where its first op is."""
        return device_of_each(self.of, len(self.time), placement)

    def lift_bound(self, value: int) -> int:
        """A lower bound for these pieces -> one for the problem."""
        if not self.exact:
            return 0
        return value if self.ceiling is None else min(value, self.ceiling)

    @cached_property
    def edges(self) -> tuple[Indices, Indices]:
        """Every (piece, later piece) of `next_of`."""
        return np.repeat(np.arange(len(self.time), dtype=np.int32), np.diff(self.next_ptr)), self.next_of

    @cached_property
    def before(self) -> tuple[Indices, Indices]:
        """Pointer and row of each piece: the pieces whose forward tensors it needs."""
        source, target = self.edges
        return compressed_rows(target, source, len(self.time))

    @cached_property
    def reads(self) -> tuple[Indices, Indices]:
        """Pointer and row of each piece: tensors it reads."""
        tensor = np.repeat(np.arange(len(self.maker), dtype=np.int32), np.diff(self.reader_ptr))
        return compressed_rows(self.reader_of, tensor, len(self.time))

    @cached_property
    def makes(self) -> tuple[Indices, Indices]:
        """Pointer and row of each piece: tensors it makes."""
        return compressed_rows(self.maker, np.arange(len(self.maker), dtype=np.int32), len(self.time))

    @cached_property
    def stage_devices(self) -> tuple[int, ...]:
        """Devices that hold one contiguous stage each."""
        return tuple(np.flatnonzero(~self.problem.host).tolist())

    @cached_property
    def flat(self) -> bool:
        """True if the time of a transfer depends on the tensor alone."""
        return bool(_flat_rows(self.transfer).all())

    @cached_property
    def equal(self) -> bool:
        """True if all stage devices are the same: times, transfers, memory."""
        stages = list(self.stage_devices)
        if not stages or not self.flat or (self.transfer < 0).any():
            return False
        same_time = (self.time[:, stages] == self.time[:, stages[:1]]).all()
        return bool(same_time and len(set(self.problem.capacity[stages].tolist())) == 1)

    @cached_property
    def transfer_time(self) -> Ints:
        """(M,): ns of each tensor, where transfers are flat."""
        if self.transfer.shape[1] < 2:
            return np.zeros(len(self.maker), np.int64)
        time: Ints = self.transfer[self.row, 0, 1]
        return time


def make_pieces(problem: Problem, *, split: bool = False) -> Pieces:
    """Contract `together` sets (`split`: but for those that hosts can run), then cycles; sort near the graph's."""
    arrays, cost = problem.graph.arrays, problem.cost
    n = len(problem.graph.ops)
    source, target, _ = arrays.edges()
    forward = ~(arrays.backward[source] | arrays.backward[target])
    weight = arrays.weight_bytes + (arrays.workspace_bytes if problem.rules.memory == "static" else 0)
    made = np.flatnonzero(arrays.producer >= 0)
    readers, counts = _rows_at(arrays.consumer_ptr, arrays.consumer_of, made)
    ops = _Parts(cost.time, np.ones(n, np.int64), weight, source[forward], target[forward])
    tensors = _Tensors(arrays.producer[made], np.repeat(np.arange(len(made)), counts), readers, cost.transfer_row[made])
    group, same = problem.group.astype(np.int64), _able_on_host(problem)
    if split:
        for members in same:  # backward ops stay with the first
            group[list(members[1:])] = int(group.max()) + 1 + np.arange(len(members) - 1)
    keeps = _Keeps(None, split or not same, same if split else ())
    return _join(problem, np.arange(n), group, ops, tensors, cost.transfer, keeps)


def _able_on_host(problem: Problem) -> tuple[tuple[int, ...], ...]:
    """The forward ops of every `together` set that has several and could stand on a host device."""
    able, backward = problem.cost.time[:, problem.host] >= 0, problem.graph.arrays.backward
    found = []
    for members in problem.together:
        forward = tuple(op for op in members if not backward[op])
        if len(forward) > 1 and able[list(members)].all(axis=0).any():
            found.append(forward)
    return tuple(found)


def merge(pieces: Pieces, group: Indices | Ints, *, ceiling: int | None = None, exact: bool = True) -> Pieces:
    """Join pieces of the same group, and what then lies on a cycle."""
    source, target = pieces.edges
    parts = _Parts(pieces.time, pieces.size, pieces.weight, source, target)
    tensor = np.repeat(np.arange(len(pieces.maker)), np.diff(pieces.reader_ptr))
    tensors = _Tensors(pieces.maker, tensor, pieces.reader_of, pieces.row)
    ceilings = [value for value in (pieces.ceiling, ceiling) if value is not None]
    keeps = _Keeps(min(ceilings, default=None), pieces.exact and exact, pieces.same)
    return _join(pieces.problem, pieces.of, np.asarray(group, np.int64), parts, tensors, pieces.transfer, keeps)


@dataclass(frozen=True, eq=False)
class _Parts:
    """What is joined: ops or pieces."""

    time: Ints
    size: Ints
    weight: Ints
    source: Indices
    target: Indices


@dataclass(frozen=True)
class _Keeps:
    """What joining does to bounds, and which parts must share a device."""

    ceiling: int | None
    exact: bool
    same: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, eq=False)
class _Tensors:
    maker: Indices
    tensor: Ints
    """Of each reader."""
    reader: Indices
    row: Indices


def _join(
    problem: Problem,
    of: Ints | Indices,
    group: Ints | Indices,
    parts: _Parts,
    tensors: _Tensors,
    transfer: Ints,
    keeps: _Keeps,
) -> Pieces:
    number, count = _sorted_components(group, parts.source, parts.target)
    time = np.zeros((count, parts.time.shape[1]), np.int64)
    np.add.at(time, number, np.maximum(parts.time, 0))
    able = np.ones(time.shape, np.bool_)
    np.logical_and.at(able, number, parts.time != NO_TIME)
    key = np.unique(number[parts.source] * count + number[parts.target])
    key = key[key // count != key % count]
    next_ptr, next_of = compressed_rows(key // count, key % count, count)
    joined = [tuple(sorted(set(number[list(members)].tolist()))) for members in keeps.same]
    maker, reader_ptr, reader_of, row, transfer = _tensors_between(number, tensors, transfer)
    return Pieces(
        problem=problem,
        of=number[of].astype(np.int32),
        time=np.where(able, time, NO_TIME),
        size=np.bincount(number, parts.size, count).astype(np.int64),
        weight=_sums(number, parts.weight, count),
        next_ptr=next_ptr,
        next_of=next_of,
        maker=maker,
        reader_ptr=reader_ptr,
        reader_of=reader_of,
        row=row,
        transfer=transfer,
        ceiling=keeps.ceiling,
        exact=keeps.exact,
        same=tuple(members for members in joined if len(members) > 1),
    )


def _sorted_components(group: Ints | Indices, source: Indices, target: Indices) -> tuple[Ints, int]:
    """Joined piece of each part, in a topological order near the order of the parts, and how many there are."""
    import rustworkx

    _, group = np.unique(group, return_inverse=True)
    size = int(group.max()) + 1
    key = np.unique(group[source].astype(np.int64) * size + group[target])
    key = key[key // size != key % size]
    graph = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(size))
    graph.add_edges_from_no_data(list(zip((key // size).tolist(), (key % size).tolist(), strict=True)))
    component = np.zeros(size, np.int64)
    components = rustworkx.strongly_connected_components(graph)
    for index, members in enumerate(components):
        component[members] = index
    first = np.full(len(components), len(group), np.int64)
    np.minimum.at(first, component[group], np.arange(len(group)))
    quotient = rustworkx.PyDiGraph(multigraph=False)
    quotient.add_nodes_from(range(len(components)))
    links = np.unique(component[key // size] * len(components) + component[key % size])
    links = links[links // len(components) != links % len(components)]
    pairs = zip((links // len(components)).tolist(), (links % len(components)).tolist(), strict=True)
    quotient.add_edges_from_no_data(list(pairs))
    names = [f"{place:012d}" for place in first.tolist()]
    order = rustworkx.lexicographical_topological_sort(quotient, key=names.__getitem__)
    position = np.zeros(len(components), np.int64)
    position[order] = np.arange(len(components))
    return position[component[group]], len(components)


def _tensors_between(
    number: Ints, tensors: _Tensors, transfer: Ints
) -> tuple[Indices, Indices, Indices, Indices, Ints]:
    """Tensors that still have readers in other pieces; flat ones with the same maker and readers become one."""
    count = int(number.max()) + 1
    maker = number[tensors.maker]
    reader = number[tensors.reader]
    key = np.unique(tensors.tensor * count + reader)
    tensor, reader = key // count, key % count
    outside = reader != maker[tensor]
    tensor, reader = tensor[outside], reader[outside]
    kept, index, sizes = np.unique(tensor, return_inverse=True, return_counts=True)
    pointer = np.concatenate([[0], np.cumsum(sizes)])
    flat = _flat_rows(transfer)
    where: dict[tuple[int, bytes], int] = {}
    group = np.zeros(len(kept), np.int64)
    for i, old in enumerate(kept.tolist()):
        if flat[tensors.row[old]]:
            name = (int(maker[old]), reader[pointer[i] : pointer[i + 1]].tobytes())
        else:
            name = (-1, old.to_bytes(8, "little"))
        group[i] = where.setdefault(name, len(where))
    members = np.bincount(group, minlength=len(where))
    first = np.zeros(len(where), np.int64)
    first[group[::-1]] = np.arange(len(kept))[::-1]
    row, transfer = _added_rows(tensors.row[kept], group, members, first, transfer)
    mine = np.isin(index, first)
    ptr = np.concatenate([[0], np.cumsum(sizes[first])])
    return (
        maker[kept[first]].astype(np.int32),
        ptr.astype(np.int32),
        reader[mine].astype(np.int32),
        row,
        transfer,
    )


def _added_rows(row: Indices, group: Ints, members: Ints, first: Ints, transfer: Ints) -> tuple[Indices, Ints]:
    """Row of each group of tensors: that of its only tensor, or the sum of its flat ones."""
    devices = transfer.shape[1]
    single = row[first]
    several = np.flatnonzero(members > 1)
    if not len(several):
        return single.astype(np.int32), transfer
    value = transfer[:, 0, 1] if devices > 1 else np.zeros(len(transfer), np.int64)
    totals = _sums(group, np.maximum(value, 0)[row], len(members))[several]
    absent = _sums(group, (value < 0)[row], len(members))[several] > 0
    levels, index = np.unique(np.where(absent, NO_TIME, totals), return_inverse=True)
    fresh = np.where(np.eye(devices, dtype=np.bool_), 0, levels[:, None, None])
    rows = np.concatenate([transfer, fresh])
    single = single.astype(np.int64)
    single[several] = len(transfer) + index
    used, number = distinct_rows(rows[single].reshape(len(single), devices * devices))
    return number, used.reshape(-1, devices, devices)


def _flat_rows(transfer: Ints) -> NDArray[np.bool_]:
    devices = transfer.shape[1]
    off = ~np.eye(devices, dtype=np.bool_)
    values = transfer[:, off]
    if values.shape[1] == 0:
        return np.ones(len(transfer), np.bool_)
    flat: NDArray[np.bool_] = (values == values[:, :1]).all(axis=1)
    return flat


def _rows_at(pointer: Indices, row_of: Indices, which: Ints) -> tuple[Indices, Ints]:
    """The entries of some compressed rows, and how many each has."""
    counts = np.diff(pointer)[which].astype(np.int64)
    starts = np.repeat(pointer[which] - np.concatenate([[0], np.cumsum(counts)[:-1]]), counts)
    return row_of[starts + np.arange(int(counts.sum()))], counts


def compressed_rows(key: Ints | Indices, value: Ints | Indices, rows: int) -> tuple[Indices, Indices]:
    """Values by key: where each row begins, and the values row after row."""
    return row_pointer(key, rows), np.asarray(value)[np.argsort(key, kind="stable")].astype(np.int32)


def _sums(key: Ints, value: NDArray[np.generic], count: int) -> Ints:
    """Exact sums of integers by key (bincount would go through floats)."""
    total = np.zeros(count, np.int64)
    np.add.at(total, key, value.astype(np.int64))
    return total
