"""What was measured on a real backend in one search: every placement once, up to a budget, within the search's time.

In: a Backend (how to measure one placement; who does it) and a Search. Out: readings in the order they were taken, the
best of them, and values for networks that learn from them. A placement that breaks a limit of the problem is never
measured. What a reading is worth is decided by its ratio to one device alone, measured in turns with it.
Simplified: one measurement at a time; the simulator has no say in which placement is the best.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from weftline.errors import LimitReached, WeftlineError
from weftline.graph.arrays import Indices, Ints
from weftline.search import Search, Termination
from weftline.simulate.latency import INFEASIBLE

__all__ = ["MEASUREMENT_BUDGET", "Backend", "Measurements", "Reading", "Taken"]

MEASUREMENT_BUDGET = 60
"""Placements that are measured unless another number is asked for."""
MOST_SAMPLES = 8
"""Placements that a network draws between two steps of learning, at most: measurements are few."""


class Reading(Protocol):
    """One placement, measured."""

    @property
    def ratio(self) -> float:
        """To the reference: median over rounds; infinity where it failed."""
        ...

    @property
    def spread(self) -> float:
        """Interquartile range of the rounds' ratios, as a share of their median."""
        ...

    @property
    def seconds(self) -> float:
        """Of one inference."""
        ...

    @property
    def reference_seconds(self) -> float:
        """The same for the reference, in turns with it."""
        ...

    @property
    def rounds(self) -> int:
        """How often both ran."""
        ...

    @property
    def error(self) -> str:
        """Why it failed, or nothing."""
        ...


@dataclass(frozen=True)
class Backend:
    """Something real that runs placements."""

    measure: Callable[[Indices, float | None], Reading]
    """A placement of ops, and the seconds that are left (None: any number); `LimitReached` when they are over."""
    name: str
    reference: str
    """Id of the device that runs everything, for comparison."""
    budget: int = MEASUREMENT_BUDGET


@dataclass(frozen=True, eq=False)
class Taken:
    """A placement and what was measured."""

    placement: Indices
    reading: Reading


class Measurements:
    """All measurements of one search."""

    samples = MOST_SAMPLES

    def __init__(self, search: Search, backend: Backend) -> None:
        self.search, self.backend = search, backend
        self.taken: list[Taken] = []
        self._by_key: dict[bytes, Taken | None] = {}
        self._late, self.broken = False, ""

    @property
    def over(self) -> bool:
        """The budget or the time is spent, or the backend runs nothing any more."""
        return (
            self._late
            or bool(self.broken)
            or len(self.taken) >= self.backend.budget
            or self.search.stopped_by == Termination.TIME
        )

    @property
    def stopped_by(self) -> Termination:
        """time, measurements (the budget is spent), or nothing."""
        if self._late or self.search.stopped_by == Termination.TIME:
            return Termination.TIME
        return Termination.MEASUREMENTS if len(self.taken) >= self.backend.budget else Termination.NONE

    @property
    def ran(self) -> list[Taken]:
        """Those that did not fail, best first."""
        return sorted((t for t in self.taken if t.reading.ratio < math.inf), key=lambda t: t.reading.ratio)

    @property
    def best(self) -> Taken | None:
        """The least ratio."""
        return min(self.ran, key=lambda t: t.reading.ratio, default=None)

    @property
    def failures(self) -> list[str]:
        """Why placements failed."""
        return [t.reading.error or "failed" for t in self.taken if not t.reading.ratio < math.inf]

    def knows(self, placement: Indices) -> bool:
        """Was it measured before, or refused?"""
        return _key(placement) in self._by_key

    def take(self, placement: Indices) -> Reading | None:
        """Measure a placement, or remember it; None if it breaks a limit or nothing more may be measured."""
        key = _key(placement)
        if key in self._by_key:
            known = self._by_key[key]
            return None if known is None else known.reading
        if self.over:
            return None
        if self.search.offer(placement) is None:
            self._by_key[key] = None
            return None
        try:
            reading = self.backend.measure(placement, self.search.seconds_left)
        except LimitReached:
            self._late = True
            return None
        except WeftlineError as error:
            if self.best is None:
                raise
            self.broken = str(error)  # what was measured before is not lost
            self.search.tell(f"{self.backend.name} runs nothing any more: {error}")
            return None
        taken = Taken(np.array(placement, np.int32), reading)
        self._by_key[key] = taken
        self.taken.append(taken)
        self.search.tell(self._say())
        return reading

    def __call__(self, placements: Indices, /) -> Ints:
        """(B, n) placements -> (B,) measured ns; INFEASIBLE where one failed, breaks a limit or was not measured."""
        readings = [self.take(placement) for placement in placements]
        unit = next((t.reading.reference_seconds * 1e9 for t in self.taken if t.reading.ratio < math.inf), 1e9)
        return np.array(
            [
                INFEASIBLE if reading is None or not reading.ratio < math.inf else round(reading.ratio * unit)
                for reading in readings
            ],
            np.int64,
        )

    def _say(self) -> str:
        best = self.best
        found = "nothing ran" if best is None else f"best {best.reading.ratio:.3f} of {self.backend.reference} alone"
        return f"measured {len(self.taken)} of {self.backend.budget}: {found}"


def _key(placement: Indices) -> bytes:
    return np.ascontiguousarray(placement, np.int32).tobytes()
