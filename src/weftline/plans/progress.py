"""How a search went: value and bound over time, few enough rows for a file.

In: the events of one search. Out: rows (seconds, value or None, bound or None), one for each time one of them became
better. Simplified: above `MOST_ROWS` only a selection is kept, the first, the last and the largest steps.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

from weftline.search import Event

__all__ = ["MOST_ROWS", "Progress", "ProgressRow", "thinned"]

MOST_ROWS = 200

ProgressRow = tuple[float, int | None, int | None]


class Progress:
    """Hears every event of a search, keeps what is new, and passes it on."""

    def __init__(self, on_event: Callable[[Event], None] | None = None) -> None:
        self._on_event = on_event
        self._rows: list[ProgressRow] = []

    def __call__(self, event: Event) -> None:
        """An event of the search."""
        known = (event.value, event.bound)
        if known != (None, None) and (not self._rows or self._rows[-1][1:] != known):
            self._rows.append((round(event.seconds, 4), *known))
        if self._on_event is not None:
            self._on_event(event)

    def rows(self, seconds: float, value: int, bound: int) -> tuple[ProgressRow, ...]:
        """What happened until the end of the search, with what was known then."""
        last = (round(max([seconds, *(row[0] for row in self._rows[-1:])]), 4), value, bound)
        return thinned([*self._rows, last])


def thinned(rows: list[ProgressRow], most: int = MOST_ROWS) -> tuple[ProgressRow, ...]:
    """At most so many rows: the first, the last, and those that change most."""
    if len(rows) <= most:
        return tuple(rows)
    inner = enumerate(pairwise(rows[:-1]), 1)
    steps = [(-_step(a[1], b[1]) - _step(a[2], b[2]), number) for number, (a, b) in inner]
    kept = {0, len(rows) - 1, *(number for _, number in sorted(steps)[: most - 2])}
    return tuple(rows[number] for number in sorted(kept))


def _step(before: int | None, after: int | None) -> float:
    if before is None or after is None:
        return 0.0 if before is after else 1.0
    return abs(after - before) / max(before, after, 1)
