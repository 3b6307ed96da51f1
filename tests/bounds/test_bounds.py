"""Tests of each lower bound on examples worked out by hand, and of all of them against brute force."""

from collections import Counter
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from weftline.ask.planning import checked_bounds
from weftline.ask.questions import lower_bounds
from weftline.bounds import group_bound, load_bound
from weftline.errors import InfeasibleError
from weftline.latency.bounds import path_bound
from weftline.problem import check_feasible
from weftline.problem.model import problem_to_file
from weftline.testing.conformance import optimum
from weftline.testing.generate import Feed, Objective, problem_of, random_problem


@pytest.mark.parametrize(("length", "value"), [(10, 6), (1, 4)])
def test_path_by_hand(length: int, value: int) -> None:
    """Tests a chain of two ops that like different devices: move if the transfer is short."""
    # earliest(op0) = (2, 5). Long link: op1 ends at 2 + 4 on d0 or at 5 + 1 on d1. Short link: 2 + 1 + 1 on d1.
    bound = path_bound(problem_of([[2, 5], [4, 1]], [Feed(0, (1,), length)]))
    assert (bound.value, bound.by, bound.witness) == (value, "path", {"kind": "path", "ops": [0, 1]})


def test_path_takes_the_slower_branch_and_leaves_the_rest_out_of_its_witness() -> None:
    """Tests that a join waits for its last input, and that the witness holds only what the value rests on."""
    wires = [Feed(0, (2,), 1), Feed(1, (2,), 1)]
    bound = path_bound(problem_of([[1], [5], [2], [6]], wires))
    assert (bound.value, bound.witness) == (7, {"kind": "path", "ops": [1, 2]})


def test_path_without_link() -> None:
    """Tests that no path at all from one op to the next is proved infeasible."""
    with pytest.raises(InfeasibleError, match="missing links"):
        path_bound(problem_of([[1, -1], [-1, 1]], [Feed(0, (1,), -1)]))


def test_group_by_hand() -> None:
    """Tests that a `together` set counts on one device, and a single op on its best."""
    problem = problem_of([[3, 9], [5, 1], [7, 7]], together=((0, 1),))
    bound = group_bound(problem)
    assert (bound.value, bound.by, bound.witness) == (8, "group", {"kind": "group", "ops": [0, 1]})
    alone = group_bound(problem_of([[3, 9], [5, 1], [7, 7]]))
    assert (alone.value, alone.witness) == (7, {"kind": "group", "ops": [2]})
    # op0 runs on d0 alone, so the set does, too.
    assert group_bound(problem_of([[3, -1], [50, 1]], together=((0, 1),))).value == 53


def test_load_by_hand() -> None:
    """Tests equal devices (work / devices), one device, and an op that only one device runs."""
    assert load_bound(problem_of([[4, 4]] * 3)).value == 6
    assert load_bound(problem_of([[4, 4, 4]] * 4)).value == 6  # 16 / 3, rounded up
    assert load_bound(problem_of([[4]] * 3)).value == 12
    assert load_bound(problem_of([[9, -1], [1, 1]])).value == 9  # all weight on d0 but for op1, which moves
    assert load_bound(problem_of([[0, 0]])).value == 0


def test_load_of_the_sequential_runtime_is_the_sum_of_the_least() -> None:
    """Tests that nothing overlaps there: every op counts, a `together` set on one device."""
    bound = load_bound(problem_of([[3, 9], [5, 1], [7, 6]], runtime="sequential"))
    assert (bound.value, bound.witness) == (3 + 1 + 6, {"kind": "work"})
    joined = problem_of([[3, 9], [5, 1], [7, 6]], runtime="sequential", together=((0, 1),))
    assert load_bound(joined).value == 8 + 6


def _linear_optimum(times: list[list[int]]) -> Fraction:
    """Two devices: max over lambda of sum min(lambda a, (1 - lambda) b) is at a point where one op changes its mind."""
    points = [Fraction(b, a + b) for a, b in times]
    return max(sum((min(point * a, (1 - point) * b) for a, b in times), Fraction(0)) for point in points)


@pytest.mark.parametrize("seed", range(20))
def test_load_is_the_linear_optimum_for_two_devices(seed: int) -> None:
    """Tests the weights against every point where the best ones can lie."""
    times = np.random.default_rng(seed).integers(10**6, 10**9, (8, 2)).tolist()
    best, found = _linear_optimum(times), load_bound(problem_of(times)).value
    assert found <= best + 1
    assert float(best - found) <= 1e-5 * float(best)


def test_load_is_the_linear_optimum_on_a_grid_of_three_devices() -> None:
    """Tests that no weights on a fine grid prove more than the bound does."""
    times = np.random.default_rng(7).integers(10**6, 10**9, (6, 3))
    found = load_bound(problem_of(times.tolist())).value
    steps = 120
    grid = [(a, b, steps - a - b) for a in range(steps + 1) for b in range(steps + 1 - a)]
    best = max(float(np.min(np.array(weights) * times, axis=1).sum()) / steps for weights in grid)
    assert best * (1 - 1e-5) <= found <= best * 1.05


def test_load_of_devices_with_different_speeds() -> None:
    """Tests that work is shared by speed: 6 units of work, speeds 1, 2 and 3."""
    unit = 6 * 10**8
    times = [[unit, unit // 2, unit // 3]] * 6
    assert load_bound(problem_of(times)).value == pytest.approx(6 * unit / (1 + 2 + 3), rel=1e-5)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_no_bound_is_above_the_optimum(objective: Objective) -> None:
    """Tests every quick bound, new ones too, on 150 generated problems: valid, proved by the checker, often tight."""
    seen, tight = Counter[str](), Counter[str]()
    for seed in range(150):
        problem = random_problem(seed, objective, max_ops=5)
        least = optimum(problem)
        try:
            check_feasible(problem)
        except InfeasibleError:
            assert least is None
            continue
        bounds = lower_bounds(problem)
        assert all(a.value >= b.value for a, b in pairwise(bounds))
        always = {"group", "load"} | ({"path"} if objective == "latency" else set())
        assert {bound.by for bound in bounds} >= always
        claimed = [entry.by for entry in checked_bounds(problem_to_file(problem), bounds) if entry.proof != "proved"]
        assert not claimed, f"seed {seed}: their witnesses prove less than their values to certify/check.py: {claimed}"
        for bound in bounds:
            assert least is None or bound.value <= least, f"seed {seed}: {bound} lies above the optimum {least}"
            tight[bound.by] += bound.value == least
            seen[bound.by] += 1
    assert seen.keys() >= always | ({"cut"} if objective == "throughput" else set())
    assert not [name for name in seen if tight[name] < 10], f"a bound is never or hardly ever met: {tight} of {seen}"


def test_load_counts_only_the_devices_that_may_be_used() -> None:
    """Tests W / k on equal devices, and the best pair of three unequal ones, where only some may be used."""
    times = [[3, 3, 3, 3]] * 8
    for stages, value in ((1, 24), (2, 12), (3, 8), (4, 6), (0, 6)):
        assert load_bound(problem_of(times, objective="throughput", stages=stages)).value == value
    # Two of the devices with speeds 3 : 2 : 1 do 12 units of work in 12 / (1/2 + 1/3) = 14.4 at best.
    unequal = problem_of([[2, 3, 6]] * 12, objective="throughput", stages=2)
    assert load_bound(unequal).value == 15


def test_scarce_memory_makes_the_load_bound_stronger() -> None:
    """Tests four ops of which the fast device holds only two: two must run on the slow one, 20 ns or more."""
    free = problem_of([[1, 10]] * 4, objective="throughput")
    scarce = problem_of([[1, 10]] * 4, weights=[5] * 4, capacity=[10, None], objective="throughput", memory="static")
    assert load_bound(free).value < 5
    bound = load_bound(scarce)
    assert bound.witness is not None
    prices = bound.witness["prices"]
    assert isinstance(prices, list)
    assert prices[1] == 0
    assert bound.value == 20 == optimum(scarce)


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_priced_bounds_hold(objective: Objective) -> None:
    """Tests that prices on memory never take the bound above the optimum of a tight problem."""
    seen = 0
    for seed in range(900):
        problem = random_problem(seed, objective, max_ops=5, max_devices=3, runtime="parallel", memory="static")
        try:
            bound = load_bound(check_feasible(problem))
        except InfeasibleError:
            continue
        if "prices" in (bound.witness or {}):
            least = optimum(problem)
            assert least is None or bound.value <= least
            seen += 1
    assert seen >= 5
