"""Contraction of chains, for the search alone: what nobody would cut goes together, until the graph is small enough.

A piece and the only reader of its output merge while their time stays small; then whole runs of neighbours in the
order of the pieces. The result is a pipeline's graph of about `size` pieces, on which a plan is found and then polished
on the finer pieces. Good plans may be lost, so no bound is kept.
"""

from __future__ import annotations

import numpy as np

from weftline.coarsen.pieces import Pieces, merge
from weftline.graph.arrays import Ints

__all__ = ["contract_chains"]


def contract_chains(pieces: Pieces, size: int) -> Pieces:
    """At most about `size` pieces, none (but single ones) with much more than its share of all time."""
    if len(pieces.time) <= size:
        return pieces
    time = np.where(pieces.time >= 0, pieces.time, 0).max(axis=1)
    share = max(1, int(time.sum()) // size)
    for _ in range(20):
        time = np.where(pieces.time >= 0, pieces.time, 0).max(axis=1)
        group = _join_links(pieces, time, share)
        joined = merge(pieces, group, exact=False)
        if len(joined.time) > 0.98 * len(pieces.time):
            break
        pieces = joined
    if len(pieces.time) > size:
        pieces = merge(pieces, _runs(pieces, size), exact=False)
    return pieces


def _join_links(pieces: Pieces, time: Ints, share: int) -> Ints:
    """Pair every piece that has one successor with it, where the successor has one predecessor and both are small."""
    count = len(pieces.time)
    single = np.diff(pieces.next_ptr) == 1
    u = np.flatnonzero(single)
    v = pieces.next_of[pieces.next_ptr[u]].astype(np.int64)
    only = np.diff(pieces.before[0])[v] == 1
    same = (pieces.time[u] >= 0) == (pieces.time[v] >= 0)
    good = only & same.all(axis=1) & (time[u] + time[v] <= share)
    group = np.arange(count, dtype=np.int64)
    taken = np.zeros(count, np.bool_)
    for a, b in zip(u[good].tolist(), v[good].tolist(), strict=True):
        if not taken[a] and not taken[b]:
            taken[a] = taken[b] = True
            group[b] = a
    return group


def _runs(pieces: Pieces, size: int) -> Ints:
    """Cut the order of the pieces into runs of equal time that the same devices can run."""
    time = np.where(pieces.time >= 0, pieces.time, 0).max(axis=1)
    share = max(1.0, float(time.sum()) / size)
    step = (np.cumsum(time) - time) // share
    able = pieces.time >= 0
    change = np.concatenate([[False], (able[1:] != able[:-1]).any(axis=1) | (step[1:] != step[:-1])])
    return np.cumsum(change)
