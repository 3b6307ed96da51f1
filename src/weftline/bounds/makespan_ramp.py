"""How much work a device can have done by a time, or still do in the last moments, when memory is limited.

In: the blocks of one device that can run so early (or so late), with their precedence. Out: an upper bound of the work.
What has started by a time is, for every micro-batch, a set of blocks that is closed under predecessors; the changes of
memory of all of them together fit in the limit. The same holds backwards in time at the end.
"""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np

from weftline.graph.arrays import Ints

__all__ = ["most_work"]

MOST_SETS = 2_000
MOST_CELLS = 4_000_000


def most_work(span: list[int], change: list[int], needs: list[list[int]], room: int, count: int) -> int:
    """Largest sum of spans of `count` closed sets whose changes add up to at most `room`.

    `needs[i]` are the blocks that a set with block i holds too.
    """
    everything = count * sum(span)
    sets = _closed_sets(needs)
    if sets is None:
        return everything
    weights = {(sum(change[i] for i in chosen), sum(span[i] for i in chosen)) for chosen in sets}
    kept = _not_dominated(weights)
    if room >= count * max(memory for memory, _ in kept):
        return count * max(work for _, work in kept)
    best = min(everything, _relaxed(kept, room, count))
    if min(memory for memory, _ in kept) >= 0:
        best = min(best, _exact(kept, room, count, best))
    return best


def _closed_sets(needs: list[list[int]]) -> list[frozenset[int]] | None:
    """All sets that hold what their members need; None if there are too many."""
    found = {frozenset[int]()}
    front = [frozenset[int]()]
    while front:
        current = front.pop()
        for block, needed in enumerate(needs):
            if block not in current and all(other in current for other in needed):
                larger = current | {block}
                if larger not in found:
                    found.add(larger)
                    front.append(larger)
                    if len(found) > MOST_SETS:
                        return None
    return sorted(found, key=sorted)


def _not_dominated(weights: set[tuple[int, int]]) -> list[tuple[int, int]]:
    """Pairs (memory, work), by rising memory, each with more work than all before."""
    kept: list[tuple[int, int]] = []
    for memory, work in sorted(weights, key=lambda pair: (pair[0], -pair[1])):
        if not kept or work > kept[-1][1]:
            kept.append((memory, work))
    return kept


def _relaxed(kept: list[tuple[int, int]], room: int, count: int) -> int:
    """With a price for memory: every price gives a bound; the best price is a slope of the upper hull."""
    hull: list[tuple[int, int]] = []
    for memory, work in kept:
        while len(hull) > 1:
            (m0, w0), (m1, w1) = hull[-2:]
            if (work - w0) * (m1 - m0) < (w1 - w0) * (memory - m0):
                break
            hull.pop()
        hull.append((memory, work))
    best = count * hull[-1][1]
    for (m0, w0), (m1, w1) in pairwise(hull):
        price = Fraction(w1 - w0, m1 - m0)
        bound = count * max(work - price * memory for memory, work in hull) + price * room
        best = min(best, int(bound // 1))
    return best


def _exact(kept: list[tuple[int, int]], room: int, count: int, otherwise: int) -> int:
    """By dynamic programming over whole units of memory, if there are few."""
    unit = int(np.gcd.reduce([memory for memory, _ in kept] or [0]))
    if unit == 0:
        return otherwise
    cells = room // unit
    if cells < 0 or (cells + 1) * count * len(kept) > MOST_CELLS:
        return otherwise
    work: Ints = np.zeros(cells + 1, np.int64)
    for _ in range(count):
        better = work.copy()
        for memory, gain in kept:
            size = memory // unit
            if size <= cells:
                better[size:] = np.maximum(better[size:], work[: cells + 1 - size] + gain)
        work = better
    return int(work.max())
