"""Graphs of which a chain holds only a part: joined plans, cases by the hub's device, their bounds."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest

from weftline.latency.blocks.chain import Chains, reach
from weftline.latency.blocks.decompose import decompose
from weftline.latency.blocks.decomposition import BLOCK_PLAN, FINE_BOUND, Decomposition
from weftline.latency.blocks.hub_search import Branching
from weftline.latency.blocks.relays import join
from weftline.papers.moirai.heads import heads_file
from weftline.problem import Problem, load_problem
from weftline.search import Search
from weftline.simulate import replay, violations
from weftline.simulate.tables import tables

MOST = 30
"""Ops of a block."""


@pytest.fixture(scope="module")
def problem(tmp_path_factory: pytest.TempPathFactory) -> Problem:
    """An encoder-decoder of two layers with three heads."""
    path: Path = tmp_path_factory.mktemp("heads") / "heads.json"
    path.write_bytes(msgspec.json.encode(heads_file(3, layers=2, heads=3, activation=0.4)))
    return load_problem(path, rules={"objective": "latency"})[0]


@pytest.fixture(scope="module")
def work(problem: Problem) -> Decomposition:
    """Its blocks, each with a plan along the shortest path."""
    table = tables(problem)
    made = Decomposition.of(table, problem.group, Chains(table, reach(table)).pick(MOST))
    search = _search(problem)
    decompose(search, made, effort=BLOCK_PLAN + 1)
    return made


def _search(problem: Problem) -> Search:
    search = Search(problem, work_limit=10_000)
    for device in range(len(problem.devices)):
        search.offer(np.full(len(problem.graph.ops), device, np.int32))
    return search


def test_joined_plans_keep_their_blocks_and_all_limits(problem: Problem, work: Decomposition) -> None:
    """Tests that a joined plan can be replayed, keeps the devices of its blocks, and puts the rest where it is told."""
    assert not work.complete
    known = work.known_path()
    assert known is not None
    path, _ = known
    held = np.unique(np.concatenate([span.ops for span in work.spans]))
    beside = np.setdiff1d(np.arange(len(problem.graph.ops)), held)
    assert len(beside)
    for device in (0, 3):
        found = join(work, path, np.full(len(problem.graph.ops), device, np.int32))
        assert found is not None
        placement, actions = found
        timeline = replay(problem, placement, actions)
        assert violations(problem, timeline) == ()
        assert (timeline.placement[beside] == device).all()
        for span, (k, j) in zip(work.spans, path, strict=True):
            plan = work.arc(span, k, j).plan
            if plan is not None:
                assert (timeline.placement[span.ops] == plan.placement).all()


def test_blocks_that_are_annealed_again_are_never_longer(problem: Problem) -> None:
    """Tests that lengths of plans fall or stay, never below their bounds, and that there is an end to it."""
    table = tables(problem)
    made = Decomposition.of(table, problem.group, Chains(table, reach(table)).pick(MOST))
    decompose(_search(problem), made, effort=FINE_BOUND)
    known = made.known_path()
    assert known is not None
    path, first = known
    assert made.polish(path, lambda: True)  # stopped at once
    lengths = [first]
    while made.polish(path, lambda: False):
        now = made.known_path()
        assert now is not None
        lengths.append(now[1])
        assert len(lengths) < 20
    assert lengths == sorted(lengths, reverse=True)
    assert made.bound() <= lengths[-1] < first


def test_cases_raise_the_bound_of_the_chain(problem: Problem) -> None:
    """Tests that bounds rise from the chain alone to programs to cases of cases, and stay below the best plan."""
    table = tables(problem)
    before = reach(table)
    search = _search(problem)
    single = search.best
    chain, most = Chains(table, before).pick(MOST), MOST
    made = Decomposition.of(table, problem.group, chain)
    decompose(search, made, effort=FINE_BOUND)
    alone = made.bound()
    branching = Branching.of(search, before, made, most)
    assert branching is not None
    branching.bound_chain()
    first = branching.bound
    branching.begin()
    second = branching.bound
    assert branching.gain == second - first
    branching.go_on()
    assert search.best is not None
    assert single is not None
    assert alone <= first <= second <= branching.bound <= search.best.value
    assert first < branching.bound
    assert search.best.value < single.value
    assert search.bound is not None
    assert search.bound.value >= branching.bound


def test_a_branching_without_any_plan_ends(problem: Problem, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that nothing goes on for ever where no plan was found, and none is accepted: bounds are all there is."""
    table = tables(problem)
    before = reach(table)
    search = Search(problem)
    monkeypatch.setattr(search, "offer", lambda *_, **__: None)
    branching = Branching.of(
        search, before, Decomposition.of(table, problem.group, Chains(table, before).pick(MOST)), MOST
    )
    assert branching is not None
    for part in (branching.bound_chain, branching.begin, branching.go_on):
        part()
    assert search.best is None
    assert branching.bound > 0


def test_a_stopped_branching_keeps_what_it_has(problem: Problem) -> None:
    """Tests that nothing is claimed beyond the chain when it is stopped at once, and that it can go on later."""
    table = tables(problem)
    before = reach(table)
    search = _search(problem)
    chain, most = Chains(table, before).pick(MOST), MOST
    branching = Branching.of(search, before, Decomposition.of(table, problem.group, chain), most)
    assert branching is not None
    branching.until = lambda: True
    for part in (branching.bound_chain, branching.begin, branching.go_on):
        part()
    stopped = branching.bound
    branching.until = None
    branching.bound_chain()
    branching.begin()
    assert branching.bound > stopped
