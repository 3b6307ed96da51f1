"""Tests of the search that every solver works on: what it keeps, when it stops, what it tells."""

from collections.abc import Callable

import numpy as np
import pytest

from weftline import latency as place
from weftline import pipeline as partition
from weftline.bounds import Bound
from weftline.errors import InfeasibleError, UsageError
from weftline.search import Event, Search, Solver, find_solver
from weftline.simulate import Loads, Timeline
from weftline.testing.generate import Feed, problem_of

PROBLEM = problem_of([[4, 2], [4, 2]], [Feed(0, (1,), [[0, 3], [-1, 0]])], weights=[2, 2], capacity=[None, 3])


def _row(*devices: int) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    return np.array(devices, np.int32)


def test_keeps_the_best_and_refuses_what_breaks_limits() -> None:
    """Tests values, refusals with their reasons, and that a worse candidate changes nothing."""
    search = Search(PROBLEM)
    assert search.offer(_row(1, 1)) is None
    assert search.refused == ("device d1 needs 4 B but holds 3 B",)
    assert search.offer(_row(1, 0)) is None
    assert "no link from d1 to d0" in search.refused[0]
    assert search.best is None
    assert search.offer(_row(0, 0)) == 8
    assert list(search.refused) == []
    kept = search.best
    assert search.offer(_row(0, 1)) == 4 + 3 + 2
    assert search.best is kept
    assert search.offered == 4


def test_orders_and_actions() -> None:
    """Tests that a candidate may bring its order, or the list of its actions."""
    problem = problem_of([[1, 1], [1, 1], [5, 5]], [Feed(0, (1,), 2)])
    search = Search(problem)
    assert search.offer(_row(0, 1, 1), order=_row(0, 1, 2)) == 3 + 1 + 5
    actions = np.array([[0, -1, -1], [2, -1, -1], [0, 1, -1], [1, -1, -1]])
    assert search.offer(_row(0, 1, 1), actions=actions) == 5 + 1
    assert isinstance(search.best, Timeline)
    with pytest.raises(UsageError):
        search.offer(_row(0, 1, 1), order=_row(0, 1, 1))


def test_throughput_candidates_are_loads() -> None:
    """Tests that the objective chooses the simulator."""
    search = Search(problem_of([[4, 4], [3, 3]], objective="throughput"))
    assert search.offer(_row(0, 1)) == 4
    assert isinstance(search.best, Loads)


def test_stop_rules() -> None:
    """Tests each rule, and which one comes first."""
    search = Search(PROBLEM, work_limit=2, gap=0.25)
    assert search.stopped_by == ""
    search.offer(_row(1, 1))
    assert search.stopped_by == ""
    search.offer(_row(0, 0))
    assert search.stopped_by == "work"
    search.offer_bound(Bound(5, "weak"))
    assert search.stopped_by == "work"  # (8 - 5) / 8 is more than a quarter
    search.offer_bound(Bound(6, "better"))
    assert search.stopped_by == "gap"
    search.offer_bound(Bound(8, "tight"))
    assert search.stopped_by == "optimal"
    assert Search(PROBLEM, time_limit=0.0).stopped_by == "time"


def test_bounds_only_rise() -> None:
    """Tests that a weaker bound is forgotten."""
    search = Search(PROBLEM)
    for value in (3, 7, 5):
        search.offer_bound(Bound(value, str(value)))
    assert search.bound == Bound(7, "7")


def test_events() -> None:
    """Tests that every improvement, and nothing else, is told."""
    events: list[Event] = []
    search = Search(PROBLEM, on_event=events.append, solver="me")
    search.offer_bound(Bound(4, "path"))
    for row in (_row(0, 1), _row(0, 1), _row(1, 1), _row(0, 0)):
        search.offer(row)
    search.tell("still here")
    told = [(event.solver, event.value, event.bound, event.message) for event in events]
    assert told == [("me", None, 4, ""), ("me", 9, 4, ""), ("me", 8, 4, ""), ("me", 8, 4, "still here")]


def test_a_run_notes_what_a_solver_reaches_by_itself() -> None:
    """Tests that the values of solvers which share a search are kept apart, failures included."""

    def offering(*row: int) -> Callable[[Search], None]:
        def solve(search: Search) -> None:
            search.offer(_row(*row))

        return solve

    def give_up(search: Search) -> None:
        raise InfeasibleError("too hard for me")

    search = Search(PROBLEM)
    search.run(Solver("first", "", offering(0, 0)))
    search.run(Solver("second", "", offering(0, 1)))
    with pytest.raises(InfeasibleError):
        search.run(Solver("third", "", give_up))
    assert search.reached == {"first": 8, "second": 9, "third": None}
    assert search.best is not None
    assert search.best.value == 8


def test_registries() -> None:
    """Tests that solvers are found by the name they carry, with a description, and that a wrong name lists them."""
    for solvers in (place.solvers(), partition.solvers()):
        assert next(iter(solvers)) == "auto"
        assert all(name == solver.name and solver.description for name, solver in solvers.items())
        assert any(solver.baseline for solver in solvers.values())
        assert find_solver(solvers, "auto") is solvers["auto"]
        with pytest.raises(UsageError, match=r"unknown solver 'gurobi' \(there are: auto, single-device"):
            find_solver(solvers, "gurobi")
