"""Values of small tensors (shapes, axes, scales) as far as they follow from static shapes and constants.

In: a node, the values and types of its inputs. Out: the value of its first output, or None when it is not known;
exporters compute shapes with such nodes, so shape inference needs them. Where only some entries are known the others
are a `Size`, in an array of objects. Anything odd is "not known", never an error.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import numpy_helper

from weftline.importers.onnx.call import Array, Call, TensorType
from weftline.importers.onnx.sizes import Size, is_guessed, largest, least

__all__ = ["MAX_ELEMENTS", "can_evaluate", "constant_value", "part_of", "stored_value", "unknown_entries", "value_of"]

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
    if call.kind in ("Shape", "Size"):
        if any(isinstance(size, Size) for size in call.input(0).shape):
            return None
    elif any(value is None for value, given in zip(call.values, call.inputs, strict=True) if given is not None):
        return None
    try:
        with np.errstate(all="ignore"):
            value = np.asarray(rule(call, *call.values))
    except _ERRORS:
        return None
    return value if value.shape == call.output().shape else None


def unknown_entries(name: str, kind: TensorType | None, usual: int) -> Array | None:
    """A short list of whole numbers of which nothing is known: stand-ins, each with a symbol of its own."""
    if kind is None or kind.dtype not in ("int64", "int32") or len(kind.shape) > 1 or kind.elements > MAX_ELEMENTS:
        return None
    if kind.tensors != 1 or any(isinstance(size, Size) for size in kind.shape):
        return None
    made = np.empty(kind.shape, object)
    for place in np.ndindex(kind.shape):
        made[place] = Size(usual, guessed=True, symbol=f"{name}{list(place)}")
    return made


def part_of(call: Call) -> Array | None:
    """The first output where some entries of the inputs are not exact; an array of numbers if those do not matter."""
    shape = call.output().shape
    rule = _PARTIAL.get(call.kind)
    if rule is None or call.output().elements > MAX_ELEMENTS or any(isinstance(size, Size) for size in shape):
        return None
    given = [part for part, kind in zip(call.parts, call.inputs, strict=True) if kind is not None]
    if call.kind not in ("Shape", "Size") and (not given or any(part is None for part in given)):
        return None
    try:
        with np.errstate(all="ignore"):
            made = np.asarray(rule(call, *call.parts))
        if made.shape != shape:
            return None
        exact = not any(isinstance(entry, Size) for entry in made.reshape(-1).tolist())
        return made.astype(call.output().dtype) if exact else made.astype(object)
    except _ERRORS:
        return None


def _exact_only(function: Callable[[Any], Any]) -> Callable[..., Array]:
    """Sizes are whole numbers, and stay what they are; what is exact is rounded."""

    def one(entry: Any) -> Any:
        return entry if isinstance(entry, Size) else function(entry)

    return lambda call, data, *_: np.asarray(np.frompyfunc(one, 1, 1)(data), object)


def _cast_to(call: Call) -> Callable[[Any], Any]:
    return {"i": int, "u": int, "f": float, "b": bool}.get(np.dtype(call.output().dtype).kind, float)


def _doubtful(function: Callable[..., Any], keeps: int = 0, neutral: int | None = None) -> Callable[..., Array]:
    """An elementwise rule. A result is at most what follows from the largest numbers where only the first `keeps`
    operands are not exact; `neutral` on the right leaves a size as it is."""

    def one(*given: Any) -> Any:
        if not any(isinstance(entry, Size) for entry in given):
            return function(*given)
        first = given[0]
        if len(given) == 2 and neutral is not None and not isinstance(given[1], Size) and given[1] == neutral:
            return first
        number = function(*(int(entry) if isinstance(entry, Size) else entry for entry in given))
        unsafe = any(isinstance(entry, Size) for entry in given[keeps:]) or any(float(e) < 0 for e in given)
        guessed = unsafe or any(map(is_guessed, given))
        return Size(math.ceil(float(number)), guessed=guessed)

    def rule(call: Call, *parts: Array) -> Array:
        made = parts[0]
        if len(parts) == 1:
            return np.asarray(np.frompyfunc(one, 1, 1)(made), object)
        for part in parts[1:]:
            made = np.asarray(np.frompyfunc(one, 2, 1)(made, part), object)
        return made

    return rule


def _extreme(choose: Callable[..., int]) -> Callable[..., Array]:
    def rule(call: Call, first: Array, *others: Array) -> Array:
        for other in others:
            first = np.asarray(np.frompyfunc(lambda a, b: choose(_whole(a), _whole(b)), 2, 1)(first, other), object)
        return first

    return rule


def _whole(entry: Any) -> int:
    return entry if isinstance(entry, int) else math.ceil(float(entry))


def _quotient(left: Any, right: Any) -> Any:
    return int(left / right) if isinstance(left, int) and isinstance(right, int) else left / right


def _equal(call: Call, left: Array, right: Array) -> Array:
    def one(a: Any, b: Any) -> Any:
        if isinstance(a, Size) and isinstance(b, Size) and a.symbol and a.symbol == b.symbol:
            return True
        if (isinstance(a, Size) and b < 0) or (isinstance(b, Size) and a < 0):
            return False  # a size is never negative: exporters ask for -1
        return Size(int(a == b), guessed=True) if isinstance(a, Size) or isinstance(b, Size) else bool(a == b)

    return np.asarray(np.frompyfunc(one, 2, 1)(left, right), object)


def _choose(call: Call, condition: Array, left: Array, right: Array) -> Array:
    def one(is_left: Any, a: Any, b: Any) -> Any:
        if not isinstance(is_left, Size):
            return a if is_left else b
        return a if a == b and not isinstance(a, Size) else Size(max(int(a), int(b)), guessed=True)

    return np.asarray(np.frompyfunc(one, 3, 1)(condition, left, right), object)


def _shape_entries(call: Call, *_: Array | None) -> Array:
    made = np.empty(len(call.input(0).shape), object)
    made[:] = call.input(0).shape
    return made[slice(call.integer("start", 0), call.attributes.get("end"))]


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


def _gather_elements(call: Call, data: Array, indices: Array) -> Array:
    return np.take_along_axis(data, indices, axis=call.integer("axis", 0))


def _clip(call: Call, data: Array, low: Array | None = None, high: Array | None = None) -> Array:
    low = call.attributes.get("min", -np.inf) if low is None else low
    return np.clip(data, low, call.attributes.get("max", np.inf) if high is None else high).astype(data.dtype)


def _scatter_rows(call: Call, data: Array, indices: Array, updates: Array) -> Array:
    made = data.copy()
    for place in np.ndindex(indices.shape[:-1]):
        made[tuple(indices[place])] = updates[place]
    return made


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
    "Pow": lambda call, left, right: np.power(left, right).astype(left.dtype),
    "Sum": _fold(np.add),
    "Neg": _plain(np.negative),
    "Reciprocal": _plain(np.reciprocal),
    "Exp": _plain(np.exp),
    "Log": _plain(np.log),
    "Sign": _plain(np.sign),
    "Clip": _clip,
    "Relu": lambda call, data: np.maximum(data, 0).astype(data.dtype),
    "CastLike": lambda call, data, like: data.astype(like.dtype),
    "Dropout": lambda call, data, *_: data,
    "Xor": _plain(np.logical_xor),
    "CumSum": lambda call, data, axis: np.cumsum(data, int(axis)).astype(data.dtype),
    "Tile": lambda call, data, repeats: np.tile(data, repeats),
    "GatherElements": _gather_elements,
    "GatherND": lambda call, data, indices: data[tuple(np.moveaxis(indices, -1, 0))],
    "ScatterND": _scatter_rows,
    "NonZero": lambda call, data: np.array(np.nonzero(data), np.int64),
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
    "ReduceMean": lambda call, data, axes=None: _reduce(np.mean)(call, data, axes).astype(data.dtype),
}

_MOVES = ("Identity", "Gather", "Concat", "Slice", "Unsqueeze", "Squeeze", "Reshape", "Flatten", "Transpose", "Expand")
_PARTIAL: dict[str, Callable[..., Array]] = {
    **{kind: _RULES[kind] for kind in (*_MOVES, "Tile", "ScatterND", "ReduceProd", "ReduceSum", "Dropout")},
    "Shape": _shape_entries,
    "Size": lambda call, data: np.array(call.input(0).elements, object),
    "Add": _doubtful(operator.add, keeps=2, neutral=0),
    "Sum": _doubtful(operator.add, keeps=2, neutral=0),
    "Mul": _doubtful(operator.mul, keeps=2, neutral=1),
    "Sub": _doubtful(operator.sub, keeps=1, neutral=0),
    "Div": _doubtful(_quotient, keeps=1, neutral=1),
    "Max": _extreme(largest),
    "Min": _extreme(least),
    "Floor": _exact_only(math.floor),
    "Ceil": _exact_only(math.ceil),
    "Round": _exact_only(round),
    **dict.fromkeys(("Cast", "CastLike"), lambda call, data, *_: _exact_only(_cast_to(call))(call, data)),
    "Sqrt": _doubtful(math.sqrt, keeps=1),
    "Neg": _doubtful(operator.neg),
    "Mod": _doubtful(operator.mod),
    "Equal": _equal,
    "Where": _choose,
}
"""Of kinds that are not here nothing is known unless everything is."""
