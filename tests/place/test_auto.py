"""The default solver: what its parts find, it finds."""

from __future__ import annotations

import pytest

import weftline.place.auto as auto_module
from weftline.cluster import Cluster
from weftline.place import solvers
from weftline.place.crew import Crew
from weftline.problem import asked_rules, build_problem
from weftline.search import Search
from weftline.zoo import zoo_graph


def test_the_second_annealer_begins_at_the_policy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests a model that no chain holds: a second annealer joins, and the answer is no worse than the policy's."""
    graph, cluster = zoo_graph("flava", size="small"), Cluster.preset("two-gpus")
    problem = build_problem(graph, cluster, rules=asked_rules({"objective": "latency"}))
    policy = Search(problem, seed=0)
    solvers()["policy"].solve(policy)
    assert policy.best is not None
    sizes: list[int] = []
    joins = auto_module._second_annealer

    def noted(search: Search, crew: Crew) -> None:
        joins(search, crew)
        assert search.best is not None
        sizes.append(crew.size)

    monkeypatch.setattr(auto_module, "_second_annealer", noted)
    monkeypatch.setattr(auto_module, "_exact", lambda search: False)
    search = Search(problem, seed=0, time_limit=2.0)
    solvers()["auto"].solve(search)
    assert search.best is not None
    assert search.best.value <= policy.best.value
    assert sizes == [2] or search.stopped_by == "optimal"
