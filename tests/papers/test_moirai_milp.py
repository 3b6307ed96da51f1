"""Moirai's MILP against brute force."""

import numpy as np
import pytest
from tests.data import present
from tests.latency.exact_problems import KINDS, problems

from weftline import load_problem
from weftline.errors import InfeasibleError
from weftline.latency.bounds import windows
from weftline.papers.moirai.milp import SOLVER, count_pairs
from weftline.papers.moirai.milp_model import MilpModel
from weftline.papers.moirai.milp_worker import solve_here, solve_in_process
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate.tables import tables
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import random_problem


@pytest.mark.parametrize("kind", KINDS)
def test_solver_equals_brute_force(kind: str) -> None:
    """Tests that the solver finds and claims the optimum, but for activations that do not fit."""
    for problem in problems(kind):
        search, error = solve(SOLVER, problem)
        least = optimum(problem)
        if least is None:
            assert search.best is None
            assert error is not None
            continue
        assert search.bound is not None
        assert search.bound.value <= least
        if problem.rules.memory == "static" or kind == "no limits":
            assert search.best is not None
            assert search.best.value == least
            assert search.stopped_by == "optimal"


@pytest.mark.parametrize("kind", KINDS)
def test_conforms(kind: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules."""
    for problem in problems(kind)[:3]:
        check_solver(SOLVER, problem)


def _milp(problem: Problem, horizon: int) -> MilpModel:
    table = tables(problem)
    model = MilpModel(table, windows(table, horizon, problem.group), horizon, 0, problem.group)
    assert model.fill(problem.capacity, [], lambda: False)
    return model


def test_process_gives_the_same_answer() -> None:
    """Tests that a process of its own answers as this one does, and that a stop flag ends it."""
    problem = random_problem(3, "latency", max_ops=6, limits=False, runtime="parallel")
    model = _milp(problem, 100).model
    here = solve_here(model, seconds=20.0, nodes=None, seed=0)
    there = solve_in_process(model, seconds=20.0, nodes=None, seed=0, stop=lambda: False)
    assert there.status == here.status == "optimal"
    assert there.bound == pytest.approx(here.bound)
    assert there.values.keys() == here.values.keys()
    assert solve_in_process(model, seconds=20.0, nodes=None, seed=0, stop=lambda: True).status == "unknown"


def test_building_stops() -> None:
    """Tests that a stop flag is looked at while the model is built."""
    problem = random_problem(3, "latency", max_ops=6, limits=False, runtime="parallel")
    table = tables(problem)
    model = MilpModel(table, windows(table, 100), 100, 0, problem.group)
    assert not model.fill(problem.capacity, [], lambda: True)


def test_pairs_are_counted_by_reachability() -> None:
    """Tests that a chain has no open pair, and that it has as many as brute force counts otherwise."""
    for seed in range(30):
        problem = random_problem(seed, "latency", max_ops=8)
        arrays, n = problem.graph.arrays, len(problem.graph.ops)
        steps = np.eye(n, dtype=np.int64)
        makers, readers, _ = arrays.edges()
        steps[makers, readers] = 1
        reach = np.linalg.matrix_power(steps, n) > 0
        ops = sum(not reach[i, j] for i in range(n) for j in range(i + 1, n))
        edges = list(zip(makers.tolist(), readers.tolist(), strict=True))
        sends = sum(
            not reach[q[1], r[0]] and not reach[r[1], q[0]] for i, q in enumerate(edges) for r in edges[i + 1 :]
        )
        assert count_pairs(tables(problem)) == ops + sends


def test_large_problem_is_left_to_heuristics() -> None:
    """Tests that a model beyond the size limit is not built, and that the start is offered all the same."""
    told: list[str] = []
    problem = random_problem(21, "latency", max_ops=8, limits=False, runtime="parallel")
    search = Search(problem, options={"most_pairs": "0"}, on_event=lambda event: told.append(event.message))
    SOLVER.solve(search)
    assert search.best is not None
    assert any("too large for Moirai's MILP" in message for message in told)


def test_infeasible_is_not_a_proof() -> None:
    """Tests that what HiGHS calls infeasible is only said, not proved."""
    for seed in range(300):
        problem = random_problem(seed, "latency", max_ops=5, memory="static")
        if optimum(problem) is None:
            with pytest.raises(InfeasibleError) as caught:
                SOLVER.solve(Search(problem, work_limit=1000))
            assert not caught.value.proved
            return
    raise AssertionError("no infeasible problem was generated")


def test_published_example() -> None:
    """Tests the known optimum of Moirai's first sample."""
    search = Search(load_problem(present("moirai/example-1.json"), transfers="per-edge"), time_limit=120)
    SOLVER.solve(search)
    assert search.best is not None
    assert search.best.value == 30_000_000_000
    assert search.stopped_by == "optimal"


def test_a_model_on_which_highs_breaks_down() -> None:
    """Tests that the answer is still the optimum."""
    problem = random_problem(58, "latency", max_ops=5)
    best = solve(SOLVER, problem)[0].best
    assert best is not None
    assert best.value == optimum(problem)
