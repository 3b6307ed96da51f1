"""Published methods as published, to compare with, and the file formats of research codes.

In: the same Search that every solver gets, or a file. Out: candidates, or a Problem. Simplified: as their authors did;
each folder has a README. No other room imports this one: it is asked through the door for plug-ins, so the planner
works without it.
"""

from importlib import import_module
from typing import Any

__all__ = ["PROVIDES", "provided"]

PROVIDES = {
    "weftline.latency": (
        "round_robin:SOLVER",
        "getf:SOLVER_ETF",
        "baechi.m_topo:SOLVER",
        "baechi.m_etf:SOLVERS",
        "getf:SOLVER_GETF",
        "placeto.greedy:SOLVER",
        "moirai.milp:SOLVER",
        "hsdag:SOLVER",
        "placeto:SOLVER",
        "rnn:SOLVER",
    ),
    "weftline.pipeline": ("archer:SOLVERS",),
    "weftline.schedule": ("tessel:SCHEDULERS",),
    "weftline.layers": ("helix:READERS",),
    "weftline.importers": ("fiddle:IMPORTERS", "moirai.instance:IMPORTERS", "regal:IMPORTERS"),
}
"""Group of plug-ins -> module of this room and name in it, of one entry or of a tuple of them."""


def provided(group: str) -> list[Any]:
    """What this room offers to a group."""
    found: list[Any] = []
    for entry in PROVIDES.get(group, ()):
        module, name = entry.split(":")
        value = getattr(import_module(f"weftline.papers.{module}"), name)
        found += value if isinstance(value, tuple) else (value,)
    return found
