"""Port, Layer and Net: an OpenVINO model in our own words, whether it came from an IR file or from a live model.

In: what `ir` or `live` found. Out: values that `graph` turns into a Graph, the layers of a net in topological order,
and the type of a port, as the ONNX importer uses it, from names as files (`FP32`) and the API (`f32`) spell them.
Simplified: attributes are text as in the file; a body knows nothing of its surroundings; types of an odd number of bits
count as the next wider one that ONNX has; what is open counts as 32-bit floating point.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import TensorProto

from weftline.errors import InputError
from weftline.graph.arrays import ready_first
from weftline.importers.onnx.call import FLOAT, TensorType, tensor_type

__all__ = [
    "CONSTANT",
    "OPEN_SIZE",
    "PARAMETER",
    "RESULT",
    "Layer",
    "Net",
    "Port",
    "element_name",
    "estimated_type",
    "in_order",
    "one_name_each",
    "port_type",
]

CONSTANT, PARAMETER, RESULT = "Constant", "Parameter", "Result"
OPEN_SIZE = -1
"""A dimension that the model leaves open."""


@dataclass(frozen=True, slots=True)
class Port:
    """One output of a layer."""

    element: str
    """Element type as OpenVINO's API spells it (`f32`), empty where it is open."""
    shape: tuple[int, ...] | None
    """`OPEN_SIZE` where a dimension is open, None where even the rank is."""
    names: tuple[str, ...] = ()
    """Names of the tensor, sorted."""

    @property
    def is_static(self) -> bool:
        """Are the rank and all dimensions known?"""
        return self.shape is not None and OPEN_SIZE not in self.shape

    @property
    def written(self) -> str:
        """The shape for people."""
        return (
            "?" if self.shape is None else "x".join("?" if s == OPEN_SIZE else str(s) for s in self.shape) or "scalar"
        )


@dataclass(frozen=True, slots=True)
class Layer:
    """One operation."""

    name: str
    """Its friendly name."""
    kind: str
    """Its type as the API spells it."""
    inputs: tuple[tuple[int, int], ...]
    """For each input: index of the layer it comes from, and which output of it."""
    outputs: tuple[Port, ...]
    attributes: Mapping[str, str]
    bodies: tuple[Net, ...] = ()
    """The sub-graphs of If, Loop and TensorIterator."""
    rounds: int = 1
    """How often the body runs, as far as shapes tell."""

    @property
    def place(self) -> str:
        """For messages."""
        return f"layer {self.name[:80]!r} ({self.kind[:40]})"


@dataclass(frozen=True, slots=True)
class Net:
    """One model, or one body."""

    name: str
    layers: tuple[Layer, ...]

    @property
    def weight_elements(self) -> list[Port]:
        """The constants of the net and of the bodies in it."""
        found = [layer.outputs[0] for layer in self.layers if layer.kind == CONSTANT and layer.outputs]
        for layer in self.layers:
            for body in layer.bodies:
                found += body.weight_elements
        return found


def in_order(layers: Sequence[Layer]) -> tuple[Layer, ...]:
    """The layers in topological order, the given order wherever it is valid; a cycle is an `InputError`."""
    if all(source < index for index, layer in enumerate(layers) for source, _ in layer.inputs):
        return tuple(layers)
    readers: list[list[int]] = [[] for _ in layers]
    waiting = [len(layer.inputs) for layer in layers]
    for index, layer in enumerate(layers):
        for source, _ in layer.inputs:
            readers[source].append(index)
    order = ready_first(readers, waiting)
    if len(order) < len(layers):
        stuck = layers[next(index for index, count in enumerate(waiting) if count)]
        raise InputError("the layers form a cycle", where=stuck.place, hint="the file is damaged; convert it again")
    position = {old: new for new, old in enumerate(order)}
    return tuple(
        replace(old, inputs=tuple((position[source], port) for source, port in old.inputs))
        for old in (layers[index] for index in order)
    )


def one_name_each(layers: Sequence[Layer]) -> None:
    """Devices are set by name, so two operations of one name are an `InputError`; constants may share one.

    So may what follows from constants alone, which the caller leaves out: in a file of 16-bit weights, each constant is
    followed by a Convert that has its name.
    """
    seen: set[str] = set()
    for layer in layers:
        if layer.kind in (CONSTANT, RESULT):
            continue
        if not layer.name or layer.name in seen:
            raise InputError(
                f"the friendly name {layer.name[:80]!r} is empty or used twice, and devices are set by name",
                hint="openvino.save_model gives every layer a name of its own",
            )
        seen.add(layer.name)


_IN_FILES = {"fp64": "f64", "fp32": "f32", "fp16": "f16", "bool": "boolean", "bin": "u1"}
_IN_ONNX = {
    "f64": "DOUBLE",
    "f32": "FLOAT",
    "f16": "FLOAT16",
    "bf16": "BFLOAT16",
    "f8e4m3": "FLOAT8E4M3FN",
    "f8e5m2": "FLOAT8E5M2",
    "f8e8m0": "FLOAT8E8M0",
    "f4e2m1": "FLOAT4E2M1",
    "nf4": "UINT4",
    "boolean": "BOOL",
    "string": "STRING",
    **{f"{sign}{bits}": f"{word}{bits}" for bits in (4, 8, 16, 32, 64) for sign, word in (("i", "INT"), ("u", "UINT"))},
    "i2": "INT2",
    "u2": "UINT2",
    "u1": "UINT2",
    "u3": "UINT4",
    "u6": "UINT8",
}
_OLDER = {"INT2": "INT4", "UINT2": "UINT4", "FLOAT8E8M0": "UINT8", "FLOAT4E2M1": "UINT4"}
_NUMBERS: dict[str, int] = dict(TensorProto.DataType.items())


def element_name(word: str) -> str:
    """The API's word for a word of a file; empty where the type is open."""
    small = word.lower()
    small = _IN_FILES.get(small, small)
    return small if small in _IN_ONNX else ""


def port_type(layer: Layer, port: Port) -> TensorType:
    """The type of an output, all of whose dimensions must be known."""
    if not port.is_static:
        raise InputError(
            f"makes a tensor of shape {port.written}, which depends on the data",
            where=layer.place,
            hint="planning needs static shapes; give inputs a shape, or replace the layer",
        )
    return tensor_type(port.names[0] if port.names else layer.name, _element(port), port.shape)


def estimated_type(port: Port) -> TensorType:
    """The type of an output inside a body: what is open counts as 1."""
    shape = tuple(1 if size == OPEN_SIZE else size for size in port.shape or ())
    return tensor_type(port.names[0] if port.names else "", _element(port), shape)


def _element(port: Port) -> int:
    word = _IN_ONNX.get(port.element, "FLOAT")
    return _NUMBERS.get(word, _NUMBERS.get(_OLDER.get(word, ""), FLOAT))
