"""Port, Layer and Net: an OpenVINO model in our own words, whether it came from an IR file or from a live model.

In: what `ir` or `live` found. Out: values that `graph` turns into a Graph, the layers of a net in topological order,
and the type of a port, as the ONNX importer uses it, from names as files (`FP32`) and the API (`f32`) spell them. A
dimension that is not exact is a `Size` there, too: a limit, or a stand-in that is called guessed. Simplified:
attributes are text as in the file; a body knows nothing of its surroundings; types of an odd number of bits count as
the next wider one that ONNX has; an open type counts as 32-bit floating point; a size of which nothing is known is that
of the same axis of an input, else the largest of the model's inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from onnx import TensorProto

from weftline.errors import InputError
from weftline.graph.arrays import ready_first
from weftline.importers.onnx.call import FLOAT, TensorType, tensor_type
from weftline.importers.onnx.sizes import Size
from weftline.units import MAX_QUANTITY

__all__ = [
    "CONSTANT",
    "OPEN_SIZE",
    "PARAMETER",
    "RESULT",
    "Layer",
    "Net",
    "Port",
    "check_given",
    "element_name",
    "in_order",
    "one_name_each",
    "port_type",
    "rounds_of",
]

CONSTANT, PARAMETER, RESULT = "Constant", "Parameter", "Result"
OPEN_SIZE = -1
"""A dimension that the model leaves open, without a limit."""


@dataclass(frozen=True, slots=True)
class Port:
    """One output of a layer."""

    element: str
    """Element type as OpenVINO's API spells it (`f32`), empty where it is open."""
    shape: tuple[int, ...] | None
    """`OPEN_SIZE` where a dimension is open, a `Size` where it has at least a limit; None where even the rank is."""
    names: tuple[str, ...] = ()
    """Names of the tensor, sorted."""

    @property
    def is_static(self) -> bool:
        """Are the rank and all dimensions known exactly?"""
        return self.is_limited and not any(isinstance(size, Size) for size in self.shape or ())

    @property
    def is_limited(self) -> bool:
        """Is the rank known, and of every dimension at least a limit?"""
        return self.shape is not None and OPEN_SIZE not in self.shape

    @property
    def written(self) -> str:
        """The shape for people."""
        if self.shape is None:
            return "?"
        words = (f"(up to {s})" if isinstance(s, Size) else "?" if s == OPEN_SIZE else str(s) for s in self.shape)
        return "x".join(words) or "scalar"


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


def check_given(name: str, port: Port, given: tuple[int, ...]) -> None:
    """An `InputError` if this shape makes no sense for an input."""
    where, written = f"input {name[:80]!r}", "x".join(map(str, given))
    if any(size < 0 for size in given):
        raise InputError(f"the given shape {written} has a negative dimension", where=where)
    if port.shape is None:
        return
    fits = len(port.shape) == len(given)
    if not fits or any(not _allows(said, size) for said, size in zip(port.shape, given, strict=True)):
        raise InputError(
            f"the given shape {written} contradicts the file, which says {port.written}",
            where=where,
            hint="leave --shape out, or change the file first: model.reshape in openvino, then openvino.save_model",
        )


def _allows(said: int, size: int) -> bool:
    return said in (OPEN_SIZE, size) or (isinstance(said, Size) and size < said)


def rounds_of(size: int, part: int) -> int:
    """How often a body runs that takes `part` rows of so many at a time."""
    rounds = size // max(abs(part), 1)
    return rounds if rounds > 1 else Size(1) if isinstance(size, Size) else 1


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


def port_type(layer: Layer, port: Port, inputs: Sequence[TensorType], usual: int) -> TensorType:
    """The type of an output; `inputs` are the layer's, and `usual` stands for sizes of which nothing is known."""
    name, element = port.names[0] if port.names else layer.name, _element(port)
    if port.shape is None:
        like = next((kind.shape for kind in inputs if kind.shape), (usual,))
        return tensor_type(name, element, [Size(int(size), guessed=True) for size in like])
    rank = len(port.shape)
    sizes = [_stand_in(inputs, axis, rank, usual) if s == OPEN_SIZE else s for axis, s in enumerate(port.shape)]
    if TensorType(element, tuple(sizes)).bytes > MAX_QUANTITY:  # no limit to speak of: largest numbers multiply
        sizes = [Size(min(int(size), usual), guessed=True) if isinstance(size, Size) else size for size in sizes]
    return tensor_type(name, element, sizes)


def _stand_in(inputs: Sequence[TensorType], axis: int, rank: int, usual: int) -> Size:
    """As large as the same axis of an input."""
    like = [int(kind.shape[axis]) for kind in inputs if len(kind.shape) == rank]
    return Size(max([*like, 1]) if like else usual, guessed=True)


def _element(port: Port) -> int:
    word = _IN_ONNX.get(port.element, "FLOAT")
    return _NUMBERS.get(word, _NUMBERS.get(_OLDER.get(word, ""), FLOAT))
