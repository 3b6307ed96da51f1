"""Simulated annealing of stages.

In: a Search and starts. Out: candidates. Simplified: loads are kept incrementally inside the kernel.

`anneal`: slices of several orders, then simulated annealing with restarts until a stop rule fires.

The annealer calls the kernel in portions, with starts, restarts and polish. In: Pieces, a seed, perhaps a device per
piece to start from. Out: the best device per piece so far and its value, which is the simulator's (activation memory
aside, which only the simulator knows; `shrink` leaves room for it). Every cycle cools from hot to cold and begins at
the best, at the last state, or at another start; a new best is sliced again.

Without a time limit it does a number of steps that depends on the size of the graph alone, so that the answer does not
depend on the machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.anneal.kernel import Cooling, anneal
from weftline.pipeline.anneal.state import load_state, make_state, state_value
from weftline.pipeline.pieces import Pieces, make_pieces
from weftline.pipeline.reduce import make_piece_arrays, merge_freely, reduce_exactly
from weftline.pipeline.simple import overflow_of
from weftline.pipeline.slice import NO_STOP, Slicer, slice_again, slice_starts
from weftline.search import Search, Solver, alarm
from weftline.simulate.kernels.random import make_generator
from weftline.simulate.sentinels import NEVER

__all__ = ["SOLVER", "AnnealParameters", "PipelineAnnealer"]

FIRST_TEMPERATURES = (100.0, 1.0, 1000.0, 6.0)
"""Cycles begin at these in turn. Random graphs need little heat; where tensors are expensive, as in networks, a single
move may cost a large part of the target, and only much heat carries a whole group of pieces across."""


@dataclass(frozen=True)
class AnnealParameters:
    """Numbers of `anneal`."""

    warm_temperature: float = field(default=1.0, metadata={"least": 0.001})
    """Cycles that begin this warm begin at the best state, the others at the last one or at a start."""
    cold_temperature: float = field(default=0.04, metadata={"least": 0.000001})
    """Of the end of each cycle."""
    cycle_steps: int = 800
    """Of a first cycle per piece and stage, within limits; they double whenever all temperatures had their turn."""
    fewest_cycle_steps: int = field(default=20_000, metadata={"least": 1})
    most_first_cycle_steps: int = field(default=1_000_000, metadata={"least": 1})
    most_cycle_steps: int = field(default=24_000_000, metadata={"least": 1})
    most_starts: int = 4
    """That are kept to begin at."""
    big_pieces: int = 2000
    """Above so many all cycles begin warm: heat would undo what they cannot find again."""
    portion_steps: int = field(default=250_000, metadata={"least": 1})
    """Between two looks at what was found."""
    most_steps: int = 4_000_000
    steps_per_pair: int = 50
    """Without a time limit: so many per pair of pieces, up to `most_steps`."""
    fewest_portions: int = field(default=16, metadata={"least": 1})
    """Without a time limit."""


class PipelineAnnealer:
    """One search; `run` may be called in a thread of its own."""

    def __init__(
        self,
        pieces: Pieces,
        *,
        seed: int = 0,
        start: Indices | None = None,
        room: Ints | None = None,
        floor: int = 0,
        stop: Ints = NO_STOP,
        coarser: bool = True,
        parameters: AnnealParameters = AnnealParameters(),
    ) -> None:
        self.pieces, self.board, self.floor = pieces, make_piece_arrays(pieces), floor
        self._parameters, self._seed, self._cycles, self._done, self._length = parameters, seed, 0, 0, 0
        self._hot = parameters.warm_temperature
        self._stages = np.array(pieces.stage_devices, np.int32)
        room = pieces.problem.capacity if room is None else room
        generator = make_generator(seed, 1)
        self._state = make_state(self.board, self._stages, generator, room, unequal=not pieces.equal)
        self._slicer = Slicer(pieces, self._state.room)
        self._best = np.zeros(len(pieces.time), np.int32)
        self._value = np.full(1, NEVER, np.int64)
        self._loaded = False
        self._starts: list[Indices] = []
        coarse = merge_freely(pieces) if coarser else None
        self._coarse: PipelineAnnealer | None = None
        if coarse is not None:
            self._coarse = PipelineAnnealer(
                coarse, seed=seed, room=room, floor=floor, stop=stop, coarser=False, parameters=parameters
            )
            if self._coarse.best is not None:
                self.give(self._lower(self._coarse.best[0]))
        if start is not None:
            self.give(start)
        if not self._loaded:
            self._find_starts(stop)

    @property
    def best(self) -> tuple[Indices, int] | None:
        """Device per piece and its value, or None if nothing is within the limits so far."""
        return None if self._value[0] >= NEVER else (self._best.copy(), int(self._value[0]))

    @property
    def alive(self) -> bool:
        """False if there is no state to begin at; `give` may bring one."""
        return self._loaded

    def give(self, device: Indices) -> bool:
        """Begin the next cycle here -> False if it is no pipeline. It becomes the best if it is better."""
        kept = np.array(device, np.int32)
        if not load_state(self.board, self._state, kept, self._stages):
            self._reload()
            return False
        self._loaded, self._done, self._length = True, 0, 0
        self._starts = [kept, *self._starts][: self._parameters.most_starts]
        value = state_value(self.board, self._state)
        if 0 <= value < self._value[0]:
            self._best[:], self._value[0] = kept, value
        return True

    def shrink(self, overflow: Ints) -> None:
        """Leave room on some devices, because the best overflowed them; it is forgotten."""
        self._state.room[:] -= overflow
        if self._coarse is not None:
            self._coarse.shrink(overflow)
        self._slicer = Slicer(self.pieces, self._state.room)
        self._value[0] = NEVER
        for device in self._starts[::-1]:
            self.give(device)
        found = slice_starts(self._slicer, self._seed, 0)
        for _, device in found[:1]:
            self.give(device)

    def run(self, steps: int, stop: Ints = NO_STOP) -> tuple[Indices, int] | None:
        """Do so many steps (fewer if the flag rises) -> the best so far."""
        while steps > 0 and self._loaded and not stop[0] and self._value[0] > self.floor:
            if self._done >= self._length:
                steps -= self._run_coarse(steps, stop)
                self._begin_cycle()
            part = min(steps, self._length - self._done)
            hot, cold = (self._temperature(done) for done in (self._done, self._done + part))
            before = int(self._value[0])
            cooling = Cooling(part, hot, cold)
            anneal(self.board, self._state, self._stages, self._best, self._value, cooling, self.floor, stop)
            steps -= part
            self._done += part
            if self._value[0] < before and self._done >= self._length:
                self._polish(stop)
        return self.best

    def _run_coarse(self, steps: int, stop: Ints) -> int:
        """Before each cycle: as many steps on coarser pieces, if there are any -> how many."""
        if self._coarse is None or not self._coarse.alive or steps <= 1:
            return 0
        length = min(steps // 2, self._next_length())
        best = self._coarse.run(length, stop)
        if best is not None and best[1] < self._value[0]:
            self.give(self._lower(best[0]))
        return length

    def _lower(self, device: Indices) -> Indices:
        """Device of each coarse piece -> of each piece."""
        assert self._coarse is not None
        return self.pieces.nearest(self._coarse.pieces.lift(device))

    def _temperature(self, done: int) -> float:
        return float(self._hot * (self._parameters.cold_temperature / self._hot) ** (done / self._length))

    def _next_length(self) -> int:
        count, stages, limits = len(self.pieces.time), max(1, self._state.stages), self._parameters
        first = max(limits.fewest_cycle_steps, limits.cycle_steps * count * stages)
        first = min(limits.most_first_cycle_steps, first)
        return min(limits.most_cycle_steps, first << min(self._cycles // len(FIRST_TEMPERATURES), 20))

    def _begin_cycle(self) -> None:
        """Cycles grow longer; they begin at the best, go on where the last one ended, or begin at another start."""
        turn, warm = self._cycles, self._parameters.warm_temperature
        big = len(self.pieces.time) > self._parameters.big_pieces
        self._done, self._length = 0, self._next_length()
        self._hot = warm if big else FIRST_TEMPERATURES[turn % len(FIRST_TEMPERATURES)]
        self._cycles += 1
        if self._hot <= warm:
            self._reload()
        elif turn % len(FIRST_TEMPERATURES) == 2 and len(self._starts) > 1:
            start = self._starts[turn // len(FIRST_TEMPERATURES) % len(self._starts)]
            load_state(self.board, self._state, start, self._stages)

    def _reload(self) -> None:
        if self._value[0] < NEVER:
            load_state(self.board, self._state, self._best, self._stages)

    def _polish(self, stop: Ints) -> None:
        """Slice the best again; the answer counts if it is better by the exact cost."""
        device, value = slice_again(self._slicer, self._best, int(self._value[0]), self._cycles, stop)
        if value < self._value[0] and load_state(self.board, self._state, device, self._stages):
            exact = state_value(self.board, self._state)
            if 0 <= exact < self._value[0]:
                self._best[:], self._value[0] = device, exact

    def _find_starts(self, stop: Ints) -> None:
        most = self._parameters.most_starts
        found = [device for _, device in slice_starts(self._slicer, self._seed, most, stop)]
        if not found:
            found = self._single()
        for device in found[:most][::-1]:
            self.give(device)

    def _single(self) -> list[Indices]:
        """Everything on one device, where no slice exists; its memory may overflow at first."""
        able = np.flatnonzero((self.pieces.time >= 0).all(axis=0))
        return [np.full(len(self.pieces.time), d, np.int32) for d in able.tolist()]


def _solve(search: Search) -> None:
    pieces = reduce_exactly(make_pieces(search.problem))
    floor, parameters = 0 if search.bound is None else search.bound.value, search.parameters(AnnealParameters)
    with alarm(search) as stop:
        annealer = PipelineAnnealer(pieces, seed=search.seed, floor=floor, stop=stop, parameters=parameters)
        left = min(parameters.most_steps, parameters.steps_per_pair * len(pieces.time) ** 2 + 20_000)
        portion = parameters.portion_steps
        if search.time_limit is None:
            portion = min(portion, max(1, left // parameters.fewest_portions))
        shown = _show(search, annealer, None)
        while not search.is_over and not stop[0] and (search.time_limit is not None or left > 0):
            if shown is not None and shown <= floor:
                return
            annealer.run(portion, stop)
            left -= portion
            shown = _show(search, annealer, shown)
            if annealer.best is None and not annealer.alive:
                return


def _show(search: Search, annealer: PipelineAnnealer, shown: int | None) -> int | None:
    """Offer the annealer's best if it is new -> its value; where activations overflow, the annealer leaves room."""
    best = annealer.best
    if best is None or (shown is not None and best[1] >= shown) or search.is_over:
        return shown
    placement = annealer.pieces.lift(best[0])
    if search.offer(placement) is None:
        overflow: Ints = overflow_of(search.problem, placement)
        annealer.shrink(overflow)
        return shown
    return best[1]


SOLVER = Solver(
    "anneal", "annealing on moves between stages, from slices of several orders", _solve, parameters=AnnealParameters
)
