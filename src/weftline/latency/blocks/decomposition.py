"""Blocks of a chain and what is known about them: lower bounds on their lengths, and plans, by devices of their ends.

In: a problem's tables and a chain. Every (block, device before, device after) is an arc; the shortest way by lower
bounds is a bound on the latency, the shortest way by known plans is a plan. `work_on` does the next more dear thing for
an arc: the energetic bound, annealing of the block, CP-SAT with the question whether it can be shorter than a better
plan needs. Arcs with equal costs share their results; arcs that differ in times alone are a guess for each other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.annealer import Annealer
from weftline.latency.blocks.chain import Chain
from weftline.latency.blocks.energetic import FINE_LEVELS, NEAR, Part, least_end, refute
from weftline.latency.blocks.relays import Relayed, with_relays
from weftline.latency.blocks.spans import Segment, distances, make_segments, walk
from weftline.latency.blocks.windows import NEVER
from weftline.latency.exact.order_model import OrderModel
from weftline.problem.model import NO_LIMIT
from weftline.simulate.tables import Tables
from weftline.simulate.timeline import Timeline

__all__ = ["BOUNDED", "EXACT", "LONGEST_BLOCK", "PLANNED", "Decomposition", "Held"]

LEAST_STEPS, PORTION = 20_000, 5_000
"""Of annealing a block at first, and between two looks at whether it still helps."""
MOST_ANNEALED = 5
"""Times that a block is annealed; the least number of steps doubles each time."""
PATIENCE, MOST_STEPS = 3, 300_000
"""It goes on to so many times the steps of its last gain, but not beyond so many."""
TEMPERATURE = 0.016
"""A block is small: one op counts for more of it than of a whole graph."""
EXACT_SECONDS = (2.0, 6.0, 20.0, 60.0)
"""Of CP-SAT on a block, by how often it was tried."""
EXACT_WORK, MOST_EXACT = 1.0, 30
"""Under a work limit: units of deterministic time of a call, and calls."""
LONGEST_BLOCK = 400
"""Ops of a block for CP-SAT."""
OPEN, ROUGH, BOUNDED, PLANNED = 0, 1, 2, 3
"""What was done for an arc; from PLANNED on CP-SAT, more each time."""
EXACT = PLANNED + len(EXACT_SECONDS)
"""All of it."""
ROUGHLY = 0.04
"""How far a first bound may stay below what could be shown."""

Held = Mapping[int, int]
"""Places of ops in the chain, and their devices."""


@dataclass(eq=False)
class Arc:
    """One segment between two devices."""

    low: int
    high: int = NEVER
    plan: Timeline | None = None
    stage: int = OPEN
    annealed: int = 0
    """How often."""


@dataclass(eq=False)
class Decomposition:
    """The segments of a chain and what is known about their arcs."""

    table: Tables
    chain: Chain
    segments: list[Segment]
    relayed: Relayed
    """All of it, with a relay for every transfer."""
    seed: int = 0
    complete: bool = False
    """True if the blocks hold every op and every edge."""
    _calls: int = 0
    _arcs: dict[bytes, dict[tuple[int, int], Arc]] = field(default_factory=dict)
    _like: dict[tuple[bytes, int, int, float], int] = field(default_factory=dict)
    """Shape, devices, how near: the last bound of such an arc, a good guess for the next."""

    @staticmethod
    def of(
        table: Tables, group: Indices, chain: Chain, seed: int = 0, known: Decomposition | None = None
    ) -> Decomposition:
        """Cut a problem along a chain; `known`: along another one, with blocks that may be the same."""
        made = Decomposition(
            table, chain, make_segments(table, group, chain), with_relays(table, group, every=True), seed
        )
        if known is not None:
            made._arcs, made._like = known._arcs, known._like
        held = np.unique(np.concatenate([segment.ops for segment in made.segments])) if made.segments else ()
        edges = sum(len(segment.part.table.edge_tensor) for segment in made.segments)
        made.complete = len(held) == len(table.time) and edges == len(table.edge_tensor)
        for segment in made.segments:
            made._arcs.setdefault(
                segment.signature,
                {(k, j): Arc(int(segment.low[k, j])) for k, j in np.ndindex(*segment.low.shape)},
            )
        return made

    def arc(self, segment: Segment, k: int, j: int) -> Arc:
        """What is known about a segment between two devices."""
        return self._arcs[segment.signature][k, j]

    def lengths(self, held: Held | None = None) -> list[Ints]:
        """Lower bounds by segment; `held`: with ops of the chain on these devices."""
        return self._held([self._table(segment, lambda arc: arc.low) for segment in self.segments], held)

    @staticmethod
    def _held(found: list[Ints], held: Held | None) -> list[Ints]:
        for place, device in (held or {}).items():
            others = np.arange(found[place].shape[1]) != device
            found[place][:, others] = NEVER
            found[place + 1][others] = NEVER
        return found

    def known_way(self, held: Held | None = None) -> tuple[list[tuple[int, int]], int] | None:
        """The shortest way by known plans (devices before and after segments) and its length; None if there is none.

        A segment that is not whole counts with its bound where it has no plan.
        """
        known = [self._table(segment, lambda arc: arc.high) for segment in self.segments]
        for b, (segment, low) in enumerate(zip(self.segments, self.lengths(), strict=True)):
            if not segment.whole:
                known[b] = np.where(known[b] >= NEVER, low, known[b])
        length = int(distances(self._held(known, held))[0][-1][0])
        return None if length >= NEVER else (walk(known), length)

    def _table(self, segment: Segment, read: Callable[[Arc], int]) -> Ints:
        arcs = self._arcs[segment.signature]
        return np.array(
            [[read(arcs[k, j]) for j in range(segment.low.shape[1])] for k in range(len(segment.low))], np.int64
        )

    def bound(self, held: Held | None = None) -> int:
        """No plan is faster."""
        return int(distances(self.lengths(held))[0][-1][0])

    def next_round(self, upper: int, held: Held | None = None) -> list[tuple[int, int, int]]:
        """The least worked-on arcs of the shortest way: (segment, from, to); none if nothing is left to do."""
        lengths = self.lengths(held)
        if distances(lengths)[0][-1][0] >= upper:
            return []
        way = [(b, k, j) for b, (k, j) in enumerate(walk(lengths))]
        open_arcs = [step for step in way if not self._closed(*step)]
        if not open_arcs:
            return []
        least = min(self.stage(*step) for step in open_arcs)
        chosen = [step for step in open_arcs if self.stage(*step) == least]
        return list({(self.segments[b].signature, k, j): (b, k, j) for b, k, j in chosen}.values())  # equal blocks once

    def stage(self, b: int, k: int, j: int) -> int:
        """How much was done for an arc."""
        return self.arc(self.segments[b], k, j).stage

    def _closed(self, b: int, k: int, j: int) -> bool:
        segment, arc = self.segments[b], self.arc(self.segments[b], k, j)
        tried = arc.stage >= EXACT
        return not segment.whole or arc.low >= arc.high or tried

    def work_on(
        self,
        b: int,
        k: int,
        j: int,
        upper: int,
        stop: Callable[[], bool],
        *,
        exact_work: bool,
        held: Held | None = None,
    ) -> None:
        """Raise the lower bound of an arc, or find a plan for it."""
        segment, arc = self.segments[b], self.arc(self.segments[b], k, j)
        ahead, back = distances(self.lengths(held))
        slack = upper - 1 - int(ahead[b][k]) - int(back[b + 1][j])  # a longer block is in no better plan
        part = segment.part.at(segment.ends(k, j))
        if arc.stage == OPEN:
            self._try_simple(segment, arc, k, j)
            known = (segment.shape, k, j, NEAR) in self._like
            self._bound(arc, part, slack, NEAR if known else ROUGHLY, (segment.shape, k, j), stop)
            arc.stage = arc.stage if stop() else BOUNDED if known else ROUGH
        elif arc.stage == ROUGH:
            self._bound(arc, part, slack, NEAR, (segment.shape, k, j), stop)
            arc.stage = arc.stage if stop() else BOUNDED
        elif arc.stage == BOUNDED:
            self._anneal(arc, part.table, part.leader, stop)
            arc.stage = arc.stage if stop() else PLANNED
        else:
            target = min(arc.high - 1, slack)
            if target < arc.low:
                return
            if refute(part, target, levels=FINE_LEVELS, stop=stop):
                arc.low = target + 1
            elif len(segment.ops) <= LONGEST_BLOCK and self._calls < MOST_EXACT:
                self._ask_cp_sat(arc, part.table, part.leader, target, stop, exact_work=exact_work)
                arc.stage += 1
            else:
                arc.stage = EXACT

    def _bound(
        self, arc: Arc, part: Part, slack: int, near: float, like: tuple[bytes, int, int], stop: Callable[[], bool]
    ) -> None:
        if arc.low >= arc.high:
            return
        high, guess = min(arc.high, max(slack, arc.low)), self._like.get((*like, near))
        found = least_end(part, arc.low, high, near=near, guess=guess, met=arc.high <= high, stop=stop)
        arc.low = max(arc.low, found)
        if found <= high:
            self._like[(*like, near)] = found

    def _try_simple(self, segment: Segment, arc: Arc, k: int, j: int) -> None:
        """The whole block on one device, but for sets that cannot run there."""
        part = segment.part.at(segment.ends(k, j))
        time, relayed = part.table.time, with_relays(part.table, part.leader)
        able = np.ones(time.shape, np.bool_)
        np.logical_and.at(able, part.leader, time >= 0)
        able = able[part.leader]
        if able.any(axis=1).all():
            fastest = np.where(able, time, NEVER).argmin(axis=1)
            for device in range(time.shape[1]):
                inside = np.where(able[:, device], device, fastest)
                self._take(arc, relayed, inside[relayed.op], np.arange(len(relayed.op), dtype=np.int32))

    def polish(self, way: list[tuple[int, int]], stop: Callable[[], bool]) -> bool:
        """Anneal the blocks along a way once more, those that were annealed least -> False if nothing is left to do."""
        arcs = {id(arc): (arc, b, k, j) for b, (k, j) in enumerate(way) if (arc := self._open(b, k, j)) is not None}
        least = min((arc.annealed for arc, *_ in arcs.values()), default=MOST_ANNEALED)
        for arc, b, k, j in arcs.values():
            if arc.annealed == least < MOST_ANNEALED and not stop():
                part = self.segments[b].part.at(self.segments[b].ends(k, j))
                self._anneal(arc, part.table, part.leader, stop)
        return least < MOST_ANNEALED

    def _open(self, b: int, k: int, j: int) -> Arc | None:
        """The arc, if its plan could be shorter."""
        arc = self.arc(self.segments[b], k, j)
        return arc if arc.low < arc.high < NEVER and len(self.segments[b].ops) > 2 else None

    def _anneal(self, arc: Arc, table: Tables, group: Indices, stop: Callable[[], bool]) -> None:
        """From the known plan, with another seed and more patience each time."""
        if arc.low >= arc.high or len(table.time) < 2:
            return
        relayed, start = with_relays(table, group), []
        if arc.plan is not None:
            placement = arc.plan.placement[relayed.op]
            start = [(placement, None), (placement, relayed.order(arc.plan))]
        annealer = Annealer(
            relayed.table,
            capacity=np.full(table.time.shape[1], NO_LIMIT, np.int64),
            group=relayed.group,
            seed=(self.seed + arc.annealed) % 2**31,
            start=start,
            first_temperature=TEMPERATURE,
        )
        made, gained, best = 0, 0, annealer.value
        least = LEAST_STEPS << arc.annealed
        while made < max(least, min(MOST_STEPS, PATIENCE * gained)) and best > arc.low and not stop():
            annealer.run(PORTION, np.zeros(1, np.int64))
            made += PORTION
            if annealer.value < best:
                gained, best = made, annealer.value
        if annealer.best is not None:
            self._take(arc, relayed, *annealer.best[:2])
        arc.annealed += not stop()

    def _ask_cp_sat(
        self, arc: Arc, table: Tables, group: Indices, target: int, stop: Callable[[], bool], *, exact_work: bool
    ) -> None:
        model = OrderModel(table, horizon=target, lower=arc.low, group=group)
        turn = arc.stage - PLANNED
        if exact_work:
            self._calls += 1
            answer = model.solve(None, stop, work=EXACT_WORK, seed=self.seed)
        else:
            answer = model.solve(EXACT_SECONDS[turn], stop, seed=self.seed)
        if answer.timeline is not None and answer.timeline.value < arc.high:
            arc.high, arc.plan = answer.timeline.value, answer.timeline
        if answer.status == "infeasible":
            arc.low = target + 1
        elif answer.status == "optimal":
            arc.low = arc.high
        else:
            arc.low = max(arc.low, min(answer.bound, arc.high))

    def _take(self, arc: Arc, relayed: Relayed, placement: Indices, order: Indices) -> None:
        """Keep a plan of a block if it is the shortest."""
        plan = relayed.timeline(placement, order)
        if plan is not None and plan.value < arc.high:
            arc.high, arc.plan = plan.value, plan
