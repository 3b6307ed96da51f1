"""Everything on one device: the best of all devices."""

from __future__ import annotations

import numpy as np

from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    ops = len(search.problem.graph.ops)
    for device in range(len(search.problem.devices)):
        if search.stopped_by and search.best is not None:
            return
        search.offer(np.full(ops, device, np.int32))


SOLVER = Solver("single-device", "everything on one device, the best one", _solve, baseline=True)
