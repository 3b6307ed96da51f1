"""Solvers of a sweep against each other: ratios of values on the same questions, and their geometric means.

In: rows. Out: a `SolverRatio` for each solver and objective. The reference is the first solver of the sweep that has a
plan for an objective. Simplified: questions that either of the two has no plan for are left out, and counted.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from math import exp, log

import msgspec

from weftline.grid.job import Row

__all__ = ["SolverRatio", "compared_solvers"]


class SolverRatio(msgspec.Struct, frozen=True):
    """One solver beside the reference; below 1 its plans are faster."""

    objective: str
    solver: str
    against: str
    questions: int
    """On which both have a plan."""
    without_plan: int
    """On which this solver has none, and the reference has one."""
    geometric_mean: float | None
    """Of value / value of the reference; None where there is nothing to compare."""
    best: float | None
    worst: float | None
    wins: int
    """Questions on which it is faster than the reference."""
    losses: int


def compared_solvers(rows: Sequence[Row]) -> list[SolverRatio]:
    """Every solver of an objective against the first one; nothing where there is only one."""
    found = []
    for objective in dict.fromkeys(row.objective for row in rows):
        values: dict[str, dict[tuple[object, ...], int | None]] = defaultdict(dict)
        for row in rows:
            if row.objective == objective:
                asked = (row.model, row.model_sha256, row.cluster, row.cluster_sha256, row.stages, row.seed)
                values[row.solver][asked] = row.value_ns
        first = next((name for name, known in values.items() if any(v is not None for v in known.values())), None)
        if first is not None and len(values) > 1:
            found += [_ratio(objective, name, first, values) for name in values]
    return found


def _ratio(
    objective: str, solver: str, against: str, values: dict[str, dict[tuple[object, ...], int | None]]
) -> SolverRatio:
    mine, theirs = values[solver], values[against]
    known = {asked: value for asked, value in theirs.items() if value is not None and asked in mine}
    pairs = [(value, other) for asked, other in known.items() if (value := mine[asked]) is not None]
    ratios = [value / other for value, other in pairs if value and other]
    return SolverRatio(
        objective=objective,
        solver=solver,
        against=against,
        questions=len(pairs),
        without_plan=len(known) - len(pairs),
        geometric_mean=exp(sum(map(log, ratios)) / len(ratios)) if ratios else None,
        best=min(ratios, default=None),
        worst=max(ratios, default=None),
        wins=sum(value < other for value, other in pairs),
        losses=sum(value > other for value, other in pairs),
    )
