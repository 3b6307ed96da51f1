"""Rounds of annealing over cyclic orders: which sizes, starts and settings, for how long, and what is offered.

In: a ScheduleSearch and its bound of the period. Out: repetends, offered; the best of every size is kept. Runs of a
round may go side by side (the kernel needs no interpreter). Run lengths count trials: with a work limit nothing
depends on the clock.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random

from weftline.graph.arrays import Ints
from weftline.schedule.cyclic.anneal import SETTINGS, Annealed, anneal
from weftline.schedule.cyclic.exact import exact_period
from weftline.schedule.cyclic.order import CyclicOrder, CyclicPattern, make_pattern, order_of_starts, repeated
from weftline.schedule.cyclic.starts import compaction, list_timetables, modulo_placement, projection
from weftline.schedule.repetend import Repetend, repetend_of_starts, repetend_peaks
from weftline.schedule.search import ScheduleSearch
from weftline.search import Budget, alarm
from weftline.simulate import Timetable

__all__ = ["CyclicParameters", "PeriodSearch"]


@dataclass(frozen=True)
class CyclicParameters:
    """Sizes of repetends, rounds of annealing and proofs."""

    most_micro_batches: int = field(default=4, metadata={"least": 1})
    """Sizes of repetends that are searched: 1 to this."""
    threads: int = field(default=2, metadata={"least": 1, "most": 64})
    """Runs side by side when nobody else works."""
    starts_of_one_micro_batch: int = 24
    """Starts of size 1 that are taken as they are."""
    trials_per_item: int = 1500
    """In a run of the first length; longer ones have 2, 4, 8 ... times as many."""
    most_trials: int = 3_000_000
    """In a run."""
    projected_schedules: int = field(default=6, metadata={"least": 1})
    """Schedules by list rules whose middle is a start."""
    projected_variants: int = field(default=48, metadata={"least": 1})
    """List rules that are tried for them."""
    projected_operations: int = 6000
    """Of each of them, about."""
    most_items_to_prove: int = 40
    """Items up to which CP-SAT is asked for a proof."""
    proof_deterministic_time_units: float = 1.0
    """Of CP-SAT, under a work limit."""
    proof_seconds: float = 5.0
    """Of CP-SAT, where no limit is given."""
    run_lengths_before_proof: int = 2
    """Run lengths that are tried before CP-SAT is asked again."""
    near_period_percent: int = field(default=101, metadata={"least": 100})
    """Repetends with a period up to this, of the best, are offered for their makespan."""
    repetends_without_improvement: int = 48
    """Near the least period, in a row, before the search for a better makespan ends."""
    rounds_without_limit: int = 40
    """Rounds of annealing where no limit is given."""


@dataclass
class PeriodSearch:
    """What is known about the period of one search."""

    search: ScheduleSearch
    bound: Fraction
    """No period is smaller, whatever the size."""
    until: float | None = None
    """Clock of the search at which to stop."""
    threads: int = 1
    """Runs of a round side by side."""
    parameters: CyclicParameters = CyclicParameters()
    best: dict[int, Repetend] = field(default_factory=dict)
    """Size -> the repetend of so many micro-batches with the least period."""
    proved: dict[int, str] = field(default_factory=dict)
    """Size -> who proved that no repetend of so many micro-batches has a smaller period."""
    runs: int = 0
    _patterns: dict[int, CyclicPattern] = field(default_factory=dict)
    _lists: list[Timetable] | None = None

    @property
    def is_over(self) -> bool:
        """No time or work is left."""
        late = self.until is not None and self.search.seconds >= self.until
        return late or self.search.is_over or (self.is_timeless and self.runs > 1 + (self.search.work_limit or 0))

    @property
    def is_timeless(self) -> bool:
        """Only work is limited: nothing may depend on the clock."""
        return self.search.work_limit is not None and self.seconds_left is None

    @property
    def seconds_left(self) -> float | None:
        """Until the earlier of both limits, None without one."""
        mine = None if self.until is None else self.until - self.search.seconds
        left = [t for t in (self.search.seconds_left, mine) if t is not None]
        return min(left) if left else None

    @property
    def at_bound(self) -> bool:
        """Whether nothing better exists."""
        return any(repetend.period <= self.bound for repetend in self.best.values())

    @property
    def period(self) -> Fraction | None:
        """The least period so far."""
        return min((repetend.period for repetend in self.best.values()), default=None)

    @property
    def best_size(self) -> int:
        """The smallest size with the least period."""
        return min(self.best, key=lambda size: (self.best[size].period, size), default=1)

    def pattern(self, size: int) -> CyclicPattern:
        """The arrays of so many micro-batches."""
        if size not in self._patterns:
            self._patterns[size] = make_pattern(self.search.blocks, size)
        return self._patterns[size]

    def offer_order(self, size: int, order: CyclicOrder, *, better: bool = False) -> Repetend | None:
        """Offer what an order is, unless it breaks memory, deadlocks, or is far from (not `better` than) the best."""
        exact = exact_period(self.pattern(size), order)
        if exact is None or (better and size in self.best and exact[0] >= self.best[size].length):
            return None
        return self.offer(repetend_of_starts(self.search.blocks, size, *exact))

    def offer(self, repetend: Repetend) -> Repetend | None:
        """Offer a repetend unless it breaks memory or is far from the best."""
        blocks, size = self.search.blocks, repetend.micro_batches
        limits = blocks.table.limit.tolist()
        peaks = repetend_peaks(blocks, repetend)
        if any(peak > limit for peak, limit in zip(peaks, limits, strict=True)):
            return None
        if size not in self.best or repetend.period < self.best[size].period:
            self.best[size] = repetend
        if self.period is None or repetend.period <= Fraction(self.parameters.near_period_percent, 100) * self.period:
            self.search.offer_repetend(repetend)
        return repetend

    def prove(self, size: int, proof: str) -> None:
        """The best of a size is the least of that size; other sizes may have better ones, so the search goes on."""
        self.proved[size] = proof
        self.search.tell(f"period {self.best[size].period}: {proof}")

    def finish(self) -> None:
        """Tell the search what is proved about its repetend, if anything is."""
        kept = self.search.repetend
        for size, proof in self.proved.items():
            same = kept is not None and self.best[size].period == kept.period
            if same and not self.search.period_proved:
                self.search.prove_period(proof)

    def try_serial(self) -> None:
        """One micro-batch after another: slow, but it needs the least memory."""
        blocks, table = self.search.blocks, self.search.blocks.table
        starts, now = [Fraction(0)] * blocks.n, 0
        widest = int(table.after_lag.max()) if len(table.after_lag) else 0
        for i in table.order.tolist():
            starts[i] = Fraction(now)
            now += int(table.span[i]) + widest
        self.offer_order(1, order_of_starts(self.pattern(1), starts, Fraction(now)))

    def try_starts(self, size: int, looks: int) -> None:
        """Take starts as they are: with room in memory they often need no annealing."""
        joint = any(len(block.devices) > 1 for block in self.search.blocks.blocks)
        kinds = (1, 2, 0) if joint else (2, 1, 0)  # blocks on several devices first; list rules take longest
        for number in range(looks):
            if self.is_over or self.at_bound:
                return
            order = self._start(size, kinds[number % 3], number)
            if order is not None:
                self.offer_order(size, order, better=True)

    def vary(self, quiet: int) -> None:
        """Offer other repetends near the least period until so many in a row have not improved the makespan."""
        last, number, size = 0, 0, self.best_size
        value = self._value()
        while number - last < quiet and not self.is_over:
            number += 1
            order = self._start(size, number % 3, number + 100)
            if order is not None:
                self.offer_order(size, order)
            if number % 8 == 0:
                self.round(size, 0)
            if self._value() != value:
                value, last = self._value(), number

    def _value(self) -> int | None:
        return None if self.search.best is None else self.search.value(self.search.best)

    def round(self, size: int, level: int) -> bool:
        """Some runs of one size side by side -> whether one of them improved this size."""
        before = self.best[size].period if size in self.best else None
        pattern, least = self.pattern(size), float(self.bound * size)
        trials = min(self.parameters.most_trials, self.parameters.trials_per_item * len(pattern.span) * 2**level)
        jobs = []
        for _ in range(self.threads):
            self.runs += 1
            order = self._start(size, self.runs % 5, self.runs)
            if order is not None:
                jobs.append((order, SETTINGS[self.runs // 2 % len(SETTINGS)], self.search.seed * 1_000_003 + self.runs))
        with self._stop() as stop, ThreadPoolExecutor(self.threads) as pool:
            futures = [
                pool.submit(anneal, pattern, order, setting, least, trials=trials, seed=seed, stop=stop)
                for order, setting, seed in jobs
            ]
            found = self._wait(futures, least, stop)
        for run in found:
            if run.order is not None and not self.search.is_over:
                self.offer_order(size, run.order)
        return size in self.best and (before is None or self.best[size].period < before)

    def _wait(self, futures: list[Future[Annealed]], least: float, stop: Ints) -> list[Annealed]:
        """The results in the order of the runs; without a work limit the first at the bound ends the others."""
        left = set(futures)
        try:
            while left:
                done, left = wait(left, return_when=FIRST_COMPLETED)
                if self.search.work_limit is None and any(f.result().ratio <= least * (1 + 1e-8) for f in done):
                    stop[0] = 1
        finally:
            stop[0] = 1  # also when the user interrupts
        return [future.result() for future in futures]

    @contextmanager
    def _stop(self) -> Iterator[Ints]:
        """A flag that rises when the time is over."""
        with alarm(Budget(time_limit=self.seconds_left)) as stop:
            yield stop

    def _start(self, size: int, kind: int, number: int) -> CyclicOrder | None:
        """A start: by modulo placement, compaction, the best so far, a smaller one repeated, or a finished schedule."""
        blocks, pattern = self.search.blocks, self.pattern(size)
        random = Random(self.search.seed * 7919 + number)
        length = -(-(self.bound * size).numerator // (self.bound * size).denominator)
        smaller = [u for u in self.best if size % u == 0 and u < size]
        if kind == 3 and smaller:
            least = min(smaller, key=lambda u: (self.best[u].period, u))
            return repeated(pattern, self.best[least])
        if kind in (0, 4):
            if kind and size in self.best and number % 3 == 0:
                return order_of_starts(pattern, self.best[size].starts, self.best[size].length)
            projected = self._projected(size, number, random)
            if projected is not None:
                return order_of_starts(pattern, *projected)
        if kind in (1, 3):
            return order_of_starts(pattern, compaction(blocks, size, length, random), length)
        order = None if number < 5 else random
        return order_of_starts(pattern, modulo_placement(blocks, size, length, order), length)

    def _projected(self, size: int, number: int, random: Random) -> tuple[list[float], float] | None:
        """The middle of a schedule by list rules, or of the best schedule that the search knows."""
        if self._lists is None:
            self._lists = list_timetables(
                self.search.blocks,
                lambda: self.is_over,
                most=self.parameters.projected_schedules,
                most_variants=self.parameters.projected_variants,
                most_operations=self.parameters.projected_operations,
            )
        known = self._lists + ([] if self.search.best is None else [self.search.best])
        return projection(known[number // 4 % len(known)], size, random) if known else None
