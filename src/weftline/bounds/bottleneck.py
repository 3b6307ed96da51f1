"""The bottleneck bound: some stage holds at least 1/k of the work, so it costs at least the cheapest such convex set.

It is the convex-set bound with the work as weights. In: Pieces of equal devices, number of stages. Out: bounds by
`on_bound`. The target starts low and rises, so that a proved bound exists early; the last one is exact.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.convex_graph import MOST_PIECES
from weftline.bounds.convex_prove import Budget, Members, OnBound, Prover
from weftline.coarsen.pieces import Pieces

__all__ = ["bottleneck_bound"]


def bottleneck_bound(
    pieces: Pieces,
    stages: int,
    upper: Callable[[], int],
    *,
    stop: NDArray[np.int64],
    work: int | None = None,
    seconds: float | None = None,
    on_bound: OnBound,
) -> list[Members]:
    """Prove until exact, stopped, or out of budget -> cheap sets of enough work that were met: good start blocks."""
    if len(pieces.time) > MOST_PIECES or stages < 1 or upper() <= 0:
        return []
    prover = Prover(pieces, stages, upper, stop, Budget(work, seconds, stop), on_bound)
    weights = prover.graph.work.copy()
    least = -(-int(weights.sum()) // stages)
    low, high, met = least, prover.upper(), []
    while 0 < low < high and prover.budget.spent < 1.0:
        close = high - low <= high // 300
        target = high if close else (low + high + 1) // 2
        prover.aim(target)
        outcome, found = prover.prove(weights, least, target, prover.budget.nodes_of(0.25))
        met += found
        if outcome == "proved":
            low = target
        elif outcome == "found":
            high = min(prover.cost(members) for members in found)
        elif close:
            break
        else:
            high = target - 1
    return met
