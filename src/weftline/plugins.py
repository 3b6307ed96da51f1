"""What comes through the door for plug-ins: our own room `papers`, then other packages' entry points.

One that cannot be loaded is a warning, never a crash.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

__all__ = ["GROUPS", "broken_plugins", "load_plugins"]

GROUPS = {
    "weftline.importers": ("weftline.importers",),
    "weftline.architectures": ("weftline.architectures",),
    "weftline.latency": ("weftline.latency", "weftline.place"),
    "weftline.pipeline": ("weftline.pipeline", "weftline.partition"),
    "weftline.schedule": ("weftline.schedule",),
    "weftline.export": ("weftline.export", "weftline.export_plan"),
}
"""Group -> the names of entry points that belong to it: its own, then those it had before."""


def load_plugins(group: str) -> list[Any]:
    """The objects of a group, without those that fail to load."""
    found, broken = _load(group)
    for name, reason in broken.items():
        warnings.warn(f"plugin {name!r} of {group} is left out: {reason}", RuntimeWarning, stacklevel=2)
    return [*_papers(group), *found]


def broken_plugins() -> dict[str, str]:
    """Plugins of all groups that cannot be loaded: name -> why."""
    return {f"{group}: {name}": reason for group in GROUPS for name, reason in _load(group)[1].items()}


def _papers(group: str) -> list[Any]:
    """Published methods that we compare with; the planner works without that room."""
    if find_spec("weftline.papers") is None:
        return []
    provided: list[Any] = import_module("weftline.papers").provided(group)
    return provided


def _load(group: str) -> tuple[list[Any], dict[str, str]]:
    found, broken = [], {}
    for point in (point for name in GROUPS[group] for point in entry_points(group=name)):
        try:
            found.append(point.load())
        except Exception as error:
            broken[point.name] = f"{type(error).__name__}: {error}"
    return found, broken
