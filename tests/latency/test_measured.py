"""Measured searches on a machine whose truth is known: budget, calibration, moves, and what is found."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from tests.papers.machines import Machine, Read

from weftline.cost import NO_TIME, CostTable, devices_of_file, expand_file_costs
from weftline.errors import LimitReached, UsageError, WeftlineError
from weftline.graph.arrays import Indices
from weftline.latency import solvers
from weftline.latency.measured.measured import (
    Calibration,
    count_parts,
    mutate,
    policy_source,
    random_cuts,
    search_at_random,
    search_by_measuring,
    solve_measured,
    solver_source,
)
from weftline.latency.measured.measurements import Measurements, Reading
from weftline.problem import Problem, Rules
from weftline.search import Search
from weftline.simulate.latency import INFEASIBLE
from weftline.testing.generate import Feed, problem_of, random_problem
from weftline.zoo import regal_costs, synthetic


def _problem(ops: int = 40) -> Problem:
    graph = synthetic("series_parallel", ops=ops, seed=3)
    costs = regal_costs(graph, 2)
    table = expand_file_costs(costs)
    table = CostTable(table.time * np.array([4, 5]), table.transfer // 50, table.transfer_row, table.source)
    return Problem(graph, devices_of_file(costs), table, Rules(runtime="sequential"))


def _measured(machine: Machine, solver: str, budget: int = 20, seed: int = 0, **options: str) -> Measurements:
    search = Search(_problem(), seed=seed, solver=solver, options=options)
    measured = Measurements(search, machine.backend(budget))
    solve_measured(search, solvers()[solver], measured)
    return measured


@pytest.mark.parametrize("solver", ["policy", "heft", "hsdag", "rnn"])
def test_no_placement_is_measured_twice(solver: str) -> None:
    """Tests that the budget is spent on different placements, single devices first, and that the best is kept."""
    machine = Machine(_problem(), [1.0, 3.0], border=0.02)
    measured = _measured(machine, solver)
    assert len(machine.calls) == len(measured.taken) == 20
    assert len({call.tobytes() for call in machine.calls}) == 20
    assert [set(call.tolist()) for call in machine.calls[:2]] == [{0}, {1}]
    assert measured.best is not None
    assert measured.best.reading.ratio == min(machine.ratio(call) for call in machine.calls)
    assert measured.stopped_by == "measurements"


def test_what_fails_is_never_the_answer() -> None:
    """Tests that failures are counted with their reasons, and that the search goes on around them."""
    machine = Machine(_problem(), [1.0, 0.2])
    machine.fails = lambda placement: bool((placement == 1).sum() > 20)
    measured = _measured(machine, "policy")
    assert measured.best is not None
    assert (measured.best.placement == 1).sum() <= 20
    assert len(measured.failures) + len(measured.ran) == 20
    assert set(measured.failures) == {"crashed"}


def test_calibration_learns_what_the_table_does_not_know() -> None:
    """Tests that placements which were not measured are predicted well, and that scaled costs say the same."""
    problem = _problem()
    machine = Machine(problem, [1.0, 4.0], border=0.03)
    rows = np.stack(
        [np.zeros(40, np.int32), np.ones(40, np.int32), *random_cuts(problem, np.random.default_rng(0), 12)]
    )
    others = np.stack(random_cuts(problem, np.random.default_rng(1), 20))
    truth = np.array([machine.ratio(row) for row in others])
    calibration = Calibration(problem)
    before = np.abs(np.log(calibration.predict(others) / truth)).max()
    calibration.fit(rows, np.array([machine.ratio(row) for row in rows]))
    after = np.abs(np.log(calibration.predict(others) / truth)).max()
    assert after < 0.1 < before
    scaled = calibration.problem().cost.time
    assert (scaled[:, 1].sum() / problem.cost.time[:, 1].sum()) / (
        scaled[:, 0].sum() / problem.cost.time[:, 0].sum()
    ) == pytest.approx(4.0, rel=0.1)


def test_proposals_beat_random_placements() -> None:
    """Tests that with the truth far from the table, 24 measurements lead further than as many random ones."""
    problem = _problem()
    time = problem.cost.time.copy()
    time[0, 1] = time[-1, 0] = NO_TIME  # so that no device alone will do
    problem = replace(problem, cost=replace(problem.cost, time=time))
    found: dict[str, list[float]] = {"policy": [], "heft": [], "random": []}
    for seed in range(3):
        for name, ratios in found.items():
            machine = Machine(problem, [2.0, 1.0], border=0.01)
            search = Search(problem, seed=seed)
            measured = Measurements(search, machine.backend(24))
            if name == "random":
                search_at_random(search, measured)
            else:
                source = policy_source() if name == "policy" else solver_source("heft")
                search_by_measuring(search, measured, source)
            assert measured.best is not None
            ratios.append(measured.best.reading.ratio)
    assert sum(found["policy"]) < sum(found["random"])
    assert sum(found["policy"]) <= sum(found["heft"]) * 1.001


def test_same_seed_same_measurements() -> None:
    """Tests that on a machine without noise a seed decides everything, and that seeds differ."""
    runs = [_measured(Machine(_problem(), [1.0, 2.0]), "policy", seed=seed).taken for seed in (1, 1, 2)]
    first, again, other = ([t.placement.tobytes() for t in run] for run in runs)
    assert first == again != other


def test_the_time_limit_ends_a_search() -> None:
    """Tests that a measurement which the time cut short ends the search, and is not counted."""
    machine = Machine(_problem(), [1.0, 2.0])
    search = Search(_problem(), time_limit=1000.0)

    def measure(placement: Indices, seconds: float | None) -> Read:
        assert seconds is not None
        if len(machine.calls) == 5:
            raise LimitReached("over")
        return machine.measure(placement, seconds)

    backend = machine.backend()
    measured = Measurements(search, type(backend)(measure, "machine", "a"))
    search_by_measuring(search, measured, solver_source("heft"))
    assert len(measured.taken) == 5
    assert measured.stopped_by == "time"


def test_limits_of_the_problem_hold() -> None:
    """Tests on random problems that what is measured keeps sets together, memory, and devices that can run an op."""
    checked = 0
    for seed in range(30):
        problem = random_problem(seed, "latency", max_ops=12)
        machine = Machine(problem, [1.0] * len(problem.devices))
        search = Search(problem, seed=seed)
        measured = Measurements(search, machine.backend(8))
        search_by_measuring(search, measured, solver_source("greedy"))
        for call in machine.calls:
            assert Search(problem).offer(call) is not None
            checked += 1
    assert checked > 60


def test_moves_change_few_borders() -> None:
    """Tests that changed and random placements are different, and made of few sub-models."""
    problem, dice = _problem(), np.random.default_rng(0)
    start = (np.arange(40) >= 20).astype(np.int32)
    changed = mutate(problem, start, dice, 60)
    assert len({row.tobytes() for row in changed}) > 30
    assert all(np.count_nonzero(np.diff(row)) <= 3 for row in changed)
    drawn = random_cuts(problem, dice, 60)
    assert {np.count_nonzero(np.diff(row)) for row in drawn} == {1, 2, 3, 4, 5}
    assert {int(row[0]) for row in drawn} == {0, 1}


def test_sub_models_are_counted() -> None:
    """Tests a chain that comes back to its device, and a device that is used by two branches at once."""
    chain = problem_of([[1, 1]] * 5, [Feed(op, (op + 1,)) for op in range(4)])
    assert count_parts(chain, np.array([[0, 0, 0, 0, 0], [0, 0, 1, 1, 0], [0, 1, 0, 1, 0]])).tolist() == [1, 3, 5]
    fork = problem_of([[1, 1]] * 4, [Feed(0, (1, 2)), Feed(1, (3,)), Feed(2, (3,))])
    assert count_parts(fork, np.array([[0, 1, 1, 0], [0, 0, 1, 0]])).tolist() == [3, 3]


def test_polish_is_refused() -> None:
    """Tests that annealing on the simulator cannot be asked for beside measurements."""
    with pytest.raises(UsageError, match="polish anneals on the simulator"):
        _measured(Machine(_problem(), [1.0, 2.0]), "hsdag", polish="on")


def test_networks_see_measured_values() -> None:
    """Tests that failed and unmeasured placements are infeasible for a network, others their measured time."""
    machine = Machine(_problem(), [1.0, 2.0])
    machine.fails = lambda placement: bool(placement[0] == 1)
    measured = Measurements(Search(_problem()), machine.backend(2))
    rows = np.stack([np.zeros(40), np.ones(40), np.arange(40) > 20]).astype(np.int32)
    values = measured(rows)
    assert values.tolist() == [round(machine.ratio(rows[0]) * 1e6), INFEASIBLE, INFEASIBLE]
    assert measured.over
    assert math.isinf(measured.taken[1].reading.ratio)


def test_backend_that_breaks_keeps_what_was_measured() -> None:
    """Tests that an error of the backend in mid-search ends it, and that the best before it stays."""
    problem = _problem()
    machine = Machine(problem, [1.0, 2.0])
    whole, calls = machine.backend(20), []

    def measure(placement: Indices, seconds: float | None) -> Reading:
        calls.append(placement)
        if len(calls) == 6:
            raise WeftlineError("the process does not start again")
        return whole.measure(placement, seconds)

    search = Search(problem)
    measured = Measurements(search, replace(whole, measure=measure))
    search_by_measuring(search, measured, solver_source("heft"))
    assert len(measured.taken) == 5
    assert measured.best is not None
    assert measured.broken == "the process does not start again"
    assert measured.failures == []  # the checker compares them with the count


def test_sets_stay_together_whatever_is_forbidden() -> None:
    """Tests that no change of a placement tears a set, though devices cannot run some of its members."""
    problem = replace(_problem(), together=((0, 3, 5), (7, 8)))
    time = problem.cost.time.copy()
    time[3, 0] = time[8, 1] = NO_TIME
    problem = replace(problem, cost=replace(problem.cost, time=time))
    dice = np.random.default_rng(0)
    rows = random_cuts(problem, dice, 50)
    for row in [*rows, *mutate(problem, rows[0], dice, 50)]:
        assert row[0] == row[3] == row[5] == 1
        assert row[7] == row[8] == 0
