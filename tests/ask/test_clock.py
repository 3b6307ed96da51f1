"""Tests of what is left of a time limit for the search."""

from __future__ import annotations

import re
from time import monotonic, sleep
from typing import Any, Literal

import pytest
from numba.core.event import trigger_event

from weftline.ask import clock as certificate
from weftline.ask import fleets, planning
from weftline.ask.clock import Clock, searching_time
from weftline.ask.fleets import make_fleet
from weftline.ask.planning import make_plan
from weftline.cost import devices_of_file, expand_file_costs
from weftline.graph.arrays import Indices
from weftline.problem import Problem, Rules
from weftline.search import Event, Search
from weftline.search import search as searching
from weftline.simulate.kernels.jit import Compilation
from weftline.zoo import regal_costs, synthetic


def test_time_for_the_search() -> None:
    """Tests that what is over and what the certificate needs are taken off, but never more than half."""
    assert searching_time(None, 10**6, 5.0) is None
    assert searching_time(60.0, 0) == 60.0
    assert searching_time(60.0, 100_000, 2.0) == pytest.approx(60.0 - 2.0 - 100_000 * certificate.PER_OP)
    tables = searching_time(60.0, 100_000, 2.0, entries=10**7)
    assert tables == pytest.approx(60.0 - 2.0 - 100_000 * certificate.PER_OP - 10**7 * certificate.PER_ENTRY)
    assert searching_time(2.0, 100_000, 50.0) == 1.0
    busy = searching_time(60.0, 100_000, 2.0, slowness=2.0)
    assert busy == pytest.approx(60.0 - 2.0 - 2 * 100_000 * certificate.PER_OP)


def test_a_busy_machine_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that time which passes without work counts, within limits, and only after some of it."""
    clock = Clock(monotonic(), None)
    now = [0.0, 0.0]
    monkeypatch.setattr(certificate, "monotonic", lambda: clock.began + now[0])
    monkeypatch.setattr(certificate, "process_time", lambda: clock.worked + now[1])
    seen = []
    for now[0], now[1] in ((0.2, 0.0), (2.0, 3.5), (2.0, 2.0), (3.0, 1.0), (9.0, 0.0)):
        seen.append(clock.slowness)
    assert seen == pytest.approx([1.0, 1.0, 1.0, 3.0, certificate.MOST_SLOWNESS])


def _problem(objective: Literal["latency", "throughput"]) -> Problem:
    graph = synthetic("erdos_renyi", ops=40, seed=1)
    costs = regal_costs(graph, 3)
    return Problem(graph, devices_of_file(costs), expand_file_costs(costs), Rules(objective=objective))


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_nothing_is_tried_after_the_deadline(
    objective: Literal["latency", "throughput"], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tests that a search whose time is over at its first plan costs no other candidate, and leaves baselines out."""
    late = [0.0]
    monkeypatch.setattr(searching, "monotonic", lambda: monotonic() + late[0])

    def hear(event: Event) -> None:
        if event.value is not None:
            late[0] = 1000.0

    tried: list[float] = []
    offer = Search.offer

    def counted(search: Search, placement: Indices, **options: Any) -> int | None:
        tried.append(late[0])
        return offer(search, placement, **options)

    monkeypatch.setattr(Search, "offer", counted)
    plan = make_plan(_problem(objective), time_limit=60.0, on_event=hear)
    assert plan.stopped_by == "time"
    assert [seconds for seconds in tried if seconds] == []
    assert tried
    assert set(plan.baselines) <= {"replicas"}


def test_the_certificate_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a plan asks for time by its ops and by the entries of its tables."""
    asked: list[tuple[int, int]] = []

    def measured(limit: float | None, operations: int, spent: float, *, entries: int, slowness: float) -> float | None:
        asked.append((operations, entries))
        return 0.1

    monkeypatch.setattr(planning, "searching_time", measured)
    problem = _problem("latency")
    make_plan(problem, time_limit=60.0)
    assert asked == [(40, problem.cost.time.size + problem.cost.transfer.size)]


def test_the_certificate_of_a_fleet_has_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that a fleet asks for time for both walks of its checker: 30,000 ops took 20 s where 15 s were given."""
    asked: list[tuple[int, int]] = []

    def measured(limit: float | None, operations: int, spent: float, *, entries: int, slowness: float) -> float | None:
        asked.append((operations, entries))
        return 0.1

    monkeypatch.setattr(fleets, "searching_time", measured)
    problem = _problem("throughput")
    make_fleet(problem, time_limit=60.0)
    assert asked == [(2 * 40, 2 * (problem.cost.time.size + problem.cost.transfer.size))]


def test_loading_counts_and_compiling_does_not() -> None:
    """Tests that the time of compiling alone is taken off, and that it is announced, but not at every kernel."""
    said: list[Event] = []
    clock = Clock(monotonic() - 100.0, said.append)
    with clock.preparing():
        pass
    assert clock.spent >= 100.0
    assert said == []
    begun = clock.begun
    with clock.preparing(), trigger_event("numba:compile"):
        for _ in range(3):
            with trigger_event("numba:compile"):
                sleep(0.01)
    assert clock.begun - begun >= 0.03
    assert len(said) == 1
    assert "compiling kernels" in said[0].message


def test_how_much_is_compiled() -> None:
    """Tests that every kernel counts once, and that words name how many and how long."""
    said: list[str] = []
    with Compilation(said.append) as compiled, trigger_event("numba:compile"), trigger_event("numba:compile"):
        pass
    assert compiled.count == 2
    assert compiled.seconds > 0
    assert re.search(r"2 of about \d+, about \d+ s left", said[-1])
    with trigger_event("numba:compile"):
        pass
    assert compiled.count == 2
