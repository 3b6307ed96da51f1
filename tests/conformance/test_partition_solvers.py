"""Every partition solver through the one conformance suite."""

from dataclasses import replace
from functools import cache

import msgspec
import pytest

from weftline import pipeline as partition
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import random_problem

KINDS: dict[str, dict[str, object]] = {
    "any": {},
    "added": {"communication": "added", "memory": "dynamic"},
    "overlapped": {"communication": "overlapped", "memory": "dynamic"},
    "static memory": {"memory": "static"},
    "two stages": {"stages": 0, "max_devices": 2},
    "tight memory": {},
    "tight static memory": {"memory": "static"},
    "no limits": {"limits": False},
}
COUNT = 20
"""Problems of each kind: 160 in all."""


@cache
def _problems(kind: str) -> list[Problem]:
    """Hosts, training graphs, absent times and links, `together` are in many of them; shared by all solvers."""
    first = 1000 * list(KINDS).index(kind)
    found = [random_problem(seed, "throughput", max_ops=6, **KINDS[kind]) for seed in range(first, first + COUNT)]  # type: ignore[arg-type]
    return [_tight(problem) for problem in found] if "tight" in kind else found


def _tight(problem: Problem) -> Problem:
    """Every device holds about its share of the memory that everything needs."""
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", partition.solvers())
def test_conforms(kind: str, name: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules on 20 problems."""
    for problem in _problems(kind):
        check_solver(partition.solvers()[name], problem)


def test_problems_hold_what_they_are_for() -> None:
    """Tests that the generated problems have every limit, and that some are infeasible."""
    problems = [problem for kind in KINDS for problem in _problems(kind)]
    assert sum(optimum(problem) is None for problem in problems) >= 10
    assert sum(bool(problem.together) for problem in problems) >= 15
    assert sum(bool(problem.host.any()) for problem in problems) >= 15
    assert sum(any(op.backward for op in problem.graph.ops) for problem in problems) >= 15
    assert sum(problem.stage_limit < len(problem.devices) for problem in problems) >= 15
    assert sum(bool((problem.cost.time < 0).any()) for problem in problems) >= 15
    assert sum(any(device.capacity is not None for device in problem.devices) for problem in problems) >= 15


def test_default_solver_finds_every_optimum() -> None:
    """Tests that the default answers every feasible problem with the optimum."""
    feasible = [problem for kind in KINDS for problem in _problems(kind) if optimum(problem) is not None]
    found = [solve(partition.solvers()["auto"], problem)[0].best for problem in feasible]
    assert all(best is not None for best in found)
    pairs = zip(found, feasible, strict=True)
    best = sum(answer is not None and answer.value == optimum(problem) for answer, problem in pairs)
    assert best == len(feasible)
