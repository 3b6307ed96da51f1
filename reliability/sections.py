"""The sections by name: what is measured, in which sizes, and what of it would be a defect.

A section adds rows to its Results and says whether it is complete; rows that are there already are not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.agreement import agreement
from reliability.determinism import determinism
from reliability.fuzz import fuzz
from reliability.kills import kills
from reliability.memory import memory
from reliability.mutation import ROOMS, mutation, score
from reliability.results_file import Results, Row

__all__ = ["SECTIONS", "Section"]


LEAST_SCORE = 0.85


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    name: str
    sizes: dict[str, Row]
    """full and quick -> settings."""
    measure: Callable[[Results, Row, float | None], bool]
    failures: Callable[[dict[str, Row]], int]


def _failed(rows: dict[str, Row]) -> int:
    return sum(row["failed"] for row in rows.values())


SECTIONS = {
    section.name: section
    for section in (
        Section(
            "fuzz",
            {"full": {"inputs": 200_000}, "quick": {"inputs": 5_000}},
            lambda results, settings, until: fuzz(results, inputs=settings["inputs"], until=until),
            _failed,
        ),
        Section(
            "determinism",
            {"full": {"runs": 20}, "quick": {"runs": 2, "cases": 4}},
            lambda results, settings, until: determinism(results, **settings, until=until),
            _failed,
        ),
        Section(
            "agreement",
            {"full": {"count": 500}, "quick": {"count": 4}},
            lambda results, settings, until: agreement(results, **settings, until=until),
            _failed,
        ),
        Section(
            "memory",
            {"full": {"count": 300}, "quick": {"count": 5}},
            lambda results, settings, until: memory(results, **settings, until=until),
            _failed,
        ),
        Section(
            "kills",
            {"full": {"rounds": 200}, "quick": {"rounds": 5}},
            lambda results, settings, until: kills(results, **settings, until=until),
            _failed,
        ),
        Section(
            "mutation",
            {"full": {"count": 20}, "quick": {"count": 1}},
            lambda results, settings, until: mutation(results, **settings, until=until),
            lambda rows: sum(score(rows, room.name)["score"] < LEAST_SCORE for room in ROOMS),
        ),
    )
}
