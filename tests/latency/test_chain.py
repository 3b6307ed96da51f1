"""Chains of ops that cut a graph into blocks."""

from __future__ import annotations

import numpy as np
import pytest

import weftline.latency.blocks.chain as chain_module
from weftline.cluster import Cluster
from weftline.latency.blocks.chain import OPS_PER_STRETCH, Chains, candidates, reach
from weftline.problem import Problem, asked_rules, build_problem
from weftline.simulate.tables import tables
from weftline.zoo import synthetic, zoo_graph


def problem_of(name: str, ops: int = 0) -> Problem:
    graph = synthetic(name, ops=ops, seed=1) if ops else zoo_graph(name, size="small")
    return build_problem(graph, Cluster.preset("four-unequal"), rules=asked_rules({"objective": "latency"}))


@pytest.mark.parametrize("name", ["layered", "transformer_like", "barabasi_albert", "chain"])
def test_candidates_come_from_everywhere(name: str) -> None:
    """Tests that all ops are candidates if they may be, and else some of every stretch, the most comparable first."""
    before = reach(tables(problem_of(name, 400)))
    ahead = before.sum(axis=1)
    comparable = ahead + before.sum(axis=0)
    assert candidates(before, 400).tolist() == list(range(400))
    stretches = set((ahead // OPS_PER_STRETCH).tolist())
    for most in (20, 50, 399):
        chosen = candidates(before, most)
        assert len(chosen) == most
        assert (np.diff(chosen) > 0).all()
        assert len(set((ahead[chosen] // OPS_PER_STRETCH).tolist())) == min(most, len(stretches))
        for stretch in stretches:
            inside = np.flatnonzero(ahead // OPS_PER_STRETCH == stretch)
            taken = np.isin(inside, chosen)
            if taken.any() and not taken.all():
                assert comparable[inside[taken]].min() >= comparable[inside[~taken]].max()


@pytest.mark.parametrize(("name", "ops"), [("transformer_like", 500), ("mt5", 0)])
def test_few_candidates_are_enough(name: str, ops: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a chain of a large graph holds nearly as much as if all ops were candidates."""
    table = tables(problem_of(name, ops))
    before = reach(table)
    most = Chains(table, before).pick(60).inside
    monkeypatch.setattr(chain_module, "MOST_CANDIDATES", len(before) // 3)
    assert Chains(table, before).pick(60).inside > 0.93 * most > 0.7
