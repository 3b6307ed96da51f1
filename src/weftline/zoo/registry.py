"""The architectures by name, and what is done with them: build, save, read as a Graph, make example inputs.

In: a name and a size, or the word `zoo:NAME:SIZE`. Out: an ONNX model in memory; its file, written whole or not at all
(weights of more than 1.5 GB go to a second file beside it); its Graph, never written to disk; an array for each input.
Simplified: weights that a model only names (built without weights) stay names; float inputs are normal, masks are ones,
ids lie inside the table they index, and an integer input that indexes no table is 0 or 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InputError, UsageError, near
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.importers import ImportOptions
from weftline.plugins import registered
from weftline.zoo.builder import Builder

if TYPE_CHECKING:
    import onnx

__all__ = ["ZOO", "Architecture", "architectures", "build", "build_named", "example_inputs", "save", "zoo_graph"]

MAX_PARAMETER = 2**22


@dataclass(frozen=True)
class Architecture:
    """One architecture; `sizes` always has "full" and "small"."""

    name: str
    description: str
    write: Callable[..., None]
    """Writes the network into the builder given first; takes the parameters by keyword."""
    sizes: Mapping[str, Mapping[str, int]]
    """Size -> parameters. "full" names every parameter, the others only what differs from it; "small" is for tests."""
    inputs: tuple[str, ...]
    """Names of the model's inputs; `example_inputs` makes values for them."""

    def parameters(self, size: str = "full", **changes: int) -> dict[str, int]:
        """All parameters of a size, with changes; unknown ones and impossible values are a `UsageError`."""
        if size not in self.sizes:
            raise UsageError(f"{self.name} has no size {size!r}; it has: {', '.join(self.sizes)}")
        full = self.sizes["full"]
        for name, value in changes.items():
            if name not in full:
                raise UsageError(f"{self.name} has no parameter {name!r}; it has: {', '.join(full)}")
            if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_PARAMETER:
                raise UsageError(f"{self.name}: {name} = {value!r} is not a whole number in 1..{MAX_PARAMETER}")
        return {**full, **self.sizes[size], **changes}


_BUILT_IN = (
    ("convolutional", "ARCHITECTURES"),
    ("language", "ARCHITECTURES"),
    ("two_sided", "ARCHITECTURES"),
    ("swin", "ARCHITECTURES"),
    ("language", "MIXTURES"),
)
"""Module and list, in the order in which they are shown."""


@cache
def architectures() -> dict[str, Architecture]:
    """All architectures by name: ours, then those other packages offer as `weftline.architectures` entry points."""
    found = [entry for module, name in _BUILT_IN for entry in getattr(import_module(f"weftline.zoo.{module}"), name)]
    return registered("weftline.architectures", found)


def build(name: str, *, size: str = "full", seed: int = 0, weights: bool = True, **parameters: int) -> onnx.ModelProto:
    """An architecture as a runnable ONNX model.

    `size` is "full" (as published), "small" (for tests) or another size of the architecture; `parameters` change single
    numbers of it (layers, hidden, sequence, batch, image ...). Without `weights` the model has the same ops but only
    names a weight file, which is all that planning needs: 13 G parameters then fit in a megabyte.
    """
    known = architectures()
    if name not in known:
        raise UsageError(f"the zoo has no architecture {name!r:.100}{near(name, known)} (it has: {', '.join(known)})")
    architecture = known[name]
    chosen = architecture.parameters(size, **parameters)
    builder = Builder(name if size == "full" else f"{name}-{size}", seed=seed, weights=weights)
    architecture.write(builder, **chosen)
    return builder.model()


MAX_INSIDE_BYTES = 1_500_000_000
"""A protobuf file ends at 2 GiB, and some readers before."""
MIN_OUTSIDE_BYTES = 1024
"""Smaller weights stay in the model file."""


def save(model: onnx.ModelProto, path: Path | str, *, inside: int = MAX_INSIDE_BYTES) -> None:
    """Write a model; weights of more than `inside` bytes in all go to `<file name>.weights` beside it."""
    path = Path(path)
    if sum(len(tensor.raw_data) for tensor in model.graph.initializer) <= inside:
        write_atomically(path, model.SerializeToString(deterministic=True))
        return
    # weights first: a model file never points at something that is not there
    weights = path.with_name(f"{path.name}.weights")
    write_atomically(weights, _chunks(model))
    write_atomically(path, _pointing_to(model, weights.name).SerializeToString(deterministic=True))


def _outside(tensor: onnx.TensorProto) -> bool:
    return len(tensor.raw_data) >= MIN_OUTSIDE_BYTES


def _chunks(model: onnx.ModelProto) -> Iterable[bytes]:
    from weftline.zoo.protobuf import WEIGHT_ALIGNMENT

    for tensor in model.graph.initializer:
        if _outside(tensor):
            yield tensor.raw_data
            yield bytes(-len(tensor.raw_data) % WEIGHT_ALIGNMENT)


def _pointing_to(model: onnx.ModelProto, location: str) -> onnx.ModelProto:
    """A copy whose large weights are pointers; field by field, so that the weights are never copied."""
    from weftline.zoo.protobuf import WEIGHT_ALIGNMENT, point_outside

    graph = type(model.graph)()
    for field, value in model.graph.ListFields():
        if field.name != "initializer":
            _copy_field(graph, field.name, value)
    offset = 0
    for tensor in model.graph.initializer:
        copy = graph.initializer.add()
        if not _outside(tensor):
            copy.CopyFrom(tensor)
            continue
        copy.name, copy.data_type = tensor.name, tensor.data_type
        copy.dims.extend(tensor.dims)
        point_outside(copy, location, offset, len(tensor.raw_data))
        offset += len(tensor.raw_data) + -len(tensor.raw_data) % WEIGHT_ALIGNMENT
    result = type(model)()
    for field, value in model.ListFields():
        if field.name != "graph":
            _copy_field(result, field.name, value)
    result.graph.CopyFrom(graph)
    return result


def _copy_field(target: onnx.GraphProto | onnx.ModelProto, name: str, value: object) -> None:
    kept = getattr(target, name)
    if hasattr(kept, "MergeFrom"):
        kept.MergeFrom(value)
    else:
        setattr(target, name, value)


ZOO = "zoo:"
"""What begins so is no file."""


def build_named(word: str, folder: Path) -> Path:
    """Write the model into the folder, without weights: enough to plan it, not to run it."""
    name, _, size = word.removeprefix(ZOO).partition(":")
    size = size or "full"
    model = build(name, size=size, weights=False)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder.absolute() / f"{name}-{size}.onnx"
    save(model, path)
    return path


def zoo_graph(name: str, *, size: str = "full", **parameters: int) -> Graph:
    """The graph of an architecture, for planning."""
    from weftline.importers.onnx.model import graph_of_model

    return graph_of_model(build(name, size=size, weights=False, **parameters), ImportOptions(), name)


MAX_ELEMENTS = 2**31


def example_inputs(model: onnx.ModelProto, seed: int = 0) -> dict[str, NDArray[np.generic]]:
    """An array for every input that has no default; the same seed gives the same arrays."""
    if seed < 0:
        raise UsageError(f"seed {seed} is negative")
    tables = {tensor.name: tensor.dims[0] for tensor in model.graph.initializer if tensor.dims and tensor.dims[0] > 0}
    rows: dict[str, int] = {}
    for node in model.graph.node:
        along_rows = all(attribute.i == 0 for attribute in node.attribute if attribute.name == "axis")
        if node.op_type == "Gather" and len(node.input) == 2 and node.input[0] in tables and along_rows:
            table = tables[node.input[0]]
            rows[node.input[1]] = min(table, rows.get(node.input[1], table))
    generator = np.random.default_rng(seed)
    given = {tensor.name for tensor in model.graph.initializer}
    return {
        value.name: _example(value, rows.get(value.name, 2), generator)
        for value in model.graph.input
        if value.name not in given
    }


def _example(value: onnx.ValueInfoProto, rows: int, generator: np.random.Generator) -> NDArray[np.generic]:
    from onnx import helper

    place = f"input {value.name!r}"
    tensor = value.type.tensor_type
    shape = tuple(size.dim_value if size.HasField("dim_value") else -1 for size in tensor.shape.dim)
    if not tensor.elem_type or not tensor.HasField("shape") or any(size < 0 for size in shape):
        raise InputError("is not a tensor of fixed shape", where=place, hint="export the model with fixed input shapes")
    if np.prod(shape, dtype=float) > MAX_ELEMENTS:
        raise InputError(f"shape {shape} has more than {MAX_ELEMENTS} elements", where=place)
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    except KeyError as error:
        raise InputError(f"element type {tensor.elem_type} is not known", where=place) from error
    if "mask" in value.name.lower() or dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return generator.integers(0, rows, shape).astype(dtype)
    if dtype.kind not in "fV":
        raise InputError(f"elements of type {dtype} have no example", where=place)
    return generator.standard_normal(shape).astype(dtype)
