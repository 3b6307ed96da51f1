"""Graphs of which a chain holds only a part: branch and bound by the device of a hub, with plans beside the bounds.

HubSearch, the bound: a case fixes the hub and some more ops of the chain to devices. Its program (see `hub_program`)
lets the rest of the path be a mixture, and a mixture pays only a part of each change of devices; so the op whose device
is least certain is fixed next. In: a hub, spans with lower bounds, who knows better lengths of arcs. Out: a lower bound
that rises with every step, claimed, and paths that plans may take.

Branching, bounds and plans: `bound_chain` bounds the chain for every device of the hub; `begin` plans its blocks and
joins them, with the ops beside the chain on one device, and solves first programs of what is left; `go_on` divides
cases until the bound meets the best plan. Paths that a program is certain of are planned too.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import pairwise
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weftline.bounds import Bound
from weftline.graph.arrays import Indices, Ints
from weftline.latency.blocks.chain import Hub, make_hub, pick_hub
from weftline.latency.blocks.decomposition import BLOCK_PLAN, FINE_BOUND, DecomposeParameters, Decomposition, Held
from weftline.latency.blocks.hub_program import HubProgram, Step, make_hub_program
from weftline.latency.blocks.relays import ChainPath, join
from weftline.latency.blocks.spans import LP_TOLERANCE, Span, shortest, walk
from weftline.latency.bounds import OUT_OF_REACH
from weftline.search import Search
from weftline.search.lp import Answer
from weftline.simulate.tables import Tables

__all__ = ["Branching", "HubSearch", "Lengths", "Mixture", "claim", "offer_joined"]

LEAST_HELP = 1e-5
"""A round that brings less, in shares of the upper limit, is the last one of a case that is not the first."""
LEAST_DOUBT = 1e-4
"""An op of the chain with less than this elsewhere is on one device."""

Lengths = Callable[[Mapping[int, int]], list[Ints]]
"""Lower bounds by span, with ops of the chain (by place) on devices."""


class Raised(Protocol):
    """Who knows better lengths of arcs."""

    def __call__(self, step: Step, held: Mapping[int, int]) -> int:
        """A lower bound, found with these ops of the chain on these devices."""


class Mixture(NamedTuple):
    """What the program of a case would do."""

    held: dict[int, int]
    devices: Indices
    """Of each op of the chain: where most of it is."""
    beside: Indices
    """Of each op beside the chain."""
    certain: bool
    """No op of the chain is on several devices."""


@dataclass(order=True)
class _Case:
    bound: int
    number: int
    held: dict[int, int] = field(compare=False)


@dataclass(eq=False)
class HubSearch:
    """Cases in the order of their bounds; `step` works on the lowest."""

    table: Tables
    hub: Hub
    spans: list[Span]
    lengths: Lengths
    raised: Raised | None = None
    """A better length of an arc."""
    parameters: DecomposeParameters = field(default_factory=DecomposeParameters)
    _open: list[_Case] = field(default_factory=list)
    _settled: list[int] = field(default_factory=list)
    """Bounds of cases that cannot be divided."""
    _programs: dict[int, HubProgram | None] = field(default_factory=dict)
    _made: int = 0

    def __post_init__(self) -> None:
        for device in np.flatnonzero(self.table.time[self.hub.op] >= 0).tolist():
            self._add({self.hub.place: device}, 0)

    def bound(self, upper: int) -> int:
        """No plan is shorter, or none is shorter than `upper`, which must not rise from call to call."""
        lowest = [self._open[0].bound] if self._open else []
        return min([upper, *self._settled, *lowest])

    def is_over(self, upper: int) -> bool:
        """Nothing is left that could raise the bound."""
        return not self._open or self._open[0].bound >= min([upper, *self._settled])

    def refresh(self) -> None:
        """Lengths have become longer."""
        for case in self._open:
            case.bound = max(case.bound, self._chain_bound(case.held))
        heapify(self._open)

    def step(self, upper: int, stop: Callable[[], bool]) -> Mixture | None:
        """Raise the bound of the lowest case, and divide it -> what its program would do, if there is such a thing."""
        case = heappop(self._open)
        case.bound = max(case.bound, self._chain_bound(case.held))
        if self._open and case.bound > self._open[0].bound:
            heappush(self._open, case)
            return None
        program = self._program(case.held[self.hub.place], upper, stop)
        found = None if program is None else self._work_on(program, case, upper, stop)
        if stop():
            heappush(self._open, case)
        elif program is not None and found is not None:
            return self._divide(program, case, found, upper)
        elif case.bound < upper:
            self._settled.append(case.bound)
        return None

    def _program(self, device: int, upper: int, stop: Callable[[], bool]) -> HubProgram | None:
        if device not in self._programs:
            lengths = self.lengths({self.hub.place: device})
            made = make_hub_program(self.table, self.hub, device, self.spans, lengths, upper, stop)
            if stop():
                return None
            self._programs[device] = made
        return self._programs[device]

    def _work_on(self, program: HubProgram, case: _Case, upper: int, stop: Callable[[], bool]) -> Answer | None:
        """Few rounds are enough for a case that will be divided."""
        first, later = self.parameters.first_rounds, self.parameters.later_rounds
        found = self._raise(program, case, later if len(case.held) > 1 else first, upper, stop)
        if found is not None and len(case.held) > 1 and _least_certain(self._flows(program, found), case.held) < 0:
            found = self._raise(program, case, first, upper, stop)
        return found

    def _raise(
        self, program: HubProgram, case: _Case, rounds: int, upper: int, stop: Callable[[], bool]
    ) -> Answer | None:
        """Solve, lengthen and cut again and again -> the last answer; None if there is none below the upper limit."""
        found, last = None, 0.0
        for turn in range(rounds):
            answer = program.solve(case.held, self.parameters.program_seconds, stop)
            if answer.value > 1 + LP_TOLERANCE:
                case.bound = max(case.bound, program.upper)
                return None
            if answer.value == -np.inf:
                break
            found = answer
            case.bound = max(case.bound, int(np.ceil((answer.value - LP_TOLERANCE) * program.upper)))
            if case.bound >= upper:
                return None
            if stop() or (turn and rounds < self.parameters.first_rounds and answer.value < last + LEAST_HELP):
                break
            last = answer.value
            longer = 0
            if self.raised is not None:
                longer = program.lengthen(answer, partial(self.raised, held=case.held), stop)
            if not longer and not program.cut(answer, stop):
                break
        return found

    def _flows(self, program: HubProgram, answer: Answer) -> NDArray[np.float64]:
        return program.flows(answer, self.table.time.shape[1])

    def _divide(self, program: HubProgram, case: _Case, answer: Answer, upper: int) -> Mixture:
        flows = self._flows(program, answer)
        devices = flows.argmax(axis=1).astype(np.int32)
        place = _least_certain(flows, case.held)
        if place < 0:
            self._settled.append(case.bound)
        else:
            for device in np.flatnonzero(self.table.time[self._chain_op(place)] >= 0).tolist():
                self._add({**case.held, place: device}, case.bound, upper)
        return Mixture(case.held, devices, program.beside_devices(answer), place < 0)

    def _chain_op(self, place: int) -> int:
        span = self.spans[place]
        return int(span.ops[span.last])

    def _add(self, held: dict[int, int], bound: int, upper: int | None = None) -> None:
        bound = max(bound, self._chain_bound(held))
        if upper is None or bound < upper:
            self._made += 1
            heappush(self._open, _Case(bound, self._made, held))

    def _chain_bound(self, held: Mapping[int, int]) -> int:
        return shortest(self.lengths(held))


def _least_certain(flows: NDArray[np.float64], held: Mapping[int, int]) -> int:
    """The op of the chain (by place) that is most on several devices; of equal ones the middle; -1 if there is none."""
    doubt = 1.0 - flows.max(axis=1)
    doubt[list(held)] = 0.0
    if doubt.max(initial=0.0) < LEAST_DOUBT:
        return -1
    like = np.flatnonzero(doubt > 0.98 * doubt.max())
    return int(like[len(like) // 2])


def claim(search: Search, bound: int, name: str) -> None:
    """A bound, as far as it matters."""
    upper = OUT_OF_REACH // 4 if search.best is None else search.best.value
    if bound > 0:
        search.offer_bound(Bound(min(bound, upper), name, seconds=search.seconds))


def offer_joined(search: Search, work: Decomposition, path: ChainPath, rests: list[Indices]) -> int:
    """Plans of blocks along a path, with each of several placements of the ops beside them -> the least latency."""
    least = OUT_OF_REACH
    for rest in rests:
        found = None if search.is_over else join(work, path, rest)
        value = None if found is None else search.offer(found[0], actions=found[1])
        least = least if value is None else min(least, value)
    return least


class Branching:
    """One case for every device of the hub, and cases of cases."""

    def __init__(self, search: Search, work: Decomposition, hub: Hub, until: Callable[[], bool] | None = None) -> None:
        self._search, self._work, self._hub = search, work, hub
        self.until = until
        self._cases = HubSearch(work.table, hub, work.spans, work.lengths, self._raised, work.parameters)
        devices = np.flatnonzero(work.table.time[hub.op] >= 0).tolist()
        self._held: list[Held] = [{hub.place: device} for device in devices]
        self._chain_bound = 0
        self._best: ChainPath | None = None
        self._beside: dict[int, Indices] = {}
        """Device of the hub -> where the last program had the ops beside the chain."""
        self._shortest = OUT_OF_REACH
        self._more = True
        """Blocks of the best path may still be annealed."""

    @staticmethod
    def of(search: Search, before: NDArray[np.bool_], work: Decomposition, most: int) -> Branching | None:
        """None if nothing jumps over the chain."""
        found = pick_hub(work.table, before, work.chain, most)
        if found is None:
            return None
        op, chain = found
        hub = make_hub(before, chain, op)
        if hub is not None and chain.ops != work.chain.ops:
            work = Decomposition.of(work.table, search.problem.group, chain, search.seed, work)
        return None if hub is None else Branching(search, work, hub)

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
            self._work_until(FINE_BOUND, held)
        self._cases.refresh()
        self._chain_bound = self.bound
        claim(self._search, self.bound, "hub")

    def begin(self) -> None:
        """Plans of the chain with the hub on each device, and programs of the lowest cases."""
        for held in sorted(self._held, key=self._work.bound):
            if self._work.bound(held) < self._upper and not self._over():
                self._work_until(BLOCK_PLAN, held)
                self._plan(walk(self._work.lengths(held)))
                known = self._work.known_path(held)
                if known is not None:
                    self._plan(known[0])
        for _ in self._held:
            self._step()

    def go_on(self) -> None:
        """Divide cases while that may raise the bound, and anneal the blocks of the best path now and then.

        Without any plan to compare with there is nothing to do.
        """
        turn = 0
        numbers = self._work.parameters
        most = numbers.most_turns if self._search.work_limit is not None else OUT_OF_REACH
        while not self._over() and self._search.best is not None:
            if not self._more and self._cases.is_over(self._upper):
                return
            if self._more and (turn % numbers.turns_per_polish == 0 or self._cases.is_over(self._upper)):
                self._polish()
            elif turn >= most:
                return
            else:
                self._step()
            turn += 1

    def _polish(self) -> None:
        """Anneal the blocks of the best path again, as long as there is anything to do."""
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
        path = [(0, int(mixture.devices[0])), *pairwise(mixture.devices.tolist()), (int(mixture.devices[-1]), 0)]
        lengths = self._work.lengths()
        if sum(int(lengths[b][step]) for b, step in enumerate(path)) < self._upper:
            for b, step in enumerate(path):
                while self._work.effort(b, *step) < BLOCK_PLAN and not self._over():
                    self._work.work_on(b, *step, self._upper, self._over, exact_work=True)
            self._beside[mixture.held[self._hub.place]] = mixture.beside
            self._plan(path)

    def plan_known(self) -> None:
        """Offer what the shortest known plans of blocks give."""
        known = self._work.known_path()
        if known is not None and not self._over():
            self._plan(known[0])

    def _plan(self, path: ChainPath) -> None:
        """Offer what the blocks of a path give."""
        shortest = offer_joined(self._search, self._work, path, self._rests(path))
        if shortest < self._shortest:
            self._more = self._more or self._best != path
            self._best, self._shortest = path, shortest

    def _rests(self, path: ChainPath) -> list[Indices]:
        """Ops beside the chain on one device, where they are now, and where a program had them."""
        device, time = path[self._hub.place][1], self._work.table.time
        able = (time[list(self._hub.beside)] >= 0).all(axis=0)
        rests = [np.full(len(time), d, np.int32) for d in np.flatnonzero(able)]
        if self._search.best is not None:
            rests.append(self._search.best.placement)
        if device in self._beside:
            rests.append(rests[-1].copy())
            rests[-1][list(self._hub.beside)] = self._beside[device]
        return rests

    def _work_until(self, effort: int, held: Held) -> None:
        """Work on the shortest path with the hub there until all of it took so much effort."""
        while not self._over():
            steps = self._work.next_round(self._upper, held)
            if not steps or self._work.effort(*steps[0]) >= effort:
                return
            for step in steps:
                if not self._over():
                    self._work.work_on(*step, self._upper, self._over, exact_work=True, held=held)

    def _raised(self, step: Step, held: Mapping[int, int]) -> int:
        while self._work.effort(*step) < FINE_BOUND and not self._over():
            self._work.work_on(*step, self._upper, self._over, exact_work=True, held=held)
        return self._work.arc(self._work.spans[step[0]], *step[1:]).low

    @property
    def _upper(self) -> int:
        return OUT_OF_REACH // 4 if self._search.best is None else self._search.best.value

    def _over(self) -> bool:
        return self._search.is_over or (self.until is not None and self.until())
