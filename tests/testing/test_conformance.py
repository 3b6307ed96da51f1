"""Tests that the conformance suite catches solvers that do not conform."""

from collections.abc import Callable
from itertools import count

import numpy as np
import pytest

from weftline.bounds import Bound
from weftline.errors import InfeasibleError
from weftline.problem import Problem
from weftline.search import Search, Solver
from weftline.simulate import Loads, Timeline
from weftline.testing.conformance import check_solver
from weftline.testing.generate import Feed, problem_of

LATENCY = problem_of([[3, 1], [1, 3]], [Feed(0, (1,), 1)])
THROUGHPUT = problem_of([[3, 1], [1, 3]], [Feed(0, (1,), 1)], objective="throughput")
calls = count()


def _good(search: Search) -> None:
    search.offer(np.array([1, 0], np.int32))


def _forged_value(search: Search) -> None:
    _good(search)
    best = search.best
    if isinstance(best, Timeline):
        search.best = Timeline(best.placement, best.start, best.end - 1, best.transfers, best.peak)
    elif isinstance(best, Loads):
        search.best = Loads(
            best.placement, best.compute, best.entering, best.leaving, best.load - 1, best.peak, best.stages
        )


def _bound_too_high(search: Search) -> None:
    _good(search)
    search.offer_bound(Bound(10**9, "wishful thinking"))


def _wrong_proof(search: Search) -> None:
    raise InfeasibleError("impossible", proved=True)


def _never_the_same(search: Search) -> None:
    search.offer(np.full(2, next(calls) % 2, np.int32))


def _does_not_stop(search: Search) -> None:
    for _ in range(3):
        search.offer(np.array([0, 0], np.int32))


def _breaks_limits(search: Search) -> None:
    offered = Search(problem_of([[3, 1], [1, 3]], [Feed(0, (1,), 1)], objective=search.problem.rules.objective))
    _good(offered)
    search.best = offered.best


@pytest.mark.parametrize("problem", [LATENCY, THROUGHPUT])
def test_accepts_a_good_solver(problem: Problem) -> None:
    """Tests that an honest solver passes."""
    check_solver(Solver("good", "", _good), problem)


@pytest.mark.parametrize("problem", [LATENCY, THROUGHPUT], ids=["latency", "throughput"])
@pytest.mark.parametrize(
    ("solve", "message"),
    [
        (_forged_value, "different when simulated again"),
        (_bound_too_high, "has bound 1000000000"),
        (_wrong_proof, "proves infeasible"),
        (_never_the_same, "two answers for seed 0"),
        (_does_not_stop, "after the search was stopped by work"),
    ],
)
def test_catches(problem: Problem, solve: Callable[[Search], None], message: str) -> None:
    """Tests that each kind of wrong solver is named."""
    with pytest.raises(AssertionError, match=message):
        check_solver(Solver("bad", "", solve), problem)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_catches_broken_limits(objective: str) -> None:
    """Tests an answer that tears a `together` set apart."""
    problem = problem_of([[3, 1], [1, 3]], [Feed(0, (1,), 1)], together=((0, 1),), objective=objective)
    with pytest.raises(AssertionError, match="breaks limits"):
        check_solver(Solver("bad", "", _breaks_limits), problem)
