"""Bound: a number no plan can beat, and why."""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Bound"]


@dataclass(frozen=True)
class Bound:
    """`witness` is what `certify/check.py` needs to re-compute `value`; without one the bound is only claimed."""

    value: int
    """ns"""
    by: str
    """Name of the method: path, load, group; or solver and version for a claim."""
    witness: dict[str, object] | None = None
    seconds: float = field(default=0.0, compare=False)
