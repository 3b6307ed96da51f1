"""Proofs that a period is the least of its class: all repetends of U micro-batches.

In: a PeriodSearch with its best repetends. Out: CP-SAT's claim that no order has the next smaller ratio (periods of
orders are ratios with small denominators, so this refutes everything below), or a better repetend.

Repetend search: the pattern that repeats with the least period, and among such the one with the least makespan.

In: a ScheduleSearch. Offered: bounds of the period, repetends of U = 1..4 micro-batches, proofs. Linear pipelines are
solved exactly for U = 1; everything else by starts made at once, then by annealing over cyclic orders. Simplified:
only for blocks that take back all memory: nothing else can repeat for ever.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from weftline.errors import InfeasibleError
from weftline.schedule.bounds.period import period_bound
from weftline.schedule.cyclic.cp_sat import cyclic_starts, most_repetitions
from weftline.schedule.cyclic.linear_pipeline import fraction_below, least_linear_period, linear_pipeline
from weftline.schedule.cyclic.order import order_of_starts
from weftline.schedule.cyclic.rounds import PeriodSearch
from weftline.schedule.search import Scheduler, ScheduleSearch

__all__ = ["PARAMETERS", "SCHEDULER", "CyclicParameters", "least_period", "prove_size"]


def prove_size(found: PeriodSearch, size: int, seconds: float | None, work: float | None) -> bool:
    """Prove the best repetend of a size, or find better ones first -> whether it is proved."""
    search, pattern = found.search, found.pattern(size)
    refuted = found.bound * size
    while size in found.best and not found.is_over:
        best = found.best[size]
        below = fraction_below(best.length, most_repetitions(pattern, found.bound * size))
        if below < found.bound * size:
            found.prove(size, "no cycle has a ratio between it and the bound")
            return True
        middle = Fraction((refuted + best.length) // 2)
        tried = middle if refuted < middle < best.length - 1 else below
        answer = cyclic_starts(
            search.blocks,
            pattern,
            tried,
            hint=best.starts,
            seconds=seconds,
            work=work,
            seed=search.seed,
            poll=lambda: found.is_over,
        )
        if answer.refuted and tried == below:
            found.prove(size, f"the least of all repetends of {size} micro-batches (claimed by CP-SAT)")
            return True
        if answer.refuted:
            refuted = tried
        elif answer.starts is None:
            return False
        else:
            found.offer_order(size, order_of_starts(pattern, answer.starts, tried))
            if found.best[size] is best:
                return False
    return False


@dataclass(frozen=True)
class CyclicParameters:
    """Sizes of repetends, rounds of annealing and proofs."""

    repetend_micro_batches: tuple[int, ...] = (1, 2, 3, 4)
    """Sizes of repetends that are searched."""
    threads: int = 2
    """Runs side by side when nobody else works."""
    starts_of_one_micro_batch: int = 24
    """Starts of size 1 that are taken as they are."""
    most_items_to_prove: int = 40
    """Items up to which CP-SAT is asked for a proof."""
    proof_deterministic_time_units: float = 1.0
    """Of CP-SAT, under a work limit."""
    proof_seconds: float = 5.0
    """Of CP-SAT, where no limit is given."""
    run_lengths_before_proof: int = 2
    """Run lengths that are tried before CP-SAT is asked again."""
    repetends_without_improvement: int = 48
    """Near the least period, in a row, before the search for a better makespan ends."""
    rounds_without_limit: int = 40
    """Rounds of annealing where no limit is given."""


PARAMETERS = CyclicParameters()


def least_period(search: ScheduleSearch, seconds: float | None = None, *, threads: int = 1) -> PeriodSearch:
    """Find the least period within so many seconds (or the search's own limits); everything found is offered."""
    bound, by = period_bound(search.blocks)
    search.offer_period_bound(bound, by)
    until = None if seconds is None else search.seconds + seconds
    found = PeriodSearch(search, bound, until, threads)
    if not search.blocks.balanced:
        return found
    _linear(found)
    for size in PARAMETERS.repetend_micro_batches:
        found.try_starts(size, PARAMETERS.starts_of_one_micro_batch if size == 1 else 3)
        if not found.best:
            found.try_serial()
    _prove(found, 1, 0.25)
    _anneal(found)
    found.finish()
    return found


def _linear(found: PeriodSearch) -> None:
    """Linear pipelines: exactly, for U = 1."""
    pipeline = linear_pipeline(found.search.blocks)
    if pipeline is None:
        return
    repetend = least_linear_period(pipeline, found.bound, found.pattern(1))
    if repetend is None:
        raise InfeasibleError("no schedule of a single micro-batch keeps the memory limits")
    found.offer(repetend)
    found.prove(1, "the least of all repetends of one micro-batch (exact algorithm for linear pipelines)")


def _prove(found: PeriodSearch, size: int, share: float) -> None:
    """Small cases: CP-SAT refutes smaller periods of a size, or finds one."""
    search = found.search
    if (
        found.at_bound
        or found.is_over
        or size in found.proved
        or search.blocks.n * size > PARAMETERS.most_items_to_prove
    ):
        return
    seconds = PARAMETERS.proof_seconds if found.seconds_left is None else share * found.seconds_left
    prove_size(found, size, seconds, PARAMETERS.proof_deterministic_time_units if found.is_timeless else None)


def _anneal(found: PeriodSearch) -> None:
    """Sizes in turn, longer and longer runs; size 1 first unless it is solved. Sizes that look best try for a proof."""
    limited = found.seconds_left is not None or found.search.work_limit is not None
    rounds = 0
    for level in range(64):
        for size in PARAMETERS.repetend_micro_batches:
            for _ in range(3 if size == 1 and not level else 1):
                if found.is_over or found.at_bound or (not limited and rounds >= PARAMETERS.rounds_without_limit):
                    return
                if size not in found.proved:
                    found.round(size, 0 if found.is_timeless else min(level, 6))
                    rounds += 1
        if level >= PARAMETERS.run_lengths_before_proof and not found.is_timeless:
            _prove(found, found.best_size, 0.2)


def _solve(search: ScheduleSearch) -> None:
    found = least_period(search, threads=PARAMETERS.threads)
    if found.best:
        found.vary(PARAMETERS.repetends_without_improvement)
    if search.best is None:
        raise InfeasibleError("no repetend was found that keeps the memory limits")


SCHEDULER = Scheduler("cyclic", "repetends: cyclic orders of 1 to 4 micro-batches with the least period", _solve)
