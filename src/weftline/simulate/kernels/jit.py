"""`kernel` and `part`: numba.njit with our settings and with types that a checker understands.

Machine code is kept on disk. It is thrown away when the kernel's own file changes, or one whose kernels, constants or
tuples of arrays it uses, found by following imports; so a change compiles again what rests on it, and nothing else.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import os
import stat
import tempfile
import warnings
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from time import monotonic
from typing import Any, ParamSpec, TypeVar, cast

import numba
from numba.core.event import Listener, register, unregister

__all__ = ["Compilation", "kernel", "part", "uncounted_part"]

P = ParamSpec("P")
R = TypeVar("R")

_SRC = Path(__file__).parents[3]


@cache
def _uses(file: Path) -> frozenset[Path]:
    """The files of weftline from which a file takes kernels (made with this module), constants or named tuples."""
    found = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weftline."):
            folder = _SRC.joinpath(*(node.module or "").split("."))
            source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            if source.is_file() and _gives(source.read_bytes(), [alias.name for alias in node.names]):
                found.add(source)
    return frozenset(found)


def _gives(text: bytes, names: list[str]) -> bool:
    """Whether machine code may rest on what a file defines; a tuple whose fields change places keeps its types."""
    if b"weftline.simulate.kernels.jit" in text:
        return True
    return any(name.isupper() or f"class {name}(NamedTuple".encode() in text for name in names)


@cache
def _stamp(file: Path) -> str:
    """A digest of a file and of all that its kernels rest on."""
    known, new = {file}, {file}
    while new:
        new = {used for one in new for used in _uses(one)} - known
        known |= new
    digest = hashlib.blake2b(digest_size=16)
    for one in sorted(known):
        name = one.relative_to(_SRC) if one.is_relative_to(_SRC) else one
        digest.update(name.as_posix().encode() + b"\0" + one.read_bytes())
    return digest.hexdigest()


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


def _compile(function: Any, **options: bool) -> Any:
    options.setdefault("_nrt", True)  # else it would be that of the first caller
    try:
        made = _stamped(numba.njit(cache=True, nogil=True, **options)(function), Path(function.__code__.co_filename))
    except RuntimeError:  # nowhere to keep machine code: a read-only installation, and a home that is none
        made = _compile_elsewhere(function, options)
    _made.append(made)
    return made


def _compile_elsewhere(function: Any, options: dict[str, bool]) -> Any:
    """Machine code is kept in the folder for temporary files, or not at all; this is said once."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _temporary_folder()
    try:
        if numba.config.CACHE_DIR:
            made = numba.njit(cache=True, nogil=True, **options)(function)
            return _stamped(made, Path(function.__code__.co_filename))
    except RuntimeError:
        _warn_once("is compiled again in every process")
    finally:
        numba.config.CACHE_DIR = before
    return numba.njit(nogil=True, **options)(function)


@cache
def _temporary_folder() -> str:
    """One that only this user can write to, since machine code is believed; nothing if somebody else has made it."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"weftline-kernels-{user}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == user and not about.st_mode & 0o077:
            _warn_once(f"is kept in {folder}")
            return str(folder)
    _warn_once("is compiled again in every process")
    return ""


@cache
def _warn_once(what: str) -> None:
    warnings.warn(
        f"neither installation nor home can be written, so machine code {what}; NUMBA_CACHE_DIR may name a folder",
        RuntimeWarning,
        stacklevel=2,
    )


def _stamped(dispatcher: Any, source: Path) -> Any:
    """numba asks for the time of the kernel's own file; here the digest of all files it rests on takes its place."""
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp") and source.is_file():
        file._source_stamp = _stamp(source)
        file._load_index = _or_nothing(file._load_index)
        ours = str(source.parent / "__pycache__")
        if file._cache_path != ours:
            dispatcher._cache._cache_file = _Layers(file, ours)
    return dispatcher


class _Layers:
    """numba's files of machine code for a kernel, and those in the package, which are only read.

    Whoever may not write to the installation need not compile again what its owner has compiled.
    """

    def __init__(self, own: Any, folder: str) -> None:
        self._own, self._shared = own, copy.copy(own)
        self._shared._cache_path = folder
        self._shared._index_path = os.path.join(folder, own._index_name)  # noqa: PTH118
        self._shared._load_index = _or_nothing(lambda: type(own)._load_index(self._shared))

    def load(self, key: object) -> Any:
        """The machine code for these types and this processor, or None."""
        found = self._own.load(key)
        return self._shared.load(key) if found is None else found

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _or_nothing(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """numba reads an index before it compares the stamp; one that names a class that has moved is as good as none."""

    def known() -> dict[Any, Any]:
        try:
            return load()
        except (AttributeError, ImportError, OSError):
            return {}

    return known
