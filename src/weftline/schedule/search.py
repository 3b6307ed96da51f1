"""How every scheduler is called: a budget, a seed, a place to offer orders, repetends and bounds.

A scheduler offers orders; `ScheduleSearch` costs each with the one simulator and keeps the best that breaks no memory
limit: least makespan (or device span), then the other of the two, then least memory. So a scheduler that is stopped
(time, work, Ctrl-C) still has its best answer, and none reports its own value.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.schedule.repetend import Repetend, repetend_peaks, unroll
from weftline.search import Budget, Event
from weftline.simulate import Timetable, schedule_violations, simulate_schedule

__all__ = ["ScheduleSearch", "Scheduler"]


@dataclass
class ScheduleSearch(Budget):
    """One search: what was asked, what was found. Only the `offer` methods change it."""

    blocks: Blocks
    micro_batches: int
    device_span: bool = False
    """Judge by the longest device span instead of the makespan: the optimizer step needs no global synchronisation."""
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
    reached: dict[str, int | None] = field(default_factory=dict)
    """What each scheduler that ran reached by itself; None = nothing within the limits."""
    _own: int | None = None

    def value(self, timetable: Timetable) -> int:
        """What is minimised."""
        return timetable.device_span if self.device_span else timetable.makespan

    @property
    def stopped_by(self) -> str:
        """The stop rule that has fired, or nothing."""
        return self.rule(None if self.best is None else self.value(self.best), self.bound)

    @property
    def is_over(self) -> bool:
        """A stop rule has fired and there is an answer, or no time is left to find one."""
        fired = self.stopped_by
        return fired != "" and (self.best is not None or fired == "time")

    def run(self, scheduler: Scheduler) -> None:
        """Let a scheduler work on this search, and note what it reaches by itself."""
        self._own = None
        try:
            scheduler.solve(self)
        finally:
            self.reached[scheduler.name] = self._own

    def offer(self, orders: Sequence[Ints]) -> int | None:
        """Cost a candidate -> its value, or None if it breaks a limit or never ends (then `refused` says why)."""
        self.offered += 1
        try:
            found = simulate_schedule(self.blocks, self.micro_batches, orders)
        except InfeasibleError as error:
            self.refused = (str(error),)
            return None
        self.refused = schedule_violations(found)
        if self.refused:
            return None
        value = self.value(found)
        self._own = value if self._own is None else min(self._own, value)
        if self.best is None or self._rank(found) < self._rank(self.best):
            self.best = found
            self.tell()
        return value

    def offer_repetend(self, repetend: Repetend) -> int | None:
        """Keep the pattern if its period is the least so far, and cost it unrolled -> the value of that."""
        peaks = repetend_peaks(self.blocks, repetend)
        limits = [lane.memory for lane in self.blocks.devices]
        if any(peak > limit for peak, limit in zip(peaks, limits, strict=True)):
            self.refused = ("the repetend needs more memory than there is",)
            return None
        if self.repetend is None or repetend.period < self.repetend.period:
            self.repetend, self.period_proved, self.proof = repetend, False, ""
            self._compare()
            self.tell()
        return self.offer(unroll(self.blocks, repetend, self.micro_batches))

    def offer_bound(self, bound: int, by: str) -> None:
        """A lower bound of the value."""
        if self.bound is None or bound > self.bound:
            self.bound, self.bound_by = bound, by
            self.tell()

    def offer_period_bound(self, bound: Fraction, by: str) -> None:
        """A lower bound of the period of every pattern, whatever its number of micro-batches."""
        if self.period_bound is None or bound > self.period_bound:
            self.period_bound, self.period_bound_by = bound, by
            self._compare()
            self.tell()

    def prove_period(self, proof: str) -> None:
        """The repetend's period is the least of a class of patterns; `proof` says which and by whom."""
        self.period_proved, self.proof = True, proof

    def tell(self, message: str = "") -> None:
        """Report progress."""
        if self.on_event is not None:
            value = None if self.best is None else self.value(self.best)
            self.on_event(Event(self.seconds, self.solver, value, self.bound, message))

    def _compare(self) -> None:
        """A period that equals its bound is proved; a proof of a class ends when the class is left."""
        if self.repetend is None or self.period_bound is None:
            return
        if self.repetend.period <= self.period_bound:
            self.prove_period(f"equals the bound ({self.period_bound_by})")

    def _rank(self, found: Timetable) -> tuple[int, int, int]:
        spans = found.makespan, found.device_span
        return (*(spans[::-1] if self.device_span else spans), max(found.peak_memory))


@dataclass(frozen=True)
class Scheduler:
    """One entry of the registry."""

    name: str
    description: str
    solve: Callable[[ScheduleSearch], None]
    """Offers orders, repetends and bounds until it is done or `stopped_by` says so."""
