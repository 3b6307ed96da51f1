"""Where a measured search begins: placements that solvers and the policy propose for a problem.

In: a Problem (as given, or with calibrated costs) and a number that makes proposals differ. Out: placements, none of
them measured yet. A source is asked again whenever the calibration has changed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from types import MappingProxyType

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.place.learned.policy import MOST_ROWS, Policy, asked_weights
from weftline.place.learned.policy_samples import biases, decode_rows, draw_noise, scales_of
from weftline.problem import Problem
from weftline.search import Search

__all__ = ["Source", "policy_source", "solver_source"]

Source = Callable[[Problem, int], list[Indices]]
"""A problem and a seed -> placements."""

SECONDS, WORK = 2.0, 2000
"""For one solver, each time it is asked."""
SAMPLES = 64
HELPERS = ("min-cut", "cpeft", "greedy")
"""What is asked beside the policy."""


class _Listening(Search):
    """A search that remembers every placement that fits."""

    heard: list[Indices]

    def offer(self, placement: Indices, *, order: Indices | None = None, actions: Ints | None = None) -> int | None:
        """As always; remembered if no limit is broken."""
        value = super().offer(placement, order=order, actions=actions)
        if value is not None:
            self.heard = [*self.__dict__.get("heard", []), np.array(placement, np.int32)][-SAMPLES:]
        return value


def solver_source(*names: str, options: Mapping[str, str] = MappingProxyType({})) -> Source:
    """What solvers offer, each within a few seconds; `options` are settings of those that take them."""

    def propose(problem: Problem, seed: int) -> list[Indices]:
        from weftline.place import solvers

        found: list[Indices] = []
        for name in names:
            solver = solvers()[name]
            own = {key: value for key, value in options.items() if key in solver.takes}
            search = _Listening(problem, time_limit=SECONDS, work_limit=WORK, seed=seed, solver=name, options=own)
            with suppress(InfeasibleError):
                solver.solve(search)
            found += search.__dict__.get("heard", [])
        return found

    return propose


def policy_source(options: Mapping[str, str] = MappingProxyType({})) -> Source:
    """The policy's decode, its argmax, samples around it; min-cut and simple heuristics beside it."""
    others, weights = solver_source(*HELPERS), asked_weights(options)

    def propose(problem: Problem, seed: int) -> list[Indices]:
        found = others(problem, seed)
        policy = Policy.of(problem, weights) if problem.cost.time.size <= MOST_ROWS else None
        if policy is None:
            return found
        found.append(policy.argmax())
        for lean in (policy.said.one, policy.said.many):
            with suppress(InfeasibleError):
                found.append(policy.decode(lean).placement)
        n, k = policy.seen.possible.shape
        noise = draw_noise(np.random.default_rng(seed), scales_of(SAMPLES // 2), n, k)
        placements, _ = decode_rows(policy.decoder, policy.orders, biases(policy.seen, policy.said.many, noise))
        return [*found, *placements]

    return propose
