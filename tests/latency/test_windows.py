"""Windows of ops on devices within a horizon."""

import numpy as np
import pytest
from tests.latency.exact_problems import KINDS, problems

from weftline.errors import InfeasibleError
from weftline.latency.bounds import path_bound, windows
from weftline.latency.exact.cp_sat import SOLVER
from weftline.simulate import Timeline
from weftline.simulate.tables import tables
from weftline.testing.conformance import optimum, solve
from weftline.testing.generate import random_problem


@pytest.mark.parametrize("kind", KINDS)
def test_optimal_plan_stays_inside(kind: str) -> None:
    """Tests that no device of an optimal plan is struck out at the optimum, and that its starts keep the windows."""
    for problem in problems(kind):
        least, best = optimum(problem), solve(SOLVER, problem)[0].best
        if least is None or best is None or best.value > least:
            continue
        found = windows(tables(problem), least, problem.group)
        ops = np.arange(len(best.placement))
        assert found.stuck == -1
        assert found.able[ops, best.placement].all()
        assert isinstance(best, Timeline)
        if problem.rules.runtime == "parallel":
            assert (found.head[ops, best.placement] <= best.start).all()
            assert (best.start + found.tail[ops, best.placement] <= least).all()


def test_stuck_exactly_below_the_path_bound() -> None:
    """Tests that without groups an op has no device left just where the path bound says so."""
    for seed in range(60):
        problem = random_problem(seed, "latency", max_ops=8)
        try:
            bound = path_bound(problem).value
        except InfeasibleError:
            assert windows(tables(problem), 10_000).stuck >= 0
            continue
        assert windows(tables(problem), bound - 1).stuck >= 0


def test_groups_share_their_devices() -> None:
    """Tests that ops of one group keep the same devices, and no more than without the group."""
    seen = 0
    for seed in range(200):
        problem = random_problem(seed, "latency", max_ops=6)
        alone, shared = windows(tables(problem), 60), windows(tables(problem), 60, problem.group)
        if shared.stuck >= 0:
            continue
        assert alone.stuck == -1
        assert not (shared.able & ~alone.able).any()
        for members in problem.together:
            seen += 1
            assert (shared.able[list(members)] == shared.able[members[0]]).all()
    assert seen >= 10


def test_wide_horizon_keeps_everything() -> None:
    """Tests that a horizon beyond every plan strikes out nothing where all links exist."""
    for seed in range(20):
        problem = random_problem(seed, "latency", max_ops=8, limits=False)
        found = windows(tables(problem), 10_000)
        assert found.stuck == -1
        assert np.array_equal(found.able, problem.cost.time >= 0)
