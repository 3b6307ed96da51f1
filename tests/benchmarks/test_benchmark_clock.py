"""The clock, and the plain simulator that the kernel races against."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.clock import best_median, exponent, interleaved, on_one_core
from benchmarks.sections.speed_simulator import Draw, PlainSimulator, layered_problem

from weftline.simulate import INFEASIBLE, evaluate


def test_best_median() -> None:
    """Tests that outliers and a busy group do not count, and that few repeats give their plain median."""
    assert best_median([1.0, 1.0, 9.0, 1.0, 9.0, 5.0, 5.0, 5.0, 5.0, 5.0]) == 1.0
    assert best_median([3.0, 1.0, 2.0]) == 2.0
    assert best_median([2.0, 2.0, 2.0, 2.0, 2.0, 0.1]) == 2.0


def test_exponent() -> None:
    """Tests that powers are found exactly."""
    sizes = [10.0, 20.0, 80.0]
    assert exponent(sizes, [3 * size**1.5 for size in sizes]) == pytest.approx(1.5)


def test_interleaved_takes_turns() -> None:
    """Tests that inputs are made anew before every repeat and that actions alternate."""
    log: list[str] = []

    def action(name: str) -> Callable[[], Callable[[], object]]:
        def prepare() -> Callable[[], object]:
            log.append(f"prepare {name}")
            return lambda: log.append(name)

        return prepare

    seconds = interleaved({"a": action("a"), "b": action("b")}, 2)
    assert log == ["prepare a", "a", "prepare b", "b"] * 2
    assert [len(times) for times in seconds.values()] == [2, 2]


def test_on_one_core_gives_the_cores_back() -> None:
    """Tests that pinning ends with the block."""
    before = os.sched_getaffinity(0)
    with on_one_core() as pinned:
        assert not pinned or len(os.sched_getaffinity(0)) == 1
    assert os.sched_getaffinity(0) == before


def test_plain_simulator_agrees_with_the_kernel() -> None:
    """Tests that both say the same about random placements."""
    problem = layered_problem(60)
    rows = Draw(problem, np.random.default_rng(1)).anywhere(20)
    plain = PlainSimulator(problem)
    assert [plain.latency(row) for row in rows] == evaluate(problem, rows).value.tolist()


def test_cuts_are_pipelines() -> None:
    """Tests that random cuts can run, so that the throughput kernel is timed on whole evaluations."""
    problem = layered_problem(60, "throughput")
    rows = Draw(problem, np.random.default_rng(1)).cuts(50)
    assert evaluate(problem, rows).value.max() < INFEASIBLE
    assert len({row.tobytes() for row in rows}) > 40
