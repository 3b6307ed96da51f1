"""Fill stages one after another along the order of pieces; what a stage's device cannot run goes to a host device."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weftline.coarsen import Pieces
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem

__all__ = ["fill_stages", "stage_devices"]


def stage_devices(problem: Problem) -> list[int]:
    """Devices for contiguous stages in the cluster's order: the fastest ones, at most as many as stages are allowed."""
    total = np.where(problem.cost.time >= 0, problem.cost.time, problem.cost.time.max()).sum(axis=0)
    contiguous = [d for d in range(len(problem.devices)) if not problem.host[d]]
    return sorted(sorted(contiguous, key=lambda d: int(total[d]))[: problem.stage_limit])


def fill_stages(
    problem: Problem, pieces: Pieces, devices: Sequence[int], room: Ints, full: Callable[[int, int], bool]
) -> Indices:
    """Put pieces on the current device while weights fit its `room`; `full(stage, piece)`: begin the next?"""
    hosts = [d for d in range(len(problem.devices)) if problem.host[d]]
    chosen = np.zeros(len(pieces.size), np.int32)
    left = room.tolist()
    stage = 0
    for piece in range(len(pieces.size)):
        while stage + 1 < len(devices) and full(stage, piece):
            stage += 1
        need = int(pieces.weight[piece])
        ahead = devices[stage:]
        fitting = [d for d in [*ahead, *hosts] if pieces.time[piece, d] >= 0 and left[d] >= need]
        if not fitting:
            raise InfeasibleError("a stage has no device that can run the next ops and hold their weights")
        device = fitting[0]
        if device in ahead:
            stage += ahead.index(device)
        left[device] -= need
        chosen[piece] = device
    return pieces.lift(chosen)
