"""Tests of how a search went: what is kept, what is thinned, and that files hold it."""

from __future__ import annotations

import json

import pytest

from weftline.ask import make_plan
from weftline.certify.check import Refusal, check_plan
from weftline.plans.plan import MOST_ROWS, Progress, plan_to_json, thinned
from weftline.search import Event
from weftline.testing import random_problem
from weftline.testing.generate import Objective


def test_only_news_are_kept() -> None:
    """Tests that messages and repetitions are no rows, that listeners hear all, and how it ends."""
    heard: list[Event] = []
    progress = Progress(heard.append)
    events = [(0.0, None, None), (0.1, None, 5), (0.2, 9, 5), (0.3, 9, 5), (0.4, 8, 5)]
    for seconds, value, bound in events:
        progress(Event(seconds, "x", value, bound))
    assert len(heard) == len(events)
    assert progress.rows(0.5, 8, 6) == ((0.1, None, 5), (0.2, 9, 5), (0.4, 8, 5), (0.5, 8, 6))


def test_thinning_keeps_ends_and_large_steps() -> None:
    """Tests that a long search keeps its first and last row and the largest change."""
    rows: list[tuple[float, int | None, int | None]] = [
        (float(i), 10_000 - i - (5_000 if i > 700 else 0), 10) for i in range(2_000)
    ]
    thin = thinned(rows)
    assert len(thin) == MOST_ROWS
    assert (thin[0], thin[-1]) == (rows[0], rows[-1])
    assert rows[701] in thin
    assert list(thin) == sorted(thin)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_plans_keep_it(objective: Objective) -> None:
    """Tests that the last row is the plan's value, that the checker accepts it, and that a work limit leaves it out."""
    plan = make_plan(random_problem(3, objective, limits=False), time_limit=5)
    assert plan.progress
    assert plan.progress[-1][1] == plan.value_ns
    assert [row[0] for row in plan.progress] == sorted(row[0] for row in plan.progress)
    check_plan(json.loads(plan_to_json(plan)))
    repeated = make_plan(random_problem(3, objective, limits=False), work_limit=5)
    assert "progress" not in json.loads(plan_to_json(repeated))


@pytest.mark.parametrize(
    "rows", [[[1.0, 5, 4], [0.5, 5, 4]], [["x", 5, 4]], [[0.1, -5, 4]], [[0.1, 5]], [[0.1, True, 4]], 7]
)
def test_broken_progress_is_refused(rows: object) -> None:
    """Tests that seconds never go down and everything else is a time or nothing."""
    plan = json.loads(plan_to_json(make_plan(random_problem(3, "latency", limits=False), work_limit=5)))
    check_plan({**plan, "progress": [[0.1, None, 3], [0.1, 7, 3]]})
    with pytest.raises(Refusal):
        check_plan({**plan, "progress": rows})
