"""The chain of ideals a second time, by somebody who has read the theorems and not the checker.

In: the form of an embedded problem, a target. Out: whether no pipeline has all loads below it. Other data structures:
the graph is a matrix of what reaches what, reductions are looked for from the start after each step, ideals are rows
of truth values, and what a stage costs is added up from its definition. Simplified: static memory is not looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

Json = dict[str, Any]
Flags = NDArray[np.bool_]
Sums = NDArray[np.int64]


@dataclass
class Wire:
    """A tensor that costs something."""

    maker: int
    readers: frozenset[int]
    cost: int


@dataclass
class Shop:
    """Pieces 0..n-1, a matrix of who must not come after whom (all of it, not only neighbours), and wires."""

    work: list[int]
    below: Flags
    wires: list[Wire]

    def close(self, middles: list[int]) -> None:
        """What is before what is before somebody is before him, too; only these have new neighbours."""
        for middle in middles:
            self.below |= np.outer(self.below[:, middle], self.below[middle])

    def regroup(self, names: list[int], *, first: bool = False) -> Shop:
        """Pieces with the same name become one; at first the matrix holds neighbours alone."""
        order = {name: i for i, name in enumerate(sorted(set(names)))}
        number = [order[name] for name in names]
        work = [0] * len(order)
        for piece, home in enumerate(number):
            work[home] += self.work[piece]
        below = np.zeros((len(order), len(order)), np.bool_)
        ends = np.argwhere(self.below)
        index = np.array(number, np.int64)
        below[index[ends[:, 0]], index[ends[:, 1]]] = True
        wires = []
        for wire in self.wires:
            readers = frozenset(number[r] for r in wire.readers) - {number[wire.maker]}
            if readers:
                wires.append(Wire(number[wire.maker], readers, wire.cost))
        found = Shop(work, below, wires)
        homes = np.bincount(index, minlength=len(order))
        found.close(list(range(len(order))) if first else np.flatnonzero(homes > 1).tolist())
        circles = found.below & found.below.T
        if (circles & ~np.eye(len(work), dtype=np.bool_)).any():
            return found.regroup(
                [int(np.flatnonzero(row | (np.arange(len(work)) == i))[0]) for i, row in enumerate(circles)]
            )
        np.fill_diagonal(found.below, False)
        return found

    def without(self, gone: int) -> Shop:
        """One piece less; the matrix keeps what it stood between."""
        keep = [i for i in range(len(self.work)) if i != gone]
        number = {piece: i for i, piece in enumerate(keep)}
        wires = [Wire(number[w.maker], frozenset(number[r] for r in w.readers), w.cost) for w in self.wires]
        return Shop([self.work[i] for i in keep], self.below[np.ix_(keep, keep)], wires)


def read_shop(form: Json) -> Shop:
    """Least times, least transfers; sets that share a device, and circles, are one piece."""
    devices = len(form["devices"])
    ops = form["graph"]["ops"]
    names = list(range(len(ops)))
    for group in form["together"]:
        for op in group:
            names[op] = group[0]
    rows = [form["time_rows"][i] for i in form["time_row"]]
    sums: dict[int, Sums] = {}
    for op, name in enumerate(names):
        row = np.array([2**61 // len(ops) if t < 0 else t for t in rows[op]], np.int64)
        sums[name] = sums.get(name, np.zeros(devices, np.int64)) + row
    work = [int(sums[name].min()) if op == name else 0 for op, name in enumerate(names)]
    below = np.zeros((len(ops), len(ops)), np.bool_)
    wires = []
    for t, tensor in enumerate(form["graph"]["tensors"]):
        maker, readers = tensor["producer"], tensor.get("consumers", [])
        row = form["transfer_rows"][form["transfer_row"][t]]
        costs = [row[a * devices + b] for a, b in product(range(devices), repeat=2) if a != b]
        cost = min((x for x in costs if x >= 0), default=2**61)
        for reader in readers if maker >= 0 else ():
            below[maker, reader] |= not (ops[maker].get("backward") or ops[reader].get("backward"))
        if maker >= 0 and readers and cost > 0:
            wires.append(Wire(maker, frozenset(readers), cost))
    return Shop(work, below, wires).regroup(names, first=True)


def _neighbour(below: Flags, piece: int, *, later: bool) -> int | None:
    """The only piece right behind (or before) it, if there is just one."""
    near = below[piece] if later else below[:, piece]
    found = np.flatnonzero(near)
    inner = below[np.ix_(found, found)]
    first = found[~inner.any(axis=0)] if later else found[~inner.any(axis=1)]
    return int(first[0]) if len(first) == 1 else None


def _one_step(shop: Shop, stages: int, target: int) -> Shop | None:
    """The first reduction or contraction that can be found."""
    names = list(range(len(shop.work)))
    leaving: list[list[Wire]] = [[] for _ in names]
    entering: list[list[Wire]] = [[] for _ in names]
    for wire in shop.wires:
        leaving[wire.maker].append(wire)
        for reader in wire.readers:
            entering[reader].append(wire)
    for piece, work in enumerate(shop.work):
        out, into = leaving[piece], entering[piece]
        if not work and not out and not into:
            return shop.without(piece)
        after, before = (_neighbour(shop.below, piece, later=later) for later in (True, False))
        leaves = sum(w.cost for w in out)
        if after is not None and all(w.readers == {after} for w in out):
            extra = sum(w.cost for w in into if after not in w.readers)
            if work + extra <= leaves:
                names[piece] = after
                return shop.regroup(names)
        alone = sum(w.cost for w in into if w.readers == {piece})
        if before is not None and all(w.maker == before for w in into) and work + leaves <= alone:
            names[piece] = before
            return shop.regroup(names)
    budget = stages * (target - 1) - sum(shop.work)
    shared: dict[tuple[int, int], int] = {}
    for wire in shop.wires:
        for reader in wire.readers:
            pair = (min(wire.maker, reader), max(wire.maker, reader))
            shared[pair] = shared.get(pair, 0) + wire.cost
    together = [p for p, x in shared.items() if max(shop.work[p[0]], shop.work[p[1]]) + x >= target or 2 * x > budget]
    for a, b in together:
        names = [names[a] if name == names[b] else name for name in names]
    return shop.regroup(names) if together else None


def _ideals(shop: Shop, most: int) -> Flags:
    """All of them as rows, those with few pieces first."""
    needs = shop.below.T.astype(np.float32)  # float sums of few ones are exact, and fast
    layer = np.zeros((1, len(shop.work)), np.bool_)
    found: list[Flags] = []
    while len(layer):
        found.append(layer)
        able = ~layer & (((~layer).astype(np.float32) @ needs.T) == 0)
        row, piece = np.nonzero(able)
        grown = layer[row]
        grown[np.arange(len(row)), piece] = True
        _, once = np.unique(np.packbits(grown, axis=1), axis=0, return_index=True)
        layer = grown[once]
        assert sum(map(len, found)) + len(layer) <= most, "too many ideals"
    return np.concatenate(found)


def refutes(form: Json, target: int, most: int = 150_000) -> bool:
    """No pipeline of at most so many stages has all loads below the target."""
    shop, limit = read_shop(form), target - 1
    stages = form["rules"]["stages"] or len(form["devices"])
    while True:
        if sum(shop.work) > stages * limit or max(shop.work, default=0) > limit:
            return True
        smaller = _one_step(shop, stages, target)
        if smaller is None:
            break
        shop = smaller
    if not shop.work or limit <= 0:
        return bool(shop.work) and sum(shop.work) > 0
    rows = _ideals(shop, most)
    work = rows @ np.array(shop.work, np.int64)
    ends = np.zeros((len(shop.wires), len(shop.work)), np.bool_)
    for t, wire in enumerate(shop.wires):
        ends[t, [wire.maker, *wire.readers]] = True
    cost = np.array([wire.cost for wire in shop.wires], np.int64)
    touched, counts = rows.astype(np.float32) @ ends.T.astype(np.float32), ends.sum(axis=1)
    border = ((touched > 0) & (touched < counts)) @ cost if len(cost) else np.zeros(len(rows), np.int64)
    return not _chain(shop, rows, (work, border), (ends, cost), stages, limit)


def _chain(shop: Shop, rows: Flags, sizes: tuple[Any, Any], wires: tuple[Flags, Sums], stages: int, limit: int) -> bool:
    """Is the last ideal reached?"""
    work, border = sizes
    packed = np.packbits(rows, axis=1)
    first, last = -(-(work + border) // limit), -(-(work[-1] - work + border) // limit)
    stage = np.full(len(rows), stages + 1, np.int64)
    stage[0] = 0
    waiting = np.flatnonzero(first + last <= stages)
    waiting = waiting[waiting > 0]
    front = np.array([0])
    for step in range(1, stages + 1):
        front = front[np.argsort(work[front], kind="stable")]
        heights = work[front]
        new = []
        for j in waiting[first[waiting] <= step].tolist():
            near = front[np.searchsorted(heights, work[j] - limit) : np.searchsorted(heights, work[j], side="right")]
            near = near[work[j] - work[near] + np.abs(border[near] - border[j]) <= limit]
            near = near[~(packed[near] & ~packed[j]).any(axis=1)]
            if _some_stage(shop, rows[near], rows[j], wires, limit):
                new.append(j)
        stage[new] = step
        if stage[-1] <= stages:
            return True
        waiting = np.setdiff1d(waiting, new)
        front = np.array(new, np.int64)
        if not new:
            return False
    return False


def _some_stage(shop: Shop, starts: Flags, end: Flags, wires: tuple[Flags, Sums], limit: int) -> bool:
    """Does one of them cost at most the limit? A stage pays its work and every wire with ends on both sides."""
    ends, cost = wires
    for begin in range(0, len(starts), 64):
        inside = (end & ~starts[begin : begin + 64]).astype(np.int32)
        held = inside @ ends.T.astype(np.int32)
        pays = inside.astype(np.int64) @ np.array(shop.work, np.int64)
        if len(cost):
            pays = pays + ((held > 0) & (held < ends.sum(axis=1))) @ cost
        if (pays <= limit).any():
            return True
    return False
