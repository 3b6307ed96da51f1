"""Measuring on a machine that may be busy: interleaved repeats, the best of several medians, one core if allowed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from math import log
from statistics import median
from time import perf_counter, process_time

__all__ = ["Prepare", "best_median", "exponent", "interleaved", "on_one_core"]

Prepare = Callable[[], Callable[[], object]]
"""Makes fresh inputs (not timed) and returns what is timed."""

GROUP = 5
"""Repeats of which one median is taken."""


def interleaved(actions: Mapping[str, Prepare], repeats: int, *, wall: bool = False) -> dict[str, list[float]]:
    """Seconds of every repeat; the actions take turns, so that a busy moment hits all of them alike.

    Processor time of this process, which others on the machine disturb least; `wall` is for other processes.
    """
    clock = perf_counter if wall else process_time
    seconds: dict[str, list[float]] = {name: [] for name in actions}
    for _ in range(repeats):
        for name, prepare in actions.items():
            action = prepare()
            begun = clock()
            action()
            seconds[name].append(clock() - begun)
    return seconds


def best_median(seconds: list[float]) -> float:
    """The smallest of the medians of five repeats each: robust against outliers, and against a busy moment."""
    groups = [seconds[i : i + GROUP] for i in range(0, len(seconds), GROUP)]
    return min(median(group) for group in groups if len(group) == GROUP or len(groups) == 1)


def exponent(sizes: list[float], seconds: list[float]) -> float:
    """Least-squares slope of log(seconds) over log(sizes): 1 means that time grows like `sizes`."""
    x, y = [log(size) for size in sizes], [log(second) for second in seconds]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    return sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread


@contextmanager
def on_one_core() -> Iterator[bool]:
    """Pin this process (and those it starts) to one core; yields whether that worked."""
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {max(before)})
    except OSError:
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)
