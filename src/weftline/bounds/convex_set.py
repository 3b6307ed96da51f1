"""The weighted convex-set bound for pipelines of equal devices.

For any integer weights pi: in k blocks that share out all pieces, some block has pi(S) >= least = ceil(pi(V) / k). So if
no convex S has f(S) < T and pi(S) >= least, no pipeline is better than T. Good weights are duals of a covering program
whose columns are convex sets; the search over sets is the proof. In: Pieces, number of stages. Out: bounds by
`on_bound`, each with the witness (stages, scale, target, weights). Anytime: better and better until stopped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from weftline.bounds.convex_graph import MOST_PIECES, PRECISION, Bits, Graph, make_graph, pack
from weftline.bounds.convex_master import Master, Members, whole
from weftline.bounds.convex_pool import draw_sets
from weftline.bounds.convex_search import find_conflicts, search
from weftline.bounds.convex_state import State, make_state
from weftline.coarsen.pieces import Pieces
from weftline.graph.arrays import Ints

__all__ = ["OnBound", "convex_set_bound"]

import os
E = os.environ.get
OnBound = Callable[[int, dict[str, object]], None]
WEIGHT = 2**20
"""Weights are scaled so that a stage's share is about this much."""
CLOSE = 0.006
"""Stop when what the program can and cannot refute are this close."""
SHORT, LONG = 1500, 0.25
"""Nodes of a first search, and the share of the budget for the one that proves."""
RUNS = 160.0
"""Annealing runs per round, divided by their length."""
ALMOST = 0.995
"""Of the best known value: the last target."""


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
    _Driver(pieces, stages, upper, stop, _Budget(work, seconds, stop), seed, on_bound).run(start_blocks)


@dataclass
class _Budget:
    """Time, or nodes of branch and bound."""

    work: int | None
    seconds: float | None
    stop: NDArray[np.int64]
    nodes: int = 0
    rate: float = 20_000.0
    """Nodes per second, as measured."""
    begun: float = field(default_factory=monotonic)

    @property
    def spent(self) -> float:
        """Share of the budget, 1 = all."""
        if self.stop[0] != 0:
            return 1.0
        if self.work is not None:
            return self.nodes / max(1, self.work)
        if self.seconds is not None:
            return (monotonic() - self.begun) / max(1e-9, self.seconds)
        return 0.0

    def nodes_of(self, share: float) -> int:
        """Nodes that a share of the whole budget buys."""
        if self.work is not None:
            return max(100, int(share * self.work))
        return max(100, int(share * (self.seconds or 60.0) * self.rate))


class _Driver:
    def __init__(
        self,
        pieces: Pieces,
        stages: int,
        upper: Callable[[], int],
        stop: NDArray[np.int64],
        budget: _Budget,
        seed: int,
        on_bound: OnBound,
    ) -> None:
        self.stages, self.stop, self.budget, self.on_bound = stages, stop, budget, on_bound
        self.divisor = max(1, upper() // PRECISION)
        self.upper = lambda: upper() // self.divisor
        self.graph: Graph = make_graph(pieces, self.divisor)
        self.n = len(self.graph.work)
        self.words = self.graph.before.shape[1]
        self.state: State = make_state(self.graph, min(self.n, 200) + 2)
        self.master = Master(self.n, stages)
        self.random = np.random.default_rng(seed)
        self.gain = np.full(self.n, 0.3)
        self.conflict: Bits = np.zeros((self.n, self.words), np.uint64)
        self.conflict_target = -1
        self.multiplier = 4096
        self.proved = 0
        self.length = 4.0
        self.centre: NDArray[np.float64] | None = None

    def run(self, start_blocks: Sequence[Members]) -> None:
        """Solve the master, price, prove; choose the next target."""
        for block in start_blocks:
            self._add(np.asarray(block, np.bool_))
        for piece in range(self.n):
            self._add(np.arange(self.n) == piece)
        low = max(int(self.graph.work.sum()) // self.stages, 1)
        high = self.upper() + 1
        target = (2 * low + 3 * high) // 5
        while self.budget.spent < 1.0:
            high = min(high, self.upper() + 1)
            goal = int(ALMOST * self.upper())
            low = max(low, self.proved)
            if low >= goal or high - low <= CLOSE * high:
                return
            target = max(min(target, goal), low + 1)
            outcome = self._try(target)
            if outcome == "too high":
                high = min(high, target)
            # Far below the best known value a target is easy, near it hard: go there in shrinking steps.
            share = {"proved": 0.5, "too high": 0.6, "too hard": 0.4}.get(outcome, 0.5)
            top = min(high, target) if outcome == "too hard" else high
            target = max(low, self.proved) + int(share * (top - max(low, self.proved)))

    def _add(self, members: Members) -> bool:
        return self.master.add(members, self._cost(members))

    def _cost(self, members: Members) -> int:
        graph = self.graph
        inside = np.add.reduceat(members[graph.reader_of].astype(np.int64), graph.reader_ptr[:-1]) if len(graph.maker) else np.zeros(0, np.int64)
        made = members[graph.maker]
        out = made & (inside < np.diff(graph.reader_ptr))
        into = ~made & (inside > 0)
        return int(graph.work[members].sum() + graph.leave[out].sum() + graph.enter[into].sum())

    def _try(self, target: int) -> str:
        """Column generation for one target -> proved, too high (the program covers it), too hard, or stopped."""
        if self.conflict_target < 0 or target < self.conflict_target:
            self.conflict[:] = 0
        self.conflict_target = target
        self.master.aim(target)
        self.centre = None
        find_conflicts(self.graph, target, self.state, self.conflict, self.stop)
        rounds = 0
        while self.budget.spent < 1.0:
            rounds += 1
            solved = self.master.solve()
            if solved is None:
                return "too hard"
            count, weights, used = solved
            if count <= self.stages + 1e-6:
                return "too high"
            outcome = self._price(weights, used, target)
            if outcome != "found":
                return outcome
        return "stopped"

    def _price(self, weights: NDArray[np.float64], used: list[int], target: int) -> str:
        """Sets that the master lacks: by annealing, then by a short search, then by the search that proves."""
        al = float(E('AL','.5'))
        trial = weights if self.centre is None else (1 - al) * weights + al * self.centre
        total = float(trial.sum()) / self.stages
        if total <= 1 + 1e-9:
            trial, total = weights, float(weights.sum()) / self.stages
        self.centre = trial
        pi = whole(trial / total, WEIGHT)
        least = -(-int(pi.sum()) // self.stages)
        # In units of the master a set of weight 1 is used fully; the proof only needs those of a stage's share.
        wanted = min(least, max(1, int(WEIGHT * (1 + 0.6 * (total - 1)) / total)))
        if self._draw(pi, target, wanted, used):
            self.length = max(2.0, 0.85 * self.length)
            return "found"
        outcome = self._prove(pi, least, target, SHORT)
        if outcome == "too hard":
            outcome = self._prove(pi, least, target, self.budget.nodes_of(LONG))
        if outcome == "found":  # annealing should have found it
            self.length = min(200.0, 1.7 * self.length)
        return outcome

    def _draw(self, pi: Ints, target: int, wanted: int, used: list[int]) -> int:
        starts = pack(np.array([self.master.members[i] for i in used] or [np.zeros(self.n, np.bool_)]))
        found = np.zeros((80, self.words), np.uint64)
        seed = int(self.random.integers(2**31))
        runs, length = max(8, int(RUNS / self.length)), int(self.length * self.n)
        count = draw_sets(self.graph, pi, target, wanted, starts, runs, length, seed, found, self.stop)
        return sum(self._add(members) for members in self._members(found[:count]))

    def _members(self, found: Bits) -> list[Members]:
        bits = np.unpackbits(found.astype("<u8").view(np.uint8), axis=-1, bitorder="little")
        return [row[: self.n].astype(np.bool_) for row in bits.reshape(len(found), self.words * 64)]

    def _prove(self, pi: Ints, least: int, target: int, limit: int) -> str:
        box = np.array([target, least, 0, 0, limit, 0, 3000, self.multiplier], np.int64)
        found = np.zeros((30, self.words), np.uint64)
        begun = monotonic()
        forced = np.zeros(self.words, np.uint64)
        status = search(
            self.graph, pi, self.conflict, forced, self.state, box, found, self.gain, self.stop
        )
        nodes = int(box[2])
        self.budget.nodes += nodes + 100
        if nodes > 1000:
            self.budget.rate = nodes / max(1e-6, monotonic() - begun)
        self.multiplier = max(1, int(box[7]))
        if box[3] > 0:
            return "found" if sum(self._add(members) for members in self._members(found[: box[3]])) else "too hard"
        if status != 0:
            return "stopped" if self.stop[0] != 0 else "too hard"
        self.proved = target
        witness: dict[str, object] = {
            "kind": "convex-set",
            "stages": self.stages,
            "scale": self.divisor,
            "target": target,
            "weights": pi.tolist(),
        }
        self.on_bound(target * self.divisor, witness)
        return "proved"
