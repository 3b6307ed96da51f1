"""Placement by measurement: few candidates run on the real backend, chosen by a simulator that learns from them.

In: a Search, its Measurements, and a Source of proposals (the policy, or another solver). Out: measurements; the best
measured placement is the answer. First every device alone. Then rounds: calibrate the simulator on what was measured,
ask the source for proposals under calibrated costs, change the best measured placements a little, rank all of them by
the calibrated simulator, and measure the few that look best, one of them drawn at random. No placement is measured
twice. Solvers with `learn` train on the measurements themselves instead.

`Calibration`: a few factors that bring the simulator's times near to measured ratios. The model is that of a backend
that runs sub-models one after another: a factor for the work of each device, one for transfers, and a price of every
border between sub-models. Fitted on logarithms of ratios, with a pull to what is assumed before anything is known.
Simplified: kernels that fuse across a border are only seen through the price of borders.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError, UsageError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.measured.measurements import Measurements
from weftline.latency.measured.trials import PlacementMeter, simulated
from weftline.latency.policy.policy import Policy, PolicyParameters, asked_weights
from weftline.latency.policy.samples import biases, decode_rows, draw_noise, scales_of
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices
from weftline.search import Search, Solver, read_parameters
from weftline.simulate.latency import INFEASIBLE, evaluate
from weftline.units import MAX_QUANTITY

__all__ = [
    "Calibration",
    "Source",
    "count_parts",
    "mutate",
    "policy_source",
    "random_cuts",
    "repair",
    "search_at_random",
    "search_by_measuring",
    "solve_measured",
    "solver_source",
]

Floats = NDArray[np.float64]

BORDER_SHARE = 0.01
"""What a border between two sub-models is thought to cost before one was measured: a share of the reference."""
PULL_WEIGHT = 0.03
"""Weight of what is assumed, against one measurement."""
NEWTON_STEPS, LONGEST_STEP = 20, 1.0
"""Of Gauss and Newton; how far a step may go in a logarithm."""


class Calibration:
    """K factors for devices, one for transfers, one for borders; all in ratios per ns (borders: per border)."""

    def __init__(self, problem: Problem) -> None:
        self._sequential = problem.with_rules(msgspec.structs.replace(problem.rules, runtime="sequential"))
        self._time = np.maximum(problem.cost.time, 0).astype(np.float64)
        able = (problem.cost.time >= 0).all(axis=0)
        alone = self._time.sum(axis=0)
        self._unit = max(1.0, float(alone[able].min() if able.any() else alone.max()))
        k = len(problem.devices)
        self._assumed = np.log(np.array([*([1.0 / self._unit] * (k + 1)), BORDER_SHARE]))
        self.factors: Floats = np.exp(self._assumed)

    def fit(self, placements: Indices, ratios: Floats) -> None:
        """Choose the factors again, from everything that was measured."""
        x, y = self._parts(placements), np.log(ratios)
        usable = np.isfinite(x).all(axis=1) & np.isfinite(y)
        x, y = x[usable], y[usable]
        theta = self._assumed.copy()
        for _ in range(NEWTON_STEPS if len(x) else 0):
            shares = x * np.exp(theta)
            predicted = np.maximum(shares.sum(axis=1, keepdims=True), 1e-12)
            slope = shares / predicted
            pull = PULL_WEIGHT * np.eye(len(theta))
            right = slope.T @ (y - np.log(predicted[:, 0])) - pull @ (theta - self._assumed)
            theta = theta + np.clip(np.linalg.solve(slope.T @ slope + pull, right), -LONGEST_STEP, LONGEST_STEP)
        self.factors = np.exp(theta)

    def predict(self, placements: Indices) -> Floats:
        """(B, n) placements -> (B,) ratios; infinity where links or devices are missing."""
        ratios: Floats = self._parts(placements) @ self.factors
        return np.where(np.isfinite(ratios), ratios, np.inf)

    def problem(self) -> Problem:
        """The same question with calibrated costs, sequential runtime; every tensor that crosses pays for a border."""
        k, cost = self._time.shape[1], self._sequential.cost
        scale = self.factors[:k] * self._unit
        move, border = self.factors[k] * self._unit, self.factors[k + 1] * self._unit
        most = MAX_QUANTITY // (4 * (self._time.size + len(cost.transfer_row) * k + 1))
        time = np.where(cost.time >= 0, np.minimum(np.rint(cost.time * scale), most), cost.time)
        moved = np.minimum(np.rint(cost.transfer * move + border), most)
        apart = ~np.eye(k, dtype=np.bool_) & (cost.transfer >= 0)
        transfer = np.where(apart, moved, cost.transfer)
        scaled = replace(cost, time=time.astype(np.int64), transfer=transfer.astype(np.int64))
        return replace(self._sequential, cost=scaled)

    def _parts(self, placements: Indices) -> Floats:
        """(B, K + 2): ns of work per device, ns of transfers, borders; infinite where the placement cannot run."""
        placements = np.atleast_2d(placements)
        k = self._time.shape[1]
        work = np.stack([np.where(placements == d, self._time[:, d], 0.0).sum(axis=1) for d in range(k)], axis=1)
        value = evaluate(self._sequential, placements).value
        moved = np.where(value < INFEASIBLE, value - work.sum(axis=1), np.inf)
        borders = count_parts(self._sequential, placements) - 1
        return np.concatenate([work, np.maximum(moved, 0.0)[:, None], borders[:, None]], axis=1)


def count_parts(problem: Problem, placements: Indices) -> Floats:
    """(B,): about how many sub-models a placement makes, counting a device anew where the data comes back to it."""
    placements = np.atleast_2d(placements)
    count, n = placements.shape
    source, target, _ = problem.graph.arrays.edges()
    turn = np.zeros((count, n), np.int64)
    order = np.argsort(source, kind="stable")  # ops are in topological order, so all that enters an op is there before
    for a, b in zip(source[order].tolist(), target[order].tolist(), strict=True):
        np.maximum(turn[:, b], turn[:, a] + (placements[:, a] != placements[:, b]), out=turn[:, b])
    key = turn * len(problem.devices) + placements
    key.sort(axis=1)
    parts: Floats = 1.0 + (np.diff(key, axis=1) != 0).sum(axis=1)
    return parts


MOST_PIECES = 6
"""Of a random placement."""


def random_cuts(problem: Problem, random: np.random.Generator, count: int) -> list[Indices]:
    """Uniform: how many pieces (2 to MOST_PIECES), where the cuts are, which device each piece has."""
    n, k = len(problem.graph.ops), len(problem.devices)
    if k < 2 or n < 2:
        return []
    found = []
    for _ in range(count):
        pieces = int(random.integers(2, min(MOST_PIECES, n) + 1))
        cuts = np.sort(random.choice(np.arange(1, n), pieces - 1, replace=False))
        word = [int(random.integers(k))]
        while len(word) < pieces:
            word.append((word[-1] + int(random.integers(1, k))) % k)
        placement = np.repeat(np.array(word, np.int32), np.diff([0, *cuts.tolist(), n]))
        found.append(repair(problem, placement, placement))
    return found


def mutate(problem: Problem, placement: Indices, random: np.random.Generator, count: int) -> list[Indices]:
    """Borders moved, runs given to another device, runs joined to their neighbours."""
    n, k = len(placement), len(problem.devices)
    if k < 2 or n < 2:
        return []
    found = []
    for _ in range(count):
        changed = placement.copy()
        borders = np.flatnonzero(np.diff(placement)) + 1
        kind = int(random.integers(4)) if len(borders) else int(random.integers(2)) * 3
        if kind == 0:  # a run anywhere
            first = int(random.integers(n))
            changed[first : first + _length(random, n)] = int(random.integers(k))
        elif kind == 1:  # a border moves
            border, length = int(random.choice(borders)), _length(random, n)
            if random.integers(2):
                changed[border : border + length] = placement[border - 1]
            else:
                changed[max(0, border - length) : border] = placement[border]
        elif kind == 2:  # a run joins its neighbour
            ends = [0, *borders.tolist(), n]
            run = int(random.integers(len(ends) - 1))
            near = ends[run] - 1 if run > 0 and (run == len(ends) - 2 or random.integers(2)) else ends[run + 1]
            changed[ends[run] : ends[run + 1]] = placement[near]
        else:  # the beginning or the end
            cut, device = int(random.integers(1, n)), int(random.integers(k))
            part = slice(0, cut) if random.integers(2) else slice(cut, n)
            changed[part] = device
        found.append(repair(problem, changed, placement))
    return found


def repair(problem: Problem, placement: Indices, fallback: Indices) -> Indices:
    """Sets stay together; one whose device cannot run it all takes that of `fallback`, or where it is fastest."""
    group, allowed = problem.group, allowed_devices(problem)
    first = np.unique(group, return_index=True)[1]
    total = np.zeros(allowed.shape, np.int64)
    np.add.at(total, group, np.maximum(problem.cost.time, 0))
    sets = np.arange(len(first))
    found = np.where(allowed[sets, placement[first]], placement[first], fallback[first])
    found = np.where(allowed[sets, found], found, np.where(allowed, total, 2**62).argmin(axis=1))
    repaired: Indices = found[group].astype(np.int32)
    return repaired


def _length(random: np.random.Generator, n: int) -> int:
    """From one op to half of them, all orders of magnitude alike."""
    return int(np.exp(random.uniform(0.0, np.log(max(2.0, n / 2)))))


Source = Callable[[Problem, int, float | None], list[Indices]]
"""A problem, a seed, and the seconds that are left of the whole search (None: any number) -> placements."""

SOLVER_SECONDS, SHARE_OF_TIME, SOLVER_WORK = 5.0, 0.1, 2000
"""For one solver, each time it is asked: seconds, or a share of those that are left if that is less; offers."""
QUICK = ("heft", "cpeft", "greedy", "min-cut")
"""Need no limit of time where the whole search has none, so that what they say depends on nothing but the problem."""
HEARD_PLACEMENTS = 64
HELPERS = ("min-cut", "cpeft", "greedy")
"""What is asked beside the policy."""


@dataclass
class _Listening(Search):
    """A search that remembers the last placements that fit."""

    heard: list[Indices] = field(default_factory=list)

    def offer(self, placement: Indices, *, order: Indices | None = None, actions: Ints | None = None) -> int | None:
        """As always; remembered if no limit is broken."""
        value = super().offer(placement, order=order, actions=actions)
        if value is not None:
            self.heard = [*self.heard, np.array(placement, np.int32)][-HEARD_PLACEMENTS:]
        return value


def solver_source(*names: str, options: Mapping[str, str] = MappingProxyType({})) -> Source:
    """What solvers offer, each within a few seconds; `options` are settings of those that take them."""

    def propose(problem: Problem, seed: int, left: float | None) -> list[Indices]:
        from weftline.latency import solvers

        found: list[Indices] = []
        for name in names:
            solver = solvers()[name]
            own = {key: value for key, value in options.items() if key in solver.takes}
            limit = SOLVER_SECONDS if left is None else min(SOLVER_SECONDS, SHARE_OF_TIME * left)
            limited = None if left is None and name in QUICK else limit
            search = _Listening(
                problem, time_limit=limited, work_limit=SOLVER_WORK, seed=seed, solver=name, options=own
            )
            with suppress(InfeasibleError):
                solver.solve(search)
            found += search.heard
        return found

    return propose


def policy_source(options: Mapping[str, str] = MappingProxyType({})) -> Source:
    """The policy's decode, its argmax, samples around it; min-cut and simple heuristics beside it."""
    others, weights = solver_source(*HELPERS), asked_weights(options)
    numbers = read_parameters(PolicyParameters, options)
    pairs = numbers.decodes // 2

    def propose(problem: Problem, seed: int, left: float | None) -> list[Indices]:
        found = others(problem, seed, left)
        policy = Policy.of(problem, weights) if problem.cost.time.size <= numbers.most_rows else None
        if policy is None:
            return found
        found.append(policy.argmax())
        for center in (policy.output.one, policy.output.many):
            with suppress(InfeasibleError):
                found.append(policy.decode(center).placement)
        n, k = policy.seen.possible.shape
        if pairs == 0:
            return found
        noise = draw_noise(np.random.default_rng(seed), scales_of(pairs), n, k)
        placements, _ = decode_rows(policy.decoder, policy.orders, biases(policy.seen, policy.output.many, noise))
        return [*found, *placements]

    return propose


PER_ROUND = 4
"""Measured between two calibrations; the last of them is not the best that is left, but one of the SHORTLIST_LENGTH."""
SHORTLIST_LENGTH = 24
BEST_PARENTS, CHILDREN_EACH = 3, 48
"""The best measured placements that are changed, and into how many each."""
IDLE_ROUNDS = 3
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
    problem, random = search.problem, np.random.default_rng(search.seed)
    measure_single_devices(measured)
    calibration, fits = Calibration(problem), simulated(problem)
    proposed: list[Indices] = []
    number, without = 0, 0
    while not measured.over and without < IDLE_ROUNDS:
        ran = measured.ran
        if ran:
            calibration.fit(np.stack([t.placement for t in ran]), np.array([t.reading.ratio for t in ran]))
        calibrated = calibration.problem()
        proposed = [
            repair(problem, row, row) for row in source(calibrated, (search.seed + number) % 2**31, search.seconds_left)
        ]
        for parent in ran[:BEST_PARENTS]:
            proposed += mutate(problem, parent.placement, random, CHILDREN_EACH)
        if not ran:
            proposed += random_cuts(problem, random, CHILDREN_EACH)
        before = len(measured.taken)
        for placement in _choose(_new(proposed, measured, fits), calibration, random):
            measured.take(placement)
        number, without = number + 1, without + 1 if len(measured.taken) == before else 0


def search_at_random(search: Search, measured: Measurements) -> None:
    """The control: every device alone, then random placements of few sub-models."""
    problem, random = search.problem, np.random.default_rng(search.seed)
    measure_single_devices(measured)
    without = 0
    while not measured.over and without < IDLE_ROUNDS * AT_ONCE:
        before = len(measured.taken)
        for placement in random_cuts(problem, random, AT_ONCE):
            measured.take(placement)
        without = without + 1 if len(measured.taken) == before else 0


def measure_single_devices(measured: Measurements) -> None:
    """Everything on one device, for each device that may hold it."""
    problem = measured.search.problem
    for device in range(len(problem.devices)):
        if (problem.cost.time[:, device] >= 0).all():
            measured.take(np.full(len(problem.graph.ops), device, np.int32))


def _new(proposed: list[Indices], measured: Measurements, fits: PlacementMeter) -> Indices:
    """(B, n): each once, none that was measured, all within the limits of the problem."""
    rows = {row.tobytes(): row for row in proposed if not measured.knows(row)}
    if not rows:
        return np.zeros((0, len(measured.search.problem.graph.ops)), np.int32)
    found = np.stack(list(rows.values()))
    able: Indices = found[fits(found) < INFEASIBLE]
    return able


def _choose(rows: Indices, calibration: Calibration, random: np.random.Generator) -> Iterator[Indices]:
    """The best by prediction, and one of those behind them."""
    if not len(rows):
        return
    order = np.argsort(calibration.predict(rows), kind="stable")
    first, behind = order[: PER_ROUND - 1], order[PER_ROUND - 1 : SHORTLIST_LENGTH]
    for row in first.tolist():
        yield rows[row]
    if len(behind):
        yield rows[int(random.choice(behind))]
