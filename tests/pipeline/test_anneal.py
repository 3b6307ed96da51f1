"""Tests of annealing: its own cost is the simulator's, it keeps the limits, and it finds optima of tiny problems."""

import numpy as np
import pytest

from weftline.pipeline.anneal import SOLVER, PipelineAnnealer
from weftline.pipeline.pieces import make_pieces
from weftline.pipeline.reduce import reduce_exactly
from weftline.pipeline.slice import slice_order
from weftline.problem import Problem
from weftline.search import Search
from weftline.simulate import simulate_throughput, violations
from weftline.testing.conformance import brute_force_throughput, check_solver
from weftline.testing.generate import Feed, problem_of, random_problem


def _wide(count: int, devices: int, seed: int) -> Problem:
    generator = np.random.default_rng(seed)
    time = [[int(t)] * devices for t in generator.integers(20, 80, count)]
    wires = [
        Feed(i, tuple(np.unique(generator.integers(i + 1, count, 3)).tolist()), int(generator.integers(10, 60)))
        for i in range(count - 1)
    ]
    return problem_of(time, wires, objective="throughput")


@pytest.mark.parametrize("communication", ["added", "overlapped"])
def test_value_is_the_simulators(communication: str) -> None:
    """Tests value and limits on hundreds of problems: unequal devices and links, hosts, training, absent times."""
    answered = 0
    for seed in range(300):
        problem = random_problem(
            seed, "throughput", max_ops=14, max_devices=5, memory="static", communication=communication
        )
        pieces = reduce_exactly(make_pieces(problem))
        found = PipelineAnnealer(pieces, seed=seed).run(3000)
        if found is not None:
            answered += 1
            result = simulate_throughput(problem, pieces.lift(found[0]))
            assert result.value == found[1]
            assert not violations(problem, result)
    assert answered >= 200


def test_reaches_most_optima() -> None:
    """Tests tiny problems against brute force."""
    reached = feasible = 0
    for seed in range(1000, 1150):
        problem = random_problem(seed, "throughput", max_ops=6, memory="static")
        least = brute_force_throughput(problem)
        if least is not None:
            feasible += 1
            found = PipelineAnnealer(make_pieces(problem), seed=1).run(20_000)
            reached += found is not None and found[1] == least
    assert reached >= 0.93 * feasible


def test_same_seed_and_steps_give_the_same() -> None:
    """Tests that portions of the same size lead to the same answer, and that it is better than a slice."""
    problem = _wide(40, 4, 1)
    pieces = reduce_exactly(make_pieces(problem))
    answers = []
    for _ in range(2):
        annealer = PipelineAnnealer(pieces, seed=5)
        for _ in range(4):
            found = annealer.run(20_000)
        assert found is not None
        answers.append((found[0].tolist(), found[1]))
    assert answers[0] == answers[1]
    device = slice_order(pieces, np.arange(len(pieces.time), dtype=np.int32))
    assert device is not None
    assert answers[0][1] < simulate_throughput(problem, pieces.lift(device)).value


def test_stops_when_the_flag_is_up() -> None:
    """Tests that a raised flag ends a run that would take hours."""
    annealer = PipelineAnnealer(reduce_exactly(make_pieces(_wide(30, 3, 2))), seed=0)
    found = annealer.run(10**12, np.ones(1, np.int64))
    assert found is not None


def test_begins_where_it_is_told() -> None:
    """Tests that a start is kept until something better is found, and that no pipeline is taken for one."""
    pieces = make_pieces(problem_of([[1, 1]] * 3, [Feed(0, (1,), 9), Feed(1, (2,), 9)], objective="throughput"))
    annealer = PipelineAnnealer(pieces, seed=0, start=np.array([0, 1, 1], np.int32), coarser=False)
    best = annealer.best
    assert best is not None
    assert best[0].tolist() == [0, 1, 1]
    assert best[1] == 11
    assert not annealer.give(np.array([0, 1, 0], np.int32))
    assert annealer.give(np.array([1, 1, 1], np.int32))
    best = annealer.best
    assert best is not None
    assert best[1] == 3


def test_a_host_relieves_the_stages() -> None:
    """Tests that cheap ops move to a host, though a stage could run them."""
    time = [[10, 1], [10, 1], [10, 90], [10, 90]]
    problem = problem_of(time, [Feed(0, (2,), 1), Feed(1, (3,), 1)], hosts=[1], objective="throughput")
    found = PipelineAnnealer(make_pieces(problem), seed=0).run(5000)
    assert found is not None
    assert found[1] == 22


def test_room_shrinks_where_activations_overflow() -> None:
    """Tests that less room leads to another answer within it."""
    problem = problem_of([[1, 9]] * 4, weights=[5] * 4, capacity=[20, 20], objective="throughput", memory="static")
    annealer = PipelineAnnealer(make_pieces(problem), seed=0)
    found = annealer.run(5000)
    assert found is not None
    assert found[1] == 4
    annealer.shrink(np.array([5, 0], np.int64))
    found = annealer.run(5000)
    assert found is not None
    assert found[1] == 9


def test_solver_conforms() -> None:
    """Tests the conformance suite on problems of all kinds."""
    for seed in range(20):
        check_solver(SOLVER, random_problem(seed, "throughput", max_ops=6))


def test_solver_stops_at_the_bound() -> None:
    """Tests that the answer is costed by the search and bettered from the first slices."""
    search = Search(_wide(40, 4, 3), work_limit=50)
    SOLVER.solve(search)
    assert search.best is not None
    assert search.offered <= 50
