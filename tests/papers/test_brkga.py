"""Tests of the genetic baseline."""

from weftline.papers.archer import SOLVER_BRKGA as SOLVER
from weftline.papers.archer import SOLVER_LONG
from weftline.problem import Problem
from weftline.search import Search
from weftline.testing.conformance import check_solver
from weftline.testing.generate import Feed, problem_of, random_problem


def _two_strands() -> Problem:
    """Two independent chains whose ops alternate in the given order: only another order cuts no tensor."""
    wires = [Feed(i, (i + 2,), 50) for i in range(6)]
    return problem_of([[10, 10]] * 8, wires, objective="throughput")


def test_finds_an_order_that_cuts_nothing() -> None:
    """Tests that each strand gets its own stage."""
    search = Search(_two_strands(), seed=3)
    SOLVER.solve(search)
    assert search.best is not None
    assert search.best.value == 40


def test_few_orders_end_it_early() -> None:
    """Tests that the long preset ends on a chain, which has a single order, after one candidate."""
    problem = problem_of([[1, 1]] * 5, [Feed(i, (i + 1,), 1) for i in range(4)], objective="throughput")
    search = Search(problem)
    SOLVER_LONG.solve(search)
    assert search.offered == 1


def test_solver_conforms() -> None:
    """Tests the conformance suite on problems of all kinds."""
    for seed in range(20):
        check_solver(SOLVER, random_problem(seed, "throughput", max_ops=6))
