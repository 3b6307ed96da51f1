"""Tests of the public test tools: what hypothesis draws, what a seed gives, what is imported when."""

import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weftline.testing
from weftline.cluster import Cluster, check_cluster
from weftline.graph import Graph, check_graph
from weftline.problem.model import problem_to_json
from weftline.testing.generate import Objective, random_problem
from weftline.testing.strategies import clusters, graphs, orders, patient, placements, problems


@patient
@given(graphs(max_ops=6, training=True))
def test_graphs_keep_the_rules(graph: Graph) -> None:
    """Tests that drawn graphs pass the checker and have the size asked for."""
    assert check_graph(graph) is graph
    assert len(graph.ops) <= 6


@patient
@given(clusters())
def test_clusters_keep_the_rules(cluster: Cluster) -> None:
    """Tests that drawn clusters pass the checker."""
    assert check_cluster(cluster) is cluster


@patient
@given(data=st.data(), objective=st.sampled_from(["latency", "throughput"]))
def test_problems_placements_and_orders(data: st.DataObject, objective: Objective) -> None:
    """Tests that placements stand on able devices, that orders are topological, and that fixed rules are kept."""
    problem = data.draw(problems(objective, max_ops=5, max_devices=2, memory="static"))
    assert (problem.rules.objective, problem.rules.memory) == (objective, "static")
    assert len(problem.devices) <= 2
    placement, order = data.draw(placements(problem)), data.draw(orders(problem))
    assert np.all(problem.cost.time[np.arange(len(placement)), placement] >= 0)
    position = np.argsort(order)
    source, target, _ = problem.graph.arrays.edges()
    assert np.all(position[source] < position[target])


def test_a_seed_gives_one_problem() -> None:
    """Tests that the generator depends on its seed alone."""
    first, again, other = (problem_to_json(random_problem(seed, "latency")) for seed in (3, 3, 4))
    assert first == again
    assert first != other


def test_every_public_name_exists() -> None:
    """Tests the lazy exports, and that an unknown name is an error."""
    for name in weftline.testing.__all__:
        assert callable(getattr(weftline.testing, name))
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = weftline.testing.nothing_like_it


def test_importing_does_not_need_hypothesis() -> None:
    """Tests that only the strategies load hypothesis."""
    code = "import sys, weftline.testing as t; t.check_solver; t.random_problem; sys.exit('hypothesis' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
