"""All models of the collection by name."""

from __future__ import annotations

from benchmarks.models.derived import DERIVED
from benchmarks.models.files import IN_PACKAGES
from benchmarks.models.source import Source

__all__ = ["SOURCES"]

SOURCES: dict[str, Source] = {source.name: source for source in (*IN_PACKAGES, *DERIVED)}
