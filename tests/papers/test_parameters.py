"""Numbers of published methods can be set: the defaults by name change nothing, others are heard."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from weftline import latency, pipeline
from weftline.errors import InputError, UsageError
from weftline.papers import provided
from weftline.papers.archer import BrkgaParameters
from weftline.papers.training.training import changed_settings
from weftline.problem import Problem
from weftline.schedule.make_blocks import make_shape
from weftline.schedule.search import ScheduleSearch
from weftline.search import Search
from weftline.testing.generate import random_problem

OBJECTIVES = {"weftline.latency": "latency", "weftline.pipeline": "throughput"}
ENTRIES = [
    pytest.param(group, solver, id=solver.name)
    for group in OBJECTIVES
    for solver in provided(group)
    if solver.parameters is not None
]


def _problem(objective: Any) -> Problem:
    return random_problem(7, objective, max_ops=8, limits=False)


@pytest.mark.parametrize(("group", "solver"), ENTRIES)
def test_defaults_by_name_change_nothing(group: str, solver: Any) -> None:
    """Tests that every field of a class of parameters can be written as text, as its default reads."""
    short = {"episodes": "2"} if "episodes" in solver.options else {}
    defaults = {field.name: str(field.default) for field in fields(solver.parameters)}
    values = []
    for options in (short, {**short, **defaults}):
        search = Search(_problem(OBJECTIVES[group]), options=options, work_limit=50, seed=1)
        solver.solve(search)
        assert search.best is not None
        values.append((search.best.value, search.best.placement.tolist()))
    assert values[0] == values[1]


def test_schedulers_hear_their_numbers() -> None:
    """Tests that Tessel's lazy search without work finds nothing."""
    lazy, fast = provided("weftline.schedule")
    search = ScheduleSearch(make_shape("vshape", 2), 4, options={"most_work": "0"})
    with pytest.raises(UsageError, match="accept_share"):
        fast.solve(ScheduleSearch(make_shape("vshape", 2), 4, options={"accept_share": "much"}))
    with pytest.raises(Exception, match="no repetend"):
        lazy.solve(search)


def test_a_population_of_the_users_choice() -> None:
    """Tests that the genetic search has as many individuals as it is told."""
    solver = pipeline.solvers()["brkga-100"]
    offered = []
    for population in ("3", "60"):
        options = {"population": population, "generations": "1"}
        search = Search(_problem("throughput"), options=options)
        solver.solve(search)
        assert search.best is not None
        offered.append(search.best.value)
    assert offered[1] <= offered[0]
    with pytest.raises(UsageError, match="between 3 and"):
        solver.solve(Search(_problem("throughput"), options={"population": "1"}))
    assert changed_settings(BrkgaParameters(population=12, elite_bias=0.7)) == {"population": "12"}


def test_a_training_with_other_numbers_is_not_resumed(tmp_path: Path) -> None:
    """Tests that a checkpoint belongs to the numbers that were set."""
    pytest.importorskip("torch")
    solver, problem = latency.solvers()["rnn"], random_problem(3, "latency", max_ops=8, limits=False)
    asked = {"episodes": "2", "checkpoint": str(tmp_path / "a.safetensors")}
    solver.solve(Search(problem, options=asked))
    with pytest.raises(InputError, match="hidden_width"):
        solver.solve(Search(problem, options={**asked, "episodes": "3", "hidden_width": "8"}))
