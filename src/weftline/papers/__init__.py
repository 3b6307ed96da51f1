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
        "round_robin.round_robin",
        "getf.earliest_first",
        "baechi.m_topo",
        "baechi.m_etf",
        "getf.getf",
        "placeto.greedy",
        "moirai.milp",
        "hsdag.hsdag",
        "placeto.placeto",
        "rnn.rnn",
    ),
    "weftline.pipeline": ("archer.brkga",),
    "weftline.schedule": ("tessel.lazy", "tessel.fast"),
    "weftline.importers": ("fiddle.msr_fiddle", "moirai.json_file", "regal.regal"),
}
"""Group of plug-ins -> modules of this room with `SOLVERS`, `SCHEDULERS`, `IMPORTERS`, or one of them."""
_LISTS = ("SOLVERS", "SCHEDULERS", "IMPORTERS")
_SINGLES = ("SOLVER", "SCHEDULER")


def provided(group: str) -> list[Any]:
    """What this room offers to a group."""
    found: list[Any] = []
    for name in PROVIDES.get(group, ()):
        module = import_module(f"weftline.papers.{name}")
        found += next((getattr(module, several) for several in _LISTS if hasattr(module, several)), ())
        found += [getattr(module, single) for single in _SINGLES if hasattr(module, single)]
    return found
