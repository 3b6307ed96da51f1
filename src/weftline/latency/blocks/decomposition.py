"""Blocks of a chain and what is known about them: lower bounds on their lengths, and plans, by devices of their ends.

In: a problem's tables and a chain. Every (block, device before, device after) is an arc; the shortest path by lower
bounds is a bound on the latency, the shortest path by known plans is a plan. `work_on` does the next more expensive
thing for an arc: the energetic bound, annealing of the block, CP-SAT with the question whether it can be shorter than a
better plan needs. Arcs with equal costs share their results; arcs that differ in times alone are a guess for each
other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.annealer import PlacementAnnealer
from weftline.latency.blocks.chain import Chain
from weftline.latency.blocks.relays import Relayed, with_relays
from weftline.latency.blocks.spans import (
    FINE_LEVELS,
    NEAR_SHARE,
    Part,
    Span,
    distances,
    least_end,
    make_spans,
    refute,
    shortest,
    walk,
)
from weftline.latency.bounds import OUT_OF_REACH
from weftline.latency.exact.order_model import OrderModel
from weftline.problem.model import NO_LIMIT
from weftline.simulate.tables import Tables
from weftline.simulate.timeline import Timeline

__all__ = ["BLOCK_PLAN", "EXACT_SEARCH", "FINE_BOUND", "DecomposeParameters", "Decomposition", "Held"]

EXACT_SECONDS = (2.0, 6.0, 20.0, 60.0)
"""Of CP-SAT on a block, by how often it was tried."""
NO_WORK, ROUGH_BOUND, FINE_BOUND, BLOCK_PLAN = 0, 1, 2, 3
"""What was done for an arc; from BLOCK_PLAN on CP-SAT, more each time."""
EXACT_SEARCH = BLOCK_PLAN + len(EXACT_SECONDS)
"""All of it."""

Held = Mapping[int, int]
"""Places of ops in the chain, and their devices."""


@dataclass(frozen=True)
class DecomposeParameters:
    """Numbers of the solver `decompose`."""

    least_block_steps: int = 20_000
    """Of annealing a block at first; twice as many each further time."""
    most_block_steps: int = 300_000
    """It goes on to some times the steps of its last gain, but not beyond so many."""
    block_patience: int = 3
    """Times the steps of its last gain."""
    block_portion_steps: int = field(default=5_000, metadata={"least": 1})
    """Between two looks at whether it still helps."""
    block_temperature: float = field(default=0.016, metadata={"least": 1e-9})
    """A block is small: one op counts for more of it than of a whole graph."""
    most_annealed: int = field(default=5, metadata={"most": 40})
    """Times that a block is annealed."""
    rough_share: float = 0.04
    """How far a first bound may stay below what could be shown."""
    most_exact_ops: int = 400
    """Of a block for CP-SAT."""
    exact_work: float = 1.0
    """Units of deterministic time of one call of CP-SAT, under a work limit."""
    most_exact_calls: int = 30
    """Under a work limit."""
    least_share_of_chain: float = 0.93
    """A chain whose blocks hold less than this share of what another's hold is not tried."""
    steps_per_sum: int = field(default=16, metadata={"least": 1})
    """After so many cheap steps the bound is added up; in large graphs that takes as long as one of them."""
    turns_per_polish: int = field(default=5, metadata={"least": 1})
    """Every so many turns with a hub blocks are annealed again, in the others cases are divided."""
    most_turns: int = 50
    """With a hub, under a work limit, where nothing else says when it is enough."""
    first_rounds: int = 60
    """Of longer arcs and cuts, at the first case of a device of the hub."""
    later_rounds: int = 3
    """At the other cases."""
    program_seconds: float = 20.0
    """Of one linear program of the hub."""


@dataclass(eq=False)
class Arc:
    """One span between two devices."""

    low: int
    high: int = OUT_OF_REACH
    plan: Timeline | None = None
    effort: int = NO_WORK
    annealed: int = 0
    """How often."""


@dataclass(eq=False)
class Decomposition:
    """The spans of a chain and what is known about their arcs."""

    table: Tables
    chain: Chain
    spans: list[Span]
    relayed: Relayed
    """All of it, with a relay for every transfer."""
    seed: int = 0
    parameters: DecomposeParameters = field(default_factory=DecomposeParameters)
    complete: bool = False
    """True if the blocks hold every op and every edge."""
    _calls: int = 0
    _arcs: dict[bytes, dict[tuple[int, int], Arc]] = field(default_factory=dict)
    _like: dict[tuple[bytes, int, int, float], int] = field(default_factory=dict)
    """Shape, devices, how near: the last bound of such an arc, a good guess for the next."""

    @staticmethod
    def of(
        table: Tables,
        group: Indices,
        chain: Chain,
        seed: int = 0,
        known: Decomposition | None = None,
        *,
        parameters: DecomposeParameters | None = None,
    ) -> Decomposition:
        """Cut a problem along a chain; `known`: along another one, with blocks that may be the same."""
        numbers = parameters or (known.parameters if known is not None else DecomposeParameters())
        spans, relayed = make_spans(table, group, chain), with_relays(table, group, every=True)
        made = Decomposition(table, chain, spans, relayed, seed, numbers)
        if known is not None:
            made._arcs, made._like = known._arcs, known._like
        held = np.unique(np.concatenate([span.ops for span in made.spans])) if made.spans else ()
        edges = sum(len(span.part.table.edge_tensor) for span in made.spans)
        made.complete = len(held) == len(table.time) and edges == len(table.edge_tensor)
        for span in made.spans:
            made._arcs.setdefault(
                span.signature,
                {(k, j): Arc(int(span.low[k, j])) for k, j in np.ndindex(*span.low.shape)},
            )
        return made

    def arc(self, span: Span, k: int, j: int) -> Arc:
        """What is known about a span between two devices."""
        return self._arcs[span.signature][k, j]

    def lengths(self, held: Held | None = None) -> list[Ints]:
        """Lower bounds by span; `held`: with ops of the chain on these devices."""
        return self._held([self._table(span, lambda arc: arc.low) for span in self.spans], held)

    @staticmethod
    def _held(found: list[Ints], held: Held | None) -> list[Ints]:
        for place, device in (held or {}).items():
            others = np.arange(found[place].shape[1]) != device
            found[place][:, others] = OUT_OF_REACH
            found[place + 1][others] = OUT_OF_REACH
        return found

    def known_path(self, held: Held | None = None) -> tuple[list[tuple[int, int]], int] | None:
        """The shortest path by known plans (devices before and after spans) and its length; None if there is none.

        A span that is not whole counts with its bound where it has no plan.
        """
        known = [self._table(span, lambda arc: arc.high) for span in self.spans]
        for b, (span, low) in enumerate(zip(self.spans, self.lengths(), strict=True)):
            if not span.whole:
                known[b] = np.where(known[b] >= OUT_OF_REACH, low, known[b])
        length = shortest(self._held(known, held))
        return None if length >= OUT_OF_REACH else (walk(known), length)

    def _table(self, span: Span, read: Callable[[Arc], int]) -> Ints:
        arcs = self._arcs[span.signature]
        return np.array([[read(arcs[k, j]) for j in range(span.low.shape[1])] for k in range(len(span.low))], np.int64)

    def bound(self, held: Held | None = None) -> int:
        """No plan is faster."""
        return shortest(self.lengths(held))

    def next_round(self, upper: int, held: Held | None = None) -> list[tuple[int, int, int]]:
        """The least worked-on arcs of the shortest path: (span, from, to); none if nothing is left to do."""
        lengths = self.lengths(held)
        if shortest(lengths) >= upper:
            return []
        path = [(b, k, j) for b, (k, j) in enumerate(walk(lengths))]
        open_arcs = [step for step in path if not self._closed(*step)]
        if not open_arcs:
            return []
        least = min(self.effort(*step) for step in open_arcs)
        chosen = [step for step in open_arcs if self.effort(*step) == least]
        return list({(self.spans[b].signature, k, j): (b, k, j) for b, k, j in chosen}.values())  # equal blocks once

    def effort(self, b: int, k: int, j: int) -> int:
        """How much was done for an arc."""
        return self.arc(self.spans[b], k, j).effort

    def _closed(self, b: int, k: int, j: int) -> bool:
        span, arc = self.spans[b], self.arc(self.spans[b], k, j)
        tried = arc.effort >= EXACT_SEARCH
        return not span.whole or arc.low >= arc.high or tried

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
        span, arc = self.spans[b], self.arc(self.spans[b], k, j)
        ahead, back = distances(self.lengths(held))
        slack = upper - 1 - int(ahead[b][k]) - int(back[b + 1][j])  # a longer block is in no better plan
        part = span.part.at(span.ends(k, j))
        if arc.effort == NO_WORK:
            self._try_simple(span, arc, k, j)
            known = (span.shape, k, j, NEAR_SHARE) in self._like
            near = NEAR_SHARE if known else self.parameters.rough_share
            self._bound(arc, part, slack, near, (span.shape, k, j), stop)
            arc.effort = arc.effort if stop() else FINE_BOUND if known else ROUGH_BOUND
        elif arc.effort == ROUGH_BOUND:
            self._bound(arc, part, slack, NEAR_SHARE, (span.shape, k, j), stop)
            arc.effort = arc.effort if stop() else FINE_BOUND
        elif arc.effort == FINE_BOUND:
            self._anneal(arc, part.table, part.leader, stop)
            arc.effort = arc.effort if stop() else BLOCK_PLAN
        else:
            target = min(arc.high - 1, slack)
            if target < arc.low:
                return
            if refute(part, target, levels=FINE_LEVELS, stop=stop):
                arc.low = target + 1
            elif len(span.ops) <= self.parameters.most_exact_ops and self._calls < self.parameters.most_exact_calls:
                self._ask_cp_sat(arc, part.table, part.leader, target, stop, exact_work=exact_work)
                arc.effort += 1
            else:
                arc.effort = EXACT_SEARCH

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

    def _try_simple(self, span: Span, arc: Arc, k: int, j: int) -> None:
        """The whole block on one device, but for sets that cannot run there."""
        part = span.part.at(span.ends(k, j))
        time, relayed = part.table.time, with_relays(part.table, part.leader)
        able = np.ones(time.shape, np.bool_)
        np.logical_and.at(able, part.leader, time >= 0)
        able = able[part.leader]
        if able.any(axis=1).all():
            fastest = np.where(able, time, OUT_OF_REACH).argmin(axis=1)
            for device in range(time.shape[1]):
                inside = np.where(able[:, device], device, fastest)
                self._take(arc, relayed, inside[relayed.op], np.arange(len(relayed.op), dtype=np.int32))

    def polish(self, path: list[tuple[int, int]], stop: Callable[[], bool]) -> bool:
        """Anneal the blocks along a path once more, those annealed least so far -> False if nothing is left to do."""
        arcs = {id(arc): (arc, b, k, j) for b, (k, j) in enumerate(path) if (arc := self._open(b, k, j)) is not None}
        most = self.parameters.most_annealed
        least = min((arc.annealed for arc, *_ in arcs.values()), default=most)
        for arc, b, k, j in arcs.values():
            if arc.annealed == least < most and not stop():
                part = self.spans[b].part.at(self.spans[b].ends(k, j))
                self._anneal(arc, part.table, part.leader, stop)
        return least < most

    def _open(self, b: int, k: int, j: int) -> Arc | None:
        """The arc, if its plan could be shorter."""
        arc = self.arc(self.spans[b], k, j)
        return arc if arc.low < arc.high < OUT_OF_REACH and len(self.spans[b].ops) > 2 else None

    def _anneal(self, arc: Arc, table: Tables, group: Indices, stop: Callable[[], bool]) -> None:
        """From the known plan, with another seed and more patience each time."""
        if arc.low >= arc.high or len(table.time) < 2:
            return
        numbers, relayed, start = self.parameters, with_relays(table, group), []
        if arc.plan is not None:
            placement = arc.plan.placement[relayed.op]
            start = [(placement, None), (placement, relayed.order(arc.plan))]
        annealer = PlacementAnnealer(
            relayed.table,
            capacity=np.full(table.time.shape[1], NO_LIMIT, np.int64),
            group=relayed.group,
            seed=(self.seed + arc.annealed) % 2**31,
            start=start,
            first_temperature=numbers.block_temperature,
        )
        made, gained, best = 0, 0, annealer.value
        least = numbers.least_block_steps << arc.annealed
        patience, most = numbers.block_patience, numbers.most_block_steps
        while made < max(least, min(most, patience * gained)) and best > arc.low and not stop():
            annealer.run(numbers.block_portion_steps, np.zeros(1, np.int64))
            made += numbers.block_portion_steps
            if annealer.value < best:
                gained, best = made, annealer.value
        if annealer.best is not None:
            self._take(arc, relayed, *annealer.best[:2])
        arc.annealed += not stop()

    def _ask_cp_sat(
        self, arc: Arc, table: Tables, group: Indices, target: int, stop: Callable[[], bool], *, exact_work: bool
    ) -> None:
        model = OrderModel(table, horizon=target, lower=arc.low, group=group)
        turn = arc.effort - BLOCK_PLAN
        if exact_work:
            self._calls += 1
            answer = model.solve(None, stop, work=self.parameters.exact_work, seed=self.seed)
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
