"""Cyclic scheduling in CP-SAT: is there a repetend of U micro-batches of a given length, or surely none?

In: blocks, U, an exact length. Out: starts, or a claim of infeasibility, or neither within the limits. Times are scaled
so that the length is whole: for a fixed order all periods are ratios of whole numbers, so nothing is lost. An item
starts at phase + length * turn; Booleans say which of two items on a device comes first in the window. Simplified: one
model for one length; feasibility is monotone in the length, so one refuted length refutes all smaller ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations, pairwise
from typing import Any

from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.bounds.period import gives_back_later
from weftline.schedule.cyclic.order import Pattern
from weftline.search.cp_sat import run_model

__all__ = ["CyclicAnswer", "cyclic_starts", "most_repetitions"]


@dataclass(frozen=True)
class CyclicAnswer:
    """`starts` if there are some; `refuted` if CP-SAT claims that there are none, with turns enough for all orders."""

    starts: list[Fraction] | None = None
    refuted: bool = False


def most_repetitions(pattern: Pattern, least: Fraction) -> int:
    """Repetitions that a critical cycle can have: it passes every item once and its period is at least `least`."""
    weight = pattern.span.astype(object).copy()
    for item in range(len(weight)):
        for a in range(pattern.arc_ptr[item], pattern.arc_ptr[item + 1]):
            weight[item] = max(weight[item], int(pattern.arc_weight[a]))
    return int(sum(int(w) for w in weight) / least)


def cyclic_starts(
    blocks: Blocks,
    pattern: Pattern,
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


def _safe_turns(blocks: Blocks, pattern: Pattern, length: Fraction) -> int:
    """Turns between two items of a copy that are always enough.

    Order a copy's items by turn: where a gap is wider than every edge needs, all items after it can move one turn
    earlier. What they leave behind holds memory at every moment, so no level rises.
    """
    widest = max((int(w) for w in pattern.arc_weight), default=0)
    return (blocks.n - 1) * (int((widest + length) // length) + 1)


class _Model:
    """The variables and constraints for one length."""

    def __init__(self, blocks: Blocks, pattern: Pattern, length: Fraction) -> None:
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
