"""Mutants of the sample that survive because nothing that can be observed differs, each with the reason."""

from __future__ import annotations

__all__ = ["EQUIVALENT"]

EQUIVALENT: dict[str, str] = {}
"""Beginning of a mutant's name -> why."""
