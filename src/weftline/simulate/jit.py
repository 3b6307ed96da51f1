"""`kernel` and `part`: numba.njit with our settings and with types that a checker understands."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

import numba

__all__ = ["kernel", "part"]

P = ParamSpec("P")
R = TypeVar("R")

_ROOMS = Path(__file__).parent.parent


@cache
def _sources(room: Path) -> list[tuple[str, int, int]]:
    """The files that a kernel of a room may rest on: those of its room and of the rooms that all others may ask."""
    rooms = {_ROOMS / "simulate", _ROOMS / "bounds", room} if room != _ROOMS / "simulate" else {room}
    return sorted((file.name, file.stat().st_mtime_ns, file.stat().st_size) for r in rooms for file in r.glob("*.py"))


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, release the interpreter lock."""
    return cast(Callable[P, R], _compile(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that only kernels call: without the wrapper for Python it compiles several times faster."""
    return cast(Callable[P, R], _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True))


def _compile(function: Any, **options: bool) -> Any:
    try:
        return _stamped(numba.njit(cache=True, nogil=True, **options)(function), Path(function.__code__.co_filename))
    except RuntimeError:  # nowhere to keep machine code (a read-only installation and home): compile in every process
        return numba.njit(nogil=True, **options)(function)


def _stamped(dispatcher: Any, source: Path) -> Any:
    """numba throws machine code away when the kernel's own file changes; here also when one that it calls may have."""
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp"):
        file._source_stamp = (file._source_stamp, _sources(source.parent))
    return dispatcher
