"""`save`: a model to a file, whole or not at all; weights of more than 1.5 GB go to a second file beside it.

In: an ONNX model in memory. Out: files written by temp + fsync + rename. Simplified: weights that the model only names
(built without weights) stay names.

`build_named`: the words `zoo:NAME` and `zoo:NAME:SIZE` -> a model file, where a model is asked for by name.

An architecture straight to its Graph: built without weights, read by the ONNX importer, never written to disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.importers import ImportOptions
from weftline.zoo.registry import build

if TYPE_CHECKING:
    import onnx

__all__ = ["ZOO", "build_named", "save", "zoo_graph"]

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
    from weftline.zoo.protobuf import ALIGNMENT

    for tensor in model.graph.initializer:
        if _outside(tensor):
            yield tensor.raw_data
            yield bytes(-len(tensor.raw_data) % ALIGNMENT)


def _pointing_to(model: onnx.ModelProto, location: str) -> onnx.ModelProto:
    """A copy whose large weights are pointers; field by field, so that the weights are never copied."""
    from weftline.zoo.protobuf import ALIGNMENT, point_outside

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
        offset += len(tensor.raw_data) + -len(tensor.raw_data) % ALIGNMENT
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
