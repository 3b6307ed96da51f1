"""The files that the page consists of: our own, and the components it shares with the report."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from weftline.report.assets import text as shared

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
    """Text and kind; `KeyError` for anything that is not in the lists."""
    if name in SHARED:
        text = shared(name)
    elif name in ASSETS:
        text = files("weftline.ui").joinpath("assets", name).read_text(encoding="utf-8")
    else:
        raise KeyError(name)
    return text, _KINDS[name.rpartition(".")[2]]
