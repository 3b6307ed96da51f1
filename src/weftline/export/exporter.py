"""What a target format offers: a name and a function that writes its files.

What a target for plans offers, beside `exporter` for schedules: a name and a function that writes its files.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from weftline.plans.plan import Plan
from weftline.simulate import Timetable

__all__ = ["ExportOptions", "Exporter", "PlanExporter"]


@dataclass(frozen=True)
class Exporter:
    """One entry of the registry."""

    name: str
    description: str
    write: Callable[[Timetable, Path], list[Path]]
    """A schedule and a folder that exists -> the files that were written."""


@dataclass(frozen=True)
class ExportOptions:
    """What a plan does not say itself."""

    model: Path | None = None
    """The file of the model, where the target needs or checks it."""
    runtimes: Mapping[str, str] = field(default_factory=dict)
    """Device id -> runtime, before what the cluster said."""


@dataclass(frozen=True)
class PlanExporter:
    """One entry of the registry of targets for plans."""

    name: str
    description: str
    write: Callable[[Plan, Path, ExportOptions], list[Path]]
    """A plan, a folder that exists and options -> the files that were written."""
