"""The type of one ONNX value, and one node with the types of what it reads and makes: what shape rules, flop rules and
traffic rules look at.

In: ONNX element types and TypeProtos. Out: `TensorType` (element type, a number for every dimension, bytes; numbers
that are not exact are a `Size`), lists of dimensions some of which may be a symbol or unknown, and what a window makes
that slides over some axes as a node's attributes say. Simplified: a string counts 16 bytes; a sequence is several
tensors of one type; a map is one element.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto, TensorProto

from weftline.errors import InputError
from weftline.importers.onnx.sizes import Shape, Size, largest, rounded_up
from weftline.units import MAX_QUANTITY

__all__ = [
    "BOOL",
    "FLOAT",
    "INT32",
    "INT64",
    "STRING",
    "Array",
    "Call",
    "Dimensions",
    "TensorType",
    "declared_type",
    "read_attributes",
    "tensor_type",
    "transposed_windows",
    "windows",
]

FLOAT: int = TensorProto.FLOAT
INT32: int = TensorProto.INT32
INT64: int = TensorProto.INT64
BOOL: int = TensorProto.BOOL
STRING: int = TensorProto.STRING

MAX_RANK = 64

Dimensions = list[int | str | None]
"""A number, the name of a symbol, or None where nothing is said."""

# By the name in the standard, so that an older onnx package without the newest types still works.
_ELEMENTS = {
    "FLOAT": ("float32", 32),
    "UINT8": ("uint8", 8),
    "INT8": ("int8", 8),
    "UINT16": ("uint16", 16),
    "INT16": ("int16", 16),
    "INT32": ("int32", 32),
    "INT64": ("int64", 64),
    "STRING": ("str", 128),
    "BOOL": ("bool", 8),
    "FLOAT16": ("float16", 16),
    "DOUBLE": ("float64", 64),
    "UINT32": ("uint32", 32),
    "UINT64": ("uint64", 64),
    "COMPLEX64": ("complex64", 64),
    "COMPLEX128": ("complex128", 128),
    "BFLOAT16": ("bfloat16", 16),
    "FLOAT8E4M3FN": ("float8_e4m3fn", 8),
    "FLOAT8E4M3FNUZ": ("float8_e4m3fnuz", 8),
    "FLOAT8E5M2": ("float8_e5m2", 8),
    "FLOAT8E5M2FNUZ": ("float8_e5m2fnuz", 8),
    "FLOAT8E8M0": ("float8_e8m0fnu", 8),
    "FLOAT6E2M3": ("float6_e2m3fn", 6),
    "FLOAT6E3M2": ("float6_e3m2fn", 6),
    "FLOAT4E2M1": ("float4_e2m1fn", 4),
    "UINT4": ("uint4", 4),
    "INT4": ("int4", 4),
    "UINT2": ("uint2", 2),
    "INT2": ("int2", 2),
}
_NUMBERS: dict[str, int] = dict(TensorProto.DataType.items())
_NAME = {_NUMBERS[key]: name for key, (name, _) in _ELEMENTS.items() if key in _NUMBERS}
_BITS = {_NUMBERS[key]: bits for key, (_, bits) in _ELEMENTS.items() if key in _NUMBERS}


class TensorType(NamedTuple):
    """Element type and shape of a tensor, or of each of the `tensors` of a sequence."""

    element: int
    shape: tuple[int, ...]
    tensors: int = 1

    @property
    def elements(self) -> int:
        """How many numbers it holds."""
        return prod(self.shape) * self.tensors

    @property
    def bytes(self) -> int:
        """Size when stored densely; elements of fewer than 8 bits are packed."""
        return (prod(self.shape) * _BITS.get(self.element, 32) + 7) // 8 * self.tensors

    @property
    def dtype(self) -> str:
        """The element type as numpy (or ml_dtypes) spells it."""
        return _NAME.get(self.element, "")


def tensor_type(name: str, element: int, dimensions: Any) -> TensorType:
    """The type of a stored tensor, whose dimensions are numbers; negative or absurd ones are refused."""
    shape = tuple(_not_negative(size) if isinstance(size, Size) else int(size) for size in dimensions)
    made = TensorType(int(element), shape)
    if any(size < 0 for size in shape) or len(shape) > MAX_RANK:
        raise InputError(f"shape {_shown(shape)} is not a shape", where=f"tensor {name!r}")
    if made.bytes > MAX_QUANTITY:
        raise InputError(
            f"shape {_shown(shape)} is absurdly large", where=f"tensor {name!r}", hint="the limit is 2^60 bytes"
        )
    return made


def _not_negative(size: Size) -> Size:
    """What is computed from a size that is not known may be less than nothing, which no axis is."""
    return size if size >= 0 else Size(0, guessed=True)


def declared_type(proto: Any) -> tuple[int, Dimensions | None]:
    """Element type (0 = not said) and dimensions (None = not even the rank is said) of a TypeProto."""
    while (which := proto.WhichOneof("value")) in ("sequence_type", "optional_type"):
        proto = getattr(proto, which).elem_type
    if which == "map_type":
        return declared_type(proto.map_type.value_type)[0], [1]
    if which not in ("tensor_type", "sparse_tensor_type"):
        return 0, None
    tensor = getattr(proto, which)
    if not tensor.HasField("shape"):
        return int(tensor.elem_type), None
    dimensions: Dimensions = []
    for dimension in tensor.shape.dim:
        kind = dimension.WhichOneof("value")
        if kind == "dim_value":
            dimensions.append(int(dimension.dim_value) if dimension.dim_value >= 0 else None)
        else:
            dimensions.append(_symbol(dimension.dim_param) if kind else None)
    return int(tensor.elem_type), dimensions


def _symbol(name: str | bytes) -> str | None:
    # A broken string arrives as bytes; a symbol without a name says nothing, and some exporters write "?" for none.
    return name if isinstance(name, str) and name.strip("?") else None


def _shown(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape[:12])) + ("x..." if len(shape) > 12 else "")


Array = NDArray[Any]

_SCALAR = TensorType(1, ())
_READERS: dict[int, Callable[[Any], Any]] = {
    AttributeProto.FLOAT: lambda attribute: float(attribute.f),
    AttributeProto.INT: lambda attribute: int(attribute.i),
    AttributeProto.STRING: lambda attribute: attribute.s.decode("utf-8", "replace"),
    AttributeProto.FLOATS: lambda attribute: tuple(attribute.floats),
    AttributeProto.INTS: lambda attribute: tuple(attribute.ints),
    AttributeProto.STRINGS: lambda attribute: tuple(attribute.strings),
    AttributeProto.TENSOR: lambda attribute: attribute.t,
    AttributeProto.SPARSE_TENSOR: lambda attribute: attribute.sparse_tensor,
}


def read_attributes(proto: Any) -> dict[str, Any]:
    """Attribute name -> value, without bodies and types."""
    return {
        attribute.name: _READERS[attribute.type](attribute)
        for attribute in proto.attribute
        if attribute.type in _READERS
    }


@dataclass(frozen=True)
class Call:
    """Inputs are None where left out; asking for one that is not there gives a scalar, so that rules never fail."""

    kind: str
    domain: str
    proto: Any
    inputs: tuple[TensorType | None, ...]
    outputs: tuple[TensorType | None, ...] = ()
    values: tuple[Array | None, ...] = ()
    """Small constant inputs by position, where they are known."""
    parts: tuple[Array | None, ...] = ()
    """The same where only some entries are exact: arrays of objects, the others are a `Size`."""

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """All attributes but bodies."""
        return read_attributes(self.proto)

    def has(self, index: int) -> bool:
        """Is this input given?"""
        return index < len(self.inputs) and self.inputs[index] is not None

    def input(self, index: int) -> TensorType:
        """Type of an input."""
        found = self.inputs[index] if index < len(self.inputs) else None
        return _SCALAR if found is None else found

    def output(self, index: int = 0) -> TensorType:
        """Type of an output."""
        found = self.outputs[index] if index < len(self.outputs) else None
        return _SCALAR if found is None else found

    def dimension(self, index: int, axis: int) -> int:
        """One dimension of an input, 1 where it has no such axis."""
        shape = self.input(index).shape
        return shape[axis] if -len(shape) <= axis < len(shape) else 1

    def integer(self, name: str, default: int) -> int:
        """An integer attribute."""
        value = self.attributes.get(name)
        return value if isinstance(value, int) else default

    def integers(self, name: str) -> tuple[int, ...]:
        """A list of integers, empty if left out."""
        value = self.attributes.get(name)
        return value if isinstance(value, tuple) and all(isinstance(item, int) for item in value) else ()

    def text(self, name: str, default: str) -> str:
        """A text attribute."""
        value = self.attributes.get(name)
        return value if isinstance(value, str) else default

    def number(self, index: int) -> int | None:
        """The value of an input that is one small constant number."""
        value = self.values[index] if index < len(self.values) else None
        if value is None or value.size != 1 or value.dtype.kind not in "iufb":
            return None
        single = value.reshape(-1)[0]
        return int(single) if np.isfinite(single) else None

    def limit(self, index: int) -> int | None:
        """The same, or the largest possible number where that is known."""
        part = self.parts[index] if index < len(self.parts) else None
        if part is None or part.dtype != object:
            return self.number(index)
        single = part.reshape(-1)[0] if part.size == 1 else None
        return single if isinstance(single, Size) else None

    @property
    def is_open(self) -> bool:
        """Is any size or value that it reads not exact?"""
        return any(part is not None and part.dtype == object for part in self.parts) or any(
            isinstance(size, Size) for kind in self.inputs if kind is not None for size in (*kind.shape, kind.tensors)
        )


def windows(call: Call, sizes: Shape, kernel: Sequence[int]) -> Shape:
    """How many places a window has along each axis."""
    return tuple(_places(call, axis, size, kernel, len(sizes)) for axis, size in enumerate(sizes))


def _places(call: Call, axis: int, size: int, kernel: Sequence[int], rank: int) -> int:
    step = max(_entry(call.integers("strides"), axis, 1), 1)
    auto = call.text("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        return rounded_up(size, step)
    pads = call.integers("pads") if auto == "NOTSET" else ()
    before, after = _entry(pads, axis, 0), _entry(pads, axis + rank, 0)
    room = size + (before + after) - _reach(call, axis, kernel)
    if not call.integer("ceil_mode", 0):
        return largest(room // step + 1, 0)
    count = rounded_up(room, step) + 1
    # A window that would begin behind the data and its first padding is left out.
    return largest(count - 1 if (int(count) - 1) * step >= int(size) + before else count, 0)


def transposed_windows(call: Call, sizes: Shape, kernel: Sequence[int], pads: Sequence[int]) -> Shape:
    """The sizes over which a transposed convolution spreads each axis."""
    made = []
    for axis, size in enumerate(sizes):
        step = max(_entry(call.integers("strides"), axis, 1), 1)
        if call.text("auto_pad", "NOTSET").startswith("SAME"):
            made.append(size * step)
            continue
        cut = _entry(pads, axis, 0) + _entry(pads, axis + len(sizes), 0)
        more = _entry(call.integers("output_padding"), axis, 0) + _reach(call, axis, kernel) - cut
        made.append(largest((size - 1) * step + more, 0))
    return tuple(made)


def _reach(call: Call, axis: int, kernel: Sequence[int]) -> int:
    """How far a window reaches with its gaps."""
    return (_entry(kernel, axis, 1) - 1) * _entry(call.integers("dilations"), axis, 1) + 1


def _entry(numbers: Sequence[int], place: int, default: int) -> int:
    return int(numbers[place]) if place < len(numbers) else default
