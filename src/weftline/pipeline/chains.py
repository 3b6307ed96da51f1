"""Is there a chain of ideals whose stages all stay within a limit? Stage by stage, from the ideals that were reached.

In: ideals as rows of bits with their work, and the tensors with an end on both sides of each (their cut). Out: for each
ideal the one before it on a chain with the fewest stages. Simplified: equal devices, added communication.

A stage from I to J costs work(J) - work(I) + cut(I) + cut(J) less, for every tensor that crosses both, its cost, twice
if nobody in the stage makes or reads it. So I with work(I) - cut(I) >= work(J) + cut(J) - most reach every J around
them; others must share a crossing tensor with J. Ideals whose border leaves one side too little are never cuts.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.simulate.kernels.jit import kernel, uncounted_part

__all__ = ["Bits", "BorderedIdeals", "reach", "stage_costs"]

Bits = NDArray[np.uint64]


class BorderedIdeals(NamedTuple):
    """N ideals by size, M tensors."""

    members: Bits
    """(N, words of pieces)."""
    crossing: Bits
    """(N, words of tensors)."""
    work: Ints
    cut: Ints
    cost: Ints
    """(M,)."""
    ends: Bits
    """(M, words of pieces): who makes or reads it."""


class _Front(NamedTuple):
    """The ideals that were reached with the last stage."""

    by_key: Indices
    """The largest work - cut first."""
    key: Ints
    by_work: Indices
    """The largest work first."""
    pointer: Ints
    """Tensor -> its rows of `sharing`."""
    sharing: Indices
    """Those that a tensor crosses, the largest work first."""


@kernel
def reach(ideals: BorderedIdeals, stages: int, most: int, origin: Indices, stop: Ints, limit: int) -> int:
    """Fill `origin` (-1: not reached) -> stages to the last ideal, 0 if there is no chain, -1 if it took too long."""
    work, cut = ideals.work, ideals.cut
    count, tensors = len(work), len(ideals.cost)
    last, total = count - 1, work[count - 1]
    origin[:] = -1
    if last == 0 or most <= 0:
        return 0
    waiting = np.empty(count, np.int32)
    least, rest = np.empty(count, np.int64), np.empty(count, np.int64)
    left = 0
    for i in range(count):
        least[i] = (work[i] + cut[i] + most - 1) // most
        rest[i] = (total - work[i] + cut[i] + most - 1) // most
        if i > 0 and least[i] + rest[i] <= stages:
            waiting[left] = i
            left += 1
    tried = np.full(count, -1, np.int32)
    found = np.zeros(1, np.int32)
    steps = 0
    for stage in range(1, stages + 1):
        front = _sorted_front(ideals, found, tensors)
        reached = np.empty(left, np.int32)
        new, still = 0, 0
        for w in range(left):
            j = waiting[w]
            i = -1
            if least[j] <= stage:
                if stop[0] != 0 or steps > limit:
                    return -1
                i, looks = _before(ideals, front, j, most, tried)
                steps += looks
            if i >= 0:
                origin[j] = i
                if j == last:
                    return stage
                if rest[j] <= stages - stage:
                    reached[new] = j
                    new += 1
            else:
                waiting[still] = j
                still += 1
        left = still
        if new == 0:
            return 0
        found = reached[:new].copy()
    return 0


@uncounted_part
def _before(ideals: BorderedIdeals, front: _Front, j: int, most: int, tried: Indices) -> tuple[int, int]:
    """An ideal with a stage to this one (-1: none), and how many were looked at."""
    members, work, cut = ideals.members, ideals.work, ideals.cut
    words = members.shape[1]
    least = work[j] + cut[j] - most
    looks = 0
    for place in range(len(front.by_key)):
        if front.key[place] < least:
            break
        i = front.by_key[place]
        looks += 1
        if _inside(members, i, j, words):
            return i, looks
    lightest = work[j] - most
    for word in range(ideals.crossing.shape[1]):
        bits = ideals.crossing[j, word]
        t = 64 * word
        while bits != 0:
            if bits & np.uint64(1):
                for place in range(front.pointer[t], front.pointer[t + 1]):
                    i = front.sharing[place]
                    if work[i] < lightest:
                        break
                    looks += 1
                    if tried[i] == j or work[i] - cut[i] + 2 * cut[j] < least or not _inside(members, i, j, words):
                        continue
                    tried[i] = j
                    if _cost(ideals, i, j) <= most:
                        return i, looks
            bits >>= np.uint64(1)
            t += 1
    return -1, looks


@uncounted_part
def _inside(members: Bits, i: int, j: int, words: int) -> bool:
    missing = np.uint64(0)
    for word in range(words):
        missing |= members[i, word] & ~members[j, word]
    return bool(missing == 0)


@uncounted_part
def _cost(ideals: BorderedIdeals, i: int, j: int) -> int:
    """Of the stage between two ideals."""
    members, crossing, ends = ideals.members, ideals.crossing, ideals.ends
    cost: int = ideals.work[j] - ideals.work[i] + ideals.cut[i] + ideals.cut[j]
    for word in range(crossing.shape[1]):
        bits = crossing[i, word] & crossing[j, word]
        t = 64 * word
        while bits != 0:
            if bits & np.uint64(1):
                touched = False
                for w in range(members.shape[1]):
                    touched = touched or ends[t, w] & members[j, w] & ~members[i, w] != 0
                cost -= ideals.cost[t] if touched else 2 * ideals.cost[t]
            bits >>= np.uint64(1)
            t += 1
    return cost


@kernel
def _sorted_front(ideals: BorderedIdeals, found: Indices, tensors: int) -> _Front:
    """Two orders of some ideals, and who of them each tensor crosses."""
    work, cut, crossing = ideals.work, ideals.cut, ideals.crossing
    key = work[found] - cut[found]
    order = np.argsort(-key, kind="mergesort")
    by_work = found[np.argsort(-work[found], kind="mergesort")]
    pointer = np.zeros(tensors + 1, np.int64)
    for turn in range(2):
        if turn == 1:
            for t in range(tensors):
                pointer[t + 1] += pointer[t]
            sharing = np.empty(pointer[tensors], np.int32)
            place = pointer[:-1].copy()
        for i in by_work:
            for word in range(crossing.shape[1]):
                bits = crossing[i, word]
                t = 64 * word
                while bits != 0:
                    if bits & np.uint64(1):
                        if turn == 0:
                            pointer[t + 1] += 1
                        else:
                            sharing[place[t]] = i
                            place[t] += 1
                    bits >>= np.uint64(1)
                    t += 1
    return _Front(found[order], key[order], by_work, pointer, sharing)


@kernel
def stage_costs(ideals: BorderedIdeals, chain: Ints) -> Ints:
    """Of the stages between the ideals of a chain."""
    costs = np.empty(len(chain) - 1, np.int64)
    for stage in range(len(chain) - 1):
        costs[stage] = _cost(ideals, chain[stage], chain[stage + 1])
    return costs
