"""As many stages as allowed, each with the same number of ops: what people do by hand."""

from __future__ import annotations

import numpy as np

from weftline.partition.fill import fill_stages, stage_devices
from weftline.partition.units import make_units
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    problem = search.problem
    units, devices = make_units(problem), stage_devices(problem)
    before = np.cumsum(units.size) - units.size
    total = int(units.size.sum())

    def full(stage: int, unit: int) -> bool:
        return int(before[unit]) * len(devices) >= (stage + 1) * total

    search.offer(fill_stages(problem, units, devices, problem.capacity, full))


SOLVER = Solver("even-split", "stages of equal op count along the graph's order", _solve, baseline=True)
