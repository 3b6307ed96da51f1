"""Where a measured search begins: placements that solvers and the policy propose for a problem.

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
from weftline.place.learned.policy import MOST_DECODES, MOST_ROWS, Policy, asked_weights
from weftline.place.learned.policy_samples import biases, decode_rows, draw_noise, scales_of
from weftline.place.learned.settings import read_whole
from weftline.problem import Problem
from weftline.search import Search

__all__ = ["Source", "policy_source", "solver_source"]

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
        from weftline.place import solvers

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
