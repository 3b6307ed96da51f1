"""A set of operations as a z3 model: starts that keep edges, devices and memory; least makespan by bisection.

In: operations (block, micro-batch) and the memory that is held before them. Out: starts, or None where z3 says that
there are none or gives up. Every check has a limit: what is left of the search's time, or a number of z3's own steps.

Tessel's parts put together: repetend indices -> what comes before and behind, and orders for all micro-batches.

A repetend holds every block once, block i for micro-batch `index[i]`; repetition k runs it for micro-batch
`index[i] + k`. What is before is the warmup, what is behind the cooldown. As published the three phases are ordered
one by one; the simulator then starts everything as early as these orders allow, which lets the phases interlock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from importlib import import_module
from typing import Any

import numpy as np

from weftline.errors import InfeasibleError, MissingExtra
from weftline.problem.blocks import Blocks
from weftline.problem.model import NO_LIMIT
from weftline.schedule.repetend import Repetend
from weftline.schedule.search import ScheduleSearch
from weftline.simulate import Orders

__all__ = [
    "Operation",
    "Phase",
    "as_repetend",
    "composed",
    "cooldown",
    "held_memory",
    "load_z3",
    "need_balance",
    "warmup",
]

Operation = tuple[int, int]
"""Block, micro-batch."""
Starts = dict[Operation, int]

RESOURCE_LIMIT = 1_000_000
"""Of z3, for one check of a search without time limit: about a second, the same on every machine."""
MOST_OPERATIONS = 400
"""Of a model in a search without time limit."""


def load_z3() -> Any:
    """The module; a hint if it is not installed."""
    try:
        return import_module("z3")
    except ImportError as error:
        raise MissingExtra("z3-solver", "dev") from error


@dataclass
class Phase:
    """A part of a schedule that z3 orders by itself."""

    search: ScheduleSearch
    operations: Sequence[Operation]
    held: Sequence[int]
    """Device -> memory that is held before the phase."""

    def __post_init__(self) -> None:
        self.z3 = load_z3()
        self.blocks: Blocks = self.search.blocks
        self.context = self.z3.Context()  # of its own: in a shared one the answer depends on what was asked before
        self.solver = self.z3.Solver(ctx=self.context)
        self.solver.set("random_seed", self.search.seed)
        self.start = {op: self.integer(f"s{op[0]}_{op[1]}") for op in self.operations}
        self.solver.add([start >= 0 for start in self.start.values()])
        self._add_edges()
        for device in range(len(self.blocks.devices)):
            mine = [op for op in self.operations if device in self.blocks.blocks[op[0]].devices]
            if not self.is_hopeless:
                self._add_device(mine)
                self._add_memory(device, mine)

    @property
    def is_hopeless(self) -> bool:
        """No time is left, or without a time limit the model would be too large: no check is made any more."""
        left = self.search.seconds_left
        return len(self.operations) > MOST_OPERATIONS if left is None else left <= 0

    def integer(self, name: str) -> Any:
        """A variable of this model."""
        return self.z3.Int(name, self.context)

    def end(self, op: Operation) -> Any:
        """End of an operation, as an expression."""
        return self.start[op] + self.blocks.blocks[op[0]].span

    def check(self, *conditions: Any) -> Starts | None:
        """Starts that also keep the conditions; None where there are none, or z3 gave up."""
        left = self.search.seconds_left
        if self.is_hopeless:
            return None
        if left is None:
            self.solver.set("rlimit", RESOURCE_LIMIT)
        else:
            self.solver.set("timeout", max(1, int(left * 1000)))
        if self.solver.check(*conditions) != self.z3.sat:
            return None
        model = self.solver.model()
        return {op: model.eval(start, model_completion=True).as_long() for op, start in self.start.items()}

    def least_makespan(self, good: float = 0.0) -> Starts | None:
        """Bisection on the makespan; it ends early with one that is at most `good`."""
        if not self.operations:
            return {}
        best = self.check()
        if best is None:
            return None
        makespan = self.integer("makespan")
        self.solver.add([self.end(op) <= makespan for op in self.operations])
        low, high = self._load(), self._makespan(best)
        while low < high and high > good and not self.search.is_over:
            middle = (low + high) // 2
            found = self.check(makespan <= middle)
            if found is None:
                low = middle + 1
            else:
                best, high = found, self._makespan(found)
        return best

    def _makespan(self, starts: Starts) -> int:
        return max(start + self.blocks.blocks[op[0]].span for op, start in starts.items())

    def _load(self) -> int:
        count = range(len(self.blocks.devices))
        return max(sum(self._span(op) for op in self.operations if self._on(op, d)) for d in count)

    def _span(self, op: Operation) -> int:
        return self.blocks.blocks[op[0]].span

    def _on(self, op: Operation, device: int) -> bool:
        return device in self.blocks.blocks[op[0]].devices

    def _add_edges(self) -> None:
        """Edges inside a micro-batch, and micro-batches of a block in order."""
        for source, target, lag in self.blocks.edges:
            for block, micro in self.operations:
                if block == source and (target, micro) in self.start:
                    self.solver.add(self.start[target, micro] >= self.end((source, micro)) + lag)
        for block, micro in self.operations:
            if (block, micro + 1) in self.start:
                self.solver.add(self.start[block, micro + 1] >= self.end((block, micro)))

    def _add_device(self, mine: Sequence[Operation]) -> None:
        for k, one in enumerate(mine):
            if self.is_hopeless:
                return
            for other in mine[:k]:
                if one[0] != other[0]:
                    self.solver.add(self.z3.Or(self.start[one] >= self.end(other), self.start[other] >= self.end(one)))

    def _add_memory(self, device: int, mine: Sequence[Operation]) -> None:
        """Whatever starts with a positive change: all changes up to it are within the limit."""
        limit = self.blocks.devices[device].room
        if self.blocks.devices[device].link or limit >= NO_LIMIT:
            return
        change = {op: self._change(op, device) for op in mine}
        for one in mine:
            if self.is_hopeless:
                return
            if change[one] > 0:
                before = [
                    self.z3.If(self.start[op] <= self.start[one], m, 0) for op, m in change.items() if m and op != one
                ]
                self.solver.add(self.z3.Sum([*before, self.held[device] + change[one]]) <= limit)

    def _change(self, op: Operation, device: int) -> int:
        block = self.blocks.blocks[op[0]]
        return block.memory[block.devices.index(device)]


def need_balance(blocks: Blocks) -> None:
    """A pattern repeats for ever only if micro-batches take back all memory."""
    if not blocks.balanced:
        raise InfeasibleError("Tessel's schedules repeat: micro-batches must take back all memory")


def warmup(index: Sequence[int]) -> list[Operation]:
    """Operations before the repetend."""
    return [(block, micro) for block, last in enumerate(index) for micro in range(last)]


def cooldown(index: Sequence[int]) -> list[Operation]:
    """Operations behind a repetend that runs once."""
    return [(block, micro) for block, first in enumerate(index) for micro in range(first + 1, max(index) + 1)]


def held_memory(blocks: Blocks, index: Sequence[int]) -> list[int]:
    """Device -> memory that the warmup leaves."""
    held = [0] * len(blocks.devices)
    for block, count in zip(blocks.blocks, index, strict=True):
        for device, change in zip(block.devices, block.memory, strict=True):
            held[device] += count * change
    return held


def as_repetend(blocks: Blocks, index: Sequence[int], start: Sequence[int], period: int) -> Repetend:
    """The same pattern in the words of this room."""
    top = max(index)
    by_start = sorted(range(blocks.n), key=lambda i: (start[i], i))
    rows = tuple(tuple(i for i in by_start if d in blocks.blocks[i].devices) for d in range(len(blocks.devices)))
    starts = tuple(Fraction(start[i] + (top - index[i]) * period) for i in range(blocks.n))
    return Repetend(1, Fraction(period), rows, tuple(top - i for i in index), starts)


def composed(
    search: ScheduleSearch, index: Sequence[int], start: Sequence[int], good: tuple[float, float] = (0.0, 0.0)
) -> Orders | None:
    """Warmup and cooldown of least makespan (or at most `good`) around the repetend, for all micro-batches."""
    blocks, count = search.blocks, search.micro_batches
    repeats = count - max(index)
    if repeats < 1:
        return None
    held = held_memory(blocks, index)
    first = Phase(search, warmup(index), [0] * len(held)).least_makespan(good[0])
    last = None if first is None else Phase(search, cooldown(index), held).least_makespan(good[1])
    if first is None or last is None:
        return None
    once = {(i, index[i]): start[i] for i in range(blocks.n)}
    rows = []
    for device in range(len(blocks.devices)):
        parts = [
            [op for op in sorted(part, key=lambda op: (part[op], op)) if device in blocks.blocks[op[0]].devices]
            for part in (first, once, last)
        ]
        row = [*parts[0], *((i, micro + k) for k in range(repeats) for i, micro in parts[1])]
        row += [(i, micro + repeats - 1) for i, micro in parts[2]]
        rows.append(np.array([micro * blocks.n + i for i, micro in row], np.int64))
    return tuple(rows)
