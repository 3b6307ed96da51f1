"""What a run is given: the file of the model that a plan was made for, and inputs.

In: a plan and a model file; arrays from an .npz file, or none. Out: nothing, or an `InputError` that says how the model
differs; feeds that are checked before any worker starts, or random ones; and how far outputs are from those of the
unsplit model. The same bytes are the same model; other bytes may be, too: weights are no part of a plan, so the file is
read as for planning, and ops and tensors are compared. Random feeds differ from each other, so that outputs of one
request cannot pass for those of another. Simplified: weights' values are not compared; values that are tiny beside the
largest of their output are compared with a hundredth of that, for what rounding does to them is as large as to the
others; half precision is held to the same tolerance.
"""

from __future__ import annotations

import math
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.run.local.layout import stored_type
from weftline.run.split.manifest import Manifest, ModelWire

if TYPE_CHECKING:
    from weftline.plans.plan import Plan

__all__ = [
    "as_numbers",
    "check_planned_model",
    "check_same_model",
    "difference",
    "make_feeds",
    "random_values",
    "read_arrays",
]

HINT = "run and export a plan with the file it was made for; names change when a model is converted again"


def check_planned_model(plan: Plan, model: Path | str) -> None:
    """Refuse a model whose ops or tensors are not those of the plan."""
    path = Path(model)
    if not path.is_file():
        raise InputError("no such file", where=str(path))
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
            return {entry.filename.removesuffix(".npy"): _array(archive, entry) for entry in entries}
    except InputError:
        raise
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(path)) from error
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


SMALL_VALUE = 1e-2
"""Outputs below this share of the largest are compared with that share instead of with themselves."""


def difference(ours: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """The largest |a - b| / |b|, where |b| counts as at least a hundredth of the largest of its output."""
    worst = 0.0
    for a, b in zip(ours, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind != "f" or not a.size:  # ids and counts are right or wrong
            worst = max(worst, 0.0 if np.array_equal(a, b) else float("inf"))
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        odd = ~np.isfinite(y)
        if not np.array_equal(x[odd], y[odd], equal_nan=True) or not np.isfinite(x[~odd]).all():
            return float("inf")
        x, y = x[~odd], y[~odd]
        floor = max(SMALL_VALUE * float(np.abs(y).max(initial=0.0)), float(np.finfo(np.float32).tiny))
        worst = max(worst, float((np.abs(x - y) / np.maximum(np.abs(y), floor)).max(initial=0.0)))
    return worst


def random_values(
    name: str, shape: tuple[int, ...], dtype: np.dtype[Any], generator: np.random.Generator
) -> NDArray[Any]:
    """Normal, whole numbers 0 or 1 (so that they can be ids), masks 1; the caller converts them to its type."""
    if "mask" in name.lower() or dtype.kind == "b":
        return np.ones(shape, dtype)
    return generator.integers(0, 2, shape) if dtype.kind in "iu" else generator.standard_normal(shape)


PRIMES = (5, 7, 11, 13, 17, 23, 31, 61, 127, 257, 521, 1031)
"""Numbers of random feeds; rings have powers of two as their numbers of slots, so a lap too early shows."""


def make_feeds(
    manifest: Manifest, given: Mapping[str, NDArray[Any]] | None, seed: int
) -> list[dict[str, NDArray[Any]]]:
    """What is given, or several of random values, more than there are stages."""
    wires = [wire for wire in manifest.tensors if wire.source == MODEL_INPUT]
    if given is not None:
        return [_given(wires, given)]
    generator = np.random.default_rng(seed)
    devices = len({segment.device for segment in manifest.segments})
    count = next((prime for prime in PRIMES if prime > devices + 1), PRIMES[-1])
    try:
        return [{wire.name: _random(wire, generator) for wire in wires} for _ in range(count)]
    except (MemoryError, ValueError) as error:
        raise InputError(f"the inputs are too large for this machine: {error}") from error


def as_numbers(values: NDArray[Any], dtype: str) -> NDArray[Any]:
    """What was moved, as numbers that can be compared."""
    if dtype != "bfloat16":
        return values
    return (values.astype(np.uint32) << 16).view(np.float32)


def _random(wire: ModelWire, generator: np.random.Generator) -> NDArray[Any]:
    if wire.dtype == "bfloat16":
        values = random_values(wire.name, wire.shape, np.dtype(np.float32), generator).astype(np.float32)
        return np.asarray((values.view(np.uint32) >> 16).astype(np.uint16))
    return random_values(wire.name, wire.shape, np.dtype(wire.dtype), generator).astype(wire.dtype)


def _given(wires: Sequence[ModelWire], given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    names = [wire.name for wire in wires]
    for name in given:
        if name not in names:
            hint = f"the inputs are {', '.join(map(repr, names[:8]))}"
            raise InputError(f"values are given for {name[:80]!r}, which is not an input of the model", hint=hint)
    feed = {}
    for wire in wires:
        place = f"input {wire.name[:80]!r}"
        if wire.name not in given:
            raise InputError("no values are given for it", where=place)
        values = np.asarray(given[wire.name])
        if values.shape != wire.shape:
            what = f"values of shape {values.shape} are given, the plan was made for {wire.shape}"
            raise InputError(what, where=place)
        if values.dtype != stored_type(wire.dtype):
            hint = f'convert them: values.astype("{stored_type(wire.dtype)}")'
            raise InputError(
                f"values of type {values.dtype} are given, the model has {wire.dtype}", where=place, hint=hint
            )
        feed[wire.name] = values
    return feed
