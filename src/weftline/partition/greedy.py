"""Fill each stage until its compute reaches the target, then begin the next; the smallest target that works, by
bisection.

The target is the same time for every device, so a faster device gets more ops. Transfers are not looked at.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.partition.fill import fill_stages, stage_devices
from weftline.partition.units import make_units
from weftline.search import Search, Solver

__all__ = ["SOLVER"]

STEPS = 24


def _solve(search: Search) -> None:
    problem = search.problem
    units, devices = make_units(problem), stage_devices(problem)
    low, high = 0, int(units.time.max(axis=1, initial=0).sum())
    for _ in range(STEPS):
        target = (low + high) // 2
        work = np.zeros(len(problem.devices), np.int64)

        def full(stage: int, device: int, unit: int, work: np.ndarray = work, target: int = target) -> bool:
            if work[device] + units.time[unit, device] > target:
                return True
            work[device] += units.time[unit, device]
            return False

        try:
            placement = fill_stages(problem, units, devices, full)
        except InfeasibleError:
            low = target
            continue
        search.offer(placement)
        load = np.zeros(len(problem.devices), np.int64)
        np.add.at(load, placement, problem.cost.time[np.arange(len(placement)), placement])
        if load.max() <= target:
            high = target
        else:
            low = target
        if search.stopped_by or high - low <= 1:
            break


SOLVER = Solver("greedy", "fill each stage up to the smallest compute target that works", _solve, baseline=True)
