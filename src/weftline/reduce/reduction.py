"""Reduction: a smaller problem and the path back, for placements and for bounds. Every transformation is one.

In: a problem. Out: the smaller one and `lift`, `lower`, `lift_bound`. What the smaller problem is differs: a Problem
(`Contracted`, `Coarsened`), or parts of ops with arrays of their own (pieces of pipelines, nodes of learned solvers);
its placements always are the device of each of its parts.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np

from weftline.errors import UsageError
from weftline.graph.arrays import Indices
from weftline.problem import Problem

__all__ = ["Composed", "Reduction", "compose", "device_of_each"]

Small_co = TypeVar("Small_co", covariant=True)


class Reduction(Protocol[Small_co]):
    """`lower(lift(q))` is q for every placement q of the smaller problem that its devices can run."""

    @property
    def problem(self) -> Problem:
        """What was asked."""
        ...

    @property
    def small(self) -> Small_co:
        """The smaller problem."""
        ...

    def lift(self, placement: Indices, /) -> Indices:
        """A placement of the smaller problem -> the same one of the problem."""
        ...

    def lower(self, placement: Indices, /) -> Indices | None:
        """A placement of the problem -> the one that `lift` makes it of; None where the smaller problem has none."""
        ...

    def lift_bound(self, bound: int, /) -> int | None:
        """A lower bound of the smaller problem -> one of the problem; None where the reduction keeps no bound."""
        ...


@dataclass(frozen=True, eq=False)
class Composed(Reduction[Small_co]):
    """One reduction after another."""

    first: Reduction[Problem]
    second: Reduction[Small_co]
    """Of the first one's smaller problem."""

    @property
    def problem(self) -> Problem:
        """The problem of the first."""
        return self.first.problem

    @property
    def small(self) -> Small_co:
        """The smaller problem of the second."""
        return self.second.small

    def lift(self, placement: Indices, /) -> Indices:
        """By the second, then by the first."""
        return self.first.lift(self.second.lift(placement))

    def lower(self, placement: Indices, /) -> Indices | None:
        """By the first, then by the second; None if either has none."""
        between = self.first.lower(placement)
        return None if between is None else self.second.lower(between)

    def lift_bound(self, bound: int, /) -> int | None:
        """By the second, then by the first; None if either keeps none."""
        between = self.second.lift_bound(bound)
        return None if between is None else self.first.lift_bound(between)


def compose(first: Reduction[Problem], second: Reduction[Small_co]) -> Composed[Small_co]:
    """The reduction that does `first`, and `second` to what that leaves."""
    if second.problem is not first.small:
        raise UsageError("the second reduction is not one of the first one's smaller problem")
    return Composed(first, second)


def device_of_each(part: Indices, count: int, placement: Indices) -> Indices:
    """(count,): the device of each part, that of its first op; `part` is the part of each op."""
    device = np.zeros(count, np.int32)
    device[part[::-1]] = np.asarray(placement, np.int32)[::-1]
    return device
