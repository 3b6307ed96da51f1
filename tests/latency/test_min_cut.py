"""Tests of the exact solver for the sequential runtime: against brute force, on real models, and within memory."""

from itertools import product

import numpy as np
import pytest

from weftline.ask.planning import checked_bounds
from weftline.bounds.label_costs import IMPOSSIBLE_COST, label_costs
from weftline.certify import check
from weftline.cluster import Cluster
from weftline.errors import InfeasibleError
from weftline.latency.sequential.min_cut import SOLVER_MIN_CUT as SOLVER
from weftline.latency.sequential.min_cut import expand
from weftline.problem import Problem
from weftline.problem.load import load_problem
from weftline.problem.model import problem_to_file
from weftline.search import Search
from weftline.testing.conformance import check_solver, optimum, solve
from weftline.testing.generate import Feed, problem_of, random_problem
from weftline.zoo import build
from weftline.zoo.registry import save


def _solved(problem: Problem, **limits: object) -> Search:
    search = Search(problem, **limits)  # type: ignore[arg-type]
    search.run(SOLVER)
    return search


@pytest.mark.parametrize("transfers", ["per-tensor", "per-edge"])
@pytest.mark.parametrize("devices", [2, 3])
def test_equals_brute_force(devices: int, transfers: str) -> None:
    """Tests 250 problems with all limits: the optimum, and a proof of it wherever memory does not decide."""
    seen = proved = 0
    for seed in range(250):
        problem = random_problem(
            seed, "latency", max_ops=5, max_devices=devices, runtime="sequential", transfers=transfers
        )
        search, error = solve(SOLVER, problem)
        least = optimum(problem)
        if least is None:
            assert search.best is None
            assert error is not None
            continue
        assert search.best is not None, seed
        assert search.bound is not None
        assert search.bound.value <= least == search.best.value, seed
        seen += 1
        proved += search.bound.value == least
    assert seen > 200
    assert proved > seen * 9 // 10


@pytest.mark.parametrize("memory", ["static", "dynamic"])
def test_conforms(memory: str) -> None:
    """Tests the suite of every solver, for both runtimes."""
    for seed in range(4000, 4030):
        check_solver(SOLVER, random_problem(seed, "latency", max_ops=5, memory=memory))


@pytest.mark.parametrize("name", ["bert", "resnet50", "inception-v3"])
def test_real_models_are_solved_with_proof(name: str, tmp_path: object) -> None:
    """Tests that small zoo models on three unequal devices get an optimal placement that the checker proves."""
    path = f"{tmp_path}/{name}.onnx"
    save(build(name, size="small", weights=False), path)
    rules = {"objective": "latency", "runtime": "sequential"}
    problem, _ = load_problem(path, cluster=Cluster.preset("laptop"), rules=rules)
    search = _solved(problem)
    assert search.stopped_by == "optimal"
    assert search.best is not None
    assert search.bound is not None
    entry = checked_bounds(problem_to_file(problem), [search.bound])[0]
    assert (entry.proof, entry.value_ns) == ("proved", search.best.value)


def test_the_witness_is_checked_in_full() -> None:
    """Tests that a bound above the optimum would not be called proved."""
    problem = problem_of([[1, 5], [5, 1]], [Feed(0, (1,), 2)], runtime="sequential")
    search = _solved(problem)
    assert search.best is not None
    assert search.bound is not None
    assert search.best.value == search.bound.value == 4
    raised = search.bound.__class__(5, "labelling", search.bound.witness)
    assert checked_bounds(problem_to_file(problem), [raised])[0].proof == "claimed"
    assert search.bound.witness is not None
    assert search.bound.witness["kind"] in check.WITNESSES


def test_memory_by_hand() -> None:
    """Tests that prices find which ops to move: those that lose least per byte, with a proof."""
    # All are faster on d0, which holds 10 bytes. Moving op0 (6 bytes) costs 2, op1 (6) costs 9, op2 (4) costs 4.
    times = [[1, 3], [1, 10], [1, 5]]
    problem = problem_of(times, weights=[6, 6, 4], capacity=[10, None], runtime="sequential", memory="static")
    search = _solved(problem)
    assert search.best is not None
    assert search.bound is not None
    assert search.best.placement.tolist() == [1, 0, 0]
    assert search.best.value == search.bound.value == 5
    assert checked_bounds(problem_to_file(problem), [search.bound])[0].proof == "proved"


def test_the_parallel_runtime_gets_a_placement_without_a_bound() -> None:
    """Tests that the least work and communication is offered as a heuristic."""
    search = _solved(problem_of([[1, 9], [9, 1]], [Feed(0, (1,), 2)], runtime="parallel"))
    assert search.best is not None
    assert search.best.placement.tolist() == [0, 1]
    assert search.bound is None


def test_missing_links_are_a_proof() -> None:
    """Tests that ops which cannot be joined are reported as proved infeasible."""
    problem = problem_of([[1, -1], [-1, 1]], [Feed(0, (1,), [[0, -1], [-1, 0]])], runtime="sequential")
    with pytest.raises(InfeasibleError, match="missing links") as caught:
        _solved(problem)
    assert caught.value.proved


def test_no_time_still_gives_an_answer() -> None:
    """Tests that one candidate is offered when the time is over before the search begins."""
    for seed in range(20):
        problem = random_problem(seed, "latency", max_ops=40, limits=False, runtime="sequential")
        assert _solved(problem, time_limit=0.0).best is not None


def test_expansion_improves_and_never_worsens() -> None:
    """Tests moves to one device from any start on 60 problems of up to four devices, against all labellings."""
    rng = np.random.default_rng(3)
    optimal = seen = 0
    for seed in range(60):
        problem = random_problem(seed, "latency", max_ops=6, max_devices=4, runtime="sequential")
        costs = label_costs(problem)
        assert costs is not None
        groups, k = costs.unary.shape
        start = rng.integers(0, k, (groups,))
        found = expand(costs, start, stop=lambda: False)
        assert costs.cost(found) <= costs.cost(start) or costs.cost(start) >= IMPOSSIBLE_COST
        if costs.cost(found) < IMPOSSIBLE_COST:
            seen += 1
            optimal += costs.cost(found) == min(costs.cost(np.array(x)) for x in product(range(k), repeat=groups))
    assert seen > 30
    assert optimal > seen * 7 // 10
