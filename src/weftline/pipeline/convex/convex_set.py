"""The weighted convex-set bound for pipelines of equal devices.

For any integer weights pi: in k blocks that share out all pieces, some block has pi(S) >= least = ceil(pi(V) / k). So
if no convex S has f(S) < T and pi(S) >= least, no pipeline is better than T. Good weights are duals of a covering
program whose columns are convex sets; the search over sets is the proof. In: Pieces, number of stages. Out: bounds by
`on_bound`, each with the witness (stages, scale, target, weights). Anytime: better and better until stopped.

Where the search over sets goes along a tree, each search is exact and quick (`_Rise`). So every round asks for the
heaviest sets under weights between the master's and the best ones so far (a set that does not contradict the best
weights moves them), and every answer is a bound: the cheapest set that is heavy enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.columns import Master, draw_sets, whole
from weftline.pipeline.convex.graph import MOST_PIECES, pack
from weftline.pipeline.convex.prove import Members, OnBound, ProofBudget, ProofOutcome, Prover
from weftline.pipeline.pieces import Pieces

__all__ = ["OnBound", "convex_set_bound", "rise"]

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


WEIGHT_RISE = 2**20
"""Weights are scaled so that a stage's share is about this much."""
CLOSE_RISE, JUMP = 0.0002, 0.004
"""Stop when what the program can and cannot refute are this close; try the whole rest at once when it is this small."""
STAY_RISE = (0.95, 0.85, 0.7, 0.5)
"""How much of the best weights is in the next, in turn: those of a program that lacks columns are wild."""
SETS = 10
"""The heaviest sets of one search that the master gets."""
RUNS_RISE, LENGTH, MANY_RISE = 20, 4, 60
"""Annealing for more sets: runs, steps of each per piece, sets at most."""
LIGHT_RISE = 0.3
"""Of annealing, sets are wanted from this far between weight 1 in the master (0) and a stage's share (1)."""
DEAR = 10_000_000
"""A search along the tree that looks at so many pairs waits until annealing finds nothing."""
SELDOM = 16
"""Rounds without annealing after it found nothing, at most."""
MOST, KEEP = 8, 4
"""Sets per piece above which a master is renewed, and how many stay."""
FIRST, NEXT, LOWER = 0.4, 0.2, 0.5
"""The first target, the next after a proof, and after a target that is too high or hard: share of the way up."""
SHARE_RISE = 0.25
"""Of the budget, for one target."""
ROUND_RISE = 50
"""Nodes that a round counts for beside those of its searches, where work is limited."""


def rise(prover: Prover, start_blocks: Sequence[Members], seed: int) -> None:
    """Prove better and better bounds until the budget is spent or the program cannot refute more."""
    _Rise(prover, seed).run(start_blocks)


class _Rise:
    def __init__(self, prover: Prover, seed: int) -> None:
        self.prover, self.budget, self.stages, self.n = prover, prover.budget, prover.stages, prover.n
        self.master = Master(self.n, self.stages)
        self.random = np.random.default_rng(seed)
        work = prover.graph.work.astype(np.float64)
        self.centre = work / work.max() if work.any() else np.ones(self.n)
        """The best weights so far, such that no set cheaper than the target weighs more than 1."""
        self.cover = 0.0
        """Sets that these weights show to be needed."""
        self.pause = self.waiting = 0

    def run(self, start_blocks: Sequence[Members]) -> None:
        """Targets go up a part of the way to what is known to be too high."""
        for block in start_blocks:
            self._add(np.asarray(block, np.bool_))
        for piece in range(self.n):
            self._add(np.arange(self.n) == piece)
        low = max(int(self.prover.graph.work.sum()) // self.stages, 1)
        high = self.prover.upper() + 1
        part = FIRST
        while self.budget.spent < 1.0:
            high = min(high, self.prover.upper() + 1)
            low = max(low, self.prover.proved)
            if high - low <= max(1, CLOSE_RISE * high):
                return
            if part == NEXT and self.prover.upper() < high <= (1 + JUMP) * low:
                part = 1.0
            target = min(max(low + int(part * (high - low)), low + int(CLOSE_RISE * high / 2) + 1), high - 1)
            outcome = self._try(target)
            if outcome == ProofOutcome.TOO_HIGH:
                high = target
            part = (
                NEXT if outcome == ProofOutcome.PROVED else LOWER if outcome == ProofOutcome.TOO_HIGH else LOWER * part
            )
            if outcome == ProofOutcome.TOO_HARD and target - low <= CLOSE_RISE * high:
                return

    def _add(self, members: Members) -> bool:
        return self.master.add(members, self.prover.cost(members))

    def _try(self, target: int) -> ProofOutcome:
        """Column generation for one target -> proved, too high (the program covers it), too hard, or stopped."""
        self.prover.aim(target)
        self._renew([])
        self.master.aim(target)
        self.cover = 0.0
        begun, useless, turn = self.budget.spent, 0, 0
        outcome, _ = self._price(self.centre, [], target)
        if outcome != ProofOutcome.FOUND:
            return outcome
        while self.budget.spent < 1.0:
            solved = self.master.solve()
            if solved is None or self.budget.spent > begun + SHARE_RISE:
                return ProofOutcome.TOO_HARD
            count, weights, used = solved
            if count <= self.stages + 1e-6:
                return ProofOutcome.TOO_HIGH
            self.budget.nodes += ROUND_RISE
            used = self._renew(used)
            stay, turn = STAY_RISE[turn % len(STAY_RISE)], turn + 1
            trial = stay * self.centre + (1 - stay) * weights
            if trial.sum() <= self.stages * (1 + 1e-9):
                trial = weights
            outcome, fresh = self._price(trial, used, target)
            if outcome != ProofOutcome.FOUND:
                return outcome
            useless = 0 if fresh else useless + 1
            if useless > len(STAY_RISE):
                return ProofOutcome.TOO_HARD
        return ProofOutcome.STOPPED

    def _renew(self, used: list[int]) -> list[int]:
        """A master with few sets is quick: when it has many, leave out those that the best weights find light.

        Sets in use stay -> their new places.
        """
        old = self.master
        if len(old.cost) < MOST * self.n:
            return used
        heavy = np.array(old.members) @ self.centre
        heavy[used] = np.inf
        self.master = Master(self.n, self.stages)
        self.master.aim(old.target)
        for place in np.argsort(-heavy, kind="stable")[: KEEP * self.n].tolist():
            self.master.add(old.members[place], old.cost[place])
        for piece in range(self.n):
            self._add(np.arange(self.n) == piece)
        return list(range(len(used)))

    def _price(self, trial: NDArray[np.float64], used: list[int], target: int) -> tuple[ProofOutcome, int]:
        """Sets that the master lacks -> found (or how the search ended), and how many are new."""
        share = float(trial.sum()) / self.stages
        pi = whole(trial / share, WEIGHT_RISE)
        least = -(-int(pi.sum()) // self.stages)
        wanted = min(least, max(1, int(WEIGHT_RISE * (1 + LIGHT_RISE * (share - 1)) / share)))
        fresh, heavy = self._draw(pi, target, wanted, used)
        if heavy >= least and self.prover.effort > DEAR:
            return ProofOutcome.FOUND, fresh
        outcome, heaviest, found = self.prover.heaviest(pi, least, target, self.budget.nodes_of(SHARE_RISE))
        if outcome == ProofOutcome.PROVED:
            self.centre = trial
        if outcome == ProofOutcome.TOO_HARD:
            return (ProofOutcome.FOUND if fresh else outcome), fresh
        if outcome == ProofOutcome.FOUND and int(pi.sum()) > self.cover * heaviest:
            self.cover = int(pi.sum()) / heaviest
            self.centre = trial / share * (WEIGHT_RISE / heaviest)
        return outcome, fresh + sum([self._add(members) for members in found[:SETS]])

    def _draw(self, pi: Ints, target: int, wanted: int, used: list[int]) -> tuple[int, int]:
        """Anneal from sets in use -> number of new sets, largest weight; less and less often when there are none."""
        if self.waiting > 0:
            self.waiting -= 1
            return 0, 0
        prover = self.prover
        starts = pack(np.array([self.master.members[i] for i in used] or [np.zeros(self.n, np.bool_)]))
        found = np.zeros((MANY_RISE, prover.words), np.uint64)
        seed = int(self.random.integers(2**31))
        count = draw_sets(
            prover.graph, pi, target, wanted, starts, RUNS_RISE, LENGTH * self.n, seed, found, prover.stop
        )
        sets = [members for members in prover.members(found[:count]) if self._add(members)]
        fresh = len(sets)
        self.pause = 0 if fresh > 1 else min(SELDOM, 2 * self.pause + 1)
        self.waiting = self.pause
        return fresh, max((int(pi[members].sum()) for members in sets), default=0)
