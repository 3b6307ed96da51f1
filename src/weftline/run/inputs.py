"""What a run is given: the file of the model that a plan was made for, and a file of arrays.

In: a plan and a model file; an .npz file. Out: nothing, or an `InputError` that says how the model differs; the arrays.
The same bytes are the same model; other bytes may be, too: weights are no part of a plan, so the file is read as for
planning, and ops and tensors are compared. Simplified: weights' values are not compared.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
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
    try:
        found = read_file(path).graph
    except InputError:  # its inputs may be open: then with the shapes of the plan
        shapes = {tensor.name: tensor.shape for tensor in ours.tensors if tensor.producer == MODEL_INPUT}
        found = read_file(path, ImportOptions(shapes=shapes)).graph
    different = _first_difference(ours, found)
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
_HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def read_arrays(path: Path | str) -> dict[str, NDArray[Any]]:
    """Read an .npz file; every failure is an `InputError` that names it."""
    path = Path(path)
    try:
        if path.exists() and not path.is_file():
            raise InputError("is not a regular file", where=str(path))
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            if len(entries) > MOST_ARRAYS or sum(entry.file_size for entry in entries) > MOST_BYTES:
                raise InputError(f"more than {MOST_ARRAYS} arrays or {MOST_BYTES >> 30} GiB", where=str(path))
            names = [entry.filename.removesuffix(".npy") for entry in entries]
            if len(set(names)) < len(names):
                raise InputError("an array stands in it twice", where=str(path))
            return {name: _array(archive, entry) for name, entry in zip(names, entries, strict=True)}
    except InputError:
        raise
    except OSError as error:
        raise unreadable(path, error) from error
    except Exception as error:  # zipfile, the decompressors and numpy have many of their own
        why = str(error)[:200] or type(error).__name__
        raise InputError(f"is not an .npz file of plain arrays: {why}", where=str(path)) from error


def _array(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, once its header says no more than the archive holds."""
    with archive.open(entry) as file:
        version = npy.read_magic(file)
        if version not in _HEADERS:
            raise ValueError(f"{entry.filename[:80]!r} has version {version} of the format")
        shape, _, dtype = _HEADERS[version](file)
        if file.tell() + math.prod(shape) * dtype.itemsize > entry.file_size and not dtype.hasobject:
            raise ValueError(f"{entry.filename[:80]!r} is shorter than its shape says")
    with archive.open(entry) as file:
        found = npy.read_array(file, allow_pickle=False)
    return np.asarray(found)
