"""One proof: that no convex set of enough weight is cheaper than a target; with what all such proofs share.

In: Pieces of equal devices, number of stages. Out: proved (told by `on_bound` with a witness), sets that contradict, or
too hard for the nodes allowed. Costs are scaled down here; bounds are scaled back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import cached_property
from time import monotonic

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.fronts import FRONT_PAIRS, FRONT_PRICE, Fronts, last_front, make_fronts
from weftline.pipeline.convex.graph import COST_PRECISION, Bits, ConvexGraph, make_graph
from weftline.pipeline.convex.search import (
    BOX_FOUND,
    BOX_MULTIPLIER,
    BOX_NODES,
    BOX_TARGET,
    SearchQuery,
    find_conflicts,
    search,
)
from weftline.pipeline.convex.state import ConvexState, make_state
from weftline.pipeline.convex.tree import HALF_UNITS, Tree, make_tree
from weftline.pipeline.pieces import Pieces

__all__ = ["Members", "OnBound", "ProofBudget", "ProofOutcome", "Prover"]

OnBound = Callable[[int, dict[str, object]], None]
"""(bound in ns, witness): called for each better proved bound."""
Members = NDArray[np.bool_]
FRONT_BUCKETS = 1024
PAIRS_PER_NODE, PAIRS_PER_ROW = 5000, 20
"""Pairs along a tree that count as one node of branch and bound; pairs that a row counts for."""
DEEPEST_ROW = 200
"""Rows of the search: pieces decided to be in, one after another."""


class ProofOutcome(Enum):
    """How the search for a proof of one target ended."""

    PROVED = auto()
    """No set contradicts the target: it is a bound."""
    FOUND = auto()
    """Sets contradict the weights; others may still prove the target."""
    TOO_HIGH = auto()
    """The covering program has enough sets: no weights prove the target."""
    TOO_HARD = auto()
    """The nodes allowed were spent."""
    STOPPED = auto()
    """The whole budget was spent."""


@dataclass
class ProofBudget:
    """Time, or nodes of branch and bound; whichever is given."""

    work: int | None
    seconds: float | None
    stop: NDArray[np.int64]
    nodes: int = 0
    rate: float = 5_000.0
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
        """Nodes that a share of the whole budget buys, at most what is left of it."""
        if self.work is not None:
            return max(1, int(min(share, 1.0 - self.spent) * self.work))
        if self.seconds is None:
            return 1_000_000
        return max(100, int(min(share, 1.0 - self.spent) * self.seconds * self.rate))

    def count(self, nodes: int, seconds: float) -> None:
        """Nodes that were spent; a few more for the flows before the first."""
        self.nodes += nodes + 20
        if nodes > 500:
            self.rate = nodes / max(1e-6, seconds)


class Prover:
    """The arrays of one problem, pairs that no set holds, and the search."""

    def __init__(
        self,
        pieces: Pieces,
        stages: int,
        upper: Callable[[], int],
        stop: NDArray[np.int64],
        budget: ProofBudget,
        on_bound: OnBound,
    ) -> None:
        self.stages, self.stop, self.budget, self.on_bound = stages, stop, budget, on_bound
        self.divisor = max(1, upper() // COST_PRECISION)
        self._upper = upper
        self.graph: ConvexGraph = make_graph(pieces, self.divisor)
        self.n = len(self.graph.work)
        self.words = self.graph.before.shape[1]
        self.state: ConvexState = make_state(self.graph, min(self.n, DEEPEST_ROW) + 2)
        self.gain = np.full(self.n, 0.3)
        self.conflict: Bits = np.zeros((self.n, self.words), np.uint64)
        self.target = -1
        self.multiplier = 4096
        self.proved = 0
        self.pieces = pieces
        self.effort = 0
        """Pairs that the last search along the tree looked at, and its rows."""

    @cached_property
    def tree(self) -> Tree | None:
        """How the graph falls apart, if it does."""
        return make_tree(self.pieces, self.graph)

    @cached_property
    def fronts(self) -> Fronts | None:
        """Space for searches along the tree."""
        return None if self.tree is None else make_fronts(self.tree, self.words, FRONT_BUCKETS)

    def upper(self) -> int:
        """Best known value in scaled units."""
        return self._upper() // self.divisor

    def cost(self, members: Members) -> int:
        """f of a set in scaled units."""
        graph = self.graph
        total = int(graph.work[members].sum())
        if not len(graph.maker):
            return total
        inside = np.add.reduceat(members[graph.reader_of].astype(np.int64), graph.reader_ptr[:-1])
        made = members[graph.maker]
        out, into = made & (inside < np.diff(graph.reader_ptr)), ~made & (inside > 0)
        return total + int(graph.leave[out].sum() + graph.enter[into].sum())

    def aim(self, target: int) -> None:
        """Find the pairs that no set cheaper than the target holds; those of a higher target hold for a lower one."""
        if target > self.target:
            self.conflict[:] = 0
        self.target = target
        if self.tree is not None:
            return
        find_conflicts(self.graph, target, self.state, self.conflict, self.stop)

    def prove(self, weights: Ints, least: int, target: int, limit: int) -> tuple[ProofOutcome, list[Members]]:
        """Search -> proved, found (and what), or too hard. `aim` was called with a target at least as high."""
        if self.tree is not None:
            outcome, _, found = self.heaviest(weights, least, target, limit)
            return outcome if found or outcome != ProofOutcome.FOUND else ProofOutcome.TOO_HARD, found
        box = np.array([target, least, 0, 0, limit, 0, 3000, self.multiplier], np.int64)
        status, found = self._search(weights, np.zeros(self.words, np.uint64), box, 30)
        self.multiplier = max(1, int(box[BOX_MULTIPLIER]))
        if found:
            return ProofOutcome.FOUND, found
        if status != 0:
            return ProofOutcome.TOO_HARD, []
        self.tell(weights, target)
        return ProofOutcome.PROVED, []

    def heaviest(self, weights: Ints, least: int, target: int, limit: int) -> tuple[ProofOutcome, int, list[Members]]:
        """Along the tree: proved, found or too hard; the largest weight below the target; sets, the heaviest first.

        The cheapest set that is heavy enough gives a bound, if not the target.
        """
        assert self.tree is not None
        assert self.fronts is not None
        fronts = self.fronts
        box = np.array([HALF_UNITS * target, least, 0, PAIRS_PER_NODE * limit, self.multiplier], np.int64)
        begun = monotonic()
        count = last_front(self.tree, weights, fronts, box, self.stop)
        self.effort = int(box[FRONT_PAIRS]) + PAIRS_PER_ROW * len(self.tree.cost)
        self.budget.count(self.effort // PAIRS_PER_NODE, monotonic() - begun)
        self.multiplier = max(1, int(box[FRONT_PRICE]))
        if count < 0:
            return ProofOutcome.TOO_HARD, 0, []
        heavy = np.flatnonzero(fronts.weight[:count] >= least)
        if not len(heavy):
            self.tell(weights, target)
            return ProofOutcome.PROVED, 0, []
        self.tell(weights, -(-int(fronts.cost[heavy[0]]) // HALF_UNITS))
        found = [m for m in self.members(fronts.members[heavy[::-1]]) if self.cost(m) < target]
        return ProofOutcome.FOUND, int(fronts.weight[heavy[-1]]), found

    def cheapest_with(
        self, piece: int, target: int, limit: int, *, exact: bool
    ) -> tuple[ProofOutcome, int, list[Members]]:
        """The cheapest convex set with a piece, if below the target -> (proved or not, its cost or the target, it)."""
        forced = np.zeros(self.words, np.uint64)
        forced[piece >> 6] = np.uint64(1) << np.uint64(piece & 63)
        box = np.array([target, 0, 0, 0, limit, int(exact), 0, 0], np.int64)
        status, found = self._search(np.zeros(self.n, np.int64), forced, box, 1)
        return (ProofOutcome.PROVED if status == 0 else ProofOutcome.TOO_HARD), int(box[BOX_TARGET]), found

    def tell(self, weights: Ints, target: int) -> None:
        """A proved bound, if it is the best so far."""
        if target <= self.proved:
            return
        self.proved = target
        witness: dict[str, object] = {
            "kind": "convex-set",
            "stages": self.stages,
            "scale": self.divisor,
            "target": target,
            "weights": weights.tolist(),
        }
        self.on_bound(target * self.divisor, witness)

    def _search(self, weights: Ints, forced: Bits, box: Ints, most: int) -> tuple[int, list[Members]]:
        found = np.zeros((most, self.words), np.uint64)
        begun = monotonic()
        query = SearchQuery(weights, self.conflict, box, found, self.gain)
        status = search(self.graph, query, forced, self.state, self.stop)
        self.budget.count(int(box[BOX_NODES]), monotonic() - begun)
        return int(status), self.members(found[: box[BOX_FOUND]])

    def members(self, found: Bits) -> list[Members]:
        """Bit rows -> boolean rows."""
        bits = np.unpackbits(found.astype("<u8").view(np.uint8), axis=-1, bitorder="little")
        return [row[: self.n].astype(np.bool_) for row in bits.reshape(len(found), self.words * 64)]
