"""The default solver: what its parts find, it finds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import weftline.latency.auto as auto_module
from weftline.bounds import Bound
from weftline.cluster import Cluster
from weftline.latency import solvers
from weftline.latency.auto import LatencyAutoParameters, PlacementCrew
from weftline.latency.blocks.chain import Chains, reach
from weftline.latency.blocks.decompose import decompose
from weftline.latency.blocks.decomposition import BLOCK_PLAN, FINE_BOUND, Decomposition
from weftline.problem import asked_rules, build_problem
from weftline.search import Search
from weftline.simulate.tables import tables
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

    def noted(search: Search, crew: PlacementCrew) -> None:
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


def test_cp_sat_is_asked_only_where_it_could_close_half_of_the_gap() -> None:
    """Tests a model that no chain holds: it depends on what the known plans of the blocks add up to."""
    graph, cluster = zoo_graph("flava", size="small"), Cluster.preset("two-gpus")
    problem = build_problem(graph, cluster, rules=asked_rules({"objective": "latency"}))
    table = tables(problem)
    chain = Chains(table, reach(table)).pick(60)
    assert chain.inside < LatencyAutoParameters().nearly_all_share
    work = Decomposition.of(table, problem.group, chain)
    search = Search(problem, work_limit=1_000)
    assert auto_module._worth_it(search, work)  # nobody knows
    search.offer(np.zeros(len(table.time), np.int32))
    decompose(search, work, effort=BLOCK_PLAN)
    known, best = work.known_path(), search.best
    assert known is not None
    assert best is not None
    assert known[1] < best.value
    for bound, worth in ((2 * known[1] - best.value, True), (2 * known[1] - best.value + 1, False)):
        search.bound = Bound(bound, "chain")
        assert auto_module._worth_it(search, work) is worth
    search.bound = Bound(best.value, "chain")
    whole = Decomposition.of(table, problem.group, replace(chain, inside=1.0), known=work)
    assert auto_module._worth_it(search, whole)


def test_the_bounds_of_a_chain_take_as_long_as_they_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that all bounds of a first chain are there before larger blocks begin, even if plans may take no time."""

    class Enough(Exception):
        pass

    works: list[Decomposition] = []

    def noted(search: Search, work: Decomposition, *, until: Callable[[], bool], effort: int) -> None:
        if works and works[0] is not work:
            raise Enough
        works.append(work)
        decompose(search, work, until=until, effort=effort)

    monkeypatch.setattr(auto_module, "decompose", noted)
    graph, cluster = zoo_graph("mt5"), Cluster.preset("four-unequal")
    problem = build_problem(graph, cluster, rules=asked_rules({"objective": "latency"}))
    search = Search(problem, time_limit=100.0, options={"blocks_share": "0"})
    with pytest.raises(Enough):
        solvers()["auto"].solve(search)
    assert search.best is not None
    steps = works[0].next_round(search.best.value)
    assert not steps or works[0].effort(*steps[0]) >= FINE_BOUND
