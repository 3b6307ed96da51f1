"""When a solver of this room stops, and how a kernel that runs for long is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Timer

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import simulate_throughput

__all__ = ["alarm", "is_over", "overflow_of"]


def is_over(search: Search) -> bool:
    """A stop rule has fired and there is an answer, or no time is left to find one."""
    fired = search.stopped_by
    return fired != "" and (search.best is not None or fired == "time")


@contextmanager
def alarm(search: Search) -> Iterator[Ints]:
    """A flag for kernels that rises when the search's time is over."""
    stop = np.zeros(1, np.int64)
    if search.time_limit is None:
        yield stop
        return

    def ring() -> None:
        stop[0] = 1

    timer = Timer(max(0.0, search.time_limit - search.seconds), ring)
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


def overflow_of(problem: Problem, placement: Indices) -> Ints:
    """(K,): bytes above what each device holds; zeros where the placement is no pipeline."""
    try:
        overflow: Ints = np.maximum(simulate_throughput(problem, placement).peak - problem.capacity, 0)
    except InfeasibleError:
        return np.zeros(len(problem.devices), np.int64)
    return overflow
