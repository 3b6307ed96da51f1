"""Tests of the annealers that work beside the main thread."""

import threading
import time

import numpy as np
import pytest

from weftline.cluster import Cluster
from weftline.graph.arrays import Ints
from weftline.latency import solvers
from weftline.latency.anneal.anneal import anneal_starts
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.auto import PlacementCrew
from weftline.latency.prepare import prepare
from weftline.problem import Problem, asked_rules, build_problem
from weftline.search import Search
from weftline.simulate import Timeline, replay
from weftline.zoo import synthetic

prepare()  # kernels are compiled now, not while somebody waits for a plan


def _problem() -> Problem:
    rules = asked_rules({"objective": "latency"})
    return build_problem(synthetic("layered", ops=60, seed=3), Cluster.preset("four-unequal"), rules=rules)


def test_what_it_finds_is_offered() -> None:
    """Tests that plans better than the start arrive, hold in the simulator, and that no thread is left."""
    problem = _problem()
    search, before = Search(problem), threading.active_count()
    first = search.offer(np.zeros(60, np.int32))
    assert first is not None
    crew = PlacementCrew(search, anneal_starts(search, best=False))
    try:
        for _ in range(400):
            crew.wait(0.05)
            if search.best is not None and search.best.value < first:
                break
    finally:
        crew.close()
    assert isinstance(search.best, Timeline)
    assert search.best.value < first
    actions = search.best.actions(problem.graph.arrays.producer)
    assert replay(problem, search.best.placement, actions).value == search.best.value
    assert threading.active_count() == before


def test_it_walks_as_anneal_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that with the same seed the first annealer goes the path of `anneal`, so that `auto` is not behind it."""
    walks: list[list[tuple[int, bytes, bytes]]] = []
    run = PlacementAnnealer.run

    def watched(annealer: PlacementAnnealer, steps: int, stop: Ints) -> None:
        state = annealer._state
        walks[-1].append((annealer.value, state.device.tobytes(), state.order.tobytes()))
        stop[0] = len(walks[-1]) == 4
        run(annealer, 1000, stop)

    monkeypatch.setattr(PlacementAnnealer, "run", watched)
    rules = asked_rules({"objective": "latency"})
    problem = build_problem(synthetic("layered", ops=60, seed=3), Cluster.preset("edge"), rules=rules)
    walks.append([])
    solvers()["anneal"].solve(Search(problem, time_limit=100))
    walks.append([])
    search = Search(problem, time_limit=100)
    search.offer(np.zeros(60, np.int32))
    crew = PlacementCrew(search, anneal_starts(search, best=False))
    crew.wait()
    crew.close()
    assert len(walks[0]) == 4
    assert walks[1] == walks[0]


def test_another_may_join() -> None:
    """Tests that a second annealer hears of plans too, and ends with the crew."""
    problem = _problem()
    search, before = Search(problem), threading.active_count()
    search.offer(np.zeros(60, np.int32))
    crew = PlacementCrew(search, [(np.zeros(60, np.int32), None)])
    try:
        crew.add([(np.ones(60, np.int32), None)], 1)
        assert threading.active_count() == before + 2
    finally:
        crew.close()
    for _ in range(100):  # a thread that has told its end is alive for a moment
        if threading.active_count() == before:
            break
        time.sleep(0.02)
    assert threading.active_count() == before
    crew.poll()
    handed = [given.qsize() for given in crew._given]
    better = Search(problem, work_limit=2000)
    solvers()["anneal"].solve(better)
    assert isinstance(better.best, Timeline)
    assert search.best is not None
    assert better.best.value < search.best.value
    search.offer(better.best.placement, actions=better.best.actions(problem.graph.arrays.producer))
    crew.poll()
    assert [given.qsize() for given in crew._given] == [count + 1 for count in handed]


def test_it_goes_on_from_what_others_find() -> None:
    """Tests that a better plan of another method is handed over once, and its own plans are not handed back."""
    problem = _problem()
    search = Search(problem)
    search.offer(np.zeros(60, np.int32))
    crew = PlacementCrew(search, [(np.zeros(60, np.int32), None)])
    crew.close()  # nobody takes letters any more
    crew.poll()
    handed = crew._given[0].qsize()
    found = Search(problem, work_limit=2000)
    solvers()["anneal"].solve(found)
    assert found.best is not None
    assert search.best is not None
    assert found.best.value < search.best.value
    assert isinstance(found.best, Timeline)
    search.offer(found.best.placement, actions=found.best.actions(problem.graph.arrays.producer))
    crew.poll()
    crew.poll()
    assert crew._given[0].qsize() == handed + 1


def test_annealers_hear_of_plans_only_while_it_gives() -> None:
    """Tests a plan that somebody else found: kept back at first, handed over when the crew gives again."""
    problem = _problem()
    search = Search(problem)
    search.offer(np.arange(60, dtype=np.int32) % 4)
    other = Search(problem)
    solvers()["heft"].solve(other)
    crew = PlacementCrew(search, [(np.zeros(60, np.int32), None)])
    crew.close()  # nobody takes letters out, or finds anything
    while not crew._found.empty():
        crew._found.get()
    assert other.best is not None
    assert search.best is not None
    assert other.best.value < search.best.value
    search.adopt(other.best)
    crew.gives = False
    crew.poll()
    assert crew._given[0].empty()
    crew.gives = True
    crew.poll()
    assert np.array_equal(crew._given[0].get_nowait()[0], other.best.placement)
