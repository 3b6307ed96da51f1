"""How every solver is called, and what it may use: a budget, a seed, a place to offer candidates.

In: a Problem. A solver offers placements; `Search` costs each with the one simulator, keeps the best that breaks no
limit, and tells `on_event`. So a solver that is stopped (time, work, Ctrl-C) still has its best answer, and no solver
reports its own value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib import import_module
from threading import Timer
from time import monotonic
from typing import TypeVar

import numpy as np

from weftline.arguments import shown
from weftline.errors import InfeasibleError, UsageError, near
from weftline.graph.arrays import Indices, Ints
from weftline.plugins import registered
from weftline.problem import Problem
from weftline.search.bound import Bound
from weftline.search.parameters import field_names, read_parameters
from weftline.search.termination import Termination
from weftline.simulate import Loads, Timeline, replay, simulate_latency, simulate_throughput, violations

__all__ = [
    "SINGLE_DEVICE",
    "Budget",
    "Event",
    "Search",
    "Solver",
    "alarm",
    "best_of",
    "find_solver",
    "load_solvers",
]


Parameters = TypeVar("Parameters")


@dataclass(frozen=True)
class Event:
    """Something worth showing while a solver works."""

    seconds: float
    """Since the search began."""
    solver: str
    value: int | None
    """Best so far, ns."""
    bound: int | None
    """Best lower bound so far, ns."""
    message: str = ""


@dataclass(kw_only=True)
class Budget:
    """What a search may use, and what it has used."""

    time_limit: float | None = None
    """Seconds."""
    work_limit: int | None = None
    """Candidates to be costed; with it instead of a time limit the result does not depend on the machine."""
    gap: float = 0.0
    """Good enough: (value - bound) / value."""
    seed: int = 0
    on_event: Callable[[Event], None] | None = None
    solver: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    """Settings of the solver's own, as the user wrote them; only those that it `takes`."""
    offered: int = 0
    refused: tuple[str, ...] = ()
    """Why the last candidate was refused."""
    _begun: float = field(default_factory=monotonic)

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return monotonic() - self._begun

    @property
    def seconds_left(self) -> float | None:
        """Until the time limit, None without one."""
        return None if self.time_limit is None else self.time_limit - self.seconds

    def parameters(self, kind: type[Parameters]) -> Parameters:
        """The solver's numbers: the defaults of its class, and what the user set instead."""
        return read_parameters(kind, self.options)

    def rule(self, value: int | None, bound: int | None) -> Termination:
        """The stop rule that has fired with this value and lower bound."""
        if value is not None and bound is not None:
            if value <= bound:
                return Termination.OPTIMAL
            if value - bound <= self.gap * value:
                return Termination.GAP
        if self.work_limit is not None and self.offered >= self.work_limit:
            return Termination.WORK
        if self.time_limit is not None and self.seconds >= self.time_limit:
            return Termination.TIME
        return Termination.NONE


@dataclass
class Search(Budget):
    """One search: what was asked, what was found. Only `offer`, `adopt` and `offer_bound` change it."""

    problem: Problem
    best: Timeline | Loads | None = None
    bound: Bound | None = None
    reached: dict[str, int | None] = field(default_factory=dict)
    """What each solver that could finish reached by itself; None = nothing within the limits."""
    notes: dict[str, list[object]] = field(default_factory=dict)
    """What solvers leave, by the name of their bound, for those who make proofs of what they claim."""
    _own: int | None = None

    @property
    def stopped_by(self) -> Termination:
        """The stop rule that has fired; false while none has."""
        value = None if self.best is None else self.best.value
        return self.rule(value, None if self.bound is None else self.bound.value)

    @property
    def is_over(self) -> bool:
        """A stop rule has fired and there is an answer, or no time is left to find one."""
        if self.best is None:  # work that is done ends nothing, so it must not hide the end of the time
            return self.seconds_left is not None and self.seconds_left <= 0
        return self.stopped_by != Termination.NONE

    def run(self, solver: Solver) -> None:
        """Let a solver work on this search, and note what it reaches by itself."""
        outer, self._own = self._own, None
        try:
            solver.solve(self)
        finally:
            if not self.stopped_by:
                self.reached[solver.name] = self._own
            self._own = min((value for value in (outer, self._own) if value is not None), default=None)

    def offer(self, placement: Indices, *, order: Indices | None = None, actions: Ints | None = None) -> int | None:
        """Cost a candidate -> its value, or None if it breaks a limit (then `refused` says which)."""
        self.offered += 1
        try:
            result = self._simulate(np.asarray(placement, np.int32), order, actions)
        except InfeasibleError as error:
            self.refused = (str(error),)
            return None
        self.refused = violations(self.problem, result)
        if self.refused:
            return None
        self._own = result.value if self._own is None else min(self._own, result.value)
        if self.best is None or result.value < self.best.value:
            self.best = result
            self.tell()
        return result.value

    def adopt(self, found: Timeline | Loads) -> None:
        """What another search of the same problem found, within the limits."""
        if self.best is None or found.value < self.best.value:
            self.best = found
            self.tell()

    def offer_bound(self, bound: Bound) -> None:
        """A lower bound that a solver found or claims."""
        if self.bound is None or bound.value > self.bound.value:
            self.bound = bound
            self.tell()

    def tell(self, message: str = "") -> None:
        """Report progress."""
        if self.on_event is not None:
            value = None if self.best is None else self.best.value
            bound = None if self.bound is None else self.bound.value
            self.on_event(Event(self.seconds, self.solver, value, bound, message))

    def _simulate(self, placement: Indices, order: Indices | None, actions: Ints | None) -> Timeline | Loads:
        if self.problem.rules.objective == "throughput":
            return simulate_throughput(self.problem, placement)
        if actions is not None:
            return replay(self.problem, placement, actions)
        return simulate_latency(self.problem, placement, order)


@dataclass(frozen=True)
class Solver:
    """One entry of a registry."""

    name: str
    description: str
    solve: Callable[[Search], None]
    """Offers candidates (and bounds) to the search until it is done or `stopped_by` says so."""
    baseline: bool = False
    """Reported beside every answer of its family."""
    options: tuple[str, ...] = ()
    """Names of settings that are no numbers of its own: files, presets. It reads them from `Search.options`."""
    parameters: type | None = None
    """A frozen dataclass of its numbers, which it reads by `Search.parameters`."""
    learned: bool = False
    """Asks or trains a network."""
    prepare: Callable[[], None] | None = None
    """Loads (or compiles) what it needs beyond its room, before a clock runs."""
    learn: Callable[..., None] | None = None
    """Trains on measured rewards by itself: `learn(search, measurements)`. Others only propose what is measured."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names that `--set` takes."""
        return (*self.options, *field_names(self.parameters))


@contextmanager
def alarm(search: Budget) -> Iterator[Ints]:
    """A flag for kernels that rises when the search's time is over."""
    stop = np.zeros(1, np.int64)
    if search.seconds_left is None:
        yield stop
        return

    def ring() -> None:
        stop[0] = 1

    timer = Timer(max(0.0, search.seconds_left), ring)
    timer.daemon = True
    timer.start()
    try:
        yield stop
    finally:
        timer.cancel()


def load_solvers(room: str, modules: tuple[str, ...]) -> dict[str, Solver]:
    """The solvers of a room by name: ours, then those other packages offer as entry points `weftline.<room>`."""
    found: list[Solver] = []
    for name in modules:
        module = import_module(f"weftline.{room}.{name}")
        found += getattr(module, "SOLVERS", None) or (module.SOLVER,)
    return registered(f"weftline.{room}", found)


def best_of(search: Search, solvers: dict[str, Solver], names: tuple[str, ...]) -> tuple[str, ...]:
    """Run solvers in turn until a stop rule fires -> why those that found nothing did not.

    Names that nobody has registered are passed over: some belong to rooms that may be left out.
    """
    reasons = []
    for name in (name for name in names if name in solvers):
        if search.stopped_by and search.best is not None:
            break
        try:
            search.run(solvers[name])
        except InfeasibleError as error:
            reasons.append(f"{name}: {error}")
    return tuple(reasons)


def find_solver(solvers: dict[str, Solver], name: str | Solver) -> Solver:
    """The solver of that name, or an error that lists what exists; one of the caller's own is itself."""
    if isinstance(name, Solver):
        return name
    if not isinstance(name, str):
        raise UsageError(f"a solver is a name or a weftline.search.Solver, not {shown(name)}")
    if name not in solvers:
        raise UsageError(f"unknown solver {name!r:.100}{near(name, solvers)} (there are: {', '.join(solvers)})")
    return solvers[name]


def _single_device(search: Search) -> None:
    ops = len(search.problem.graph.ops)
    for device in range(len(search.problem.devices)):
        if search.stopped_by and search.best is not None:
            return
        search.offer(np.full(ops, device, np.int32))


SINGLE_DEVICE = Solver("single-device", "everything on one device, the best one", _single_device, baseline=True)
"""The first baseline of every question."""
