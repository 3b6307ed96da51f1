"""The weighted convex-set bound for pipelines of equal devices.

For any integer weights pi: in k blocks that share out all pieces, some block has pi(S) >= least = ceil(pi(V) / k). So
if no convex S has f(S) < T and pi(S) >= least, no pipeline is better than T. Good weights are duals of a covering
program whose columns are convex sets; the search over sets is the proof. In: Pieces, number of stages. Out: bounds by
`on_bound`, each with the witness (stages, scale, target, weights). Anytime: better and better until stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import MOST_PIECES, pack
from weftline.pipeline.convex.master import Master, whole
from weftline.pipeline.convex.pool import draw_sets
from weftline.pipeline.convex.prove import Members, OnBound, ProofBudget, ProofOutcome, Prover
from weftline.pipeline.convex.rise import rise
from weftline.pipeline.pieces.pieces import Pieces

__all__ = ["OnBound", "convex_set_bound"]

WEIGHT = 2**20
"""Weights are scaled so that a stage's share is about this much."""
CLOSE = 0.006
"""Stop when what the program can and cannot refute are this close."""
ALMOST = 0.995
"""Of the best known value: the last target."""
SHORT = 1500
"""Nodes of a first search."""
RUNS = 320.0
"""Annealing runs per round, divided by their length."""
MANY = 100
"""Sets of one round of annealing, at most."""
LIGHT = 0.3
"""Sets are wanted from this far between weight 1 in the master (0) and a stage's share (1)."""
PATIENCE = 3
"""Rounds without a set that disproves the target, after which a short search tries to prove it."""
SHARE = 0.2
"""Of the budget, for one target."""
WORTH = 0.006
"""The least step between targets."""
ROUND = 200
"""Nodes that a round counts for beside those of its searches, where work is limited."""
STAY = 0.6
"""How much of the last weights is kept in the next: duals of a program that lacks columns are wild."""


def convex_set_bound(
    pieces: Pieces,
    stages: int,
    upper: Callable[[], int],
    *,
    start_blocks: Sequence[NDArray[np.bool_]] = (),
    stop: NDArray[np.int64],
    work: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    on_bound: OnBound,
) -> None:
    """Prove better and better bounds until time, work (nodes of branch and bound) or `stop` ends it."""
    if len(pieces.time) > MOST_PIECES or stages < 1 or upper() <= 0:
        return
    prover = Prover(pieces, stages, upper, stop, ProofBudget(work, seconds, stop), on_bound)
    if prover.tree is not None:
        rise(prover, start_blocks, seed)
    else:
        _Driver(prover, seed).run(start_blocks)


class _Driver:
    def __init__(self, prover: Prover, seed: int) -> None:
        self.prover, self.budget, self.stages, self.n = prover, prover.budget, prover.stages, prover.n
        self.master = Master(self.n, self.stages)
        self.random = np.random.default_rng(seed)
        self.length = 4.0
        self.quiet = 0
        self.share = SHARE
        self.centre: NDArray[np.float64] | None = None

    def run(self, start_blocks: Sequence[Members]) -> None:
        """Try targets: far below the best known value they are easy, near it hard; go there in shrinking steps."""
        for block in start_blocks:
            self._add(np.asarray(block, np.bool_))
        for piece in range(self.n):
            self._add(np.arange(self.n) == piece)
        low = max(int(self.prover.graph.work.sum()) // self.stages, 1)
        high = self.prover.upper() + 1
        target = (3 * low + 2 * high) // 5
        while self.budget.spent < 1.0:
            high = min(high, self.prover.upper() + 1)
            goal = int(ALMOST * self.prover.upper())
            low = max(low, self.prover.proved)
            if low >= goal or high - low <= max(1, CLOSE * high):
                return
            target = max(min(target, goal), low + 1)
            outcome = self._try(target)
            if outcome == ProofOutcome.TOO_HIGH:
                high = min(high, target)
            # What was too hard gets more the next time, and no time goes into steps that are not worth it.
            self.share = min(1.0, 1.5 * self.share) if outcome == ProofOutcome.TOO_HARD else SHARE
            low = max(low, self.prover.proved)
            top = min(high, target) if outcome == ProofOutcome.TOO_HARD else high
            target = low + int({ProofOutcome.TOO_HIGH: 0.6, ProofOutcome.TOO_HARD: 0.4}.get(outcome, 0.5) * (top - low))
            target = max(target, min(int(low * (1 + WORTH)), (low + high) // 2))

    def _add(self, members: Members) -> bool:
        return self.master.add(members, self.prover.cost(members))

    def _try(self, target: int) -> ProofOutcome:
        """Column generation for one target -> proved, too high (the program covers it), too hard, or stopped."""
        self.budget.nodes += ROUND
        self.prover.aim(target)
        self.master.aim(target)
        self.centre = None
        begun = self.budget.spent
        while self.budget.spent < 1.0:
            if self.budget.spent > begun + self.share:
                return ProofOutcome.TOO_HARD
            solved = self.master.solve()
            if solved is None:
                return ProofOutcome.TOO_HARD
            count, weights, used = solved
            if count <= self.stages + 1e-6:
                return ProofOutcome.TOO_HIGH
            self.budget.nodes += ROUND
            outcome = self._price(weights, used, target)
            if outcome != ProofOutcome.FOUND:
                return outcome
        return ProofOutcome.STOPPED

    def _price(self, weights: NDArray[np.float64], used: list[int], target: int) -> ProofOutcome:
        """Sets that the master lacks: by annealing, then by a short search, then by the search that proves."""
        trial = weights if self.centre is None else (1 - STAY) * weights + STAY * self.centre
        total = float(trial.sum()) / self.stages
        if total <= 1 + 1e-9:
            trial, total = weights, float(weights.sum()) / self.stages
        self.centre = trial
        pi = whole(trial / total, WEIGHT)
        least = -(-int(pi.sum()) // self.stages)
        # In units of the master a set of weight 1 is used fully. Those lighter than a stage's share do no harm to the
        # proof, but they help the weights to settle.
        wanted = min(least, max(1, int(WEIGHT * (1 + LIGHT * (total - 1)) / total)))
        fresh, heaviest = self._draw(pi, target, wanted, used)
        if fresh >= MANY // 10:
            self.length = max(2.0, 0.85 * self.length)
        self.quiet = 0 if heaviest >= least else self.quiet + 1
        if fresh and self.quiet < PATIENCE:
            return ProofOutcome.FOUND
        self.quiet = 0
        outcome, found = self.prover.prove(pi, least, target, SHORT)
        if outcome == ProofOutcome.TOO_HARD:
            if fresh:
                return ProofOutcome.FOUND
            outcome, found = self.prover.prove(pi, least, target, self.budget.nodes_of(0.8 * self.share))
        if outcome != ProofOutcome.FOUND:
            return outcome
        self.length = min(200.0, 1.5 * self.length)  # annealing should have found it
        return ProofOutcome.FOUND if sum([self._add(members) for members in found]) + fresh else ProofOutcome.TOO_HARD

    def _draw(self, pi: Ints, target: int, wanted: int, used: list[int]) -> tuple[int, int]:
        """Anneal from sets in use -> number of new sets, largest weight among all that were met."""
        prover = self.prover
        starts = pack(np.array([self.master.members[i] for i in used] or [np.zeros(self.n, np.bool_)]))
        found = np.zeros((MANY, prover.words), np.uint64)
        seed = int(self.random.integers(2**31))
        runs, length = max(8, int(RUNS / self.length)), int(self.length * self.n)
        count = draw_sets(prover.graph, pi, target, wanted, starts, runs, length, seed, found, prover.stop)
        sets = prover.members(found[:count])
        return sum([self._add(members) for members in sets]), max(
            (int(pi[members].sum()) for members in sets), default=0
        )
