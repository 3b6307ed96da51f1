"""The node-cover bound: every piece is in some stage, which costs at least the cheapest convex set with that piece.

The largest over pieces, whatever the number of stages. In: Pieces of equal devices. Out: bounds by `on_bound`, each the
convex-set bound whose weights are 1 at one piece.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from weftline.pipeline.convex.graph import MOST_PIECES
from weftline.pipeline.convex.prove import Members, OnBound, ProofBudget, ProofOutcome, Prover
from weftline.pipeline.pieces.pieces import Pieces

__all__ = ["node_cover_bound"]


def node_cover_bound(
    pieces: Pieces,
    stages: int,
    upper: Callable[[], int],
    *,
    stop: NDArray[np.int64],
    work: int | None = None,
    seconds: float | None = None,
    on_bound: OnBound,
) -> list[Members]:
    """Go through the pieces, those with dear tensors first -> the cheapest sets that were met."""
    n = len(pieces.time)
    if n > MOST_PIECES or stages < 1 or upper() <= 0:
        return []
    prover = Prover(pieces, stages, upper, stop, ProofBudget(work, seconds, stop), on_bound)
    covered = np.zeros(n, np.bool_)
    met = []
    for piece in np.argsort(-_alone(prover), kind="stable").tolist():
        if prover.budget.spent >= 1.0:
            break
        if covered[piece]:
            continue  # a set with it is not dearer than what is proved
        limit = prover.budget.nodes_of(0.1)
        outcome, _, found = prover.cheapest_with(piece, prover.proved + 1, limit, exact=False)
        if not found and outcome == ProofOutcome.PROVED:
            outcome, cost, found = prover.cheapest_with(piece, prover.upper() + 1, limit, exact=True)
            if outcome == ProofOutcome.PROVED:
                prover.tell((np.arange(n) == piece).astype(np.int64), cost)
        for members in found:
            met.append(members)
            if prover.cost(members) <= prover.proved:
                covered |= members
    return met


def _alone(prover: Prover) -> NDArray[np.int64]:
    """Cost of each piece as a set of its own."""
    return np.array([prover.cost(np.arange(prover.n) == piece) for piece in range(prover.n)], np.int64)
