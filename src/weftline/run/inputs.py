"""What a run is given: the file of the model that a plan was made for, and a file of arrays.

In: a plan and a model file; an .npz file. Out: nothing, or an `InputError` that says how the model differs; the arrays.
The same bytes are the same model; other bytes may be, too: weights are no part of a plan, so the file is read as for
planning, and ops and tensors are compared. Simplified: weights' values are not compared.
"""

from __future__ import annotations

import io
import math
import os
import stat
import zipfile
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from weftline.errors import InputError, no_such_file, unreadable
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT

if TYPE_CHECKING:
    from weftline.plans.fleet import FleetPlan
    from weftline.plans.plan import Plan

__all__ = ["check_planned_model", "check_same_model", "read_arrays"]

HINT = "run and export a plan with the file it was made for; names change when a model is converted again"


def check_planned_model(plan: Plan | FleetPlan, model: Path | str) -> None:
    """Refuse a model whose ops or tensors are not those of the plan."""
    path = Path(model)
    if not path.is_file():
        raise no_such_file(path)
    planned = plan.provenance.inputs.get("model")
    from weftline.importers.registry import file_sha256

    if planned is None or file_sha256(path) != planned:
        check_same_model(plan.problem.graph, path)


def check_same_model(ours: Graph, model: Path | str) -> None:
    """Refuse a model file whose ops or tensors are not those of the graph."""
    from weftline.importers import ImportOptions, read_file

    path = Path(model)
    shapes = {tensor.name: tensor.shape for tensor in ours.tensors if tensor.producer == MODEL_INPUT}
    try:
        different = _first_difference(ours, read_file(path).graph)
    except InputError:  # its inputs may be open: then with the shapes of the plan
        different = _first_difference(ours, read_file(path, ImportOptions(shapes=shapes)).graph)
    else:
        if different:  # or open up to a limit, which is not what was planned for
            with suppress(InputError):
                different = _first_difference(ours, read_file(path, ImportOptions(shapes=shapes)).graph)
    if different:
        raise InputError(f"is not the model that the plan was made for: {different}", where=str(path), hint=HINT)


def _first_difference(planned: Graph, found: Graph) -> str:
    """The first difference, in words."""
    names, there = {op.name for op in planned.ops}, {op.name for op in found.ops}
    missing, more = sorted(names - there), sorted(there - names)
    if missing:
        return f"it has no operation {missing[0][:80]!r} ({len(missing)} ops of the plan are not in it)"
    if more:
        return f"the plan does not know operation {more[0][:80]!r} ({len(more)} in all)"
    kinds = {op.name: op.kind for op in planned.ops}
    for op in found.ops:
        if op.kind != kinds[op.name]:
            return f"operation {op.name[:80]!r} is a {op.kind[:40]}, planned was a {kinds[op.name][:40]}"
    for maker, readers, shape, dtype in _wires(found) - _wires(planned):
        between = f"from {maker[:80]!r} to {len(readers)} ops" if maker else "which is an input"
        return f"a tensor {between} has shape {list(shape)} of {dtype}, which is not in the plan"
    return "" if len(planned.tensors) == len(found.tensors) else "it has other tensors"


def _wires(graph: Graph) -> Counter[tuple[str, tuple[str, ...], tuple[int, ...], str]]:
    """Who makes a tensor, who reads it, shape and type, how often; names and the order of ops do not matter."""
    names = [op.name for op in graph.ops]
    return Counter(
        (
            "" if tensor.producer == MODEL_INPUT else names[tensor.producer],
            tuple(sorted(names[op] for op in tensor.consumers)),
            tensor.shape,
            tensor.dtype,
        )
        for tensor in graph.tensors
    )


MOST_ARRAYS, MOST_BYTES = 1_000, 4 * 2**30
MOST_TEXTS = 2**24
"""Of all arrays together; each becomes an object."""
MOST_PIECE = 2**20
"""Bytes that are read of an archive at once: the list of its members is read in one piece, before it can be counted."""
MOST_GAIN = 1032
"""By which deflate makes data smaller, at most."""
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
"""Those that numpy writes. Others make gigabytes of a few bytes before anybody can stop them."""
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


class _Pieces(io.FileIO):
    """A file that is read piece by piece or not at all."""

    def read(self, size: int | None = -1, /) -> bytes:
        """At most so many bytes."""
        wanted = self._left() if size is None or size < 0 else size
        if wanted > MOST_PIECE:
            raise ValueError("the list of its members is absurdly long")
        return super().read(wanted)

    def _left(self) -> int:
        return max(os.fstat(self.fileno()).st_size - self.tell(), 0)


def read_arrays(path: Path | str) -> dict[str, NDArray[Any]]:
    """Read an .npz file; every failure is an `InputError` that names it."""
    path = Path(path)
    try:
        with _opened(path) as file, zipfile.ZipFile(file) as archive:
            size, entries = os.fstat(file.fileno()).st_size, archive.infolist()
            if len(entries) > MOST_ARRAYS or sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise InputError(f"more than {MOST_ARRAYS} arrays or {MOST_BYTES >> 30} GiB", where=str(path))
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            if len(set(names)) < len(names):
                raise InputError("an array stands in it twice", where=str(path))
            for entry in entries:
                _check_entry(entry, size)
            headers = [_header(archive, entry) for entry in entries]
            if sum(math.prod(shape) for shape, dtype in headers if dtype.kind in "SU") > MOST_TEXTS:
                raise InputError(f"more than {MOST_TEXTS} texts", where=str(path))
            return {name: _array(archive, entry) for name, entry in zip(names, entries, strict=True)}
    except InputError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # zipfile, the decompressors and numpy have many of their own
        why = str(error)[:200] or type(error).__name__
        raise InputError(f"is not an .npz file of plain arrays: {why}", where=str(path)) from error


def _opened(path: Path) -> _Pieces:
    """A regular file, whatever has its name by the time it is opened; nobody waits for a pipe."""
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
    file = _Pieces(os.open(path, flags), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise InputError("is not a regular file", where=str(path))
    return file


def _check_entry(entry: zipfile.ZipInfo, size: int) -> None:
    """A member that is packed as numpy does it, and says no more of itself than can be true."""
    name = f"{entry.filename[:80]!r}"
    if entry.compress_type not in _METHODS:
        raise ValueError(f"{name} is packed in another way than numpy's: savez or savez_compressed")
    most = entry.compress_size * (MOST_GAIN if entry.compress_type == zipfile.ZIP_DEFLATED else 1)
    if entry.compress_size > size or entry.file_size > most + MOST_GAIN:
        raise ValueError(f"{name} says that it is larger than its bytes can be")


def _header(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of one array, once they say no more than the archive holds."""
    name = f"{entry.filename[:80]!r}"
    with archive.open(entry) as file:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{name} has version {version} of the format")
        shape, _, dtype = _HEADERS[version](file)
        if dtype.hasobject or dtype.names or dtype.subdtype or not dtype.itemsize:
            raise ValueError(f"{name} has elements of type {str(dtype)[:80]!r}, which are no plain numbers or texts")
        if any(length < 0 for length in shape) or file.tell() + math.prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"{name} is shorter than its shape says")
    return shape, dtype


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(entry) as file:
        found = npy.read_array(file, allow_pickle=False)
    return np.asarray(found)
