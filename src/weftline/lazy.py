"""Names that a room exports but loads only when they are asked for, so that to import the room stays cheap; and the
way from a value to how notebooks show it, which a room far behind knows.

In: where each name lives. Out: the room's `__getattr__`. Simplified: a name that was asked for is looked up again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_names", "notebook_html"]


def lazy_names(room: str, homes: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for a room: name -> the module that defines it."""

    def find(name: str) -> Any:
        if name in homes:
            return getattr(import_module(homes[name]), name)
        raise AttributeError(f"module {room!r} has no attribute {name!r}")

    return find


def notebook_html(value: object) -> str:
    """The `_repr_html_` of our values; the room `report` makes it."""
    html: str = import_module("weftline.report.notebook").html_of(value)
    return html
