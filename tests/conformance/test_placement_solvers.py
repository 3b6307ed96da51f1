"""Every placement solver through the one conformance suite."""

from dataclasses import replace
from functools import cache
from os import environ

import msgspec
import pytest

from weftline import place
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import random_problem

KINDS: dict[str, dict[str, object]] = {
    "any": {},
    "parallel per-tensor": {"runtime": "parallel", "transfers": "per-tensor"},
    "parallel per-edge": {"runtime": "parallel", "transfers": "per-edge"},
    "sequential": {"runtime": "sequential"},
    "static memory": {"memory": "static"},
    "tight memory": {},
    "tight static memory": {"memory": "static"},
    "no limits": {"limits": False},
}
COUNT = int(environ.get("WEFTLINE_PROBLEMS", "40"))
"""Problems of each of the 8 kinds; 125 makes 1,000."""


@cache
def _problems(kind: str) -> list[Problem]:
    """Absent times and links, buses and `together` are in most of them; shared by all solvers."""
    first = 1000 * list(KINDS).index(kind)
    found = [random_problem(seed, "latency", max_ops=5, **KINDS[kind]) for seed in range(first, first + COUNT)]  # type: ignore[arg-type]
    return [_tight(problem) for problem in found] if "tight" in kind else found


def _tight(problem: Problem) -> Problem:
    """Every device holds about its share of the memory that everything needs."""
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", place.solvers())
def test_conforms(kind: str, name: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules on 40 problems."""
    for problem in _problems(kind):
        check_solver(place.solvers()[name], problem)


def test_problems_hold_what_they_are_for() -> None:
    """Tests that the generated problems have every limit, and that some are infeasible."""
    problems = [problem for kind in KINDS for problem in _problems(kind)]
    assert sum(optimum(problem) is None for problem in problems) >= 10
    assert sum(bool(problem.together) for problem in problems) >= 30
    assert sum(bool(problem.buses) for problem in problems) >= 30
    assert sum(bool((problem.cost.time < 0).any()) for problem in problems) >= 30
    assert sum(any(device.capacity is not None for device in problem.devices) for problem in problems) >= 30


def test_default_solver_finds_most_optima() -> None:
    """Tests that the default answers nearly every feasible problem, and mostly with the optimum."""
    feasible = [problem for kind in KINDS for problem in _problems(kind) if optimum(problem) is not None]
    found = [solve(place.solvers()["auto"], problem)[0].best for problem in feasible]
    assert sum(best is None for best in found) <= len(feasible) // 20
    pairs = zip(found, feasible, strict=True)
    best = sum(answer is not None and answer.value == optimum(problem) for answer, problem in pairs)
    assert best >= len(feasible) * 6 // 10
