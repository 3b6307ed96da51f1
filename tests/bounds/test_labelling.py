"""Tests of the labelling bound: minimum cut, elimination and messages, against enumeration and the checker."""

from dataclasses import replace
from itertools import product

import msgspec
import numpy as np
import pytest

from weftline.bounds.dual import ascend, minimum_cut
from weftline.bounds.label_costs import (
    IMPOSSIBLE_COST,
    LabelCosts,
    label_costs,
    message_bound,
    message_witness,
)
from weftline.bounds.labelling import best_labelling, eliminate, labelling_bound, priced_labellings
from weftline.certify import check
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices, least_memory
from weftline.problem.model import problem_to_file
from weftline.simulate import simulate_latency
from weftline.testing.generate import Feed, problem_of, random_problem


def _checked(problem: Problem, witness: dict[str, object]) -> int:
    return check.bound_of(check.PlanProblem(msgspec.to_builtins(problem_to_file(problem))), witness)


def _drawn(seed: int, devices: int, **options: object) -> tuple[Problem, LabelCosts, int]:
    """A problem with its costs, and the least cost of all labellings."""
    problem = random_problem(seed, "latency", max_devices=devices, runtime="sequential", **options)  # type: ignore[arg-type]
    costs = label_costs(problem)
    assert costs is not None
    able = [np.flatnonzero(row).tolist() for row in allowed_devices(problem)]
    return problem, costs, min((costs.cost(np.array(labels)) for labels in product(*able)), default=IMPOSSIBLE_COST)


@pytest.mark.parametrize("transfers", ["per-tensor", "per-edge"])
def test_costs_are_what_the_simulator_says(transfers: str) -> None:
    """Tests random labellings of 200 problems: the sum is the latency, and what is too dear cannot be simulated."""
    rng = np.random.default_rng(1)
    seen = 0
    for seed in range(200):
        problem = random_problem(seed, "latency", max_ops=9, runtime="sequential", transfers=transfers)
        costs = label_costs(problem)
        assert costs is not None
        labels = rng.integers(0, len(problem.devices), len(costs.unary))
        cost = costs.cost(labels)
        if cost < IMPOSSIBLE_COST:
            seen += 1
            assert simulate_latency(problem, labels[problem.group].astype(np.int32)).value == cost
        else:
            absent = costs.unary[np.arange(len(labels)), labels] >= IMPOSSIBLE_COST
            missing = (costs.pair_cost >= IMPOSSIBLE_COST).any() or (costs.star_cost >= IMPOSSIBLE_COST).any()
            assert absent.any() or missing
    assert seen > 60


@pytest.mark.parametrize("transfers", ["per-tensor", "per-edge"])
def test_two_devices_are_a_minimum_cut(transfers: str) -> None:
    """Tests cut, elimination and the flow's messages against all labellings, with absent times and links."""
    seen = 0
    for seed in range(150):
        problem, costs, least = _drawn(seed, 2, max_ops=7, transfers=transfers)
        cut, exact = (minimum_cut(costs) if len(problem.devices) == 2 else None), eliminate(costs)
        if least >= IMPOSSIBLE_COST:
            assert cut is None
            assert exact is None or exact.value >= IMPOSSIBLE_COST
            continue
        assert exact is not None
        assert exact.value == least == costs.cost(exact.labels)
        if len(problem.devices) == 2:
            seen += 1
            assert cut is not None
            assert cut.value == least == costs.cost(cut.labels) == message_bound(costs, cut.messages)
            assert _checked(problem, message_witness(costs, cut.messages)) == least
    assert seen > 40


@pytest.mark.parametrize("transfers", ["per-tensor", "per-edge"])
def test_more_devices(transfers: str) -> None:
    """Tests elimination and dual ascent against all labellings on up to four devices."""
    seen = tight = 0
    for seed in range(150):
        problem, costs, least = _drawn(seed, 4, max_ops=6, transfers=transfers)
        exact = eliminate(costs)
        if least >= IMPOSSIBLE_COST:
            assert exact is None or exact.value >= IMPOSSIBLE_COST
            assert best_labelling(costs) is None or len(problem.devices) > 2
            continue
        assert exact is not None
        assert exact.value == least == costs.cost(exact.labels)
        assert _checked(problem, {"kind": "elimination", "order": exact.order}) == least
        raised = ascend(costs, rounds=50)
        assert raised is not None
        assert raised.bound <= least
        assert _checked(problem, message_witness(raised.costs, raised.messages)) >= raised.bound
        seen += 1
        tight += raised.bound == least == costs.cost(raised.labels)
    assert seen > 120
    assert tight > seen * 8 // 10


def test_wide_graphs_are_bounded_by_messages() -> None:
    """Tests problems too wide for elimination: valid, checked, and equal to the value of a labelling for most."""
    tight = seen = 0
    for seed in (2, 6, 7, 11, 13, 14):
        problem = random_problem(seed, "latency", max_ops=150, max_devices=5, limits=False, runtime="sequential")
        costs = label_costs(problem)
        assert costs is not None
        if len(problem.devices) < 3 or eliminate(costs) is not None:
            continue
        found = best_labelling(costs)
        assert found is not None
        assert found.witness["kind"] == "messages"
        assert _checked(problem, found.witness) >= found.bound
        assert found.bound <= costs.cost(found.labels)
        seen += 1
        tight += found.exact
    assert seen >= 2
    assert tight >= seen // 2


def test_memory_prices_strengthen_the_bound() -> None:
    """Tests by hand: of four ops that take 1 on d0 and 5 on d1, only two fit d0."""
    problem = problem_of([[1, 5]] * 4, weights=[4] * 4, capacity=[8, None], runtime="sequential")
    costs = label_costs(problem)
    assert costs is not None
    assert labelling_bound(problem).value == 4
    found = list(priced_labellings(costs, least_memory(problem), problem.capacity))
    best = max(found, key=lambda one: one.bound)
    assert best.bound == 12
    assert _checked(problem, best.witness) == 12


def test_memory_prices_never_go_above_what_fits() -> None:
    """Tests prices on small problems against all labellings whose weights fit."""
    stronger = 0
    for seed in range(120):
        problem, costs, least = _drawn(seed, 3, max_ops=6, memory="static")
        need = least_memory(problem)
        room = np.full(len(problem.devices), max(1, int(need.sum() * 5 // (4 * len(problem.devices)))), np.int64)
        tight = replace(
            problem,
            devices=tuple(
                msgspec.structs.replace(d, memory=int(r)) for d, r in zip(problem.devices, room, strict=True)
            ),
        )
        able = [np.flatnonzero(row).tolist() for row in allowed_devices(problem)]
        fitting = [
            costs.cost(np.array(labels))
            for labels in product(*able)
            if np.all(np.bincount(labels, need, minlength=len(room)) <= room)
        ]
        best = min(fitting, default=IMPOSSIBLE_COST)
        for found in priced_labellings(costs, need, tight.capacity, rounds=12):
            assert found.bound <= best
            assert _checked(tight, found.witness) >= found.bound
            stronger += least < found.bound
    assert stronger > 20


def test_huge_times_do_not_overflow() -> None:
    """Tests times whose sum is near 2^60 with an absent link, on two and three devices."""
    big = 2**56
    for devices in (2, 3):
        links = np.full((devices, devices), big).tolist()
        links[0][1] = -1
        times = [[big] + [3 * big] * (devices - 1), [3 * big, big] + [2 * big] * (devices - 2)]
        problem = problem_of(times, [Feed(0, (1,), links)], runtime="sequential")
        found = labelling_bound(problem)
        assert found.value == 4 * big
        assert found.witness is not None
        assert _checked(problem, found.witness) == 4 * big


def test_many_equal_devices_are_one() -> None:
    """Tests sixteen equal devices, too many for sets of them: all but one are dropped, with proof."""
    times, wires = [[3] * 16, [4] * 16, [5] * 16], [Feed(0, (1, 2), 7)]
    problem = problem_of(times, wires, runtime="sequential")
    found = labelling_bound(problem)
    assert found.value == 12
    assert found.witness is not None
    assert _checked(problem, found.witness) == 12


def test_one_device_and_no_tensors() -> None:
    """Tests the smallest problems."""
    for times in ([[3]], [[3], [4]], [[3, 2]], [[3, 2, 9], [1, 1, 1]]):
        problem = problem_of(times, runtime="sequential")
        found = labelling_bound(problem)
        assert found.value == sum(map(min, times))
        assert found.witness is not None
        assert _checked(problem, found.witness) == found.value


def test_sets_that_stay_together_are_one() -> None:
    """Tests that a set pays no transfer inside it, and each of its readers one per edge."""
    problem = problem_of(
        [[1, 1], [9, 0], [0, 9], [9, 0]],
        [Feed(0, (1, 3), 4)],
        together=((1, 3),),
        runtime="sequential",
        transfers="per-edge",
    )
    assert labelling_bound(problem).value == 1 + 0  # op0 joins them
    pinned = problem_of(
        [[1, -1], [9, 0], [0, 9], [9, 0]],
        [Feed(0, (1, 3), 4)],
        together=((1, 3),),
        runtime="sequential",
        transfers="per-edge",
    )
    assert labelling_bound(pinned).value == 1 + 8
    once = pinned.with_rules(msgspec.structs.replace(pinned.rules, transfers="per-tensor"))
    assert labelling_bound(once).value == 1 + 4
