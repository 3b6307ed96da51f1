"""Annealing over the list scheduler's parameters: KF and KW per stage, RS per block, thW and thF per device.

In: rules to begin with, a number of steps (or seconds). Out: the orders of the best rules. One step changes one to
three parameters and runs the list scheduler.
"""

from __future__ import annotations

import math
import random
from time import monotonic

from weftline.graph.arrays import Ints
from weftline.schedule.list.kernel import ListRules
from weftline.schedule.list.rules import ListRun, list_variants
from weftline.schedule.search import ScheduleSearch
from weftline.simulate import Orders

__all__ = ["ListSearch"]

HOT, COLD = 0.002, 0.00004
"""Temperatures, as parts of the value."""
STEPS, MOST_STEPS = 400_000, 400
"""A run without a time limit: so many operations are listed, in so many steps at most."""
LONGEST_WAIT = 1500


class ListSearch:
    """One annealing; `run` continues it."""

    def __init__(self, search: ScheduleSearch, seed: int) -> None:
        self._run = ListRun(search.blocks, search.micro_batches)
        self._by_span = search.device_span
        self._random = random.Random(seed)
        self._knobs = _knobs(search)
        self.best: tuple[int, int] | None = None
        self._best_orders: Orders = ()
        self._best_rules: ListRules | None = None

    def begin(self, seconds: float | None = None) -> None:
        """Take the best of the usual rules."""
        begun = monotonic()
        for rules in list_variants(self._run.blocks, self._run.micro_batches):
            self._cost(rules)
            if seconds is not None and monotonic() - begun > seconds:
                break

    def run(self, *, seconds: float | None = None) -> Orders | None:
        """Anneal from the best rules so far -> the orders of the best, None if no rules end at all."""
        begun, done = monotonic(), 0
        steps = min(MOST_STEPS, max(50, STEPS // (self._run.micro_batches * self._run.blocks.n)))
        rules, cost = self._best_rules, self._value(self.best)
        while rules is not None and self._knobs and cost is not None:
            part = done / steps if seconds is None else (monotonic() - begun) / max(1e-9, seconds)
            if part >= 1:
                break
            done += 1
            temperature = cost * HOT * (COLD / HOT) ** part
            trial = _changed(rules, self._knobs, self._random)
            value = self._cost(trial)
            if value is not None and value <= cost - temperature * math.log(1 - self._random.random()):
                rules, cost = trial, value
        return self._best_orders if self._best_rules is not None else None

    def _cost(self, rules: ListRules) -> float | None:
        makespan = self._run.run(rules)
        if makespan < 0:
            return None
        span = self._run.span()
        rank = (span, makespan) if self._by_span else (makespan, span)
        if self.best is None or rank < self.best:
            self.best, self._best_rules, self._best_orders = rank, rules, self._run.orders()
        return self._value(rank)

    @staticmethod
    def _value(rank: tuple[int, int] | None) -> float | None:
        return None if rank is None else rank[0] + 0.001 * rank[1]


Knob = tuple[str, int, int, int]
"""Field of `ListRules`, its entry, largest value, unit."""


def _knobs(search: ScheduleSearch) -> list[Knob]:
    """What may be turned."""
    blocks, count = search.blocks, search.micro_batches
    found: list[Knob] = []
    for i, block in enumerate(blocks.blocks):
        if block.kind == "F":
            found.append(("most", i, count, 1))
        if block.kind == "W":
            found.append(("overdue", i, count + 1, 1))
    table = blocks.table
    for j, change in enumerate(table.device_memory.tolist()):
        if change > 0:
            found.append(("reserve", j, 4 * change, max(1, change // 2)))
    for device in range(len(blocks.devices)):
        found += [("patience", 2 * device, LONGEST_WAIT, 100), ("patience", 2 * device + 1, LONGEST_WAIT, 100)]
    return found


def _changed(rules: ListRules, knobs: list[Knob], dice: random.Random) -> ListRules:
    fresh: dict[str, Ints] = {}
    for _ in range(dice.randint(1, 3)):
        field, entry, most, unit = dice.choice(knobs)
        values = fresh.setdefault(field, getattr(rules, field).copy())
        low = 1 if field in ("most", "overdue") else 0
        if field in ("most", "overdue") and dice.random() < 0.3:
            values[entry] = dice.randint(low, most)
        else:
            values[entry] = min(most, max(low, values[entry] + dice.choice((-3, -2, -1, 1, 2, 3)) * unit))
    return rules._replace(**fresh)
