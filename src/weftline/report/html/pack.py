"""Large data for a page: names cut to a budget, times as differences, neighbours joined where there are too many.

In: names and numbers of any size. Out: plain values for JSON, and JSON that cannot leave its script element.
Simplified: what is joined here cannot be taken apart by the page, which then says so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from weftline.graph.arrays import Ints
from weftline.units import format_name

__all__ = ["Room", "differences", "packed_spans", "script_json", "short_name", "short_names", "thinned_steps"]

LONGEST_NAME = 160
SHORTEST_NAME = 8


@dataclass(frozen=True)
class Room:
    """How much of everything a page may hold."""

    characters: int = 1_400_000
    """Of all names of one kind together."""
    spans: int = 90_000
    """On all lanes of a timeline together."""
    steps: int = 40_000
    """Of memory, over all devices."""

    def half(self) -> Room:
        """For a page that came out too large."""
        return Room(self.characters // 2, self.spans // 2, self.steps // 2)


def short_name(name: str, most: int = LONGEST_NAME) -> str:
    """A name for a page: control characters shown, the middle of a long one left out."""
    shown = format_name(name[: 4 * most])
    if len(shown) <= most and len(name) <= 4 * most:
        return shown
    tail = format_name(name[-most:])[-(most // 2) :]
    return f"{shown[: most - len(tail) - 1]}\N{HORIZONTAL ELLIPSIS}{tail}"


def short_names(names: Sequence[str], characters: int) -> list[str]:
    """All names, the long ones shorter where all together are too many characters (as JSON writes them)."""
    most = LONGEST_NAME
    while True:
        shown = [short_name(name, most) for name in names]
        if most <= SHORTEST_NAME or sum(map(_written, shown)) <= characters:
            return shown
        most = max(SHORTEST_NAME, most // 2)


def _written(name: str) -> int:
    """Bytes in the page: what is escaped takes six."""
    return len(name.encode(errors="replace")) + 5 * sum(map(name.count, '<>&"\\')) + 3


def differences(values: Ints) -> list[int]:
    """The first value, then each less the one before: short in JSON where values ascend."""
    return np.diff(values, prepend=0).tolist() if len(values) else []


def packed_spans(start: Ints, end: Ints, item: Ints, most: int) -> dict[str, Any]:
    """Spans of one lane by start -> columns; above `most` neighbours are joined, and -count stands for their item."""
    order = np.lexsort((end, start))
    start, end, item = start[order], end[order], item[order]
    if len(start) > most > 0:
        first = np.unique(np.linspace(0, len(start), most, endpoint=False).astype(np.int64))
        count = np.diff(np.append(first, len(start)))
        joined = np.where(count > 1, -count, item[first])
        start, end, item = start[first], np.maximum.reduceat(end, first), joined
    return {"start": differences(start), "length": (end - start).tolist(), "item": item.tolist()}


def thinned_steps(steps: Sequence[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Fewer steps of a level; each stretch keeps its highest level, so that peaks stay."""
    if len(steps) <= most:
        return list(steps)
    cut = np.unique(np.linspace(0, len(steps), most, endpoint=False).astype(np.int64)).tolist()
    stretches = zip(cut, [*cut[1:], len(steps)], strict=True)
    return [(steps[a][0], max(level for _, level in steps[a:b])) for a, b in stretches]


def script_json(value: Any) -> str:
    """JSON for a script element: nothing in it can end the element or begin a comment."""
    text = msgspec.json.encode(value).decode()
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text
