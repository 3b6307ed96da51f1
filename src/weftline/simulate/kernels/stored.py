"""Machine code on disk: where it is kept, what it rests on, and whose is read.

In: a function and numba's options. Out: numba's dispatcher, which throws machine code away when a file it rests on
changes, and which also reads what others have made: the owner of the installation, or whoever built the wheel.
Simplified: this relies on private names of numba; where they are missing, numba's own rules hold.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import os
import re
import stat
import tempfile
import warnings
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import llvmlite
import numba
from numba.core.caching import CompileResultCacheImpl, FunctionCache, InTreeCacheLocator

from weftline.simulate.kernels.processor import BASELINE_CPU, BASELINE_ENVIRONMENT, fits_baseline

__all__ = ["keep", "kept_in", "source_stamp", "store"]

_SRC = Path(__file__).parents[3]
SHIPPED_FOLDER = _SRC / "weftline" / "_kernels"
"""Machine code that came with the wheel. It is believed as the rest of the wheel is, and read from nowhere else."""


def keep(function: Any, **options: bool) -> Any:
    """numba's compiler with machine code on disk: beside the source, in the user's cache, or where it can be kept."""
    try:
        return _stamped(numba.njit(cache=True, **options)(function))
    except RuntimeError:  # a read-only installation, and a home that is none
        return _keep_elsewhere(function, options)


def _keep_elsewhere(function: Any, options: dict[str, bool]) -> Any:
    """In the folder for temporary files, or not at all; this is said once, when something is compiled."""
    before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, _temporary_folder()
    try:
        if numba.config.CACHE_DIR:
            return _stamped(numba.njit(cache=True, **options)(function), f"is kept in {numba.config.CACHE_DIR}")
    except RuntimeError:
        pass  # it cannot be written after all
    finally:
        numba.config.CACHE_DIR = before
    made = numba.njit(**options)(function)
    with suppress(AttributeError, TypeError):
        made._cache = _ReadOnlyCache(function)
        return _stamped(made, "is compiled again in every process", saves=False)
    return made


class _ReadOnlyPlace(InTreeCacheLocator):  # type: ignore[misc]
    """Beside the source, where nothing can be written."""

    def ensure_cache_path(self) -> None:
        """It is enough if it can be read."""


class _ReadOnlyImplementation(CompileResultCacheImpl):  # type: ignore[misc]
    _locator_classes = (_ReadOnlyPlace,)


class _ReadOnlyCache(FunctionCache):  # type: ignore[misc]
    _impl_class = _ReadOnlyImplementation


@cache
def _temporary_folder() -> str:
    """One that only this user can write to, since machine code is believed; nothing if somebody else has made it."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"weftline-kernels-{user}"
    with suppress(OSError):
        folder.mkdir(mode=0o700, exist_ok=True)
        about = folder.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == user and not about.st_mode & 0o077:
            return str(folder)
    return ""


@cache
def _warn_once(what: str) -> None:
    warnings.warn(
        f"neither installation nor home can be written, so machine code {what}; NUMBA_CACHE_DIR may name a folder",
        RuntimeWarning,
        stacklevel=2,
    )


def _stamped(dispatcher: Any, warning: str = "", *, saves: bool = True) -> Any:
    """numba asks for the time of the kernel's own file; here the digest of all files it rests on takes its place."""
    source = Path(dispatcher.py_func.__code__.co_filename)
    file: Any = getattr(getattr(dispatcher, "_cache", None), "_cache_file", None)
    if hasattr(file, "_source_stamp") and source.is_file():
        file._source_stamp = source_stamp(source)
        file._load_index = _or_nothing(file._load_index)
        dispatcher._cache._cache_file = _Layers(file, source, warning, saves=saves)
    return dispatcher


class _Layers:
    """numba's files of machine code for a kernel, and those in the package, which are only read.

    Whoever may not write to the installation need not compile again what its owner has compiled, and nobody what came
    with the wheel. Machine code for this very processor goes before that for the baseline.
    """

    def __init__(self, own: Any, source: Path, warning: str, *, saves: bool) -> None:
        self._own, self._files, self._warning, self._saves = own, [own], warning, saves
        beside = source.parent / "__pycache__"
        if own._cache_path != str(beside):
            self._files.append(_moved(own, beside))
        if SHIPPED_FOLDER.is_dir() and source.is_relative_to(_SRC):
            self._files.append(_moved(own, _shipped(source, SHIPPED_FOLDER)))

    @property
    def folder(self) -> str:
        """Where machine code is kept that is made here; empty where none can be kept."""
        return str(self._own._cache_path) if self._saves else ""

    def load(self, key: tuple[Any, ...]) -> Any:
        """The machine code for these types and this processor, or None."""
        keys = (key, _baseline(key)) if fits_baseline(key[1]) else (key,)
        found = (file.load(each) for file in self._files for each in dict.fromkeys(keys))
        return next((code for code in found if code is not None), None)

    def save(self, key: tuple[Any, ...], data: Any) -> None:
        """Keep what was compiled."""
        if self._warning:
            _warn_once(self._warning)
        if self._saves:
            self._own.save(key, data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def _baseline(key: tuple[Any, ...]) -> tuple[Any, ...]:
    """The name of the same kernel for the same types, made for the baseline."""
    types, (system, _, _), *rest = key
    return (types, (system, BASELINE_CPU, BASELINE_ENVIRONMENT["NUMBA_CPU_FEATURES"]), *rest)


def store(dispatchers: Iterable[Any], package: Path) -> int:
    """Put the machine code that this process, which compiles for the baseline, has used into a package -> how much.

    Only what Python calls: the parts are inside. What explains the types of every line to readers is left out.
    """
    count = 0
    for made in dispatchers:
        source = Path(made.py_func.__code__.co_filename)
        file = made._cache._cache_file
        if made.targetoptions.get("no_cpython_wrapper") or not made.overloads or not source.is_relative_to(_SRC):
            continue
        target = _moved(file._own, _shipped(source, package / SHIPPED_FOLDER.name))
        Path(target._cache_path).mkdir(parents=True, exist_ok=True)
        known = {key: name for key, name in file._load_index().items() if key[0] in made.overloads}
        for key in sorted(known, key=str):
            if key[1][1] == BASELINE_CPU:
                data = list(file._load_data(known[key]))
                data[_TYPES_OF_LINES] = ""
                target.save(key, tuple(data))
                count += 1
    return count


_TYPES_OF_LINES = 6
"""Place in numba's tuple of what is kept of a kernel."""


def kept_in(dispatchers: Iterable[Any]) -> str:
    """The folder that holds all that is kept of what these compile; empty where something is not kept."""
    files = [getattr(getattr(made, "_cache", None), "_cache_file", None) for made in dispatchers]
    folders = {file.folder if isinstance(file, _Layers) else "" for file in files}
    return os.path.commonpath(folders) if folders and "" not in folders else ""


def _shipped(source: Path, folder: Path) -> Path:
    return folder.joinpath(*source.relative_to(_SRC / "weftline").parent.parts)


def _moved(own: Any, folder: Path) -> Any:
    """The same names in another folder."""
    moved = copy.copy(own)
    moved._cache_path = str(folder)
    moved._index_path = str(folder / own._index_name)
    moved._load_index = _or_nothing(lambda: type(own)._load_index(moved))
    return moved


def _or_nothing(load: Callable[[], dict[Any, Any]]) -> Callable[[], dict[Any, Any]]:
    """numba reads an index before it compares the stamp; one that names a class that has moved is as good as none."""

    def known() -> dict[Any, Any]:
        try:
            return load()
        except (AttributeError, ImportError, OSError):
            return {}

    return known


@cache
def source_stamp(file: Path) -> str:
    """A digest of a file, of all that its kernels rest on, and of the version of LLVM's Python side."""
    known, new = {file}, {file}
    while new:
        new = {used for one in new for used in _uses(one)} - known
        known |= new
    digest = hashlib.blake2b(llvmlite.__version__.encode(), digest_size=16)
    for one in sorted(known):
        name = one.relative_to(_SRC) if one.is_relative_to(_SRC) else one
        digest.update(name.as_posix().encode() + b"\0" + one.read_bytes())
    return digest.hexdigest()


@cache
def _uses(file: Path) -> frozenset[Path]:
    """The files of weftline from which a file takes kernels (made with `jit`), constants or named tuples."""
    found = set()
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("weftline."):
            folder = _SRC.joinpath(*(node.module or "").split("."))
            source = folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")
            if source.is_file() and _gives(source, [alias.name for alias in node.names]):
                found.add(source)
    return frozenset(found)


def _gives(source: Path, names: list[str]) -> bool:
    """Whether machine code may rest on what a file defines; a tuple whose fields change places keeps its types."""
    text = source.read_bytes()
    if source == _SETTINGS or _MAKES_KERNELS.search(text):
        return True
    return any(name.isupper() or f"class {name}(NamedTuple".encode() in text for name in names)


_SETTINGS = Path(__file__).with_name("jit.py")
"""How everything is compiled."""
_MAKES_KERNELS = re.compile(rb"^from weftline\.simulate\.kernels\.jit import", re.MULTILINE)
