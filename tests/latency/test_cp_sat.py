"""The CP-SAT model of placement and order, and the solver around it, against brute force."""

import numpy as np
import pytest
from tests.data import present
from tests.latency.exact_problems import KINDS, problems

from weftline import load_problem
from weftline.errors import InfeasibleError
from weftline.latency.exact.cp_sat import SOLVER
from weftline.latency.exact.order_model import OrderModel
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import replay, violations
from weftline.simulate.tables import part_of, tables
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import random_problem


def _model(problem: Problem, horizon: int = 10_000, lower: int = 0) -> OrderModel:
    return OrderModel(tables(problem), horizon=horizon, lower=lower, capacity=problem.capacity, group=problem.group)


@pytest.mark.parametrize("kind", KINDS)
def test_model_equals_brute_force(kind: str) -> None:
    """Tests that the optimum of the model is the true one, or below it where activations do not fit."""
    for problem in problems(kind):
        least, answer = optimum(problem), _model(problem).solve(None)
        if answer.placement is None or answer.actions is None:
            assert answer.status == "infeasible"
            assert least is None
            continue
        timeline = replay(problem, answer.placement, answer.actions)
        assert answer.status == "optimal"
        assert timeline.value == answer.bound
        if violations(problem, timeline):
            assert problem.rules.memory == "dynamic"
            assert least is None or answer.bound <= least
        else:
            assert timeline.value == least


def test_model_below_the_optimum_is_infeasible() -> None:
    """Tests that nothing is found below the optimum, and the optimum itself just at it."""
    for kind in KINDS:
        for problem in problems(kind):
            least = optimum(problem)
            if least is None or solve(SOLVER, problem)[0].bound.value < least:  # type: ignore[union-attr]
                continue
            below = _model(problem, least - 1).solve(None)
            assert (below.status, below.bound) == ("infeasible", least)
            assert _model(problem, least, least).solve(None).bound == least


@pytest.mark.parametrize("kind", KINDS)
def test_conforms(kind: str) -> None:
    """Tests limits, value, reference, bound, proofs, seed and stop rules."""
    for problem in problems(kind)[:6]:
        check_solver(SOLVER, problem)


def test_solver_finds_and_claims_optima() -> None:
    """Tests that the solver finds nearly every optimum, and claims it where memory is static."""
    found = missed = 0
    for kind in KINDS:
        for problem in problems(kind):
            search, error = solve(SOLVER, problem)
            least = optimum(problem)
            if least is None:
                assert search.best is None
                assert error is not None
            elif problem.rules.memory == "static" or kind == "no limits":
                assert search.best is not None
                assert search.best.value == least
                assert search.stopped_by == "optimal"
            else:
                found += search.best is not None and search.best.value == least
                missed += search.best is None or search.best.value > least
    assert found >= 35
    assert missed <= 2


def test_hint_and_exclusion() -> None:
    """Tests that a hinted plan is found again, and that no plan has an excluded placement."""
    problem = random_problem(3, "latency", max_ops=6, limits=False, runtime="parallel")
    first = _model(problem).solve(None)
    assert first.placement is not None
    assert first.timeline is not None
    model = _model(problem)
    model.hint(first.timeline)
    again = model.solve(None)
    assert again.bound == first.bound
    model.exclude(first.placement)
    other = model.solve(None)
    assert other.placement is None or not np.array_equal(other.placement, first.placement)
    assert other.bound >= first.bound


def test_block_with_fixed_ends() -> None:
    """Tests a block whose first op takes no time on one device and whose last is held on another."""
    problem = random_problem(11, "latency", max_ops=8, max_devices=3, limits=False, runtime="parallel")
    table = tables(problem)
    block = part_of(table, np.arange(len(table.time), dtype=np.int32))
    time = block.time.copy()
    time[0] = [0, *[-1] * (time.shape[1] - 1)]
    time[-1, :-1] = -1
    answer = OrderModel(block._replace(time=time), horizon=10_000).solve(5.0)
    assert answer.status == "optimal"
    assert answer.placement is not None
    assert (answer.placement[0], answer.placement[-1]) == (0, time.shape[1] - 1)
    assert OrderModel(block._replace(time=time), horizon=answer.bound - 1).solve(5.0).status == "infeasible"


def test_stop_flag_ends_search_and_building() -> None:
    """Tests that a stop flag is looked at while the model is built."""
    problem = random_problem(3, "latency", max_ops=6, limits=False, runtime="parallel")
    assert _model(problem).solve(None, lambda: True).status == "unknown"


def test_large_problem_is_left_to_heuristics() -> None:
    """Tests that a model beyond the size limit is not built, and that the start is offered all the same."""
    told: list[str] = []
    problem = random_problem(21, "latency", max_ops=8, limits=False, runtime="parallel")
    search = Search(problem, options={"most_intervals": "1"}, on_event=lambda event: told.append(event.message))
    SOLVER.solve(search)
    assert search.best is not None
    assert any("too large for one CP-SAT model" in message for message in told)


def test_proof_of_infeasibility() -> None:
    """Tests that missing links which leave no plan are a proof."""
    for seed in range(300):
        problem = random_problem(seed, "latency", max_ops=5, memory="static")
        search, error = solve(SOLVER, problem)
        if search.best is None:
            assert isinstance(error, InfeasibleError)
            assert optimum(problem) is None
            return
    raise AssertionError("no infeasible problem was generated")


def test_published_instances() -> None:
    """Tests the known optima of Moirai's samples."""
    for name, seconds in (("example-1", 30.0), ("yolov5x", 23.745)):
        search = Search(load_problem(present(f"moirai/{name}.json"), transfers="per-edge"))
        SOLVER.solve(search)
        assert search.best is not None
        assert search.best.value == round(seconds * 1e9)
        assert search.stopped_by == "optimal"
