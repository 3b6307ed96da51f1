"""Fill each stage until its compute reaches the target, then begin the next; the smallest target that works, by
bisection.

The target is the same time for every device, so a faster device gets more ops. Transfers are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from weftline.coarsen import Pieces, make_pieces
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.partition.fill import fill_stages, stage_devices
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate import simulate_throughput

__all__ = ["SOLVER"]

STEPS = 24
ATTEMPTS = 6


def _solve(search: Search) -> None:
    """Bisect on the target; where activations overflow every answer, leave that much room and begin again."""
    problem = search.problem
    pieces, devices = make_pieces(problem), stage_devices(problem)
    room = problem.capacity.copy()
    for _ in range(ATTEMPTS):
        overflow = _bisect(search, pieces, devices, room)
        if overflow is None or not overflow.any() or search.stopped_by:
            return
        room -= overflow


def _bisect(search: Search, pieces: Pieces, devices: Sequence[int], room: Ints) -> Ints | None:
    """Offer the pipelines of several targets -> None if one was accepted, else the bytes that the last one lacked."""
    problem = search.problem
    low, high = 0, int(pieces.time.max(axis=1, initial=0).sum())
    overflow: Ints | None = np.zeros(len(room), np.int64)
    for _ in range(STEPS):
        target = (low + high) // 2
        try:
            placement = fill_stages(problem, pieces, devices, room, _fuller_than(target, pieces, devices))
        except InfeasibleError:
            low = target
            continue
        if search.offer(placement) is not None:
            overflow = None
        elif overflow is not None:
            overflow = _overflow(problem, placement)
        load = np.zeros(len(problem.devices), np.int64)
        np.add.at(load, placement, problem.cost.time[np.arange(len(placement)), placement])
        low, high = (low, target) if load.max() <= target else (target, high)
        if search.stopped_by or high - low <= 1:
            break
    return overflow


def _fuller_than(target: int, pieces: Pieces, devices: Sequence[int]) -> Callable[[int, int], bool]:
    """Would a piece take the stage's compute above the target? If not, it counts as put there."""
    work = [0] * len(devices)

    def full(stage: int, piece: int) -> bool:
        time = max(0, int(pieces.time[piece, devices[stage]]))
        if work[stage] + time > target:
            return True
        work[stage] += time
        return False

    return full


def _overflow(problem: Problem, placement: Indices) -> Ints:
    try:
        overflow: Ints = np.maximum(simulate_throughput(problem, placement).peak - problem.capacity, 0)
    except InfeasibleError:  # no pipeline at all, which more room does not mend
        return np.zeros(len(problem.devices), np.int64)
    return overflow


SOLVER = Solver("greedy", "fill each stage up to the smallest compute target that works", _solve, baseline=True)
