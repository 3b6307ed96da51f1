"""`kernel` and `part`: numba.njit with our settings and with types that a checker understands."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar, cast

import numba

__all__ = ["kernel", "part"]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, release the interpreter lock."""
    return cast(Callable[P, R], numba.njit(cache=True, nogil=True)(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that only kernels call: without the wrapper for Python it compiles several times faster."""
    compiled = numba.njit(cache=True, nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(function)
    return cast(Callable[P, R], compiled)
