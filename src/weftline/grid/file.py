"""sweep.toml (or .json): the lists and limits of a sweep.

In: a file. Out: `GridRequest`; paths in the file are relative to its folder. The file is hostile: its size is limited,
and unknown fields are errors. Simplified: one set of limits for all questions.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from weftline.ask.request import GridRequest
from weftline.cluster import preset_names
from weftline.errors import InputError
from weftline.files import read_limited
from weftline.grid.questions import Objective
from weftline.units import parse_ratio, parse_time
from weftline.zoo import ZOO

__all__ = ["SweepFile", "read_sweep_file"]

MOST_BYTES = 2**20
MOST_DOTS = 1000
"""Of one line: tomllib needs time quadratic in the parts of a dotted key, and we use no such keys."""


class SweepFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The fields of the file."""

    version: Literal[1]
    models: tuple[str, ...]
    """Files, relative to this one, or `zoo:NAME` and `zoo:NAME:SIZE`."""
    clusters: tuple[str, ...] = ()
    """Files, relative to this one, or presets."""
    objectives: tuple[Objective, ...] = ("latency",)
    stages: tuple[int, ...] = ()
    solvers: tuple[str, ...] = ("auto",)
    seeds: tuple[int, ...] = (0,)
    gap: str | None = None
    """`1%`"""
    time: str | None = None
    """`60 s`, for each question."""
    work: int | None = None
    """Candidates costed, for each question."""


def read_sweep_file(path: Path | str) -> GridRequest:
    """Read and check; an `InputError` names the field that is wrong."""
    path = Path(path)
    data = read_limited(path, MOST_BYTES)
    try:
        file = msgspec.convert(_document(path, data), SweepFile)
        return GridRequest(
            models=tuple(_beside(path, word) for word in file.models),
            clusters=tuple(word if word in preset_names() else _beside(path, word) for word in file.clusters),
            objectives=file.objectives,
            stages=file.stages,
            solvers=file.solvers,
            seeds=file.seeds,
            gap=None if file.gap is None else parse_ratio(file.gap),
            time_limit=None if file.time is None else parse_time(file.time) / 1e9,
            work_limit=file.work,
        )
    except msgspec.ValidationError as error:
        raise InputError(f"is not the file of a sweep: {error}", where=str(path)) from error
    except InputError as error:
        raise error.at(str(path)) from error


def _document(path: Path, data: bytes) -> object:
    try:
        if path.suffix.lower() == ".json":
            return msgspec.json.decode(data)
        text = data.decode("utf-8-sig")
        if any(line.count(".") > MOST_DOTS for line in text.splitlines()):
            raise InputError(f"a line has more than {MOST_DOTS} dots", hint="write one name per line")
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # msgspec's and tomllib's own errors are ValueErrors
        raise InputError(f"is neither TOML nor JSON (in a file .json): {str(error)[:200]}") from error


def _beside(path: Path, word: str) -> str:
    return word if word.startswith(ZOO) else str(path.parent / word)
