"""Fill stages one after another along the order of units; what a stage's device cannot run goes to a host device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.partition.units import Units
from weftline.problem import Problem

__all__ = ["fill_stages", "stage_devices"]


def stage_devices(problem: Problem) -> list[int]:
    """Devices for contiguous stages in the cluster's order: the fastest ones, at most as many as stages are allowed."""
    total = np.where(problem.cost.time >= 0, problem.cost.time, problem.cost.time.max()).sum(axis=0)
    contiguous = [d for d in range(len(problem.devices)) if not problem.host[d]]
    return sorted(sorted(contiguous, key=lambda d: int(total[d]))[: problem.stage_limit])


def fill_stages(
    problem: Problem, units: Units, devices: Sequence[int], room: Ints, full: Callable[[int, int], bool]
) -> Indices:
    """Put unit after unit on the current device while weights fit its `room`; `full(stage, unit)`: begin the next?"""
    hosts = [d for d in range(len(problem.devices)) if problem.host[d]]
    chosen = np.zeros(len(units.size), np.int32)
    left = room.tolist()
    stage = 0
    for unit in range(len(units.size)):
        while stage + 1 < len(devices) and full(stage, unit):
            stage += 1
        need = int(units.weight[unit])
        ahead = devices[stage:]
        fitting = [d for d in [*ahead, *hosts] if units.allowed[unit, d] and left[d] >= need]
        if not fitting:
            raise InfeasibleError("a stage has no device that can run the next ops and hold their weights")
        device = fitting[0]
        if device in ahead:
            stage += ahead.index(device)
        left[device] -= need
        chosen[unit] = device
    return chosen[units.of]
