"""Coarser pieces for the search alone: the exact reductions as if there were no hosts and no memory limits.

Hosts and memory forbid most exact reductions, although nearly every good pipeline keeps the same pieces together. In:
Pieces. Out: fewer of them, of which no bound holds, or None if nothing merges.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from weftline.coarsen import Pieces, make_pieces, merge, reduce_exactly
from weftline.coarsen.reduce import memory_may_bind
from weftline.cost import CostTable
from weftline.graph.arrays import Ints

__all__ = ["merge_freely"]


def merge_freely(pieces: Pieces) -> Pieces | None:
    """Join what the reductions would join on the stage devices; what only hosts can run stays apart."""
    problem, stages = pieces.problem, list(pieces.stage_devices)
    if not stages or not pieces.flat or (pieces.transfer < 0).any():
        return None
    if not problem.host.any() and problem.rules.communication == "added" and not memory_may_bind(problem):
        return None  # the exact reductions did it all
    cost = problem.cost
    free = replace(
        problem,
        devices=tuple(msgspec.structs.replace(problem.devices[d], memory=None, reserve=0) for d in stages),
        cost=CostTable(cost.time[:, stages], cost.transfer[:, stages][:, :, stages], cost.transfer_row, cost.source),
        rules=msgspec.structs.replace(problem.rules, communication="added", stages=0),
        buses=(),
    )
    reduced = reduce_exactly(make_pieces(free))
    first = np.zeros(len(pieces.time), np.int64)
    first[pieces.of[::-1]] = np.arange(len(pieces.of))[::-1]
    group = _same_devices(pieces, reduced.of[first].astype(np.int64))
    coarse = merge(pieces, group, exact=False)
    fits = len(coarse.time) < len(pieces.time) and (coarse.time >= 0).any(axis=1).all()
    return coarse if fits else None


def _same_devices(pieces: Pieces, group: Ints) -> Ints:
    """Split groups in which not all can run on the same stage devices."""
    able = pieces.time[:, list(pieces.stage_devices)] >= 0
    kind = np.unique(able, axis=0, return_inverse=True)[1].reshape(-1)
    return np.unique(np.stack([group, kind], axis=1), axis=0, return_inverse=True)[1].reshape(-1)
