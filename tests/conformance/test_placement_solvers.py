"""Every placement solver through the one conformance suite."""

from os import environ

import pytest

from weftline import latency as place
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import KINDS, placement_problems

COUNT = int(environ.get("WEFTLINE_PROBLEMS", "40"))
"""Problems of each of the 8 kinds; 125 makes 1,000."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", place.solvers())
def test_conforms(kind: str, name: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules; networks take longer, so they get fewer."""
    solver = place.solvers()[name]
    for problem in placement_problems(kind, COUNT)[:: 4 if solver.learned else 1]:
        check_solver(solver, problem)


def test_problems_hold_what_they_are_for() -> None:
    """Tests that the generated problems have every limit, and that some are infeasible."""
    problems = [problem for kind in KINDS for problem in placement_problems(kind, COUNT)]
    assert sum(optimum(problem) is None for problem in problems) >= 10
    assert sum(bool(problem.together) for problem in problems) >= 30
    assert sum(bool(problem.buses) for problem in problems) >= 30
    assert sum(bool((problem.cost.time < 0).any()) for problem in problems) >= 30
    assert sum(any(device.capacity is not None for device in problem.devices) for problem in problems) >= 30


def test_default_solver_finds_most_optima() -> None:
    """Tests that the default answers nearly every feasible problem, and mostly with the optimum."""
    feasible = [
        problem for kind in KINDS for problem in placement_problems(kind, COUNT) if optimum(problem) is not None
    ]
    found = [solve(place.solvers()["auto"], problem)[0].best for problem in feasible]
    assert sum(best is None for best in found) <= len(feasible) // 20
    pairs = zip(found, feasible, strict=True)
    best = sum(answer is not None and answer.value == optimum(problem) for answer, problem in pairs)
    assert best >= len(feasible) * 6 // 10
