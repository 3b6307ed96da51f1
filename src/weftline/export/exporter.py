"""What a target format offers: a name and a function that writes its files."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from weftline.simulate import Timetable

__all__ = ["Exporter"]


@dataclass(frozen=True)
class Exporter:
    """One entry of the registry."""

    name: str
    description: str
    write: Callable[[Timetable, Path], list[Path]]
    """A schedule and a folder that exists -> the files that were written."""
