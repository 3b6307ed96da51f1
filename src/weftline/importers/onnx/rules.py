"""Output types that ONNX's own shape inference does not give: data-dependent shapes, sequences, and shapes that follow
from values only some of which are known.

In: a `Call`. Out: the types of its outputs, first ones first. Where the shape depends on data (NonZero, Unique, TopK,
NonMaxSuppression, Compress ...) the largest possible one is taken, as a `Size`: a plan must hold for every input. What
nothing limits is a stand-in, and called guessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

import numpy as np

from weftline.importers.onnx.call import BOOL, FLOAT, INT64, Call, TensorType
from weftline.importers.onnx.fused import FUSED_RULES, Rule
from weftline.importers.onnx.products import einsum_labels
from weftline.importers.onnx.sizes import Shape, Size, broadcast, is_guessed, largest, least, rounded_up

__all__ = ["OPEN_RULES", "OUTPUT_RULES", "merged"]


def merged(kinds: list[TensorType]) -> TensorType:
    """One type that holds any of some: where they differ in an axis, the largest; in rank, the largest of all."""
    most = max(kinds, key=lambda kind: int(kind.bytes))
    if any(len(kind.shape) != len(most.shape) for kind in kinds):
        return most._replace(shape=tuple(_at_most(size) for size in most.shape))
    axes = zip(*(kind.shape for kind in kinds), strict=True)
    return most._replace(shape=tuple(_either(sizes) for sizes in axes), tensors=_either([k.tensors for k in kinds]))


def _either(sizes: Sequence[int]) -> int:
    most = largest(*sizes)
    return most if len(set(map(int, sizes))) == 1 else _at_most(most)


def _einsum(call: Call) -> list[TensorType]:
    labels = einsum_labels(call)
    shape = call.input(0).shape if labels is None else tuple(labels[0][name] for name in labels[1])
    return [TensorType(call.input(0).element, shape)]


def _at_most(number: int) -> Size:
    return Size(number, guessed=is_guessed(number))


def _count(call: Call) -> int:
    value = call.values[0] if call.values else None
    return _at_most(call.input(0).elements) if value is None else int(np.count_nonzero(value))


def _non_zero(call: Call) -> list[TensorType]:
    kind = call.input(0)
    return [TensorType(INT64, (len(kind.shape), _count(call)))]


def _suppression(call: Call) -> list[TensorType]:
    batch, boxes, classes = call.dimension(0, 0), call.dimension(0, 1), call.dimension(1, 1)
    asked = call.limit(2) if call.has(2) else 0
    kept = boxes if asked is None else largest(least(asked, boxes), 0)
    return [TensorType(INT64, (_at_most(batch * classes * kept), 3))]


def _unique(call: Call) -> list[TensorType]:
    kind = call.input(0)
    axis = call.attributes.get("axis")
    count = _at_most(call.dimension(0, axis) if isinstance(axis, int) else kind.elements)
    made = kind._replace(shape=_changed(kind.shape, axis, count) if isinstance(axis, int) else (count,))
    every = TensorType(INT64, (call.dimension(0, axis) if isinstance(axis, int) else kind.elements,))
    return [made, TensorType(INT64, (count,)), every, TensorType(INT64, (count,))]


def _changed(shape: Shape, axis: int, size: int) -> Shape:
    """The shape with another size along one axis."""
    if not -len(shape) <= axis < len(shape):
        return shape
    axis %= len(shape)
    return (*shape[:axis], size, *shape[axis + 1 :])


def _compress(call: Call) -> list[TensorType]:
    kind = call.input(0)
    axis, chosen = call.attributes.get("axis"), call.values[1] if len(call.values) > 1 else None
    length = call.dimension(0, axis) if isinstance(axis, int) else kind.elements
    kept = _at_most(length) if chosen is None else int(np.count_nonzero(chosen.reshape(-1)[: int(length)]))
    return [kind._replace(shape=_changed(kind.shape, axis, kept) if isinstance(axis, int) else (kept,))]


def _sequence_construct(call: Call) -> list[TensorType]:
    parts = [kind for kind in call.inputs if kind is not None]
    return [merged(parts)._replace(tensors=len(parts))] if parts else []


def _split_to_sequence(call: Call) -> list[TensorType]:
    kind, axis = call.input(0), call.integer("axis", 0)
    length = call.dimension(0, axis)
    value = call.values[1] if len(call.values) > 1 else None
    piece = 1 if not call.has(1) else int(value.reshape(-1).max(initial=1)) if value is not None else length
    count = value.size if value is not None and value.ndim else rounded_up(length, largest(piece, 1))
    shape = list(kind.shape)
    if shape and not call.has(1) and not call.integer("keepdims", 1):
        del shape[axis % len(shape)]
    elif shape:
        shape[axis % len(shape)] = least(max(piece, 1), length)
    return [TensorType(kind.element, tuple(shape), count)]


def _concat_from_sequence(call: Call) -> list[TensorType]:
    kind, axis = call.input(0), call.integer("axis", 0)
    if call.integer("new_axis", 0):
        axis = axis % (len(kind.shape) + 1)
        return [TensorType(kind.element, (*kind.shape[:axis], kind.tensors, *kind.shape[axis:]))]
    if not kind.shape:
        return [TensorType(kind.element, (kind.tensors,))]
    axis = axis % len(kind.shape)
    return [TensorType(kind.element, (*kind.shape[:axis], kind.shape[axis] * kind.tensors, *kind.shape[axis + 1 :]))]


def _counted(change: int) -> Rule:
    def rule(call: Call) -> list[TensorType]:
        sequence = call.input(0)
        # An empty sequence does not know its element shape yet: the first insertion says it.
        kind = call.input(1) if sequence.tensors == 0 and change > 0 else sequence
        return [kind._replace(tensors=max(sequence.tensors + change, 0))]

    return rule


def _dropout(call: Call) -> list[TensorType]:
    """The data, and a mask of the same shape, of which old versions of ONNX infer nothing."""
    return [call.input(0), TensorType(BOOL, call.input(0).shape)] if call.has(0) else []


def _same(call: Call) -> list[TensorType]:
    return [call.input(0)] if call.has(0) else []


def _window(call: Call) -> list[TensorType]:
    """ONNX's own inference calls one whose length is not known a scalar."""
    length = call.limit(0)
    return [TensorType(call.integer("output_datatype", FLOAT), (Size(1, guessed=True) if length is None else length,))]


def _mel_weights(call: Call) -> list[TensorType]:
    bins, length = call.limit(0), call.limit(1)
    high = Size(1, guessed=True) if length is None else length // 2 + 1
    return [TensorType(call.integer("output_datatype", FLOAT), (high, Size(1, guessed=True) if bins is None else bins))]


OUTPUT_RULES: dict[tuple[str, str], Rule] = {
    **{("", kind): _window for kind in ("BlackmanWindow", "HammingWindow", "HannWindow")},
    ("", "MelWeightMatrix"): _mel_weights,
    ("", "Dropout"): _dropout,
    ("", "Einsum"): _einsum,
    ("", "NonZero"): _non_zero,
    ("", "NonMaxSuppression"): _suppression,
    ("", "Unique"): _unique,
    ("", "Compress"): _compress,
    ("", "SequenceConstruct"): _sequence_construct,
    ("", "SequenceEmpty"): lambda call: [TensorType(call.integer("dtype", FLOAT), (), 0)],
    ("", "SequenceInsert"): _counted(1),
    ("", "SequenceErase"): _counted(-1),
    ("", "SequenceAt"): lambda call: [call.input(0)._replace(tensors=1)],
    ("", "SequenceLength"): lambda call: [TensorType(INT64, ())],
    ("", "SplitToSequence"): _split_to_sequence,
    ("", "ConcatFromSequence"): _concat_from_sequence,
    ("", "Optional"): _same,
    ("", "OptionalGetElement"): _same,
    **FUSED_RULES,
}


def _entries(call: Call, index: int) -> list[int] | None:
    """A list of whole numbers, some of which may not be exact."""
    part = call.parts[index] if index < len(call.parts) else None
    return None if part is None or part.ndim > 1 else part.reshape(-1).tolist()


def _reshape(call: Call) -> list[TensorType]:
    """The number of elements stays: one entry that is open or unknown follows from the others."""
    data, target = call.input(0), _entries(call, 1)
    if target is None:
        return []
    sizes: list[int] = list(target)
    free = [axis for axis, size in enumerate(sizes) if is_guessed(size)]
    for axis, size in enumerate(sizes):
        if not isinstance(size, Size) and size == 0 and not call.integer("allowzero", 0) and axis < len(data.shape):
            sizes[axis] = data.shape[axis]
    follows = sizes.index(-1) if -1 in sizes else free[-1] if free else None
    total = int(data.elements)
    for axis in free:
        same = int(data.shape[axis]) if axis < len(data.shape) else 1
        if axis != follows:
            sizes[axis] = Size(same if same and total % same == 0 else 1, guessed=True)
    if follows is not None:
        sizes[follows] = _rest(data.shape, [size for axis, size in enumerate(sizes) if axis != follows])
    return [data._replace(shape=tuple(sizes))]


def _rest(shape: Shape, others: list[int]) -> int:
    """What is left of the elements once the other axes have theirs; sizes of one symbol cancel out."""
    left = list(shape)
    below: list[int] = []
    for size in others:
        mate = size.symbol if isinstance(size, Size) else ""
        found = [place for place, one in enumerate(left) if mate and isinstance(one, Size) and one.symbol == mate]
        if found:
            del left[found[0]]
        else:
            below.append(size)
    number = prod(map(int, left)) // max(prod(map(int, below)), 1)
    if any(isinstance(size, Size) for size in below):
        return Size(number, guessed=True)
    inexact = [size for size in left if isinstance(size, Size)]
    return Size(number, guessed=any(map(is_guessed, inexact))) if inexact else number


def _expand(call: Call) -> list[TensorType]:
    target = _entries(call, 1)
    try:
        return [] if target is None else [call.input(0)._replace(shape=broadcast(call.input(0).shape, tuple(target)))]
    except ValueError:
        return []


def _constant_of_shape(call: Call) -> list[TensorType]:
    sizes, value = _entries(call, 0), call.attributes.get("value")
    return [] if sizes is None else [TensorType(int(getattr(value, "data_type", FLOAT)), tuple(sizes))]


def _tile(call: Call) -> list[TensorType]:
    data, times = call.input(0), _entries(call, 1)
    if times is None or len(times) != len(data.shape):
        return []
    return [data._replace(shape=tuple(size * by for size, by in zip(data.shape, times, strict=True)))]


def _range(call: Call) -> list[TensorType]:
    start, limit, step = (call.limit(index) for index in range(3))
    if start is None or limit is None or not step or isinstance(start, Size) or isinstance(step, Size):
        return []
    length = Size(max(-((int(start) - int(limit)) // int(step)), 0), guessed=is_guessed(limit))
    same = isinstance(limit, Size) and start == 0 and step == 1
    return [call.input(0)._replace(shape=(limit if same else length,))]


def _top_k(call: Call) -> list[TensorType]:
    data, axis, count = call.input(0), call.integer("axis", -1), call.limit(1)
    length = call.dimension(0, axis)
    kept = _at_most(length) if count is None else count if not isinstance(count, Size) else least(count, length)
    shape = _changed(data.shape, axis, kept)
    return [data._replace(shape=shape), TensorType(INT64, shape)]


def _slice(call: Call) -> list[TensorType]:
    """Along an axis whose start or step is unknown at most all of it is left."""
    data, starts, ends = call.input(0), _entries(call, 1), _entries(call, 2)
    if starts is None or ends is None or len(starts) != len(ends):
        return []
    axes = _entries(call, 3) if call.has(3) else list(range(len(starts)))
    steps = _entries(call, 4) if call.has(4) else [1] * len(starts)
    shape = data.shape
    if axes is None or len(axes) != len(starts) or any(isinstance(axis, Size) for axis in axes):
        return [data._replace(shape=tuple(_at_most(size) for size in shape))]
    for place, axis in enumerate(axes):
        if -len(shape) <= axis < len(shape):
            step = steps[place] if steps is not None and place < len(steps) else Size(1)
            shape = _changed(shape, axis, _cut(shape[axis], starts[place], ends[place], step))
    return [data._replace(shape=shape)]


def _cut(length: int, start: int, end: int, step: int) -> int:
    known = not any(isinstance(number, Size) for number in (start, end, step))
    if known and step and not isinstance(length, Size):
        return len(range(*slice(start, end, step).indices(length)))
    if isinstance(start, Size) or isinstance(step, Size) or start < 0 or step < 1:
        return _at_most(length)
    if not isinstance(end, Size):
        top = length if end >= int(length) else length + end if end < 0 else least(length, end)
    else:
        top = least(length, end)
    if start == 0 and step == 1:
        return top
    return Size(max(int(rounded_up(int(top) - start, step)), 0), guessed=is_guessed(top))


OPEN_RULES: dict[str, Rule] = {
    "Reshape": _reshape,
    "Expand": _expand,
    "ConstantOfShape": _constant_of_shape,
    "Tile": _tile,
    "Range": _range,
    "TopK": _top_k,
    "Slice": _slice,
}
"""Asked where some size or value that the node reads is not exact."""
