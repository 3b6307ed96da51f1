"""The sections by name: what is measured, in which sizes, and what of it would be a defect.

A section adds rows to its Results and says whether it is complete; rows that are there already are not measured again.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reliability.fuzz import fuzz
from reliability.results_file import Results, Row

__all__ = ["SECTIONS", "Section"]


@dataclass(frozen=True)
class Section:
    """One part of the page."""

    name: str
    sizes: dict[str, Row]
    """full and quick -> settings."""
    measure: Callable[[Results, Row, float | None], bool]
    failures: Callable[[dict[str, Row]], int]


SECTIONS = {
    section.name: section
    for section in (
        Section(
            "fuzz",
            {"full": {"inputs": 200_000}, "quick": {"inputs": 5_000}},
            lambda results, settings, until: fuzz(results, inputs=settings["inputs"], until=until),
            lambda rows: sum(row["failed"] for row in rows.values()),
        ),
    )
}
