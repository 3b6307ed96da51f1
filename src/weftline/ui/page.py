"""The files that the page consists of: our own, and the components it shares with the report.

They are read as files: importing the room of the report would load the solvers into the server.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from weftline.ui.limits import NotThere

__all__ = ["ASSETS", "asset"]

_KINDS = {"html": "text/html; charset=utf-8", "js": "text/javascript; charset=utf-8", "css": "text/css; charset=utf-8"}
SHARED = ("style.css", "weft.js", "curve.js")
ASSETS = (
    "index.html",
    "page.css",
    "ask.js",
    "model.js",
    "cluster.js",
    "form.js",
    "plans.js",
    "detail.js",
    "compare.js",
    "start.js",
)


@cache
def asset(name: str) -> tuple[str, str]:
    """Text and kind; `NotThere` for anything that is not in the lists."""
    if name not in SHARED and name not in ASSETS:
        raise NotThere(name)
    room = "report" if name in SHARED else "ui"
    text = files("weftline").joinpath(room, "assets", name).read_text(encoding="utf-8")
    return text, _KINDS[name.rpartition(".")[2]]
