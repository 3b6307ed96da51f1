"""PlacementAnnealer: the annealing kernel in portions, with starts, cycles and the best so far.

In: Tables alone (no Problem, so that parts of a graph can be annealed too), memory per device, the `together` set of
every op, a seed, starts. Out: the best placement and order so far, within memory; its value is what `simulate_latency`
says about them. Every cycle cools from warm to cold; cycles grow longer, and begin at the best or at another start.
Everything follows from the seed and the numbers of steps.

The kernel counts weights alone, so a state that would be a new best is asked here about its activations. Where they
overflow a device, part of its memory is set aside, so that the annealer turns elsewhere; what is set aside is given
back bit by bit when nothing overflows any more, or when nothing at all fits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.backfill import backfill
from weftline.latency.anneal.kernel import anneal, load, make_order, note_best
from weftline.latency.anneal.state import (
    ASKED_BELOW,
    BEST_DEVICE,
    BEST_ORDER,
    NOW_EXCESS,
    NOW_VALUE,
    RUN_TIME,
    make_anneal_problem,
    make_state,
)
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.simulate.kernels.latency import run_order, workspace
from weftline.simulate.memory import latency_peaks
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import Tables

__all__ = ["ActivationRoom", "Find", "LatencyAnnealParameters", "PlacementAnnealer", "Start", "new_find"]


class ActivationRoom:
    """Memory set aside for activations."""

    def __init__(self, table: Tables, capacity: Ints) -> None:
        self._table, self._capacity = table, capacity
        self._aside, self._asked = np.zeros(len(capacity), np.int64), False
        copies = 1 + int(table.per_edge)
        readers = np.diff(table.consumer_ptr) if table.per_edge else 1
        most = int(table.static_bytes.sum()) + int(table.tied_bytes.sum()) + int(table.workspace_bytes.max(initial=0))
        most += copies * int((table.tensor_bytes * np.maximum(readers, 1)).sum())
        self.binds = bool(table.dynamic and (most > capacity).any())
        """False if no schedule can overflow anything but by weights."""

    def overflow(self, placement: Indices, order: Indices) -> Ints:
        """(K,): bytes above what each device holds."""
        table = self._table
        n = len(placement)
        start, end, sent = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((len(table.consumer_of), 6), np.int64)
        _, count = run_order(table, order, placement, start, end, sent, True, workspace(table))
        peak: Ints = latency_peaks(table, placement, start, end, sent[:count])
        above: Ints = np.maximum(peak - self._capacity, 0)
        return above

    def leave(self, overflow: Ints) -> Ints:
        """Set part of the overflow aside -> bytes to take from each device."""
        self._asked = True
        more = (overflow + 3) // 4
        self._aside += more
        return more

    def give_back(self, *, stuck: bool) -> Ints:
        """After a cycle -> bytes to give back to each device."""
        if self._asked and not stuck:
            self._asked = False
            return np.zeros_like(self._aside)
        back: Ints = (self._aside + 1) // 2
        self._aside -= back
        return back


Start = tuple[Indices, Indices | None]
"""A device per op, and an order (None: whichever of two is better)."""

HEATS = (1.0, 0.25, 4.0)
"""A round has a cycle that begins at each of these multiples of the first temperature, then some more of the best."""
SHARES = (20, 5, 15, 25, 20, 15, 0)
SHARES_WITH_SWAPS = (20, 5, 15, 20, 15, 10, 15)
"""Usual shares of shift, gather, one op, ball, subtree, window, swap."""


@dataclass(frozen=True)
class LatencyAnnealParameters:
    """Numbers of the solver `anneal`, and of whoever else anneals a placement."""

    first_temperature: float = field(default=0.004, metadata={"least": 1e-9})
    """Part of the best value, for graphs of up to `usual_ops`; less for larger ones, where one op counts less."""
    last_temperature: float = 0.0001
    """Likewise."""
    usual_ops: int = field(default=500, metadata={"least": 1})
    cycles_of_best_heat: int = 2
    """Cycles of a round at the heat that came lowest."""
    cycle_steps_per_op: int = 100
    """Steps of a cycle of the first round; they double from round to round."""
    cycle_positions: int = 40_000_000
    """A cycle of the first round books no more positions than this."""
    least_cycle_steps: int = field(default=1_000, metadata={"least": 1})
    most_cycle_steps: int = field(default=4_000_000, metadata={"least": 1})
    most_starts: int = 12
    """Starts that are kept, the best ones."""
    steps_per_pair_of_ops: int = 40
    """Steps without a time limit grow with the number of ops and its square."""
    steps_per_op: int = 200
    most_steps: int = 1_000_000
    """Up to 500 ops; fewer in larger graphs, where they cost more."""
    portions: int = field(default=20, metadata={"least": 1})
    """Looks at the stop rules, without a time limit."""
    patience_portions: int = 4
    """Portions without any answer before others are asked."""
    full_heat_steps: int = field(default=80_000, metadata={"least": 1})
    """A known number of steps begins at the usual temperature from here; fewer begin at less, by its root."""


DEFAULTS = LatencyAnnealParameters()


class PlacementAnnealer:
    """One search; `run` may be called in a thread of its own."""

    def __init__(
        self,
        table: Tables,
        *,
        capacity: Ints,
        group: Indices,
        seed: int = 0,
        start: Sequence[Start] = (),
        first_temperature: float | None = None,
        shares: Sequence[int] | None = None,
        cycle: int | None = None,
        parameters: LatencyAnnealParameters = DEFAULTS,
    ) -> None:
        """`cycle`: steps of the first cycles, where it is known that there will be few."""
        self._parameters = parameters
        self._problem = make_anneal_problem(table, group)
        self._memory = ActivationRoom(table, capacity)
        self._state = make_state(self._problem, capacity, seed, asks=self._memory.binds)
        first = parameters.first_temperature if first_temperature is None else first_temperature
        self._first_temperature = first * min(1.0, parameters.usual_ops / len(group))
        self._last_temperature = parameters.last_temperature * min(1.0, parameters.usual_ops / len(group))
        self._reached = [NEVER] * len(HEATS)
        if shares is None:
            shares = SHARES_WITH_SWAPS if self._state.binds else SHARES
        self._usual = np.array(shares, np.int64)
        self._cycles = self._done = self._length = 0
        self._hot, self._heat = 1.0, -1
        n = len(group)
        usual = min(parameters.cycle_steps_per_op * n, parameters.cycle_positions // n)
        self._first = max(parameters.least_cycle_steps, usual) if cycle is None else max(1, cycle)
        self._starts: list[tuple[int, Indices, Indices]] = []
        for placement, order in start:
            self.give(placement, order)
        if not self._starts:
            self.give(self._fastest())

    @property
    def best(self) -> tuple[Indices, Indices, int] | None:
        """Device per op, order and value; None if no state within the limits was found so far."""
        return None if self.value >= NEVER else (*self._best(), self.value)

    @property
    def value(self) -> int:
        """Of the best, 2^62 if there is none."""
        return int(self._state.best_value[0])

    def _best(self) -> tuple[Indices, Indices]:
        best = self._state.best
        return best[BEST_DEVICE].copy(), best[BEST_ORDER].copy()

    def give(self, placement: Indices, order: Indices | None = None, *, stay: bool = False) -> bool:
        """Another start -> False if a device cannot run its op or a `together` set is torn.

        Goes on at the best; with `stay` where it was, and the next cycle begins at the best.
        """
        here = self._state.device.copy(), self._state.order.copy()
        placement = np.ascontiguousarray(placement, np.int32)
        problem = self._problem
        times = problem.cost[np.arange(len(placement)), placement, RUN_TIME]
        leader = placement[problem.group_of[problem.group_ptr[:-1]]]
        if np.any(times < 0) or np.any(leader[problem.group] != placement):
            return False
        orders = [order] if order is not None else [self.order_for(placement, depth=depth) for depth in (False, True)]
        for each in orders:
            kept = np.array(each, np.int32)
            self._starts.append((self._load(placement, kept), placement.copy(), kept))
        self._starts = sorted(self._starts, key=lambda entry: entry[0])[: self._parameters.most_starts]
        if stay and self._length:
            self._load(*here)
        elif self.value < NEVER:
            self._load(*self._state.best)
        return True

    def order_for(self, placement: Indices, *, depth: bool) -> Indices:
        """A topological order: by descending path to the end, or depth first."""
        order = np.zeros(len(placement), np.int32)
        make_order(self._problem, self._state, np.ascontiguousarray(placement, np.int32), depth, order)
        return order

    def run(self, steps: int, stop: Ints) -> None:
        """Make so many trials (fewer if the flag rises)."""
        if self._problem.cost.shape[1] < 2:
            return
        while steps > 0 and not stop[0]:
            if self._done >= self._length:
                self._begin_cycle()
            portion = min(steps, self._length - self._done)
            hot, cold = (self._temperature(done) for done in (self._done, self._done + portion))
            done = anneal(self._problem, self._state, self._usual, portion, hot, cold, stop)
            steps -= done
            self._done += done
            self._ask()

    def _load(self, placement: Indices, order: Indices) -> int:
        """Begin here -> the value, worse than any if memory is broken."""
        value = load(self._problem, self._state, placement, order)
        self._state.now[ASKED_BELOW] = self.value
        self._ask()
        return value if self._state.now[NOW_EXCESS] == 0 else NEVER + value

    def _ask(self) -> None:
        """Is the state a new best, activations included? If not, leave room on the devices that overflow."""
        state = self._state
        if (
            not state.asks
            or state.now[NOW_EXCESS] > 0
            or state.now[NOW_VALUE] >= min(self.value, state.now[ASKED_BELOW], self._problem.penalty)
        ):
            return
        overflow = self._memory.overflow(state.device, state.order)
        state.now[ASKED_BELOW] = state.now[NOW_VALUE]
        if not overflow.any():
            note_best(state)
            return
        state.room[:] -= self._memory.leave(overflow)
        state.now[NOW_EXCESS] = np.maximum(state.held - state.room, 0).sum()

    def _temperature(self, done: int) -> float:
        value = max(1, min(self.value, int(self._state.now[NOW_VALUE])) % self._problem.penalty)
        hot = self._hot * self._first_temperature * value
        cold = min(hot, self._last_temperature * value)
        return max(0.1, float(hot * (cold / hot) ** (done / self._length)))

    def _begin_cycle(self) -> None:
        """Rounds of cycles: one at each heat, then some at the heat that came lowest; the next round is longer."""
        state = self._state
        number, turn = divmod(self._cycles, len(HEATS) + self._parameters.cycles_of_best_heat)
        if self._length and self._heat >= 0:
            self._reached[self._heat] = min(
                self._reached[self._heat], int(state.now[NOW_VALUE]) + (NEVER if state.now[NOW_EXCESS] else 0)
            )
        if turn == 0:
            self._reached = [NEVER] * len(HEATS)
        self._heat = turn if turn < len(HEATS) else int(np.argmin(self._reached))
        self._length = min(self._parameters.most_cycle_steps, self._first << min(number, 20))
        self._done, self._cycles, self._hot = 0, self._cycles + 1, HEATS[self._heat]
        state.room[:] += self._memory.give_back(stuck=bool(state.now[NOW_EXCESS] > 0))
        state.now[ASKED_BELOW] = self.value
        nowhere = self.value >= NEVER
        if turn == (0 if nowhere else len(HEATS) - 1) and len(self._starts) > 1:
            self._load(*self._starts[number % len(self._starts)][1:])
        elif not nowhere:
            self._load(*state.best)

    def _fastest(self) -> Indices:
        """Every op (with its set) where the set runs fastest."""
        problem = self._problem
        total = np.zeros(problem.allowed.shape, np.int64)
        np.add.at(total, problem.group, np.maximum(problem.cost[:, :, RUN_TIME], 0))
        placement: Indices = np.where(problem.allowed, total, NEVER).argmin(axis=1)[problem.group].astype(np.int32)
        return placement


class Find(NamedTuple):
    """A plan of an annealer."""

    placement: Indices
    order: Indices
    planned: int
    """Its value by the annealer's own account."""
    filled: Timeline | None
    """The same with gaps filled, if that is shorter."""

    @property
    def value(self) -> int:
        """The smaller of both."""
        return self.planned if self.filled is None else self.filled.value

    def offer(self, search: Search) -> None:
        """Both forms, as far as they are better than what is known."""
        if self.filled is not None:
            search.offer(self.placement, actions=self.filled.actions(search.problem.graph.arrays.producer))
        if not search.is_over and (search.best is None or self.planned < search.best.value):
            search.offer(self.placement, order=self.order)


def new_find(annealer: PlacementAnnealer, table: Tables, shown: int) -> Find | None:
    """Its best if that is below `shown`; the annealer goes on with gaps filled."""
    best = annealer.best
    if best is None or best[2] >= shown:
        return None
    filled = backfill(table, *best[:2])
    if filled is None or filled.value >= best[2]:
        return Find(*best, None)
    annealer.give(best[0], filled.order)
    return Find(*best, filled)
