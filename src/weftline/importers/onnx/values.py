"""Values of small tensors (shapes, axes, scales) as far as they follow from static shapes and constants.

In: a node, the values and types of its inputs. Out: the value of its first output, or None when it is not known;
exporters compute shapes with such nodes, so shape inference needs them. Anything odd is "not known", never an error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper

from weftline.importers.onnx.call import Array, Call, TensorType

__all__ = ["MAX_ELEMENTS", "can_evaluate", "constant_value", "stored_value", "value_of"]

MAX_ELEMENTS = 128
"""No tensor with more elements is evaluated: shapes are short."""

MAX_STORED = 4096
"""Nor is a longer list of whole numbers read: lengths of a Split may be many."""

_TENSOR_EXTERNAL = 1
_ERRORS = (ValueError, TypeError, IndexError, KeyError, OverflowError, ZeroDivisionError, AttributeError, MemoryError)


def stored_value(tensor: Any, kind: TensorType) -> Array | None:
    """The value of a stored tensor if it is small and in the model file itself."""
    most = MAX_STORED if kind.dtype == "int64" and len(kind.shape) == 1 else MAX_ELEMENTS
    if kind.elements > most or not hasattr(tensor, "data_location"):
        return None
    if tensor.data_location == _TENSOR_EXTERNAL or tensor.external_data:
        return None
    try:
        value: Array = numpy_helper.to_array(tensor)
    except _ERRORS:
        return None
    return value if value.shape == kind.shape else None


def constant_value(attributes: dict[str, Any]) -> Array | None:
    """The value of a Constant node that holds numbers in its attributes (a tensor is left to `stored_value`)."""
    for name, dtype in (("value_int", np.int64), ("value_float", np.float32)):
        single, several = attributes.get(name), attributes.get(name + "s")
        if isinstance(single, int | float):
            return np.array(single, dtype)
        if isinstance(several, tuple) and len(several) <= MAX_ELEMENTS:
            return np.array(several, dtype)
    return None


def can_evaluate(kind: str, domain: str) -> bool:
    """Is there a rule for this kind?"""
    return not domain and kind in _RULES


def value_of(call: Call) -> Array | None:
    """The value of the first output, if the rules below know it."""
    rule = _RULES.get(call.kind)
    if rule is None or call.output().elements > MAX_ELEMENTS:
        return None
    if call.kind not in ("Shape", "Size") and any(
        value is None for value, given in zip(call.values, call.inputs, strict=True) if given is not None
    ):
        return None
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(rule(call, *call.values))
    except _ERRORS:
        return None
    return value if value.shape == call.output().shape else None


def _shape(call: Call, *_: Array | None) -> Array:
    shape = call.input(0).shape
    return np.array(shape[slice(call.integer("start", 0), call.attributes.get("end"))], np.int64)


def _axes(call: Call, given: Array | None) -> tuple[int, ...]:
    return tuple(int(axis) for axis in given) if given is not None else call.integers("axes")


def _unsqueeze(call: Call, data: Array, axes: Array | None = None) -> Array:
    return np.expand_dims(data, _axes(call, axes))


def _squeeze(call: Call, data: Array, axes: Array | None = None) -> Array:
    return np.squeeze(data, _axes(call, axes) or None)


def _slice(call: Call, data: Array, *given: Array | None) -> Array:
    starts: Any
    ends: Any
    if given:
        starts, ends, axes, steps = [*given, None, None][:4]
    else:
        starts, ends, axes, steps = call.integers("starts"), call.integers("ends"), None, None
    along = _axes(call, axes) or range(len(starts))
    cut = [slice(None)] * data.ndim
    for index, axis in enumerate(along):
        step = int(steps[index]) if steps is not None else 1
        end = int(ends[index])
        # Backwards, an end before the first element is written as a very negative number.
        stop = None if step < 0 and end < -data.shape[axis] else end
        cut[axis] = slice(int(starts[index]), stop, step)
    return data[tuple(cut)]


def _reshape(call: Call, data: Array, shape: Array | None = None) -> Array:
    return data.reshape(call.output().shape)


def _cast(call: Call, data: Array, *_: Array | None) -> Array:
    return data.astype(call.output().dtype)


def _divide(call: Call, left: Array, right: Array) -> Array:
    if left.dtype.kind == "f":
        return left / right
    return np.trunc(np.true_divide(left, right)).astype(left.dtype)


def _constant_of_shape(call: Call, shape: Array) -> Array:
    tensor = call.attributes.get("value")
    if tensor is None:
        return np.zeros(call.output().shape, np.float32)
    fill = stored_value(tensor, TensorType(tensor.data_type, tuple(tensor.dims)))
    if fill is None:
        raise ValueError("the value is stored elsewhere")
    return np.full(call.output().shape, fill.reshape(-1)[0])


def _range(call: Call, start: Array, limit: Array, delta: Array) -> Array:
    if not 0 <= (limit - start) / delta <= MAX_ELEMENTS:
        raise ValueError("too long to evaluate")
    return np.arange(start.item(), limit.item(), delta.item()).astype(start.dtype)


def _modulo(call: Call, left: Array, right: Array) -> Array:
    modulo: Callable[..., Array] = np.fmod if call.integer("fmod", 0) else np.mod
    return modulo(left, right)


def _reduce(function: Callable[..., Any]) -> Callable[..., Array]:
    def rule(call: Call, data: Array, axes: Array | None = None) -> Array:
        chosen = _axes(call, axes) or None
        return np.asarray(function(data, axis=chosen, keepdims=bool(call.integer("keepdims", 1))))

    return rule


def _plain(function: Callable[..., Any]) -> Callable[..., Array]:
    return lambda call, *values: np.asarray(function(*values))


def _fold(function: Callable[..., Any]) -> Callable[..., Array]:
    def rule(call: Call, first: Array, *others: Array) -> Array:
        for other in others:
            first = function(first, other)
        return first

    return rule


_RULES: dict[str, Callable[..., Array]] = {
    "Shape": _shape,
    "Size": lambda call, data: np.array(call.input(0).elements, np.int64),
    "Identity": _plain(np.asarray),
    "Cast": _cast,
    "Gather": lambda call, data, indices: np.take(data, indices, axis=call.integer("axis", 0)),
    "Concat": lambda call, *parts: np.concatenate(parts, axis=call.integer("axis", 0)),
    "Slice": _slice,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Reshape": _reshape,
    "Flatten": _reshape,
    "Transpose": lambda call, data: np.transpose(data, call.integers("perm") or None),
    "Expand": lambda call, data, shape: np.broadcast_to(data, call.output().shape),
    "ConstantOfShape": _constant_of_shape,
    "Range": _range,
    "Add": _plain(np.add),
    "Sub": _plain(np.subtract),
    "Mul": _plain(np.multiply),
    "Div": _divide,
    "Mod": _modulo,
    "Neg": _plain(np.negative),
    "Abs": _plain(np.abs),
    "Floor": _plain(np.floor),
    "Ceil": _plain(np.ceil),
    "Round": _plain(np.rint),
    "Sqrt": _plain(np.sqrt),
    "Min": _fold(np.minimum),
    "Max": _fold(np.maximum),
    "Equal": _plain(np.equal),
    "Less": _plain(np.less),
    "LessOrEqual": _plain(np.less_equal),
    "Greater": _plain(np.greater),
    "GreaterOrEqual": _plain(np.greater_equal),
    "And": _plain(np.logical_and),
    "Or": _plain(np.logical_or),
    "Not": _plain(np.logical_not),
    "Where": _plain(np.where),
    "ReduceProd": _reduce(np.prod),
    "ReduceSum": _reduce(np.sum),
    "ReduceMax": _reduce(np.max),
    "ReduceMin": _reduce(np.min),
}
