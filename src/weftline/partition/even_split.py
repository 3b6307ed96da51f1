"""As many stages as allowed, each with the same number of ops: what people do by hand."""

from __future__ import annotations

import numpy as np

from weftline.coarsen import make_pieces
from weftline.partition.fill import fill_stages, stage_devices
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    problem = search.problem
    pieces, devices = make_pieces(problem), stage_devices(problem)
    before = np.cumsum(pieces.size) - pieces.size
    total = int(pieces.size.sum())

    def full(stage: int, piece: int) -> bool:
        return int(before[piece]) * len(devices) >= (stage + 1) * total

    search.offer(fill_stages(problem, pieces, devices, problem.capacity, full))


SOLVER = Solver("even-split", "stages of equal op count along the graph's order", _solve, baseline=True)
