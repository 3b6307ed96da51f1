"""How every scheduler is called: a budget, a seed, a place to offer orders, repetends and bounds.

A scheduler offers orders; `ScheduleSearch` costs each with the one simulator and keeps the best that breaks no memory
limit: least makespan (or device span), then the other of the two, then least memory. So a scheduler that is stopped
(time, work, Ctrl-C) still has its best answer, and none reports its own value. A portfolio gives each of its members a
`fork`, which passes on all it is offered; members may run in threads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from threading import RLock

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.repetend import Repetend, repetend_peaks, unroll
from weftline.search import Budget, Event, Termination
from weftline.search.parameters import field_names
from weftline.simulate import Timetable, schedule_violations, simulate_schedule

__all__ = ["ScheduleSearch", "Scheduler"]

QUIET_SECONDS, PERIOD_SECONDS, QUIET_SHARE = 2.0, 15.0, 0.65
"""Without limits: nothing became better for so long (longer while the period is above its bound), and for this share of
all the time."""


@dataclass
class ScheduleSearch(Budget):
    """One search: what was asked, what was found. Only the `offer` methods and `prove_period` change it."""

    blocks: Blocks
    micro_batches: int
    device_span: bool = False
    """Judge by the longest device span instead of the makespan: the optimizer step needs no global synchronisation."""
    from_arrival: bool = False
    """Judge by the largest latency of a micro-batch after its arrival, which is its last block (`with_arrivals`)."""
    wants_period: bool = False
    """Not over before the period reaches its bound (or a limit is reached), where a pattern can repeat at all."""
    settle: bool = False
    """Nobody set a limit: end when nothing has become better for a while."""
    keep: int = 0
    """So many of the best orders stay in `pool`, beside the best."""
    best: Timetable | None = None
    bound: int | None = None
    """No schedule of the micro-batches is shorter."""
    bound_by: str = ""
    repetend: Repetend | None = None
    """The pattern with the least period so far."""
    period_bound: Fraction | None = None
    """No pattern that repeats for ever has a smaller period."""
    period_bound_by: str = ""
    period_proved: bool = False
    """Whether the repetend's period is the least possible: it equals a bound, or a proof covers its class."""
    proof: str = ""
    """What was proved about the period."""
    period_seconds: float = 0.0
    """When the best period was found, or proved."""
    improved: float = 0.0
    """When value, period or a bound last became better."""
    pool: list[Timetable] = field(default_factory=list)
    reached: dict[str, int | None] = field(default_factory=dict)
    """What each scheduler that ran reached by itself; None = nothing within the limits."""
    parent: ScheduleSearch | None = None
    _lock: RLock = field(default_factory=RLock, repr=False)

    def fork(
        self,
        name: str,
        *,
        seconds: float | None = None,
        work: int | None = None,
        seeded: bool = False,
        wants_period: bool = False,
    ) -> ScheduleSearch:
        """A search of its own for one member of a portfolio; with `seeded` it knows the best so far."""
        left = [each for each in (self.seconds_left, seconds) if each is not None]
        with self._lock:
            return ScheduleSearch(
                self.blocks,
                self.micro_batches,
                device_span=self.device_span,
                from_arrival=self.from_arrival,
                wants_period=wants_period,
                best=self.best if seeded else None,
                repetend=self.repetend if seeded else None,
                bound=self.bound,
                bound_by=self.bound_by,
                period_bound=self.period_bound,
                period_bound_by=self.period_bound_by,
                time_limit=max(0.0, min(left)) if left else None,
                work_limit=work,
                gap=self.gap,
                seed=self.seed,
                solver=name,
                parent=self,
            )

    def value(self, timetable: Timetable) -> int:
        """What is minimised."""
        if self.from_arrival:
            return timetable.latency_after(self.blocks.n - 1)
        return timetable.device_span if self.device_span else timetable.makespan

    @property
    def period_at_bound(self) -> bool:
        """No pattern of any number of micro-batches is better; a proof may be of a smaller class."""
        known = self.repetend is not None and self.period_bound is not None
        return known and self.repetend.period <= self.period_bound  # type: ignore[union-attr, operator]

    @property
    def stopped_by(self) -> Termination:
        """The stop rule that has fired; false while none has."""
        searching = self.wants_period and self.blocks.balanced and not self.period_at_bound
        waits = searching and not self.gap  # who asks for a gap means the value alone
        fired = self.rule(None if self.best is None or waits else self.value(self.best), self.bound)
        if not fired and self.settle and self.best is not None:
            quiet = max(PERIOD_SECONDS if searching else QUIET_SECONDS, QUIET_SHARE * self.seconds)
            fired = Termination.SETTLED if self.seconds - self.improved > quiet else Termination.NONE
        return fired or (Termination.NONE if self.parent is None else self.parent.stopped_by)

    @property
    def is_over(self) -> bool:
        """A stop rule has fired and there is an answer, or no time is left to find one."""
        fired, left = self.stopped_by, self.seconds_left
        late = fired == Termination.TIME or (left is not None and left <= 0)  # work that is done must not hide that
        return fired != Termination.NONE and (self.best is not None or late)

    def run(self, scheduler: Scheduler, **limits: float | int | bool | None) -> None:
        """Let a scheduler work, and note what it reaches by itself; `limits` as in `fork`."""
        own = self.fork(scheduler.name, **{"wants_period": self.wants_period, "work": self.work_limit, **limits})  # type: ignore[arg-type]
        try:
            scheduler.solve(own)
        finally:
            self.reached[scheduler.name] = None if own.best is None else own.value(own.best)

    def offer(self, orders: Sequence[Ints]) -> int | None:
        """Cost a candidate -> its value, or None if it breaks a limit or never ends (then `refused` says why)."""
        self._count()
        try:
            found = simulate_schedule(self.blocks, self.micro_batches, orders)
        except InfeasibleError as error:
            self._refuse((str(error),))
            return None
        broken = schedule_violations(found)
        if broken:
            self._refuse(broken)
            return None
        self._take(found)
        return self.value(found)

    def offer_repetend(self, repetend: Repetend) -> int | None:
        """Keep the pattern if its period is the least so far, and cost it unrolled -> the value of that."""
        peaks = repetend_peaks(self.blocks, repetend)
        limits = [lane.room for lane in self.blocks.devices]
        if any(peak > limit for peak, limit in zip(peaks, limits, strict=True)):
            self._refuse(("the repetend needs more memory than there is",))
            return None
        self._take_repetend(repetend)
        return self.offer(unroll(self.blocks, repetend, self.micro_batches))

    def offer_bound(self, bound: int, by: str) -> None:
        """A lower bound of the value."""
        with self._lock:
            if self.bound is None or bound > self.bound:
                self.bound, self.bound_by, self.improved = bound, by, self.seconds
                self.tell()
        if self.parent is not None:
            self.parent.offer_bound(bound, by)

    def offer_period_bound(self, bound: Fraction, by: str) -> None:
        """A lower bound of the period of every pattern, whatever its number of micro-batches."""
        with self._lock:
            if self.period_bound is None or bound > self.period_bound:
                self.period_bound, self.period_bound_by, self.improved = bound, by, self.seconds
                self._compare()
                self.tell()
        if self.parent is not None:
            self.parent.offer_period_bound(bound, by)

    def prove_period(self, proof: str) -> None:
        """The repetend's period is the least of a class of patterns; `proof` says which and by whom."""
        with self._lock:
            if not self.period_proved:
                self.period_seconds = self.seconds
            self.period_proved, self.proof = True, proof
        theirs = None if self.parent is None else self.parent.repetend
        if theirs is not None and self.repetend is not None and theirs.period == self.repetend.period:
            self.parent.prove_period(proof)  # type: ignore[union-attr]

    def tell(self, message: str = "") -> None:
        """Report progress."""
        if self.on_event is not None:
            value = None if self.best is None else self.value(self.best)
            self.on_event(Event(self.seconds, self.solver, value, self.bound, message))
        if self.parent is not None and message:
            self.parent.tell(f"{self.solver}: {message}")

    def rank(self, found: Timetable) -> tuple[int, int, int]:
        """What is better comes first: value, the other span, memory."""
        spans = found.makespan, found.device_span
        if self.from_arrival:
            return (self.value(found), found.makespan, max(found.peak_memory))
        return (*(spans[::-1] if self.device_span else spans), max(found.peak_memory))

    def _count(self) -> None:
        with self._lock:
            self.offered += 1
        if self.parent is not None:
            self.parent._count()

    def _refuse(self, why: tuple[str, ...]) -> None:
        self.refused = why
        if self.parent is not None:
            self.parent._refuse(why)

    def _take(self, found: Timetable) -> None:
        with self._lock:
            if self.best is None or self.rank(found) < self.rank(self.best):
                if self.best is not None:
                    self._pool(self.best)
                if self.best is None or self.value(found) < self.value(self.best):
                    self.improved = self.seconds
                self.best = found
                self.tell()
            else:
                self._pool(found)
        if self.parent is not None:
            self.parent._take(found)

    def _take_repetend(self, repetend: Repetend) -> None:
        with self._lock:
            if self.repetend is None or repetend.period < self.repetend.period:
                self.repetend, self.period_proved, self.proof = repetend, False, ""
                self.improved = self.period_seconds = self.seconds
                self._compare()
                self.tell()
        if self.parent is not None:
            self.parent._take_repetend(repetend)

    def _pool(self, found: Timetable) -> None:
        """Other good orders, for choices that the value does not see."""
        if self.keep:
            same = any(all(map(np.array_equal, t.orders, found.orders)) for t in self.pool)
            self.pool = sorted([*self.pool, *([] if same else [found])], key=self.rank)[: self.keep]

    def _compare(self) -> None:
        """A period that equals its bound is proved."""
        if self.repetend is None or self.period_bound is None:
            return
        if self.repetend.period <= self.period_bound:
            self.prove_period(f"equals the bound ({self.period_bound_by})")


@dataclass(frozen=True)
class Scheduler:
    """One entry of the registry."""

    name: str
    description: str
    solve: Callable[[ScheduleSearch], None]
    """Offers orders, repetends and bounds until it is done or `stopped_by` says so."""
    parameters: type | None = None
    """A frozen dataclass of its numbers, which it reads by `ScheduleSearch.parameters`."""

    @property
    def takes(self) -> tuple[str, ...]:
        """Names that `--set` takes."""
        return field_names(self.parameters)
