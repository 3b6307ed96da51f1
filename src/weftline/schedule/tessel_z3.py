"""A set of operations as a z3 model: starts that keep edges, devices and memory; least makespan by bisection.

In: operations (block, micro-batch) and the memory that is held before them. Out: starts, or None where z3 says that
there are none or gives up. Every check has a limit: what is left of the search's time, or a number of z3's own steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from weftline.errors import MissingExtra
from weftline.problem.blocks import Blocks
from weftline.problem.model import UNLIMITED
from weftline.schedule.search import ScheduleSearch

__all__ = ["Operation", "Phase", "load_z3"]

Operation = tuple[int, int]
"""Block, micro-batch."""
Starts = dict[Operation, int]

STEPS = 1_000_000
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
        self.solver = self.z3.Solver()
        self.solver.set("random_seed", self.search.seed)
        self.start = {op: self.z3.Int(f"s{op[0]}_{op[1]}") for op in self.operations}
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

    def end(self, op: Operation) -> Any:
        """End of an operation, as an expression."""
        return self.start[op] + self.blocks.blocks[op[0]].span

    def check(self, *conditions: Any) -> Starts | None:
        """Starts that also keep the conditions; None where there are none, or z3 gave up."""
        left = self.search.seconds_left
        if self.is_hopeless:
            return None
        if left is None:
            self.solver.set("rlimit", STEPS)
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
        makespan = self.z3.Int("makespan")
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
        limit = self.blocks.devices[device].memory
        if self.blocks.devices[device].link or limit >= UNLIMITED:
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
