"""What a pipeline that was refused holds too much of."""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate import simulate_throughput

__all__ = ["overflow_of"]


def overflow_of(problem: Problem, placement: Indices) -> Ints:
    """(K,): bytes above what each device holds; zeros where the placement is no pipeline."""
    try:
        overflow: Ints = np.maximum(simulate_throughput(problem, placement).peak - problem.capacity, 0)
    except InfeasibleError:
        return np.zeros(len(problem.devices), np.int64)
    return overflow
