"""What a checker may spend on one witness: whoever writes a witness must not keep its reader busy for hours.

In: what was spent. Out: a `Refusal` with the code `witness-size` once it is too much; the bound then stays a claim.
Simplified: counts are limits that every machine agrees on; seconds are the last resort, and what makers limit.
"""

from __future__ import annotations

from time import monotonic

from weftline.certify.problem import need

__all__ = ["Allowance"]

LIMITS = {"ideals": 150_000, "pairs": 20_000_000, "nodes": 20_000, "flows": 5_000, "steps": 5_000_000}
MOST_SECONDS = 600.0
BETWEEN_LOOKS = 2_000
"""Spendings between two looks at the clock."""


class Allowance:
    """Counts by kind, and one clock."""

    def __init__(self, seconds: float = MOST_SECONDS) -> None:
        self._until = monotonic() + seconds
        self._left = dict(LIMITS)
        self._looks = 0

    @property
    def left(self) -> float:
        """Seconds."""
        return self._until - monotonic()

    def spend(self, kind: str, count: int = 1) -> None:
        """So much of a kind."""
        self._left[kind] -= count
        need(self._left[kind] >= 0, "witness-size", f"more than {LIMITS[kind]} {kind}: too many to check")
        self._looks += 1
        if self._looks >= BETWEEN_LOOKS:
            self.look()

    def look(self) -> None:
        """Is there time left?"""
        self._looks = 0
        need(monotonic() < self._until, "witness-size", "it takes too long to check")
