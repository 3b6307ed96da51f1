"""The small plain files that a page is made of: scripts and a style sheet, which pages inline.

In: the name of a file in `assets/`. Out: its text, or the texts of several in the order they need. Simplified: nothing
is minified; the files are short enough to be read in the page.
"""

from __future__ import annotations

from base64 import b64encode
from functools import cache
from hashlib import sha256
from importlib.resources import files

__all__ = ["SCRIPTS", "STYLES", "csp_hash", "scripts", "styles", "text"]

SCRIPTS = ("weft.js", "curve.js", "timeline.js", "memory.js", "stages.js", "graph.js", "search.js", "table.js")
"""Each hangs one function on the namespace `weft`; weft.js is first."""
STYLES = ("style.css", "figures.css", "report.css")


@cache
def text(name: str) -> str:
    """The text of one file."""
    if "/" in name or "\\" in name:
        raise ValueError(f"{name!r} is not the name of an asset")
    return files("weftline.report").joinpath("assets", name).read_text(encoding="utf-8")


def scripts() -> str:
    """All components as one script."""
    return "\n".join(text(name) for name in SCRIPTS)


def styles() -> str:
    """All style sheets as one."""
    return "\n".join(text(name) for name in STYLES)


def csp_hash(content: str) -> str:
    """What a Content-Security-Policy says to allow exactly this inline text."""
    return f"'sha256-{b64encode(sha256(content.encode()).digest()).decode()}'"
