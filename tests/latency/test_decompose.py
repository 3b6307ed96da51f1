"""Exact search by blocks."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest
from tests.data import present

from weftline.cluster import Cluster
from weftline.latency.blocks.chain import Chains, reach
from weftline.latency.blocks.decompose import SOLVER, _polish, decompose
from weftline.latency.blocks.decomposition import BLOCK_PLAN, FINE_BOUND, Decomposition
from weftline.problem import asked_rules, build_problem
from weftline.problem.load import load_problem
from weftline.search import Search
from weftline.simulate.tables import tables
from weftline.testing.conformance import check_solver, optimum
from weftline.testing.generate import random_problem
from weftline.zoo import zoo_graph


def test_equals_brute_force() -> None:
    """Tests value and bound on tiny problems without memory limits, where blocks hold everything."""
    for seed in range(40):
        problem = random_problem(seed, "latency", max_ops=6, runtime="parallel", limits=False)
        least = optimum(problem)
        search = Search(problem, work_limit=10_000)
        SOLVER.solve(search)
        assert search.best is not None
        assert search.best.value == least
        if least:
            assert search.bound is not None
            assert search.bound.value == least, seed


def test_closes_a_published_instance() -> None:
    """Tests that the blocks of GoogLeNet hold everything, and that their bounds rise above the path bound."""
    problem, _ = load_problem(present("moirai/GoogLeNet.json"))
    table = tables(problem)
    chain = Chains(table, reach(table)).pick(60)
    assert chain.inside == pytest.approx(1.0)
    work = Decomposition.of(table, problem.group, chain)
    assert work.complete
    first = work.bound()
    search = Search(problem, work_limit=10_000)
    search.offer(np.zeros(len(table.time), np.int32))
    decompose(search, work, effort=BLOCK_PLAN)
    assert search.bound is not None
    assert first < search.bound.value <= 1_278_110_000
    assert search.best is not None
    assert search.best.value < 1_400_000_000


def test_a_first_op_that_must_wait_for_its_set() -> None:
    """Tests a problem whose first span is bounded by more than its own ops: its plan has no list of actions."""
    check_solver(SOLVER, random_problem(2050, "latency", max_ops=5, runtime="parallel", transfers="per-edge"))


def test_blocks_are_annealed_as_long_as_cp_sat_took(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests how often the shortest known path is annealed: once, or until nothing is left if there is time."""
    problem, _ = load_problem(present("moirai/GoogLeNet.json"))
    table = tables(problem)
    chain = Chains(table, reach(table)).pick(60)
    turns: list[bool] = []
    polish = Decomposition.polish

    def noted(self: Decomposition, path: list[tuple[int, int]], stop: Callable[[], bool]) -> bool:
        turns.append(polish(self, path, stop))
        return turns[-1]

    monkeypatch.setattr(Decomposition, "polish", noted)
    for limit, seconds, once in ((10_000, 1e6, True), (None, 0.0, True), (None, 1e6, False)):
        work = Decomposition.of(table, problem.group, chain)
        search = Search(problem, work_limit=limit)
        search.offer(np.zeros(len(table.time), np.int32))
        decompose(search, work, effort=BLOCK_PLAN)
        before = work.known_path()
        turns.clear()
        _polish(search, work, seconds, 2**62, lambda: False)
        after = work.known_path()
        assert search.best is not None
        assert before is not None
        assert after is not None
        assert search.best.value <= after[1] <= before[1]  # what was found is offered
        assert turns == [True] if once else turns[-1] is False and len(turns) > 2


def test_bounds_of_the_last_steps_are_not_lost() -> None:
    """Tests that what blocks showed until the end or an interrupt is claimed, also between two sums."""
    graph, cluster = zoo_graph("mt5", size="small"), Cluster.preset("four-unequal")
    problem = build_problem(graph, cluster, rules=asked_rules({"objective": "latency"}))
    table = tables(problem)

    class Halting(Decomposition):
        def work_on(self, *args: Any, **options: Any) -> None:
            super().work_on(*args, **options)
            if self.bound() > first:
                raise KeyboardInterrupt

    made = Decomposition.of(table, problem.group, Chains(table, reach(table)).pick(60))
    halting = Halting(**{part.name: getattr(made, part.name) for part in fields(made)})
    first = halting.bound()
    search = Search(problem)
    search.offer(np.zeros(len(table.time), np.int32))
    with pytest.raises(KeyboardInterrupt):
        decompose(search, halting, effort=FINE_BOUND)
    assert search.bound is not None
    assert search.bound.value == halting.bound() > first
