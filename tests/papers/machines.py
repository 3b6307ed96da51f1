"""A machine whose true times differ from the cost table: the backend of deterministic tests of measured searches."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec
import numpy as np

from weftline.cost import CostTable
from weftline.graph.arrays import Indices
from weftline.latency.measured.measured import count_parts
from weftline.latency.measured.measurements import Backend
from weftline.problem import Problem
from weftline.simulate import simulate_latency


@dataclass(frozen=True)
class Read:
    """What the machine answers."""

    ratio: float
    error: str = ""
    spread: float = 0.01
    seconds: float = 0.001
    reference_seconds: float = 0.001
    rounds: int = 3


class Machine:
    """Runs sub-models one after another; each device is `factors` times as slow as the table says, borders cost."""

    def __init__(self, problem: Problem, factors: list[float], border: float = 0.0) -> None:
        cost = problem.cost
        time = np.where(cost.time >= 0, np.rint(cost.time * np.array(factors)), -1).astype(np.int64)
        rules = msgspec.structs.replace(problem.rules, runtime="sequential")
        self.truth = replace(problem, cost=CostTable(time, cost.transfer, cost.transfer_row), rules=rules)
        self.border = border
        self.alone = int(np.maximum(time[:, 0], 0).sum())
        self.calls: list[Indices] = []
        self.fails: Callable[[Indices], bool] = lambda placement: False

    def ratio(self, placement: Indices) -> float:
        """What a placement takes in truth."""
        value = simulate_latency(self.truth, placement).value / self.alone
        return float(value + self.border * (count_parts(self.truth, placement)[0] - 1))

    def measure(self, placement: Indices, seconds: float | None) -> Read:
        """One measurement."""
        self.calls.append(placement.copy())
        return Read(math.inf, "crashed") if self.fails(placement) else Read(self.ratio(placement))

    def backend(self, budget: int = 60) -> Backend:
        """As a search is given it."""
        return Backend(self.measure, "machine", self.truth.devices[0].id, budget)
