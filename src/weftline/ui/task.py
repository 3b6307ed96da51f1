"""What the server and its worker processes say to each other: one JSON object per line.

In: a `Task`, the first line a worker reads. Out: `Said`, any number of times; the last one has an answer or an error.
Paths in a task are the server's own, inside its private folder; labels are what people see instead of them.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

__all__ = ["CheckTask", "ChoicesTask", "CompareTask", "FileTask", "ModelFile", "PlanTask", "Row", "Said", "Task"]

Row = tuple[float, int | None, int | None]
"""Seconds of the search, value in ns, bound in ns."""


class ModelFile(msgspec.Struct, frozen=True):
    """A model: an uploaded file, or one of the zoo that the worker writes there first."""

    path: str
    label: str
    zoo: str = ""
    size: str = ""
    weights: bool = True
    """False: the file only names its weights. It can be planned, not cut."""


class PlanTask(msgspec.Struct, frozen=True, tag="plan", kw_only=True):
    """Plan a model."""

    model: ModelFile
    cluster: str | None
    """TOML text; None for files that hold their own devices."""
    cluster_name: str
    objective: Literal["latency", "throughput"]
    stages: int | None
    solver: str
    seconds: float
    gap: float | None
    seed: int
    shapes: tuple[str, ...]
    dims: tuple[str, ...] = ()
    argv: tuple[str, ...]
    output: str


class FileTask(msgspec.Struct, frozen=True, tag="file", kw_only=True):
    """Make a file from a plan."""

    plan: str
    what: Literal["report", "trace", "export"]
    target: str
    """Of an export."""
    model: ModelFile | None
    output: str


class CompareTask(msgspec.Struct, frozen=True, tag="compare"):
    """Compare two plans."""

    first: str
    second: str


class CheckTask(msgspec.Struct, frozen=True, tag="check"):
    """Read a cluster."""

    text: str


class ChoicesTask(msgspec.Struct, frozen=True, tag="choices"):
    """What this installation offers."""


Task = PlanTask | FileTask | CompareTask | CheckTask | ChoicesTask


class Said(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line of a worker."""

    rows: tuple[Row, ...] = ()
    note: str = ""
    answer: dict[str, Any] | None = None
    error: str = ""
    kind: str = ""
    """Name of the error; `Stopped` where there was no plan yet."""
