"""Placements of few sub-models: random ones, and small changes of one that is known to be good.

In: a Problem, a placement. Out: placements that keep `together` sets and devices that can run an op. Ops are in
topological order, so that a run of consecutive ops is a convex set: what is moved is such a run, or the border between
two. Simplified: other topological orders are not looked at.

Where a measured search begins: placements that solvers and the policy propose for a problem.

In: a Problem (as given, or with calibrated costs) and a number that makes proposals differ. Out: placements, none of
them measured yet. A source is asked again whenever the calibration has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.policy.policy import MOST_DECODES, MOST_ROWS, Policy, asked_weights
from weftline.latency.policy.samples import biases, decode_rows, draw_noise, scales_of
from weftline.latency.policy.settings import read_whole
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices
from weftline.search import Search

__all__ = ["Source", "mutate", "policy_source", "random_cuts", "repair", "solver_source"]

MOST_PIECES = 6
"""Of a random placement."""


def random_cuts(problem: Problem, dice: np.random.Generator, count: int) -> list[Indices]:
    """Uniform: how many pieces (2 to MOST_PIECES), where the cuts are, which device each piece has."""
    n, k = len(problem.graph.ops), len(problem.devices)
    if k < 2 or n < 2:
        return []
    found = []
    for _ in range(count):
        pieces = int(dice.integers(2, min(MOST_PIECES, n) + 1))
        cuts = np.sort(dice.choice(np.arange(1, n), pieces - 1, replace=False))
        word = [int(dice.integers(k))]
        while len(word) < pieces:
            word.append((word[-1] + int(dice.integers(1, k))) % k)
        placement = np.repeat(np.array(word, np.int32), np.diff([0, *cuts.tolist(), n]))
        found.append(repair(problem, placement, placement))
    return found


def mutate(problem: Problem, placement: Indices, dice: np.random.Generator, count: int) -> list[Indices]:
    """Borders moved, runs given to another device, runs joined to their neighbours."""
    n, k = len(placement), len(problem.devices)
    if k < 2 or n < 2:
        return []
    found = []
    for _ in range(count):
        changed = placement.copy()
        borders = np.flatnonzero(np.diff(placement)) + 1
        kind = int(dice.integers(4)) if len(borders) else int(dice.integers(2)) * 3
        if kind == 0:  # a run anywhere
            first = int(dice.integers(n))
            changed[first : first + _length(dice, n)] = int(dice.integers(k))
        elif kind == 1:  # a border moves
            border, length = int(dice.choice(borders)), _length(dice, n)
            if dice.integers(2):
                changed[border : border + length] = placement[border - 1]
            else:
                changed[max(0, border - length) : border] = placement[border]
        elif kind == 2:  # a run joins its neighbour
            ends = [0, *borders.tolist(), n]
            run = int(dice.integers(len(ends) - 1))
            near = ends[run] - 1 if run > 0 and (run == len(ends) - 2 or dice.integers(2)) else ends[run + 1]
            changed[ends[run] : ends[run + 1]] = placement[near]
        else:  # the beginning or the end
            cut, device = int(dice.integers(1, n)), int(dice.integers(k))
            part = slice(0, cut) if dice.integers(2) else slice(cut, n)
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


def _length(dice: np.random.Generator, n: int) -> int:
    """From one op to half of them, all orders of magnitude alike."""
    return int(np.exp(dice.uniform(0.0, np.log(max(2.0, n / 2)))))


Source = Callable[[Problem, int, float | None], list[Indices]]
"""A problem, a seed, and the seconds that are left of the whole search (None: any number) -> placements."""

SECONDS, SHARE, WORK = 5.0, 0.1, 2000
"""For one solver, each time it is asked: seconds, or a share of those that are left if that is less; offers."""
QUICK = ("heft", "cpeft", "greedy", "min-cut")
"""Need no limit of time where the whole search has none, so that what they say depends on nothing but the problem."""
SAMPLES = 64
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
            self.heard = [*self.heard, np.array(placement, np.int32)][-SAMPLES:]
        return value


def solver_source(*names: str, options: Mapping[str, str] = MappingProxyType({})) -> Source:
    """What solvers offer, each within a few seconds; `options` are settings of those that take them."""

    def propose(problem: Problem, seed: int, left: float | None) -> list[Indices]:
        from weftline.latency import solvers

        found: list[Indices] = []
        for name in names:
            solver = solvers()[name]
            own = {key: value for key, value in options.items() if key in solver.takes}
            limit = SECONDS if left is None else min(SECONDS, SHARE * left)
            limited = None if left is None and name in QUICK else limit
            search = _Listening(problem, time_limit=limited, work_limit=WORK, seed=seed, solver=name, options=own)
            with suppress(InfeasibleError):
                solver.solve(search)
            found += search.heard
        return found

    return propose


def policy_source(options: Mapping[str, str] = MappingProxyType({})) -> Source:
    """The policy's decode, its argmax, samples around it; min-cut and simple heuristics beside it."""
    others, weights = solver_source(*HELPERS), asked_weights(options)
    pairs = read_whole(options, "decodes", SAMPLES, 1, MOST_DECODES) // 2

    def propose(problem: Problem, seed: int, left: float | None) -> list[Indices]:
        found = others(problem, seed, left)
        policy = Policy.of(problem, weights) if problem.cost.time.size <= MOST_ROWS else None
        if policy is None:
            return found
        found.append(policy.argmax())
        for lean in (policy.said.one, policy.said.many):
            with suppress(InfeasibleError):
                found.append(policy.decode(lean).placement)
        n, k = policy.seen.possible.shape
        if pairs == 0:
            return found
        noise = draw_noise(np.random.default_rng(seed), scales_of(pairs), n, k)
        placements, _ = decode_rows(policy.decoder, policy.orders, biases(policy.seen, policy.said.many, noise))
        return [*found, *placements]

    return propose
