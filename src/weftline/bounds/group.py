"""The group bound: ops that must share a device (or one op alone) take their time on one device, whichever it is."""

from __future__ import annotations

from time import perf_counter

import numpy as np

from weftline.bounds.bound import Bound
from weftline.graph.arrays import Ints
from weftline.problem import Problem

__all__ = ["group_bound", "group_times"]


def group_times(problem: Problem) -> tuple[Ints, np.ndarray[tuple[int, int], np.dtype[np.bool_]]]:
    """(groups, K) total time of each `together` set or single op on each device, and whether it can run there."""
    count = int(problem.group.max()) + 1
    total = np.zeros((count, len(problem.devices)), np.int64)
    allowed = np.ones(total.shape, np.bool_)
    np.add.at(total, problem.group, np.maximum(problem.cost.time, 0))
    np.logical_and.at(allowed, problem.group, problem.cost.time >= 0)
    return total, allowed


def group_bound(problem: Problem) -> Bound:
    """The largest over groups of the smallest total over devices."""
    begun = perf_counter()
    total, allowed = group_times(problem)
    least = np.where(allowed, total, np.iinfo(np.int64).max).min(axis=1)
    worst = int(least.argmax())
    ops = np.flatnonzero(problem.group == worst).tolist()
    return Bound(int(least[worst]), "group", {"kind": "group", "ops": ops}, perf_counter() - begun)
