"""Groups of ops that are placed as one, for the search alone: HSDAG's chains and Baechi's co-placement.

In: a latency Problem. Out: the group of every op. Nothing is fused: the groups only make the search smaller. In both
ways an op joins its only reader, so a group is seen from outside at its last op alone and no two groups need each
other. A group never becomes one that no device can run, or that fills more than half of the largest device.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.cost import ABSENT
from weftline.graph.arrays import Indices
from weftline.graph.dag import adjacency
from weftline.problem import Problem

__all__ = ["chains", "coplace"]

SHARE = 2
"""A group takes at most 1 / SHARE of the memory of the largest device that can run it."""


def chains(problem: Problem) -> Indices:
    """HSDAG's co-location: an op joins its only reader, if that reads from it alone."""
    pointer, successors = adjacency(problem.graph.arrays)
    read_from = np.bincount(successors, minlength=len(pointer) - 1)
    return _join_readers(problem, read_from == 1)


def coplace(problem: Problem) -> Indices:
    """Baechi's co-placement: an op joins its only reader."""
    return _join_readers(problem, np.ones(len(problem.graph.ops), np.bool_))


def _join_readers(problem: Problem, joinable: NDArray[np.bool_]) -> Indices:
    """Every op whose only reader is joinable goes to the group of that reader, if the group can take it."""
    arrays = problem.graph.arrays
    pointer, successors = adjacency(arrays)
    single = np.flatnonzero(np.diff(pointer) == 1)
    reader = successors[pointer[single]]
    good = joinable[reader]
    held = arrays.weight_bytes + (arrays.workspace_bytes if problem.rules.memory == "static" else 0)
    able = [sum(1 << d for d in np.flatnonzero(row).tolist()) for row in problem.cost.time != ABSENT]
    room = [int(capacity) // SHARE for capacity in problem.capacity]
    group, total, bits = list(range(len(able))), held.tolist(), able
    for op, target in zip(single[good][::-1].tolist(), reader[good][::-1].tolist(), strict=True):
        home = group[target]  # readers stand behind, so theirs is settled
        common, size = bits[home] & bits[op], total[home] + total[op]
        if common and (total[op] == 0 or size <= max(room[d] for d in range(len(room)) if common >> d & 1)):
            group[op], bits[home], total[home] = home, common, size
    return np.array(group, np.int32)
