"""What a page is made of: its plain files, and large data made small.

Files: scripts and style sheets of `assets/`, which pages inline; nothing is minified, the files are short enough to be
read in the page. Data: names cut to a budget, times as differences, neighbours joined where there are too many; plain
values for JSON, and JSON that cannot leave its script element. Simplified: what is joined here cannot be taken apart by
the page, which then says so.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import msgspec
import numpy as np

from weftline.graph.arrays import Ints
from weftline.units import format_name

__all__ = [
    "SCRIPTS",
    "STYLES",
    "PageBudget",
    "asset_text",
    "csp_hash",
    "differences",
    "packed_spans",
    "script_json",
    "scripts",
    "short_name",
    "short_names",
    "styles",
    "thinned_steps",
]

SCRIPTS = ("weft.js", "curve.js", "timeline.js", "memory.js", "stages.js", "graph.js", "search.js", "table.js")
"""Each hangs one function on the namespace `weft`; weft.js is first."""
STYLES = ("style.css", "figures.css", "report.css")


@cache
def asset_text(name: str) -> str:
    """The text of one file."""
    if "/" in name or "\\" in name:
        raise ValueError(f"{name!r} is not the name of an asset")
    return files("weftline.report").joinpath("assets", name).read_text(encoding="utf-8")


def scripts() -> str:
    """All components as one script."""
    return "\n".join(asset_text(name) for name in SCRIPTS)


def styles() -> str:
    """All style sheets as one."""
    return "\n".join(asset_text(name) for name in STYLES)


def csp_hash(content: str) -> str:
    """What a Content-Security-Policy says to allow exactly this inline text."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"


LONGEST_NAME = 160
SHORTEST_NAME = 8


@dataclass(frozen=True)
class PageBudget:
    """How much of everything a page may hold."""

    characters: int = 1_400_000
    """Of all names of one kind together."""
    spans: int = 90_000
    """On all lanes of a timeline together."""
    steps: int = 40_000
    """Of memory, over all devices."""

    def half(self) -> PageBudget:
        """For a page that came out too large."""
        return PageBudget(self.characters // 2, self.spans // 2, self.steps // 2)


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
