"""The weighted convex-set bound for pipelines of equal devices.

For any integer weights pi: in k stages that share out all pieces, some stage S has pi(S) >= least = ceil(pi(V) / k). So
if no convex S has f(S) < T and pi(S) >= least, no pipeline is better than T. Good weights are duals of a covering
program whose columns are convex sets; the search over sets is the proof. In: Pieces, number of stages. Out: bounds by
`on_bound`, each with the witness (stages, scale, target, weights). Anytime: better and better until stopped.

Where the search over sets goes along a tree, each search is exact and quick (`_Rise`). So every round asks for the
heaviest sets under weights between the master's and the best ones so far (a set that does not contradict the best
weights moves them), and every answer is a bound: the cheapest set that is heavy enough.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.columns import Drawing, Master, draw_sets, whole
from weftline.pipeline.convex.graph import MOST_PIECES, pack
from weftline.pipeline.convex.prove import Members, OnBound, ProofBudget, ProofOutcome, Prover
from weftline.pipeline.pieces import Pieces

__all__ = ["ConvexSetParameters", "OnBound", "convex_set_bound"]

SHARE_WEIGHT = 2**20
"""Weights are scaled so that a stage's share is about this much."""
TREE_STAYS = (0.95, 0.85, 0.7, 0.5)
"""How much of the best weights is in the next, in turn: those of a program that lacks columns are wild."""


@dataclass(frozen=True)
class ConvexSetParameters:
    """Numbers of the bound: `tree_*` where the search over sets goes along a tree, `branch_*` where it branches."""

    light_share: float = 0.3
    """Of annealing, sets are wanted from this far between weight 1 in the master (0) and a stage's share (1)."""
    branch_close: float = 0.006
    """Stop when what the program can and cannot refute are this close."""
    branch_last_target: float = 0.995
    """Of the best known value."""
    branch_first_nodes: int = 1500
    """Of a first search."""
    branch_runs: float = 320.0
    """Annealing runs per round, divided by their length."""
    branch_most_sets: int = 100
    """Of one round of annealing."""
    branch_patience: int = 3
    """Rounds without a set that disproves the target, after which a short search tries to prove it."""
    branch_share_of_budget: float = 0.2
    """For one target."""
    branch_least_step: float = 0.006
    """Between targets."""
    branch_round_nodes: int = 200
    """That a round counts for beside those of its searches, where work is limited."""
    branch_stay: float = 0.6
    """How much of the last weights is kept in the next: duals of a program that lacks columns are wild."""
    tree_close: float = 0.0002
    """Stop when what the program can and cannot refute are this close."""
    tree_jump: float = 0.004
    """Try the whole rest at once when it is this small."""
    tree_sets: int = 10
    """The heaviest sets of one search that the master gets."""
    tree_runs: int = 20
    """Of annealing for more sets."""
    tree_run_steps: int = 4
    """Of each run, per piece."""
    tree_most_sets: int = 60
    """Of one round of annealing."""
    tree_costly_pairs: int = 10_000_000
    """A search along the tree that looks at so many pairs waits until annealing finds nothing."""
    tree_most_pause: int = 16
    """Rounds without annealing after it found nothing."""
    tree_master_sets: int = 8
    """Per piece, above which a master is renewed."""
    tree_kept_sets: int = 4
    """Per piece, in a master that is renewed."""
    tree_first_target: float = 0.4
    """Share of the range between what is proved and what is too high."""
    tree_next_target: float = 0.2
    """The same after a proof."""
    tree_lower_target: float = 0.5
    """The same after a target that is too high; a factor after one that is too hard."""
    tree_share_of_budget: float = 0.25
    """For one target."""
    tree_round_nodes: int = 50
    """That a round counts for beside those of its searches, where work is limited."""


def convex_set_bound(
    pieces: Pieces,
    stages: int,
    upper: Callable[[], int],
    *,
    start_sets: Sequence[NDArray[np.bool_]] = (),
    stop: NDArray[np.int64],
    work: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    on_bound: OnBound,
    parameters: ConvexSetParameters = ConvexSetParameters(),
) -> None:
    """Prove better and better bounds until time, work (nodes of branch and bound) or `stop` ends it."""
    if len(pieces.time) > MOST_PIECES or stages < 1 or upper() <= 0:
        return
    prover = Prover(pieces, stages, upper, stop, ProofBudget(work, seconds, stop), on_bound)
    driver = _Driver if prover.tree is None else _Rise
    driver(prover, seed, parameters).run(start_sets)


class _Columns:
    """Column generation: a master program, and a prover to ask for sets that it lacks."""

    def __init__(self, prover: Prover, seed: int, parameters: ConvexSetParameters) -> None:
        self.prover, self.budget, self.stages, self.n = prover, prover.budget, prover.stages, prover.n
        self.parameters = parameters
        self.master = Master(self.n, self.stages)
        self.random = np.random.default_rng(seed)

    def begin(self, start_sets: Sequence[Members]) -> tuple[int, int]:
        """First sets -> a target that is too low, and one that is too high."""
        for members in start_sets:
            self.add(np.asarray(members, np.bool_))
        for piece in range(self.n):
            self.add(np.arange(self.n) == piece)
        low = max(int(self.prover.graph.work.sum()) // self.stages, 1)
        return low, self.prover.upper() + 1

    def add(self, members: Members) -> bool:
        """A set -> False if it is known."""
        return self.master.add(members, self.prover.cost(members))

    def wanted(self, pi: Ints, share: float) -> tuple[int, int]:
        """A stage's share of the weight, and the weight from which annealing is to find sets.

        In units of the master a set of weight 1 is used fully. Those lighter than a stage's share do no harm to the
        proof, but they help the weights to settle.
        """
        least = -(-int(pi.sum()) // self.stages)
        light = int(SHARE_WEIGHT * (1 + self.parameters.light_share * (share - 1)) / share)
        return least, min(least, max(1, light))

    def drawn(self, drawing: Drawing, used: list[int], most: int) -> list[Members]:
        """Anneal from sets in use -> at most so many sets."""
        prover = self.prover
        starts = pack(np.array([self.master.members[i] for i in used] or [np.zeros(self.n, np.bool_)]))
        found = np.zeros((most, prover.words), np.uint64)
        count = draw_sets(prover.graph, drawing, starts, int(self.random.integers(2**31)), found, prover.stop)
        return prover.members(found[:count])


class _Driver(_Columns):
    """Where the search over sets branches: sets come from annealing first, proofs are expensive."""

    def __init__(self, prover: Prover, seed: int, parameters: ConvexSetParameters) -> None:
        super().__init__(prover, seed, parameters)
        self.length = 4.0
        self.quiet = 0
        self.share = parameters.branch_share_of_budget
        self.centre: NDArray[np.float64] | None = None

    def run(self, start_sets: Sequence[Members]) -> None:
        """Try targets: far below the best known value they are easy, near it hard; go there in shrinking steps."""
        low, high = self.begin(start_sets)
        target = (3 * low + 2 * high) // 5
        while self.budget.spent < 1.0:
            high = min(high, self.prover.upper() + 1)
            goal = int(self.parameters.branch_last_target * self.prover.upper())
            low = max(low, self.prover.proved)
            if low >= goal or high - low <= max(1, self.parameters.branch_close * high):
                return
            target = max(min(target, goal), low + 1)
            outcome = self._try(target)
            if outcome == ProofOutcome.TOO_HIGH:
                high = min(high, target)
            # What was too hard gets more the next time, and no time goes into steps that are not worth it.
            too_hard = outcome == ProofOutcome.TOO_HARD
            self.share = min(1.0, 1.5 * self.share) if too_hard else self.parameters.branch_share_of_budget
            low = max(low, self.prover.proved)
            top = min(high, target) if too_hard else high
            target = low + int({ProofOutcome.TOO_HIGH: 0.6, ProofOutcome.TOO_HARD: 0.4}.get(outcome, 0.5) * (top - low))
            target = max(target, min(int(low * (1 + self.parameters.branch_least_step)), (low + high) // 2))

    def _try(self, target: int) -> ProofOutcome:
        """Column generation for one target -> proved, too high (the program covers it), too hard, or stopped."""
        self.budget.nodes += self.parameters.branch_round_nodes
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
            self.budget.nodes += self.parameters.branch_round_nodes
            outcome = self._price(weights, used, target)
            if outcome != ProofOutcome.FOUND:
                return outcome
        return ProofOutcome.STOPPED

    def _price(self, weights: NDArray[np.float64], used: list[int], target: int) -> ProofOutcome:
        """Sets that the master lacks: by annealing, then by a short search, then by the search that proves."""
        stay = self.parameters.branch_stay
        trial = weights if self.centre is None else (1 - stay) * weights + stay * self.centre
        total = float(trial.sum()) / self.stages
        if total <= 1 + 1e-9:
            trial, total = weights, float(weights.sum()) / self.stages
        self.centre = trial
        pi = whole(trial / total, SHARE_WEIGHT)
        least, wanted = self.wanted(pi, total)
        fresh, heaviest = self._draw(pi, target, wanted, used)
        if fresh >= self.parameters.branch_most_sets // 10:
            self.length = max(2.0, 0.85 * self.length)
        self.quiet = 0 if heaviest >= least else self.quiet + 1
        if fresh and self.quiet < self.parameters.branch_patience:
            return ProofOutcome.FOUND
        self.quiet = 0
        outcome, found = self.prover.prove(pi, least, target, self.parameters.branch_first_nodes)
        if outcome == ProofOutcome.TOO_HARD:
            if fresh:
                return ProofOutcome.FOUND
            outcome, found = self.prover.prove(pi, least, target, self.budget.nodes_of(0.8 * self.share))
        if outcome != ProofOutcome.FOUND:
            return outcome
        self.length = min(200.0, 1.5 * self.length)  # annealing should have found it
        return ProofOutcome.FOUND if sum([self.add(members) for members in found]) + fresh else ProofOutcome.TOO_HARD

    def _draw(self, pi: Ints, target: int, wanted: int, used: list[int]) -> tuple[int, int]:
        """Anneal from sets in use -> number of new sets, largest weight among all that were met."""
        runs, length = max(8, int(self.parameters.branch_runs / self.length)), int(self.length * self.n)
        sets = self.drawn(Drawing(pi, target, wanted, runs, length), used, self.parameters.branch_most_sets)
        return sum([self.add(members) for members in sets]), max(
            (int(pi[members].sum()) for members in sets), default=0
        )


class _Rise(_Columns):
    """Where the search goes along a tree: rising targets, every one asked exactly."""

    def __init__(self, prover: Prover, seed: int, parameters: ConvexSetParameters) -> None:
        super().__init__(prover, seed, parameters)
        work = prover.graph.work.astype(np.float64)
        self.centre = work / work.max() if work.any() else np.ones(self.n)
        """The best weights so far, such that no set cheaper than the target weighs more than 1."""
        self.cover = 0.0
        """Sets that these weights show to be needed."""
        self.pause = self.waiting = 0

    def run(self, start_sets: Sequence[Members]) -> None:
        """Targets go up a part of the range to what is known to be too high."""
        low, high = self.begin(start_sets)
        parameters, part = self.parameters, self.parameters.tree_first_target
        while self.budget.spent < 1.0:
            high = min(high, self.prover.upper() + 1)
            low = max(low, self.prover.proved)
            close = parameters.tree_close * high
            if high - low <= max(1, close):
                return
            if part == parameters.tree_next_target and self.prover.upper() < high <= (1 + parameters.tree_jump) * low:
                part = 1.0
            target = min(max(low + int(part * (high - low)), low + int(close / 2) + 1), high - 1)
            outcome = self._try(target)
            if outcome == ProofOutcome.PROVED:
                part = parameters.tree_next_target
            elif outcome == ProofOutcome.TOO_HIGH:
                high, part = target, parameters.tree_lower_target
            else:
                part = parameters.tree_lower_target * part
            if outcome == ProofOutcome.TOO_HARD and target - low <= close:
                return

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
            if solved is None or self.budget.spent > begun + self.parameters.tree_share_of_budget:
                return ProofOutcome.TOO_HARD
            count, weights, used = solved
            if count <= self.stages + 1e-6:
                return ProofOutcome.TOO_HIGH
            self.budget.nodes += self.parameters.tree_round_nodes
            used = self._renew(used)
            stay, turn = TREE_STAYS[turn % len(TREE_STAYS)], turn + 1
            trial = stay * self.centre + (1 - stay) * weights
            if trial.sum() <= self.stages * (1 + 1e-9):
                trial = weights
            outcome, fresh = self._price(trial, used, target)
            if outcome != ProofOutcome.FOUND:
                return outcome
            useless = 0 if fresh else useless + 1
            if useless > len(TREE_STAYS):
                return ProofOutcome.TOO_HARD
        return ProofOutcome.STOPPED

    def _renew(self, used: list[int]) -> list[int]:
        """A master with few sets is quick: when it has many, leave out those that the best weights find light.

        Sets in use stay -> their new places.
        """
        old = self.master
        if len(old.cost) < self.parameters.tree_master_sets * self.n:
            return used
        heavy = np.array(old.members) @ self.centre
        heavy[used] = np.inf
        self.master = Master(self.n, self.stages)
        self.master.aim(old.target)
        for place in np.argsort(-heavy, kind="stable")[: self.parameters.tree_kept_sets * self.n].tolist():
            self.master.add(old.members[place], old.cost[place])
        for piece in range(self.n):
            self.add(np.arange(self.n) == piece)
        return list(range(len(used)))

    def _price(self, trial: NDArray[np.float64], used: list[int], target: int) -> tuple[ProofOutcome, int]:
        """Sets that the master lacks -> found (or how the search ended), and how many are new."""
        share = float(trial.sum()) / self.stages
        pi = whole(trial / share, SHARE_WEIGHT)
        least, wanted = self.wanted(pi, share)
        fresh, heavy = self._draw(pi, target, wanted, used)
        if heavy >= least and self.prover.effort > self.parameters.tree_costly_pairs:
            return ProofOutcome.FOUND, fresh
        limit = self.budget.nodes_of(self.parameters.tree_share_of_budget)
        outcome, heaviest, found = self.prover.heaviest(pi, least, target, limit)
        if outcome == ProofOutcome.PROVED:
            self.centre = trial
        if outcome == ProofOutcome.TOO_HARD:
            return (ProofOutcome.FOUND if fresh else outcome), fresh
        if outcome == ProofOutcome.FOUND and int(pi.sum()) > self.cover * heaviest:
            self.cover = int(pi.sum()) / heaviest
            self.centre = trial / share * (SHARE_WEIGHT / heaviest)
        return outcome, fresh + sum([self.add(members) for members in found[: self.parameters.tree_sets]])

    def _draw(self, pi: Ints, target: int, wanted: int, used: list[int]) -> tuple[int, int]:
        """Anneal from sets in use -> number of new sets, largest weight; less and less often when there are none."""
        if self.waiting > 0:
            self.waiting -= 1
            return 0, 0
        parameters = self.parameters
        drawing = Drawing(pi, target, wanted, parameters.tree_runs, parameters.tree_run_steps * self.n)
        sets = [members for members in self.drawn(drawing, used, parameters.tree_most_sets) if self.add(members)]
        fresh = len(sets)
        self.pause = 0 if fresh > 1 else min(parameters.tree_most_pause, 2 * self.pause + 1)
        self.waiting = self.pause
        return fresh, max((int(pi[members].sum()) for members in sets), default=0)
