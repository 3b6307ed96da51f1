"""Nodes, their edges and their features."""

from dataclasses import replace

import numpy as np
import pytest

from weftline.errors import UsageError
from weftline.latency.measured.trials import components, make_nodes
from weftline.papers.hsdag.features import FEATURES, PAPER_FEATURES, choose_features, features, fractal_dimension
from weftline.testing.generate import random_problem

SEEDS = range(40)


def test_components_are_those_of_a_walk() -> None:
    """Tests components against a walk over random graphs."""
    rng = np.random.default_rng(0)
    for _ in range(30):
        count = int(rng.integers(1, 30))
        a, b = rng.integers(0, count, (2, int(rng.integers(0, 30))))
        expected = np.arange(count)
        for _ in range(count):
            for u, v in zip(a, b, strict=True):
                expected[u] = expected[v] = min(expected[u], expected[v])
        assert components(count, a, b).tolist() == expected.tolist()


@pytest.mark.parametrize("coarse", [True, False])
def test_nodes_keep_together_sets_and_devices(coarse: bool) -> None:
    """Tests that ops of a `together` set share a node, and that a node stands only where all its ops run."""
    for seed in SEEDS:
        problem = random_problem(seed, "latency", transfers="per-tensor")
        if (problem.cost.transfer < 0).any():
            problem = replace(problem, cost=replace(problem.cost, transfer=np.maximum(problem.cost.transfer, 0)))
        group_allowed = np.ones((int(problem.group.max()) + 1, len(problem.devices)), bool)
        np.logical_and.at(group_allowed, problem.group, problem.cost.time >= 0)
        if not group_allowed.any(axis=1).all():
            continue
        nodes = make_nodes(problem, coarse=coarse)
        for members in problem.together:
            assert len({int(nodes.of[op]) for op in members}) == 1
        assert nodes.allowed.any(axis=1).all()
        rng = np.random.default_rng(seed)
        placements = nodes.lift(rng.integers(0, len(problem.devices), (8, nodes.count)).astype(np.int32))
        assert (problem.cost.time[np.arange(placements.shape[1]), placements] >= 0).all()


def test_lift_keeps_devices_that_are_allowed() -> None:
    """Tests that a device changes only where the node may not stand."""
    problem = random_problem(3, "latency", limits=False)
    nodes = make_nodes(problem)
    devices = np.full((1, nodes.count), len(problem.devices) - 1, np.int32)
    assert (nodes.lift(devices) == len(problem.devices) - 1).all()


def test_chain_is_one_node() -> None:
    """Tests that ops in a row become one node, and that runs bring many nodes down to a number."""
    from weftline.cost import devices_of_file, expand_file_costs
    from weftline.problem import Problem
    from weftline.zoo import regal_costs, synthetic

    for family, most, expected in (("chain", None, 1), ("layered", 10, None)):
        graph = synthetic(family, ops=60, seed=1)
        costs = regal_costs(graph, 2)
        problem = Problem(graph, devices_of_file(costs), expand_file_costs(costs))
        count = make_nodes(problem, most=most).count
        assert count == expected if expected else count <= 10


def test_many_choices_are_infinite() -> None:
    """Tests that the number of placements of a large graph is no error and no warning."""
    from weftline.cost import devices_of_file, expand_file_costs
    from weftline.problem import Problem
    from weftline.zoo import regal_costs, synthetic

    graph = synthetic("layered", ops=2500, seed=1)
    costs = regal_costs(graph, 3)
    problem = Problem(graph, devices_of_file(costs), expand_file_costs(costs))
    assert make_nodes(problem, coarse=False).choices == np.inf


def test_fractal_dimension_of_a_path_and_a_star() -> None:
    """Tests the slope against the definition: an end of a path grows like r, the hub of a star not at all."""
    path = np.arange(40)
    slopes = fractal_dimension(41, path, path + 1)
    radii = np.arange(1, 41)
    expected = np.polyfit(np.log(radii), np.log(1 + radii), 1)[0]
    assert slopes[0] == pytest.approx(expected)
    hub = fractal_dimension(6, np.zeros(5, np.int64), np.arange(1, 6))
    assert hub[0] == 0.0  # only one radius
    assert hub[1] == pytest.approx((np.log(6) - np.log(2)) / np.log(2))
    assert not fractal_dimension(3, np.zeros(0, np.int64), np.zeros(0, np.int64)).any()


def test_every_feature_can_be_left_out() -> None:
    """Tests that each name adds columns of its own, finite and of moderate size."""
    for seed in range(15):
        problem = random_problem(seed, "latency", limits=seed % 3 == 0)
        nodes = make_nodes(problem)
        whole = features(problem, nodes, FEATURES)
        assert whole.shape[0] == nodes.count
        assert np.isfinite(whole).all()
        assert np.abs(whole).max() < 50
        widths = [features(problem, nodes, (name,)).shape[1] for name in FEATURES]
        assert min(widths) >= 1
        assert sum(widths) == whole.shape[1]


def test_features_are_chosen_by_name() -> None:
    """Tests names, names to leave out, and words that are neither."""
    assert choose_features("", PAPER_FEATURES) == PAPER_FEATURES
    assert choose_features("all", PAPER_FEATURES) == FEATURES
    assert choose_features("shape,kind", FEATURES) == ("kind", "shape")
    assert choose_features("-shape,-degree", FEATURES) == ("kind", "fractal", "position", "cost")
    for word in ("colour", "kind,-shape", "kind,,shape"):
        with pytest.raises(UsageError, match="there are: kind"):
            choose_features(word, FEATURES)
