"""HSDAG with its published settings through the suite of all placement solvers; its default is there already."""

from dataclasses import replace

import pytest

from weftline.papers import hsdag
from weftline.search import Search, Solver
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import KINDS, placement_problems

COUNT, FIRST = 5, 50_000


def _with_options(solver: Solver, **options: str) -> Solver:
    """The solver as a user calls it with settings."""

    def solve_with(search: Search) -> None:
        search.options = options
        solver.solve(search)

    return replace(solver, solve=solve_with)


PAPER = _with_options(hsdag.SOLVER, preset="paper", episodes="1")


@pytest.mark.parametrize("kind", KINDS)
def test_the_published_method_conforms(kind: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules."""
    for problem in placement_problems(kind, COUNT, FIRST)[:2]:
        check_solver(PAPER, problem)


def test_finds_most_answers() -> None:
    """Tests that the default preset answers nearly every feasible problem, mostly with the optimum."""
    feasible = [
        problem for kind in KINDS for problem in placement_problems(kind, COUNT, FIRST) if optimum(problem) is not None
    ]
    found = [solve(hsdag.SOLVER, problem)[0].best for problem in feasible]
    assert sum(best is None for best in found) <= len(feasible) // 20
    pairs = zip(found, feasible, strict=True)
    assert (
        sum(best is not None and best.value == optimum(problem) for best, problem in pairs) >= len(feasible) * 6 // 10
    )
