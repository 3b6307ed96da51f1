"""What other packages offer through entry points; one that cannot be loaded is a warning, never a crash."""

from __future__ import annotations

import warnings
from importlib.metadata import entry_points
from typing import Any

__all__ = ["GROUPS", "broken_plugins", "load_plugins"]

GROUPS = (
    "weftline.importers",
    "weftline.architectures",
    "weftline.place",
    "weftline.partition",
    "weftline.schedule",
    "weftline.export",
    "weftline.export_plan",
)


def load_plugins(group: str) -> list[Any]:
    """The objects of a group, without those that fail to load."""
    found, broken = _load(group)
    for name, reason in broken.items():
        warnings.warn(f"plugin {name!r} of {group} is left out: {reason}", RuntimeWarning, stacklevel=2)
    return found


def broken_plugins() -> dict[str, str]:
    """Plugins of all groups that cannot be loaded: name -> why."""
    return {f"{group}: {name}": reason for group in GROUPS for name, reason in _load(group)[1].items()}


def _load(group: str) -> tuple[list[Any], dict[str, str]]:
    found, broken = [], {}
    for point in entry_points(group=group):
        try:
            found.append(point.load())
        except Exception as error:
            broken[point.name] = f"{type(error).__name__}: {error}"
    return found, broken
