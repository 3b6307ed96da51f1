"""`sequence`: annealing of explicit per-device sequences for the user's number of micro-batches.

Begins at the best so far, at list schedules and at annealed list rules; every start gets a short run, the best of them
long ones with different temperatures. Without a time limit the number of trials depends on the size alone, so that the
answer does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import monotonic

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.schedule.bounds.makespan import device_span_bound, makespan_bound
from weftline.schedule.list.priority import ListSearch, list_orders, one_after_another
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.sequences import Sequences, shorten_device_span
from weftline.search import alarm
from weftline.simulate import Orders, schedule_violations, simulate_schedule

__all__ = ["PARAMETERS", "SCHEDULER", "SequenceParameters", "improve", "offer_makespan_bound", "starting_orders"]


@dataclass(frozen=True)
class SequenceParameters:
    """Temperatures, run lengths and shares of time of the annealing over sequences."""

    first_temperatures_of_mean_span: tuple[float, ...] = (0.1, 0.3, 0.03)
    """As parts of the mean span of a block; short runs begin at the last, long ones at the others."""
    last_temperature_of_mean_span: float = 0.005
    """Where every run ends, as a part of the mean span of a block."""
    seconds_between_clock_reads: float = 0.05
    """A kernel call is made to last about so long."""
    most_trials_times_operations: int = 20_000_000
    """Length of a run without a time limit."""
    most_trials_per_operation: int = 300
    """Length of a run without a time limit."""
    long_runs_without_time_limit: int = 3
    """Runs from the best start."""
    list_rules_share_of_time: float = 0.12
    """For annealing of list rules."""
    short_runs_share_of_time: float = 0.15
    """For short runs from every start, together."""
    long_run_share_of_time: float = 0.3
    """For each run from the best start."""


PARAMETERS = SequenceParameters()


def _solve(search: ScheduleSearch) -> None:
    offer_makespan_bound(search)
    starts = [] if search.best is None else [search.best.orders]
    left = search.seconds_left
    starts += starting_orders(search, None if left is None else PARAMETERS.list_rules_share_of_time * left)
    if not starts:
        raise InfeasibleError("no start within the memory limits was found", conflicts=search.refused)
    runs = [_Run(search, orders, search.seed + 101 * i) for i, orders in enumerate(starts)]
    seconds = search.seconds_left
    with alarm(search) as stop:
        if len(runs) > 1:
            for run in runs:
                run.anneal(
                    PARAMETERS.first_temperatures_of_mean_span[-1],
                    None if seconds is None else PARAMETERS.short_runs_share_of_time * seconds / len(runs),
                    stop,
                )
        turn = 0
        while (
            not search.is_over
            and not stop[0]
            and (seconds is not None or turn < PARAMETERS.long_runs_without_time_limit)
        ):
            left = search.seconds_left
            share = (
                None
                if left is None or seconds is None
                else max(PARAMETERS.seconds_between_clock_reads, min(left, PARAMETERS.long_run_share_of_time * seconds))
            )
            min(runs, key=lambda run: run.sequences.best_rank).anneal(
                PARAMETERS.first_temperatures_of_mean_span[turn % 2], share, stop
            )
            turn += 1
            if len(runs[0].sequences.blocks.blocks) * search.micro_batches == 1:
                return


def improve(search: ScheduleSearch, start: Sequence[Ints], seconds: float | None) -> None:
    """One annealing from orders within memory, so many seconds long (None: a fixed number of trials)."""
    if search.is_over or schedule_violations(simulate_schedule(search.blocks, search.micro_batches, start)):
        return
    left = search.seconds_left
    if left is not None:
        seconds = left if seconds is None else min(left, seconds)
    with alarm(search) as stop:
        _Run(search, start, search.seed).anneal(
            PARAMETERS.first_temperatures_of_mean_span[search.seed % len(PARAMETERS.first_temperatures_of_mean_span)],
            seconds,
            stop,
        )


def starting_orders(search: ScheduleSearch, seconds: float | None) -> list[Orders]:
    """Offer list schedules, and annealed list rules -> those that keep memory, the best last."""
    found: list[Orders] = []
    begun = monotonic()

    def offer(orders: Orders) -> None:
        is_late = search.best is not None and search.is_over  # without any answer it is never too late
        if not is_late and search.offer(shorten_device_span(search, orders)) is not None:
            found.append(orders)

    for orders in list_orders(search, 2):
        offer(orders)
    if not found:
        for release_first in (False, True):
            offer(one_after_another(search.blocks, search.micro_batches, release_first=release_first))
        return found
    if not search.is_over:
        lists = ListSearch(search, search.seed)
        lists.begin(seconds)
        better = lists.run(seconds=None if seconds is None else max(0.0, seconds - (monotonic() - begun)))
        if better is not None:
            offer(better)
    return found


def offer_makespan_bound(search: ScheduleSearch) -> None:
    """The bound of what this search minimises."""
    if not search.from_arrival:
        bound = device_span_bound if search.device_span else makespan_bound
        search.offer_bound(*bound(search.blocks, search.micro_batches))


class _Run:
    """Annealing from one start; begins again at its own best."""

    def __init__(self, search: ScheduleSearch, orders: Sequence[Ints], seed: int) -> None:
        self.search = search
        self.sequences = Sequences(search.blocks, search.micro_batches, seed, by_span=search.device_span)
        self.sequences.load(orders)
        self._operations = search.micro_batches * search.blocks.n
        self._span = float(search.blocks.table.span.mean())
        self._portion = 64 + min(2_000, 200_000 // self._operations)
        self._offered: tuple[int, int] = self.sequences.best_rank

    def anneal(self, heat: float, seconds: float | None, stop: Ints) -> None:
        """One run from hot to cold."""
        sequences, search = self.sequences, self.search
        sequences.load(sequences.orders(), is_new=False)
        begun, done, trials = (
            monotonic(),
            0,
            2_000
            + min(
                PARAMETERS.most_trials_times_operations // self._operations,
                PARAMETERS.most_trials_per_operation * self._operations,
            ),
        )
        portion = trials // 16 if seconds is None else self._portion
        goal = -1 if search.bound is None else search.bound
        while not search.is_over and not stop[0]:
            part = done / trials if seconds is None else (monotonic() - begun) / max(1e-9, seconds)
            if part >= 1:
                break
            temperature = self._span * heat * (PARAMETERS.last_temperature_of_mean_span / heat) ** part
            began = monotonic()
            sequences.run(portion, temperature, temperature, goal, stop)
            done += portion
            if seconds is not None:
                took = max(1e-4, monotonic() - began)
                portion = self._portion = int(
                    min(max(64, portion * min(2.0, PARAMETERS.seconds_between_clock_reads / took)), 200_000)
                )
            if sequences.best_rank[0] <= goal:
                break
        self._show()

    def _show(self) -> None:
        """Offer the best if it is new."""
        if self.sequences.best_rank < self._offered and not self.search.is_over:
            self._offered = self.sequences.best_rank
            self.search.offer(shorten_device_span(self.search, self.sequences.orders()))


SCHEDULER = Scheduler("sequence", "annealing of explicit sequences on every device for the given micro-batches", _solve)
