"""The simplest pipelines, which are also baselines and first values of the others.

`single-device`: everything on one device, the best of all devices. `even-split`: as many stages as allowed, each with
the same number of ops: what people do by hand. `greedy`: fill each stage until its compute reaches the target, then
begin the next; the smallest target that works, by bisection. The target is the same time for every device, so a faster
device gets more ops. Simplified: transfers are not looked at; what a stage's device cannot run goes to a host device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.problem import Problem
from weftline.search import SINGLE_DEVICE, Search, Solver
from weftline.simulate import simulate_throughput

__all__ = ["FIRST_SOLVERS", "SOLVERS", "GreedyParameters", "fill_stages", "overflow_of", "stage_devices"]


FIRST_SOLVERS = ("single-device", "greedy", "even-split", "slice")
"""Asked for a first value by the solvers that need one."""


def overflow_of(problem: Problem, placement: Indices) -> Ints:
    """(K,): bytes above what each device holds, of a pipeline that was refused; zeros where it is no pipeline."""
    try:
        overflow: Ints = np.maximum(simulate_throughput(problem, placement).peak - problem.capacity, 0)
    except InfeasibleError:  # no pipeline at all, which more room does not mend
        return np.zeros(len(problem.devices), np.int64)
    return overflow


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


def _solve_even_split(search: Search) -> None:
    problem = search.problem
    pieces, devices = make_pieces(problem), stage_devices(problem)
    before = np.cumsum(pieces.size) - pieces.size
    total = int(pieces.size.sum())

    def full(stage: int, piece: int) -> bool:
        return int(before[piece]) * len(devices) >= (stage + 1) * total

    search.offer(fill_stages(problem, pieces, devices, problem.capacity, full))


SOLVER_EVEN_SPLIT = Solver(
    "even-split", "stages of equal op count along the graph's order", _solve_even_split, baseline=True
)


@dataclass(frozen=True)
class GreedyParameters:
    """Numbers of `greedy`."""

    most_bisections: int = 24
    """Targets that are tried."""
    most_attempts: int = 6
    """Times that it begins with less room, because activations overflowed a device."""


def _solve_greedy(search: Search) -> None:
    """Bisect on the target; where activations overflow every answer, leave that much room and begin again."""
    problem = search.problem
    pieces, devices = make_pieces(problem), stage_devices(problem)
    room, parameters = problem.capacity.copy(), search.parameters(GreedyParameters)
    for _ in range(parameters.most_attempts):
        overflow = _bisect(search, pieces, devices, room, parameters.most_bisections)
        if overflow is None or not overflow.any() or search.stopped_by:
            return
        room -= overflow


def _bisect(search: Search, pieces: Pieces, devices: Sequence[int], room: Ints, steps: int) -> Ints | None:
    """Offer the pipelines of several targets -> None if one was accepted, else the bytes that the last one lacked."""
    problem = search.problem
    low, high = 0, int(pieces.time.max(axis=1, initial=0).sum())
    overflow: Ints | None = np.zeros(len(room), np.int64)
    for _ in range(steps):
        target = (low + high) // 2
        try:
            placement = fill_stages(problem, pieces, devices, room, _fuller_than(target, pieces, devices))
        except InfeasibleError:
            low = target
            continue
        if search.offer(placement) is not None:
            overflow = None
        elif overflow is not None:
            overflow = overflow_of(problem, placement)
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


SOLVER_GREEDY = Solver(
    "greedy",
    "fill each stage up to the smallest compute target that works",
    _solve_greedy,
    baseline=True,
    parameters=GreedyParameters,
)


SOLVERS = (SINGLE_DEVICE, SOLVER_EVEN_SPLIT, SOLVER_GREEDY)
