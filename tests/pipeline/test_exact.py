"""Tests of the exact solvers: brute force on unequal devices with memory and sets, cases by order, stop rules."""

from dataclasses import replace

import msgspec
import pytest
from tests.certify.tiny_pipelines import brute_force, tiny_form

from weftline import pipeline as partition
from weftline.errors import InfeasibleError
from weftline.pipeline.exact.unequal import orders_of_devices
from weftline.pipeline.ideals import list_ideals, order_of
from weftline.pipeline.pieces import make_pieces
from weftline.problem import Problem
from weftline.problem.feasible import least_memory
from weftline.problem.model import ProblemFile, problem_from_file
from weftline.search import Search
from weftline.testing.conformance import optimum, solve
from weftline.testing.generate import Feed, problem_of, random_problem


def _tight(problem: Problem) -> Problem:
    """Every device holds about its share of what everything needs."""
    need = int(least_memory(problem).sum()) + sum(t.bytes for t in problem.graph.tensors if t.producer >= 0) // 2
    share = max(1, need * 5 // (4 * len(problem.devices)))
    return replace(problem, devices=tuple(msgspec.structs.replace(d, memory=share) for d in problem.devices))


@pytest.mark.parametrize("first", range(0, 500, 100))
@pytest.mark.parametrize("name", ["exact", "auto"])
def test_agrees_with_brute_force(name: str, first: int) -> None:
    """Tests value, bound and infeasibility on 500 tiny problems: unequal devices, memory, sets, hosts, training."""
    solver = partition.solvers()[name]
    step = 1 if name == "exact" else 4
    for seed in range(10_000 + first, 10_100 + first, step):
        problem = random_problem(seed, "throughput", max_ops=7, max_devices=3)
        problem = _tight(problem) if seed % 3 == 0 else problem
        best, (search, error) = optimum(problem), solve(solver, problem)
        if best is None:
            assert search.best is None
            assert error is not None
        else:
            assert search.best is not None, (seed, error)
            assert search.best.value == best, seed
            assert search.bound is not None
            assert search.bound.value == best, seed


def test_problems_hold_what_they_are_for() -> None:
    """Tests that the generated problems are unequal, have sets and limits, and that some are infeasible."""
    problems = [random_problem(seed, "throughput", max_ops=7, max_devices=3) for seed in range(10_000, 10_500)]
    assert sum(not make_pieces(problem).equal for problem in problems) > 200
    assert sum(bool(problem.together) for problem in problems) > 80
    assert sum(problem.host.any() for problem in problems) > 50


def test_a_proof_that_nothing_fits() -> None:
    """Tests that weights which no order of stages can hold are refused with a proof."""
    wires = [Feed(i, (i + 1,), 1) for i in range(2)]
    problem = problem_of([[1, 1]] * 3, wires, objective="throughput", weights=[3, 3, 3], capacity=[5, 5])
    with pytest.raises(InfeasibleError) as caught:
        partition.solvers()["exact"].solve(Search(problem, work_limit=100))
    assert caught.value.proved


def test_orders_of_devices_leave_out_what_looks_the_same() -> None:
    """Tests that equal devices keep their order: 3 devices, two of them alike, have 3 orders."""
    problem = problem_of([[1, 1, 2]] * 3, [Feed(i, (i + 1,), 1) for i in range(2)], objective="throughput")
    orders = orders_of_devices(make_pieces(problem), 10)
    assert orders is not None
    assert sorted(orders) == [(0, 1, 2), (0, 2, 1), (2, 0, 1)]
    assert orders_of_devices(make_pieces(problem), 2) is None


def test_ideals_of_two_chains() -> None:
    """Tests the number of ideals: two chains of 3 have 4 x 4."""
    wires = [Feed(0, (1,), 1), Feed(1, (2,), 1), Feed(3, (4,), 1), Feed(4, (5,), 1)]
    order = order_of(make_pieces(problem_of([[1, 1]] * 6, wires, objective="throughput")))
    assert list_ideals(order, 14) is None
    found = list_ideals(order, 100)
    assert found is not None
    assert sorted(found.work.tolist()) == [0, 1, 1, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 5, 5, 6]
    assert sorted(found.cut.tolist()) == [0] * 4 + [1] * 8 + [2] * 4  # both ends of a chain, or one, or none


def test_ideals_reach_the_optimum_of_equal_devices() -> None:
    """Tests the program on graphs of equal devices against the exact solver, with a claim that nothing is better."""
    for seed in range(30):
        problem = random_problem(seed, "throughput", max_ops=8, max_devices=1, limits=False, communication="added")
        time = problem.cost.time.repeat(3, axis=1)
        alike = problem_of(
            time.tolist(),
            [Feed(t.producer, t.consumers, t.bytes) for t in problem.graph.tensors if t.producer >= 0 and t.consumers],
            objective="throughput",
        )
        search, _ = solve(partition.solvers()["ideals"], alike)
        assert search.best is not None
        assert search.best.value == optimum(alike)
        assert search.bound is not None
        assert search.bound.value == search.best.value


def test_ideals_place_what_may_stand_anywhere() -> None:
    """Tests tiny pipelines with pieces of no time, training graphs and few stages: the optimum of brute force."""
    for seed in range(150):
        form = tiny_form(seed)
        best = brute_force(form)
        if best is None:
            continue
        search, _ = solve(partition.solvers()["ideals"], problem_from_file(msgspec.convert(form, ProblemFile)))
        assert search.best is not None
        assert search.best.value == best, f"seed {seed}"
        assert best == 0 or (search.bound is not None and search.bound.value == best)


def test_costs_that_are_rounded_keep_the_bound_valid() -> None:
    """Tests times beyond the model's precision: the bound stays below the value, close to it."""
    times = [[10**12 + 7919 * i, 10**12 + 7919 * i] for i in range(6)]
    problem = problem_of(times, [Feed(i, (i + 1,), 10**9 + i) for i in range(5)], objective="throughput")
    search, _ = solve(partition.solvers()["exact"], problem)
    assert search.best is not None
    assert search.bound is not None
    assert search.bound.value <= optimum(problem) == search.best.value  # type: ignore[operator]
    assert search.bound.value > 0.9999 * search.best.value
