"""Placement by measurement: few candidates run on the real backend, chosen by a simulator that learns from them.

In: a Search, its Measurements, and a Source of proposals (the policy, or another solver). Out: measurements; the best
measured placement is the answer. First every device alone. Then rounds: calibrate the simulator on what was measured,
ask the source for proposals under calibrated costs, change the best measured placements a little, rank all of them by
the calibrated simulator, and measure the few that look best, one of them drawn at random. No placement is measured
twice. Solvers with `learn` train on the measurements themselves instead.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weftline.errors import UsageError
from weftline.graph.arrays import Indices
from weftline.latency.measured.calibration import Calibration
from weftline.latency.measured.measurements import Measurements
from weftline.latency.measured.proposals import Source, mutate, policy_source, random_cuts, repair, solver_source
from weftline.latency.measured.trials import Meter, simulated
from weftline.search import Search, Solver
from weftline.simulate.batch import INFEASIBLE

__all__ = ["search_at_random", "search_by_measuring", "solve_measured"]

PER_ROUND = 4
"""Measured between two calibrations; the last of them is not the best that is left, but one of the SHORTLIST."""
SHORTLIST = 24
PARENTS, CHILDREN = 3, 48
"""The best measured placements that are changed, and into how many each."""
PATIENCE = 3
"""Rounds in a row that have nothing new to propose."""
AT_ONCE = 32
"""Random placements that are drawn at a time."""


def solve_measured(search: Search, solver: Solver, measured: Measurements) -> None:
    """Let a solver propose, and measure; networks that are trained on one problem learn from what was measured."""
    if search.options.get("polish", "off") != "off" or solver.name == "policy+polish":
        raise UsageError("polish anneals on the simulator, which measured rewards take the place of; leave it out")
    if solver.learn is not None:
        solver.learn(search, measured)
    elif solver.name == "policy":
        search_by_measuring(search, measured, policy_source(search.options))
    else:
        search_by_measuring(search, measured, solver_source(solver.name, options=search.options))


def search_by_measuring(search: Search, measured: Measurements, source: Source) -> None:
    """Rounds of proposals, calibration and measurements, until the budget or the time is spent."""
    problem, dice = search.problem, np.random.default_rng(search.seed)
    measure_single_devices(measured)
    calibration, fits = Calibration(problem), simulated(problem)
    proposed: list[Indices] = []
    number, without = 0, 0
    while not measured.over and without < PATIENCE:
        ran = measured.ran
        if ran:
            calibration.fit(np.stack([t.placement for t in ran]), np.array([t.reading.ratio for t in ran]))
        calibrated = calibration.problem()
        proposed = [
            repair(problem, row, row) for row in source(calibrated, (search.seed + number) % 2**31, search.seconds_left)
        ]
        for parent in ran[:PARENTS]:
            proposed += mutate(problem, parent.placement, dice, CHILDREN)
        if not ran:
            proposed += random_cuts(problem, dice, CHILDREN)
        before = len(measured.taken)
        for placement in _choose(_new(proposed, measured, fits), calibration, dice):
            measured.take(placement)
        number, without = number + 1, without + 1 if len(measured.taken) == before else 0


def search_at_random(search: Search, measured: Measurements) -> None:
    """The control: every device alone, then random placements of few sub-models."""
    problem, dice = search.problem, np.random.default_rng(search.seed)
    measure_single_devices(measured)
    without = 0
    while not measured.over and without < PATIENCE * AT_ONCE:
        before = len(measured.taken)
        for placement in random_cuts(problem, dice, AT_ONCE):
            measured.take(placement)
        without = without + 1 if len(measured.taken) == before else 0


def measure_single_devices(measured: Measurements) -> None:
    """Everything on one device, for each device that may hold it."""
    problem = measured.search.problem
    for device in range(len(problem.devices)):
        if (problem.cost.time[:, device] >= 0).all():
            measured.take(np.full(len(problem.graph.ops), device, np.int32))


def _new(proposed: list[Indices], measured: Measurements, fits: Meter) -> Indices:
    """(B, n): each once, none that was measured, all within the limits of the problem."""
    rows = {row.tobytes(): row for row in proposed if not measured.knows(row)}
    if not rows:
        return np.zeros((0, len(measured.search.problem.graph.ops)), np.int32)
    found = np.stack(list(rows.values()))
    able: Indices = found[fits(found) < INFEASIBLE]
    return able


def _choose(rows: Indices, calibration: Calibration, dice: np.random.Generator) -> Iterator[Indices]:
    """The best by prediction, and one of those behind them."""
    if not len(rows):
        return
    order = np.argsort(calibration.predict(rows), kind="stable")
    first, behind = order[: PER_ROUND - 1], order[PER_ROUND - 1 : SHORTLIST]
    for row in first.tolist():
        yield rows[row]
    if len(behind):
        yield rows[int(dice.choice(behind))]
