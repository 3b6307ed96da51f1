"""Graphs of which a chain holds only a part: cases by the device of a hub, bounded and planned beside each other.

In: a search, the blocks of a chain, the hub. `bound_chain` bounds the chain for every device of the hub; `begin` plans
its blocks and joins them, with the ops beside the chain on one device, and solves first programs of what is left;
`go_on` divides cases until the bound meets the best plan. Ways that a program is certain of are planned too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound
from weftline.graph.arrays import Indices
from weftline.latency.blocks.decomposition import BOUNDED, PLANNED, Decomposition, Held
from weftline.latency.blocks.hub.program import Hub, Step, make_hub, pick_hub
from weftline.latency.blocks.hub.search import Mixture, SideSearch
from weftline.latency.blocks.join import Way, join
from weftline.latency.blocks.spans import walk
from weftline.latency.blocks.windows import NEVER
from weftline.search import Search

__all__ = ["Branching", "claim", "offer_joined"]

POLISH = 5
"""Every so many turns blocks are annealed again, in the others cases are divided."""
MOST_STEPS = 50
"""Turns under a work limit, where nothing else says when it is enough."""


def claim(search: Search, bound: int, name: str) -> None:
    """A bound, as far as it matters."""
    upper = NEVER // 4 if search.best is None else search.best.value
    if bound > 0:
        search.offer_bound(Bound(min(bound, upper), name, seconds=search.seconds))


def offer_joined(search: Search, work: Decomposition, way: Way, rests: list[Indices]) -> int:
    """Plans of blocks along a way, with each of several placements of the ops beside them -> the least latency."""
    least = NEVER
    for rest in rests:
        found = None if search.is_over else join(work, way, rest)
        value = None if found is None else search.offer(found[0], actions=found[1])
        least = least if value is None else min(least, value)
    return least


class Branching:
    """One case for every device of the hub, and cases of cases."""

    def __init__(self, search: Search, work: Decomposition, hub: Hub, until: Callable[[], bool] | None = None) -> None:
        self._search, self._work, self._hub = search, work, hub
        self.until = until
        self._cases = SideSearch(work.table, hub, work.segments, work.lengths, self._raised)
        devices = np.flatnonzero(work.table.time[hub.op] >= 0).tolist()
        self._held: list[Held] = [{hub.place: device} for device in devices]
        self._chain_bound = 0
        self._best: Way | None = None
        self._sides: dict[int, Indices] = {}
        """Device of the hub -> where the last program had the ops beside the chain."""
        self._shortest = NEVER
        self._more = True
        """Blocks of the best way may still be annealed."""

    @staticmethod
    def of(search: Search, before: NDArray[np.bool_], work: Decomposition, most: int) -> Branching | None:
        """None if nothing jumps over the chain."""
        found = pick_hub(work.table, before, work.chain, most)
        hub = None if found is None else make_hub(before, found[1], found[0])
        if found is None or hub is None:
            return None
        if found[1].ops != work.chain.ops:
            work = Decomposition.of(work.table, search.problem.group, found[1], search.seed, work)
        return Branching(search, work, hub)

    @property
    def work(self) -> Decomposition:
        """The blocks of the chain with the hub in it."""
        return self._work

    @property
    def bound(self) -> int:
        """No plan is shorter, as far as that matters."""
        return self._cases.bound(self._upper)

    @property
    def gain(self) -> int:
        """By how much programs have raised the bound of the chain alone."""
        return self.bound - self._chain_bound

    def bound_chain(self) -> None:
        """Bounds of the chain alone, with the hub on each device."""
        for held in self._held:
            self._work_until(BOUNDED, held)
        self._cases.refresh()
        self._chain_bound = self.bound
        claim(self._search, self.bound, "hub")

    def begin(self) -> None:
        """Plans of the chain with the hub on each device, and programs of the lowest cases."""
        for held in sorted(self._held, key=self._work.bound):
            if self._work.bound(held) < self._upper and not self._over():
                self._work_until(PLANNED, held)
                self._plan(walk(self._work.lengths(held)))
                known = self._work.known_way(held)
                if known is not None:
                    self._plan(known[0])
        for _ in self._held:
            self._step()

    def go_on(self) -> None:
        """Divide cases while that may raise the bound, and anneal the blocks of the best way now and then.

        Without any plan to compare with there is nothing to do.
        """
        turn = 0
        most = MOST_STEPS if self._search.work_limit is not None else NEVER
        while not self._over() and self._search.best is not None:
            if not self._more and self._cases.is_over(self._upper):
                return
            if self._more and (turn % POLISH == 0 or self._cases.is_over(self._upper)):
                self._polish()
            elif turn >= most:
                return
            else:
                self._step()
            turn += 1

    def _polish(self) -> None:
        """Anneal the blocks of the best way again, as long as there is anything to do."""
        if self._best is None:
            self._more = False
            return
        self._more = self._work.polish(self._best, self._over)
        if self._more:
            self._plan(self._best)

    def _step(self) -> None:
        if self._over() or self._search.best is None or self._cases.is_over(self._upper):
            return
        mixture = self._cases.step(self._upper, self._over)
        claim(self._search, self.bound, "hub")
        if mixture is not None and (mixture.certain or len(mixture.held) == 1):
            self._plan_mixture(mixture)

    def _plan_mixture(self, mixture: Mixture) -> None:
        way = [(0, int(mixture.devices[0])), *pairwise(mixture.devices.tolist()), (int(mixture.devices[-1]), 0)]
        lengths = self._work.lengths()
        if sum(int(lengths[b][step]) for b, step in enumerate(way)) < self._upper:
            for b, step in enumerate(way):
                while self._work.stage(b, *step) < PLANNED and not self._over():
                    self._work.work_on(b, *step, self._upper, self._over, exact_work=True)
            self._sides[mixture.held[self._hub.place]] = mixture.side
            self._plan(way)

    def plan_known(self) -> None:
        """Offer what the shortest known plans of blocks give."""
        known = self._work.known_way()
        if known is not None and not self._over():
            self._plan(known[0])

    def _plan(self, way: Way) -> None:
        """Offer what the blocks of a way give."""
        shortest = offer_joined(self._search, self._work, way, self._rests(way))
        if shortest < self._shortest:
            self._more = self._more or self._best != way
            self._best, self._shortest = way, shortest

    def _rests(self, way: Way) -> list[Indices]:
        """Side ops on one device, where they are now, and where a program had them."""
        device, time = way[self._hub.place][1], self._work.table.time
        rests = [np.full(len(time), d, np.int32) for d in np.flatnonzero((time[list(self._hub.side)] >= 0).all(axis=0))]
        if self._search.best is not None:
            rests.append(self._search.best.placement)
        if device in self._sides:
            rests.append(rests[-1].copy())
            rests[-1][list(self._hub.side)] = self._sides[device]
        return rests

    def _work_until(self, stage: int, held: Held) -> None:
        """Work on the shortest way with the hub there until all of it has reached a stage."""
        while not self._over():
            steps = self._work.next_round(self._upper, held)
            if not steps or self._work.stage(*steps[0]) >= stage:
                return
            for step in steps:
                if not self._over():
                    self._work.work_on(*step, self._upper, self._over, exact_work=True, held=held)

    def _raised(self, step: Step, held: Mapping[int, int]) -> int:
        while self._work.stage(*step) < BOUNDED and not self._over():
            self._work.work_on(*step, self._upper, self._over, exact_work=True, held=held)
        return self._work.arc(self._work.segments[step[0]], *step[1:]).low

    @property
    def _upper(self) -> int:
        return NEVER // 4 if self._search.best is None else self._search.best.value

    def _over(self) -> bool:
        return self._search.is_over or (self.until is not None and self.until())
