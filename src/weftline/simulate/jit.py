"""`kernel`: numba.njit with our settings and with types that a checker understands."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["inlined", "kernel"]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, release the interpreter lock."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))


def inlined(function: Callable[P, R]) -> Callable[P, R]:
    """A part of a kernel."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True, inline="always")(function))
