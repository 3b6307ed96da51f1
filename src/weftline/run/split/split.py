"""Cut an ONNX model into segments: one ONNX file each, one file of weights, and a manifest.

In: the model file, its graph, `Parts`, the ids of the devices, a folder that exists. Out: the files, and the
`Manifest`. The model's outputs are what they were; constants are never sent. Simplified: shapes are those of the
graph; only plain tensors of fixed-size elements go from one segment to another; dead nodes are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weftline.errors import InputError
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.run.split.manifest import INPUT, Manifest, Segment, Wire, write_manifest

if TYPE_CHECKING:
    from weftline.run.split.model import SplitModel
    from weftline.run.split.segments import Parts

__all__ = ["split_model"]


def split_model(
    model: Path | str, graph: Graph, parts: Parts, devices: Sequence[str], folder: Path | str, *, in_place: bool = False
) -> Manifest:
    """Write the segments into a folder. `devices` are the ids of all devices, in the order of the problem.

    Weights that lie in files beside the model are copied, or, `in_place`, stay there: then the manifest says where.
    """
    from weftline.importers.onnx.scope import load_model
    from weftline.importers.registry import file_sha256
    from weftline.run.split.model import has_external_weights, read_split_model, segment_model
    from weftline.run.split.weights import WeightStore

    model, folder = Path(model), Path(folder)
    if len(parts.part) != len(graph.ops):
        raise InputError(f"the segments are those of {len(parts.part)} ops, the graph has {len(graph.ops)}")
    try:
        split = read_split_model(load_model(model), graph)
        wires = _wires(split, graph, parts)
        source, stays = model.parent.resolve(), in_place and has_external_weights(split.model)
        with WeightStore(source, folder, stays) as store:
            segments = _segments(graph, parts, devices, wires)
            for segment in segments:
                ops = [graph.index[name] for name in segment.ops]
                made = segment_model(split, ops, segment.inputs, segment.outputs, store)
                write_atomically(folder / segment.file, _serialized(made))
    except InputError as error:
        raise error.at(str(model)) from error
    except RecursionError as error:
        raise InputError("the model is nested too deeply", where=str(model)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(model)) from error
    manifest = Manifest(
        format="weftline-stages",
        version=1,
        model=graph.name,
        model_sha256=file_sha256(model),
        inputs=tuple(split.scope.inputs),
        outputs=tuple(value.name for value in split.model.graph.output),
        segments=tuple(segments),
        tensors=tuple(wires),
        weights_folder=str(source) if stays else "",
    )
    write_manifest(manifest, folder)
    return manifest


def _segments(graph: Graph, parts: Parts, devices: Sequence[str], wires: Sequence[Wire]) -> list[Segment]:
    count = len(parts.device)
    ops: list[list[str]] = [[] for _ in range(count)]
    inputs: list[list[str]] = [[] for _ in range(count)]
    outputs: list[list[str]] = [[] for _ in range(count)]
    for op, part in zip(graph.ops, parts.part.tolist(), strict=True):
        ops[part].append(op.name)
    for wire in wires:
        if wire.source != INPUT:
            outputs[wire.source].append(wire.name)
        for target in wire.targets:
            inputs[target].append(wire.name)
    return [
        Segment(
            number=number,
            device=devices[parts.device[number]],
            file=f"segment_{number:0{len(str(count - 1))}}.onnx",
            ops=tuple(ops[number]),
            inputs=tuple(inputs[number]),
            outputs=tuple(outputs[number]),
        )
        for number in range(count)
    ]


def _wires(split: SplitModel, graph: Graph, parts: Parts) -> list[Wire]:
    """Every tensor that enters, leaves or crosses; outputs that are constants come from the first segment."""
    part, wires = parts.part.tolist(), []
    for tensor in graph.tensors:
        source = INPUT if tensor.producer < 0 else part[tensor.producer]
        targets = tuple(sorted({part[op] for op in tensor.consumers} - {source}))
        if targets and targets[0] <= source:
            raise InputError(f"tensor {tensor.name[:80]!r} would go back from segment {source} to {targets[0]}")
        kind = split.kinds.get(tensor.name, "")
        if targets and source != INPUT:
            _require_sendable(tensor.name, kind, tensor.dtype, graph.ops[tensor.producer].name)
        if targets or source == INPUT or tensor.output:
            dtype = "" if kind else tensor.dtype
            wires.append(Wire(tensor.name, dtype, tensor.shape, source, targets, tensor.output))
    known = {tensor.name for tensor in graph.tensors}
    for name in split.scope.outputs:
        if name not in known:
            made = split.types.types[name]
            wires.append(Wire(name, "" if name in split.kinds else made.dtype, made.shape, 0, (), True))
    return wires


def _require_sendable(name: str, kind: str, dtype: str, maker: str) -> None:
    if kind or dtype == "str":
        raise InputError(
            f"is {f'a value of kind {kind}' if kind else 'text'}, which cannot go from one device to another",
            where=f"tensor {name[:80]!r}, made by op {maker[:80]!r}",
            hint="keep the ops that make and read it on one device: [limits] together in the cluster file",
        )


def _serialized(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf has its own, for messages over 2 GiB
        raise InputError(f"a segment cannot be written: {str(error)[:200]}") from error
