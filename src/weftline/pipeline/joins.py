"""Which pieces some best pipeline keeps together, one step at a time, where whole tables of pieces are too coarse.

In: Pieces whose transfers depend on the tensor alone. Out: the group of each piece, and the pieces that may stand
anywhere between what is before and behind them. Simplified: a piece that moves takes its largest time. The checker says
the same in its own words (`certify/piece_graph.py` has the proofs); nothing is shared.

R0: a piece without time and tensors is left out; its predecessors stay before its successors. R1: u goes to v, its only
successor and the only reader of what it makes, if u and what it reads and v does not cost no more than what it makes.
R2: v goes to u, its only predecessor and the maker of all it reads, if v and what it makes cost no more than what u
makes for v alone. For pipelines of equal devices below a target also: C1, one of two pieces with the tensors between
them reaches the target; C2, all work and both ends of these tensors are more than all stages may take.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.pieces import Pieces

__all__ = ["Joins"]

MOST_NEW_EDGES = 400
"""Edges that one R0 may add."""


class Joins:
    """Pieces by number, joined into the smallest one of their group."""

    def __init__(self, pieces: Pieces, movable: NDArray[np.bool_]) -> None:
        count = len(pieces.time)
        self._group = list(range(count))
        self.left_out: list[int] = []
        """Pieces that R0 took away, in that order."""
        stages = list(pieces.stage_devices)
        able = pieces.time[:, stages] >= 0
        self.work: list[int] = pieces.time[:, stages].max(axis=1).tolist()
        self._able: list[int] = (able * (1 << np.arange(len(stages))[None, :].astype(object))).sum(axis=1).tolist()
        self._everywhere = (1 << len(stages)) - 1
        self._movable: list[bool] = movable.tolist()
        self.alive = set(range(count))
        self.before: list[set[int]] = [set() for _ in range(count)]
        self.after: list[set[int]] = [set() for _ in range(count)]
        for a, b in zip(*(ends.tolist() for ends in pieces.edges), strict=True):
            self.after[a].add(b)
            self.before[b].add(a)
        self.made: list[set[int]] = [set() for _ in range(count)]
        self.read: list[set[int]] = [set() for _ in range(count)]
        self.cost: list[int] = pieces.transfer_time.tolist()
        self.maker: list[int] = pieces.maker.tolist()
        self.readers: list[set[int]] = []
        for t, (first, last) in enumerate(zip(pieces.reader_ptr[:-1].tolist(), pieces.reader_ptr[1:].tolist())):  # noqa: B905
            self.readers.append(set(pieces.reader_of[first:last].tolist()) if self.cost[t] > 0 else set())
            if self.cost[t] > 0:
                self.made[self.maker[t]].add(t)
                for reader in self.readers[t]:
                    self.read[reader].add(t)

    @property
    def group(self) -> Ints:
        """(P,): the smallest piece of each one's group."""
        return np.array([self._root(piece) for piece in range(len(self._group))], np.int64)

    def reduce(self) -> None:
        """R0, R1 and R2 until nothing changes."""
        waiting = deque(sorted(self.alive))
        queued = set(waiting)
        while waiting:
            piece = waiting.popleft()
            queued.discard(piece)
            if piece not in self.alive:
                continue
            near = self._neighbours(piece)
            if not self._step(piece):
                continue
            heir = self._root(piece)
            if heir in self.alive:
                near |= {heir} | self._neighbours(heir)
            for other in sorted(near & self.alive - queued):
                queued.add(other)
                waiting.append(other)

    def leave_out(self) -> None:
        """R0 alone."""
        for piece in sorted(self.alive):
            self._zeroth(piece)

    def uncuttable(self, stages: int, target: int) -> list[tuple[int, int]]:
        """C1 and C2: pairs that no pipeline of equal devices below the target separates."""
        room = stages * (target - 1) - sum(self.work[piece] for piece in self.alive)
        found = []
        for m in sorted(self.alive):
            for r in sorted(set().union(*(self.readers[t] for t in self.made[m]))):
                x = self._sum(self.made[m] & self.read[r]) + self._sum(self.made[r] & self.read[m])
                if max(self.work[m], self.work[r]) + x >= target or 2 * x > room:
                    found.append((m, r))
        return found

    def join(self, a: int, b: int) -> None:
        """One piece of two, and no other: cycles are for the caller."""
        a, b = sorted((self._root(a), self._root(b)))
        if a == b:
            return
        self._group[b] = a
        self.alive.discard(b)
        self.work[a] += self.work[b]
        self._able[a] &= self._able[b]
        self._movable[a] &= self._movable[b]
        for t in self.made[b]:
            self.maker[t] = a
        for t in self.read[b]:
            self.readers[t].discard(b)
            self.readers[t].add(a)
        self.made[a] |= self.made[b]
        self.read[a] |= self.read[b]
        for t in self.made[a] & self.read[a]:
            self.readers[t].discard(a)
            self.read[a].discard(t)
            if not self.readers[t]:
                self.made[a].discard(t)
        for p in self.before[b]:
            self.after[p].discard(b)
            self._order(p, a)
        for n in self.after[b]:
            self.before[n].discard(b)
            self._order(a, n)

    def _order(self, a: int, b: int) -> None:
        if a != b:
            self.after[a].add(b)
            self.before[b].add(a)

    def _root(self, piece: int) -> int:
        while self._group[piece] != piece:
            self._group[piece] = self._group[self._group[piece]]
            piece = self._group[piece]
        return piece

    def _sum(self, tensors: Iterable[int]) -> int:
        return sum(self.cost[t] for t in tensors)

    def _neighbours(self, piece: int) -> set[int]:
        near = self.before[piece] | self.after[piece] | {self.maker[t] for t in self.read[piece]}
        return near.union(*(self.readers[t] for t in self.made[piece]))

    def _step(self, u: int) -> bool:
        """One reduction that takes this piece away, if there is one."""
        if self._zeroth(u):
            return True
        made, read = self.made[u], self.read[u]
        if not self._movable[u]:
            return False
        if len(self.after[u]) == 1:
            (v,) = self.after[u]
            alone = self._goes(u, v) and all(self.readers[t] == {v} for t in made)
            if alone and self.work[u] + self._sum(read - self.read[v]) <= self._sum(made):
                self.join(u, v)
                return True
        if len(self.before[u]) == 1:
            (v,) = self.before[u]
            if self._goes(u, v) and all(self.maker[t] == v for t in read):
                for_it_alone = self._sum(t for t in read if len(self.readers[t]) == 1)
                if self.work[u] + self._sum(made) <= for_it_alone:
                    self.join(u, v)
                    return True
        return False

    def _zeroth(self, u: int) -> bool:
        if self.work[u] or self.made[u] or self.read[u] or not self._movable[u] or self._able[u] != self._everywhere:
            return False
        before, after = self.before[u], self.after[u]
        if len(before) * len(after) > MOST_NEW_EDGES:
            return False
        for p in before:
            self.after[p].discard(u)
            self.after[p] |= after
        for n in after:
            self.before[n].discard(u)
            self.before[n] |= before
        self.alive.discard(u)
        self.left_out.append(u)
        return True

    def _goes(self, piece: int, to: int) -> bool:
        """Can it run wherever the other one can?"""
        return not self._able[to] & ~self._able[piece]
