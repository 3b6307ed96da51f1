"""What comes through the door for plug-ins: our own room `papers`, then other packages' entry points.

One that cannot be loaded, is something else than its group holds, or has a name that is taken, is left out with a
warning: never a crash, and never in the place of one of ours.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any, TypeVar

__all__ = ["GROUPS", "broken_plugins", "registered"]

T = TypeVar("T")

GROUPS = {
    "weftline.importers": ("weftline.importers",),
    "weftline.architectures": ("weftline.architectures",),
    "weftline.latency": ("weftline.latency", "weftline.place"),
    "weftline.pipeline": ("weftline.pipeline", "weftline.partition"),
    "weftline.fleet": ("weftline.fleet",),
    "weftline.layers": ("weftline.layers",),
    "weftline.schedule": ("weftline.schedule",),
    "weftline.export": ("weftline.export", "weftline.export_plan"),
}
"""Group -> the names of entry points that belong to it: its own, then those it had before."""


_KINDS = {
    "weftline.importers": "weftline.importers.registry:Importer",
    "weftline.architectures": "weftline.zoo.registry:Architecture",
    "weftline.latency": "weftline.search:Solver",
    "weftline.pipeline": "weftline.search:Solver",
    "weftline.fleet": "weftline.fleet:FleetSolver",
    "weftline.layers": "weftline.problem.layers:LayerReader",
    "weftline.schedule": "weftline.schedule.search:Scheduler",
    "weftline.export": "weftline.export.exporter:Exporter",
}
"""Group -> what its entry points must be; loaded only where there are some."""


def registered(group: str, own: Iterable[T]) -> dict[str, T]:
    """By name: our own entries, those of our room `papers`, then those of other packages that are in order."""
    found: dict[str, Any] = {one.name: one for one in [*own, *_papers(group)]}
    others, broken = _load(group)
    for point, one in others:
        if one.name in found:
            broken[point] = f"its name {one.name[:80]!r} is taken"
        else:
            found[one.name] = one
    for point, reason in broken.items():
        warnings.warn(f"plugin {point!r} of {group} is left out: {reason}", RuntimeWarning, stacklevel=2)
    return found


def broken_plugins() -> dict[str, str]:
    """Plugins of all groups that cannot be loaded, or are not what their group holds: name -> why."""
    return {f"{group}: {name}": reason for group in GROUPS for name, reason in _load(group)[1].items()}


def _papers(group: str) -> list[Any]:
    """Published methods that we compare with; the planner works without that room."""
    if find_spec("weftline.papers") is None:
        return []
    provided: list[Any] = import_module("weftline.papers").provided(group)
    return provided


def _load(group: str) -> tuple[list[tuple[str, Any]], dict[str, str]]:
    """(name of the entry point, what it is) of those in order; name -> why of the others."""
    found: list[tuple[str, Any]] = []
    broken: dict[str, str] = {}
    for point in (point for name in GROUPS[group] for point in entry_points(group=name)):
        try:
            one = point.load()
            if wrong := _wrong(group, one):
                broken[point.name] = wrong
            else:
                found.append((point.name, one))
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # `sys.exit` in a module, and what libraries derive from BaseException
            broken[point.name] = f"{type(error).__name__}: {error}"[:500]
    return found, broken


def _wrong(group: str, one: object) -> str:
    module, name = _KINDS[group].split(":")
    if not isinstance(one, getattr(import_module(module), name)):
        return f"it is a {type(one).__name__}, not a {name}"
    called = getattr(one, "name", None)
    if not isinstance(called, str) or not called or not called.isprintable():
        return f"its name is {called!r:.80}, not text that can be printed"
    return ""
