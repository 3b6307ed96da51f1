"""One node with the types of what it reads and makes: what shape rules, flop rules and traffic rules look at."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from onnx import AttributeProto

from weftline.importers.onnx.types import TensorType

__all__ = ["Array", "Call", "read_attributes"]

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
