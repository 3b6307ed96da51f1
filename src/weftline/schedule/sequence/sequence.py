"""`sequence`: annealing of explicit per-device sequences for the user's number of micro-batches.

Begins at the best so far, at list schedules and at annealed list rules; every start gets a short run, the best of them
long ones with different temperatures. Without a time limit the number of trials depends on the size alone, so that the
answer does not depend on the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.schedule.bounds.makespan import device_span_bound, makespan_bound
from weftline.schedule.list.priority import ListSearch, ListSearchParameters, list_orders, one_after_another
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.schedule.sequence.sequences import SequencePolishParameters, Sequences, shorten_device_span
from weftline.search import alarm
from weftline.simulate import Orders, schedule_violations, simulate_schedule

__all__ = ["SCHEDULER", "SequenceParameters", "improve", "offer_makespan_bound", "starting_orders"]


@dataclass(frozen=True)
class SequenceParameters(ListSearchParameters, SequencePolishParameters):
    """Temperatures, run lengths and shares of time of the annealing over sequences."""

    first_temperature_of_mean_span: float = field(default=0.1, metadata={"least": 1e-9})
    """Where long runs begin, as a part of the mean span of a block."""
    second_temperature_of_mean_span: float = field(default=0.3, metadata={"least": 1e-9})
    """The same, for every other long run."""
    short_temperature_of_mean_span: float = field(default=0.03, metadata={"least": 1e-9})
    """The same, for short runs."""
    last_temperature_of_mean_span: float = field(default=0.005, metadata={"least": 1e-9})
    """Where every run ends, as a part of the mean span of a block."""
    seconds_between_clock_reads: float = field(default=0.05, metadata={"least": 0.001})
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


def _solve(search: ScheduleSearch) -> None:
    parameters = search.parameters(SequenceParameters)
    offer_makespan_bound(search)
    starts = [] if search.best is None else [search.best.orders]
    left = search.seconds_left
    starts += starting_orders(search, parameters, None if left is None else parameters.list_rules_share_of_time * left)
    if not starts:
        raise InfeasibleError("no start within the memory limits was found", conflicts=search.refused)
    runs = [_Run(search, parameters, orders, search.seed + 101 * i) for i, orders in enumerate(starts)]
    seconds = search.seconds_left
    with alarm(search) as stop:
        if len(runs) > 1:
            share = None if seconds is None else parameters.short_runs_share_of_time * seconds / len(runs)
            for run in runs:
                run.anneal(parameters.short_temperature_of_mean_span, share, stop)
        _long_runs(search, parameters, runs, seconds, stop)


def _long_runs(
    search: ScheduleSearch, parameters: SequenceParameters, runs: list[_Run], seconds: float | None, stop: Ints
) -> None:
    """The best run so far continues, again and again."""
    hot = parameters.first_temperature_of_mean_span, parameters.second_temperature_of_mean_span
    turn = 0
    while not search.is_over and not stop[0]:
        if seconds is None and turn >= parameters.long_runs_without_time_limit:
            break
        left, share = search.seconds_left, None
        if left is not None and seconds is not None:
            share = max(parameters.seconds_between_clock_reads, min(left, parameters.long_run_share_of_time * seconds))
        min(runs, key=lambda run: run.sequences.best_rank).anneal(hot[turn % 2], share, stop)
        turn += 1
        if len(runs[0].sequences.blocks.blocks) * search.micro_batches == 1:
            return


def improve(search: ScheduleSearch, start: Sequence[Ints], seconds: float | None) -> None:
    """One annealing from orders within memory, so many seconds long (None: a fixed number of trials)."""
    if search.is_over or schedule_violations(simulate_schedule(search.blocks, search.micro_batches, start)):
        return
    parameters = search.parameters(SequenceParameters)
    hot = (
        parameters.first_temperature_of_mean_span,
        parameters.second_temperature_of_mean_span,
        parameters.short_temperature_of_mean_span,
    )
    left = search.seconds_left
    if left is not None:
        seconds = left if seconds is None else min(left, seconds)
    with alarm(search) as stop:
        _Run(search, parameters, start, search.seed).anneal(hot[search.seed % len(hot)], seconds, stop)


def starting_orders(search: ScheduleSearch, parameters: SequenceParameters, seconds: float | None) -> list[Orders]:
    """Offer list schedules, and annealed list rules -> those that keep memory, the best last."""
    found: list[Orders] = []
    begun = monotonic()

    def offer(orders: Orders) -> None:
        is_late = search.best is not None and search.is_over  # without any answer it is never too late
        if not is_late and search.offer(shorten_device_span(search, orders, parameters)) is not None:
            found.append(orders)

    for orders in list_orders(search, 2):
        offer(orders)
    if not found:
        for release_first in (False, True):
            offer(one_after_another(search.blocks, search.micro_batches, release_first=release_first))
        return found
    if not search.is_over:
        lists = ListSearch(search, search.seed, parameters)
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

    def __init__(
        self, search: ScheduleSearch, parameters: SequenceParameters, orders: Sequence[Ints], seed: int
    ) -> None:
        self.search, self._parameters = search, parameters
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
        parameters, operations = self._parameters, self._operations
        trials = 2_000 + min(
            parameters.most_trials_times_operations // operations, parameters.most_trials_per_operation * operations
        )
        begun, done = monotonic(), 0
        portion = trials // 16 if seconds is None else self._portion
        goal = -1 if search.bound is None else search.bound
        while not search.is_over and not stop[0]:
            part = done / trials if seconds is None else (monotonic() - begun) / max(1e-9, seconds)
            if part >= 1:
                break
            temperature = self._span * heat * (parameters.last_temperature_of_mean_span / heat) ** part
            began = monotonic()
            sequences.run(portion, temperature, temperature, goal, stop)
            done += portion
            if seconds is not None:
                took = max(1e-4, monotonic() - began)
                growth = min(2.0, parameters.seconds_between_clock_reads / took)
                portion = self._portion = int(min(max(64, portion * growth), 200_000))
            if sequences.best_rank[0] <= goal:
                break
        self._show()

    def _show(self) -> None:
        """Offer the best if it is new."""
        if self.sequences.best_rank < self._offered and not self.search.is_over:
            self._offered = self.sequences.best_rank
            self.search.offer(shorten_device_span(self.search, self.sequences.orders(), self._parameters))


SCHEDULER = Scheduler(
    "sequence",
    "annealing of explicit sequences on every device for the given micro-batches",
    _solve,
    SequenceParameters,
)
