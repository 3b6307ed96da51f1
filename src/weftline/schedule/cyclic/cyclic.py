"""Repetend search: the pattern that repeats with the least period, and among such the one with the least makespan.

In: a ScheduleSearch. Offered: bounds of the period, repetends of U = 1..4 micro-batches, proofs. Linear pipelines are
solved exactly for U = 1; everything else by starts made at once, then by annealing over cyclic orders. Simplified:
only for blocks that take back all memory: nothing else can repeat for ever.

Proofs are of a class, all repetends of U micro-batches: CP-SAT claims that no order has the next smaller ratio (periods
of orders are ratios with small denominators, so this refutes everything below), or gives a better repetend. One model
is for one length, and feasibility is monotone in it. Times are scaled so that the length is whole: for a fixed order
all periods are ratios of whole numbers, so nothing is lost. An item starts at phase + length * turn; Booleans say which
of two items on a device comes first in the window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

from weftline.errors import InfeasibleError
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.bounds.period import gives_back_later, period_bound
from weftline.schedule.cyclic.exact import fraction_below, least_linear_period, linear_pipeline
from weftline.schedule.cyclic.order import CyclicPattern, order_of_starts
from weftline.schedule.cyclic.rounds import CyclicParameters, PeriodSearch
from weftline.schedule.search import Scheduler, ScheduleSearch
from weftline.search.cp_sat import run_model

__all__ = ["SCHEDULER", "cyclic_starts", "least_period", "most_repetitions", "prove_size"]


@dataclass(frozen=True)
class CyclicAnswer:
    """`starts` if there are some; `refuted` if CP-SAT claims that there are none, with turns enough for all orders."""

    starts: list[Fraction] | None = None
    refuted: bool = False


def most_repetitions(pattern: CyclicPattern, least: Fraction) -> int:
    """Repetitions that a critical cycle can have: it passes every item once and its period is at least `least`."""
    weight = pattern.span.astype(object).copy()
    for item in range(len(weight)):
        for a in range(pattern.arc_ptr[item], pattern.arc_ptr[item + 1]):
            weight[item] = max(weight[item], int(pattern.arc_weight[a]))
    return int(sum(int(w) for w in weight) / least)


def cyclic_starts(
    blocks: Blocks,
    pattern: CyclicPattern,
    length: Fraction,
    *,
    hint: Sequence[Fraction] | None = None,
    seconds: float | None = None,
    work: float | None = None,
    seed: int = 0,
    poll: Callable[[], bool] = lambda: False,
) -> CyclicAnswer:
    """Starts with this length of a repetition, or that there are none."""
    model = _Model(blocks, pattern, length)
    turns = _safe_turns(blocks, pattern, length)
    found: list[list[Fraction]] = []
    built = model.build(turns, hint)
    outcome = run_model(
        built,
        seconds=seconds,
        work=work,
        seed=seed,
        on_solution=lambda values: found.append(model.read(values)),
        poll=poll,
    )
    if found:
        return CyclicAnswer(found[-1])
    safe = all(gives_back_later(blocks, device) for device in range(len(blocks.devices)))
    return CyclicAnswer(None, outcome.infeasible and safe)


def _safe_turns(blocks: Blocks, pattern: CyclicPattern, length: Fraction) -> int:
    """Turns between two items of a copy that are always enough.

    Order a copy's items by turn: where a gap is wider than every edge needs, all items after it can move one turn
    earlier. What they leave behind holds memory at every moment, so no level rises.
    """
    widest = max((int(w) for w in pattern.arc_weight), default=0)
    return (blocks.n - 1) * (int((widest + length) // length) + 1)


class _Model:
    """The variables and constraints for one length."""

    def __init__(self, blocks: Blocks, pattern: CyclicPattern, length: Fraction) -> None:
        self.blocks, self.pattern = blocks, pattern
        self.scale, self.length = length.denominator, length.numerator
        self.rows: list[dict[int, int]] = [{} for _ in blocks.devices]
        for slot, item in enumerate(pattern.slot_item.tolist()):
            self.rows[int(pattern.slot_device[slot])][item] = int(pattern.slot_change[slot])

    def build(self, turns: int, hint: Sequence[Fraction] | None) -> Any:
        """The model with turns from 0 to 2 * turns + 1; copy 0 of the first block starts at the middle."""
        from ortools.sat.python import cp_model

        self.model = model = cp_model.CpModel()
        items, first = len(self.pattern.span), int(self.blocks.table.order[0])
        self.phase = [model.new_int_var(0, self.length - 1, f"phase{i}") for i in range(items)]
        self.turn = [model.new_int_var(0, 2 * turns + 1, f"turn{i}") for i in range(items)]
        model.add(self.phase[first] == 0)
        model.add(self.turn[first] == turns)
        self._edges()
        self._before: dict[tuple[int, int], Any] = {}
        for device in range(len(self.rows)):
            self._device(device)
            self._memory(device)
        copies = [first + self.blocks.n * u for u in range(items // self.blocks.n)]
        for a, b in pairwise(copies):  # copies are alike: they start in the order of their numbers
            model.add(self._start(a) <= self._start(b))
        model.add(self._start(copies[-1]) <= self._start(first) + self.length)
        if hint is not None:
            self._hint(hint, first, turns)
        return model

    def read(self, values: Sequence[int]) -> list[Fraction]:
        """Starts in a solution."""
        pairs = zip(self.phase, self.turn, strict=True)
        return [Fraction(values[p.index] + self.length * values[t.index], self.scale) for p, t in pairs]

    def _start(self, item: int) -> Any:
        return self.phase[item] + self.length * self.turn[item]

    def _span(self, item: int) -> int:
        return int(self.pattern.span[item]) * self.scale

    def _edges(self) -> None:
        for item in range(len(self.phase)):
            for a in range(self.pattern.arc_ptr[item], self.pattern.arc_ptr[item + 1]):
                weight = int(self.pattern.arc_weight[a]) * self.scale
                self.model.add(self._start(int(self.pattern.arc_to[a])) >= self._start(item) + weight)

    def _device(self, device: int) -> None:
        """No two items overlap, nor with what the next window begins with."""
        model, intervals = self.model, []
        for item in self.rows[device]:
            for shift in (0, self.length):
                intervals.append(
                    model.new_fixed_size_interval_var(self.phase[item] + shift, self._span(item), f"{item}+{shift}")
                )
        model.add_no_overlap(intervals)
        for a, b in combinations(sorted(self.rows[device]), 2):
            if (a, b) in self._before:
                continue
            first = self._before[a, b] = model.new_bool_var(f"{a}<{b}")
            gap = self.phase[b] - self.phase[a]
            model.add(gap >= self._span(a)).only_enforce_if(first)
            model.add(gap <= self.length - self._span(b)).only_enforce_if(first)
            model.add(gap <= -self._span(b)).only_enforce_if(~first)
            model.add(gap >= self._span(a) - self.length).only_enforce_if(~first)

    def _memory(self, device: int) -> None:
        """The level right after the start of each item that takes memory."""
        limit = int(self.pattern.limit[device])
        row = {item: change for item, change in self.rows[device].items() if change}
        if limit >= NO_LIMIT or not row:
            return
        held = -sum(change * self.turn[item] for item, change in row.items())
        for item, change in self.rows[device].items():
            if change > 0:
                later = [other for other in row if other != item]
                self.model.add(held - sum(row[other] * self._comes_before(item, other) for other in later) <= limit)

    def _comes_before(self, a: int, b: int) -> Any:
        return self._before[a, b] if a < b else 1 - self._before[b, a]

    def _hint(self, hint: Sequence[Fraction], first: int, turns: int) -> None:
        for item, start in enumerate(hint):
            moved = int((start - hint[first]) * self.scale) + turns * self.length
            self.model.add_hint(self.phase[item], moved % self.length)
            self.model.add_hint(self.turn[item], min(max(0, moved // self.length), 2 * turns + 1))


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


def least_period(search: ScheduleSearch, seconds: float | None = None, *, threads: int = 1) -> PeriodSearch:
    """Find the least period within so many seconds (or the search's own limits); everything found is offered."""
    bound, by = period_bound(search.blocks)
    search.offer_period_bound(bound, by)
    until = None if seconds is None else search.seconds + seconds
    parameters = search.parameters(CyclicParameters)
    found = PeriodSearch(search, bound, until, threads, parameters)
    if not search.blocks.balanced:
        return found
    _linear(found)
    for size in range(1, parameters.most_micro_batches + 1):
        found.try_starts(size, parameters.starts_of_one_micro_batch if size == 1 else 3)
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
    parameters = found.parameters
    if found.at_bound or found.is_over or size in found.proved:
        return
    if found.search.blocks.n * size > parameters.most_items_to_prove:
        return
    seconds = parameters.proof_seconds if found.seconds_left is None else share * found.seconds_left
    prove_size(found, size, seconds, parameters.proof_deterministic_time_units if found.is_timeless else None)


def _anneal(found: PeriodSearch) -> None:
    """Sizes in turn, longer and longer runs; size 1 first unless it is solved. Sizes that look best try for a proof."""
    limited = found.seconds_left is not None or found.search.work_limit is not None
    parameters, rounds = found.parameters, 0
    for level in range(64):
        for size in range(1, parameters.most_micro_batches + 1):
            for _ in range(3 if size == 1 and not level else 1):
                if found.is_over or found.at_bound or (not limited and rounds >= parameters.rounds_without_limit):
                    return
                if size not in found.proved:
                    found.round(size, 0 if found.is_timeless else min(level, 6))
                    rounds += 1
        if level >= parameters.run_lengths_before_proof and not found.is_timeless:
            _prove(found, found.best_size, 0.2)


def _solve(search: ScheduleSearch) -> None:
    parameters = search.parameters(CyclicParameters)
    found = least_period(search, threads=parameters.threads)
    if found.best:
        found.vary(parameters.repetends_without_improvement)
    if search.best is None:
        raise InfeasibleError("no repetend was found that keeps the memory limits")


SCHEDULER = Scheduler(
    "cyclic", "repetends: cyclic orders of 1 to 4 micro-batches with the least period", _solve, CyclicParameters
)
