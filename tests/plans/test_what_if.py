"""A plan with some ops elsewhere: the simulator says the same as for a placement that a solver offers."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.ask import make_plan
from weftline.errors import InfeasibleError
from weftline.plans import plan_result
from weftline.plans.moves import simulate_moved, with_followers
from weftline.simulate import Loads, Timeline, replay, simulate_latency, simulate_throughput, violations
from weftline.testing import random_problem
from weftline.testing.generate import Feed, problem_of


@pytest.mark.parametrize("transfers", ["per-tensor", "per-edge"])
@pytest.mark.parametrize("runtime", ["parallel", "sequential"])
def test_random_moves(transfers: str, runtime: str) -> None:
    """Tests that what is told of a move is a schedule that the simulator accepts, with its value and its limits."""
    tried = 0
    for seed in range(40):
        problem = random_problem(seed, "latency", max_ops=9, transfers=transfers, runtime=runtime)
        try:
            plan = make_plan(problem, solver="heft", work_limit=10)
        except InfeasibleError:
            continue
        problem, result = plan_result(plan)
        assert isinstance(result, Timeline)
        same = simulate_moved(problem, result, result.placement)
        assert same.value is not None
        assert same.value <= result.value
        for op in range(len(problem.graph.ops)):
            for device in range(len(problem.devices)):
                placement = result.placement.copy()
                placement[op] = device
                outcome = simulate_moved(problem, result, placement)
                moved = outcome.result
                if moved is None:
                    with pytest.raises(InfeasibleError):
                        simulate_latency(problem, placement)
                    continue
                simulated = simulate_latency(problem, placement)
                assert isinstance(moved, Timeline)
                # A list of the same actions has the same value: nothing is told that cannot be done.
                again = replay(problem, placement, moved.actions(problem.graph.arrays.producer))
                assert again.value == moved.value
                assert outcome.breaks == violations(problem, moved)
                assert bool(outcome.breaks) or moved.value <= simulated.value or bool(violations(problem, simulated))
                tried += 1
    assert tried > 200


def test_the_order_of_the_plan_is_kept() -> None:
    """Tests that moving an op away and back gives the plan again, though the default order is worse."""
    # op0 feeds op2; op1 is long and alone. The plan books op1 first, which no upward rank would do.
    problem = problem_of([[4, 4], [9, 9], [9, 9], [1, 1]], [Feed(0, (2,), 1), Feed(1, (3,), 1)])
    order = np.array([1, 0, 3, 2], np.int32)
    timeline = simulate_latency(problem, np.zeros(4, np.int32), order)
    kept = simulate_moved(problem, timeline, np.array([0, 0, 0, 1], np.int32))
    assert kept.result is not None
    assert isinstance(kept.result, Timeline)
    assert kept.value is not None
    assert kept.value <= simulate_latency(problem, np.array([0, 0, 0, 1], np.int32)).value


def test_a_pipeline() -> None:
    """Tests that loads are those of the simulator, and that a cycle is said."""
    problem = problem_of([[5, 5]] * 3, [Feed(0, (1,), 1), Feed(1, (2,), 1)], objective="throughput")
    loads = simulate_throughput(problem, np.array([0, 0, 1], np.int32))
    moved = simulate_moved(problem, loads, np.array([0, 1, 1], np.int32))
    assert isinstance(moved.result, Loads)
    assert moved.value == simulate_throughput(problem, np.array([0, 1, 1], np.int32)).value == 11
    cycle = simulate_moved(problem, loads, np.array([0, 1, 0], np.int32))
    assert cycle.value is None
    assert "cycle" in cycle.breaks[0]
    assert cycle.rank > moved.rank


def test_what_must_go_along() -> None:
    """Tests that an op inside a stage takes along what follows it (to a later stage) or comes before it."""
    wires = [Feed(i, (i + 1,), 1) for i in range(5)]
    problem = problem_of([[5, 5, 5]] * 6, wires, objective="throughput", together=((3, 4),))
    loads = simulate_throughput(problem, np.array([0, 0, 1, 1, 1, 2], np.int32))
    assert with_followers(problem, loads, (0,), 1, later=True) == (0, 1)
    assert with_followers(problem, loads, (2,), 2, later=True) == (2, 3, 4)
    assert with_followers(problem, loads, (3,), 0, later=False) == (2, 3, 4)
    assert with_followers(problem, loads, (5,), 0, later=False) == (2, 3, 4, 5)
