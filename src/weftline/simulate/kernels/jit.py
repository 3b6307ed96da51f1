"""`kernel` and `part`: numba.njit with our settings and with types that a checker understands.

Machine code is kept on disk (`stored`). It is thrown away when the kernel's own file changes, or one whose kernels,
constants or tuples of arrays it uses; so a change compiles again what rests on it, and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic
from typing import Any, ParamSpec, TypeVar, cast

from numba.core.event import Listener, register, unregister

from weftline.simulate.kernels.stored import keep

__all__ = ["Compilation", "kernel", "made", "part", "uncounted_part"]

P = ParamSpec("P")
R = TypeVar("R")


def kernel(function: Callable[P, R]) -> Callable[P, R]:
    """Compile on first use, keep the machine code on disk, release the interpreter lock."""
    return cast(Callable[P, R], _compile(function))


def part(function: Callable[P, R]) -> Callable[P, R]:
    """A function that only kernels call: without the wrapper for Python it compiles several times faster."""
    return cast(Callable[P, R], _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True))


def uncounted_part(function: Callable[P, R]) -> Callable[P, R]:
    """A part that makes no array and returns none: it borrows those of its caller.

    Otherwise every call counts the references of every array of every tuple it is given, up and down again: with tuples
    of dozens of arrays that takes longer than a short part. It may call parts that do count.
    """
    return cast(Callable[P, R], _compile(function, no_cpython_wrapper=True, no_cfunc_wrapper=True, _nrt=False))


class Compilation(Listener):  # type: ignore[misc]
    """For a `with`: what is really compiled inside, and how long that takes. What is only loaded does not count."""

    def __init__(self, tell: Callable[[str], None] | None = None) -> None:
        self.count, self.seconds = 0, 0.0
        self._tell, self._depth, self._begun = tell, 0, 0.0

    def __enter__(self) -> Compilation:
        register("numba:compile", self)
        return self

    def __exit__(self, *_: object) -> None:
        unregister("numba:compile", self)

    def on_start(self, event: object) -> None:
        """A kernel is not on disk; the kernels that it calls come inside."""
        if self._depth == 0:
            self._begun = monotonic()
            if self._tell and not self.count:
                self._tell("compiling kernels, once, beyond the time limit")
        self._depth += 1

    def on_end(self, event: object) -> None:
        """It is compiled."""
        self._depth -= 1
        self.count += 1
        if self._depth == 0:
            self.seconds += monotonic() - self._begun
        taken = self.seconds + (monotonic() - self._begun if self._depth else 0.0)
        left = sum(not made.overloads for made in _made)
        if self._tell:
            self._tell(
                f"compiling kernels: {self.count} of about {self.count + left}, "
                f"about {taken / self.count * left:.0f} s left (once, beyond the time limit)"
            )


_made: list[Any] = []
"""All kernels and parts of the modules that are loaded."""


def made() -> tuple[Any, ...]:
    """All kernels and parts of the modules that are loaded, as numba's dispatchers."""
    return tuple(_made)


def _compile(function: Any, **options: bool) -> Any:
    options.setdefault("_nrt", True)  # else it would be that of the first caller
    compiled = keep(function, nogil=True, **options)
    _made.append(compiled)
    return compiled
