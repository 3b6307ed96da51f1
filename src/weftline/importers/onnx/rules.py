"""Output types that ONNX's own shape inference does not give: data-dependent shapes, sequences, common fused kinds.

In: a `Call`. Out: the types of its outputs, first ones first. Simplified: where the shape depends on data (NonZero,
NonMaxSuppression, Unique, Compress) the largest possible one is taken, since a plan must hold for every input.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from weftline.importers.onnx.call import FLOAT, INT64, Call, TensorType
from weftline.importers.onnx.products import einsum_labels

__all__ = ["MICROSOFT", "OUTPUT_RULES", "STANDARD_NAMES", "matrix_shape"]

MICROSOFT = "com.microsoft"

STANDARD_NAMES = {"FusedConv": "Conv"}
"""Fused kinds whose output is that of a standard kind."""

Rule = Callable[[Call], list[TensorType]]


def matrix_shape(call: Call, left: int = 0, right: int = 1) -> tuple[int, ...]:
    """Shape of a (batched, broadcast, perhaps transposed) matrix product of two inputs."""
    first, second = call.input(left).shape, call.input(right).shape
    rows = first[:-1] if len(first) > 1 else ()
    columns: tuple[int, ...] = second[-1:] if len(second) > 1 else ()
    if call.integer("transA", 0) and len(first) > 1:
        rows = (*first[:-2], first[-1])
    if call.integer("transB", 0) and len(second) > 1:
        columns = second[-2:-1]
    try:
        batch = np.broadcast_shapes(rows[:-1], second[:-2])
    except ValueError:
        batch = rows[:-1]
    return (*batch, *rows[-1:], *columns)


def _matrix(left: int, right: int, element: int | None = None) -> Rule:
    def rule(call: Call) -> list[TensorType]:
        return [TensorType(call.input(left).element if element is None else element, matrix_shape(call, left, right))]

    return rule


def _packed_matrix(call: Call) -> list[TensorType]:
    left = call.input(0)
    return [TensorType(left.element, (*left.shape[:-1], call.integer("N", call.dimension(1, 0))))]


def _broadcast(left: int, right: int) -> Rule:
    def rule(call: Call) -> list[TensorType]:
        first, second = call.input(left), call.input(right)
        try:
            return [TensorType(first.element, np.broadcast_shapes(first.shape, second.shape))]
        except ValueError:
            return [first]

    return rule


def _quantized_concat(call: Call) -> list[TensorType]:
    parts = [kind for kind in call.inputs[2::3] if kind is not None]
    if not parts or not parts[0].shape:
        return []
    axis = call.integer("axis", 0) % len(parts[0].shape)
    total = sum(part.shape[axis] for part in parts if axis < len(part.shape))
    return [TensorType(parts[0].element, (*parts[0].shape[:axis], total, *parts[0].shape[axis + 1 :]))]


def _global_pool(call: Call) -> list[TensorType]:
    kind = call.input(0)
    if call.integer("channels_last", 0):
        return [kind._replace(shape=(*kind.shape[:1], *[1] * len(kind.shape[1:-1]), *kind.shape[-1:]))]
    return [kind._replace(shape=(*kind.shape[:2], *[1] * len(kind.shape[2:])))]


def _fused_attention(call: Call) -> list[TensorType]:
    """Attention of com.microsoft: (batch, sequence, hidden) times packed query/key/value weights."""
    data = call.input(0)
    heads = max(call.integer("num_heads", 1), 1)
    sizes = call.integers("qkv_hidden_sizes")
    hidden = sizes[2] if len(sizes) == 3 else call.dimension(1, -1) // 3
    batch, sequence = call.dimension(0, 0), call.dimension(0, 1)
    total = sequence + (call.dimension(4, 3) if call.has(4) else 0)
    element = data.element if call.kind == "Attention" else FLOAT
    present = TensorType(element, (2, batch, heads, total, hidden // heads))
    return [TensorType(element, (batch, sequence, hidden)), present]


def _multi_head_attention(call: Call) -> list[TensorType]:
    query, heads = call.input(0), max(call.integer("num_heads", 1), 1)
    batch, sequence = call.dimension(0, 0), call.dimension(0, 1)
    if len(query.shape) == 5:  # query, key and value packed as (batch, sequence, heads, 3, size)
        hidden, key_length = query.shape[2] * query.shape[4], sequence
    else:
        value = call.input(2).shape if call.has(2) else query.shape
        hidden = value[1] * value[3] if len(value) == 4 else call.dimension(2 if call.has(2) else 0, -1)
        key_length = call.dimension(1, 2 if len(call.input(1).shape) == 4 else 1) if call.has(1) else sequence
    total = key_length + (call.dimension(6, 2) if call.has(6) else 0)
    present = TensorType(query.element, (batch, heads, total, hidden // heads))
    return [TensorType(query.element, (batch, sequence, hidden)), present, present]


def _grouped_attention(call: Call) -> list[TensorType]:
    query = call.input(0)
    heads, shared = max(call.integer("num_heads", 1), 1), max(call.integer("kv_num_heads", 1), 1)
    batch, sequence, hidden = (call.dimension(0, axis) for axis in range(3))
    if not call.has(1):  # query, key and value packed in one
        hidden = hidden * heads // (heads + 2 * shared)
    size = hidden // heads
    length = max(call.dimension(3, 2), sequence) if call.has(3) else sequence
    present = TensorType(query.element, (batch, shared, length, size))
    return [TensorType(query.element, (batch, sequence, hidden)), present, present]


def _embedding_normalization(call: Call) -> list[TensorType]:
    made = TensorType(call.input(2).element, (*call.input(0).shape, call.dimension(2, -1)))
    return [made, TensorType(call.input(0).element, call.input(0).shape[:1]), made]


def _gathered_blocks(call: Call) -> list[TensorType]:
    data, axis = call.input(0).shape, call.integer("gather_axis", 0)
    width = 8 // max(call.integer("bits", 4), 1) if call.input(0).dtype == "uint8" else 1
    axis = axis % len(data) if data else 0
    shape = (*data[:axis], *call.input(1).shape, *data[axis + 1 :])
    return [TensorType(call.input(2).element, (*shape[:-1], shape[-1] * width) if shape else ())]


def _half_last(call: Call) -> list[TensorType]:
    kind = call.input(0)
    return [kind._replace(shape=(*kind.shape[:-1], kind.shape[-1] // 2) if kind.shape else ())]


def _einsum(call: Call) -> list[TensorType]:
    labels = einsum_labels(call)
    shape = call.input(0).shape if labels is None else tuple(labels[0][name] for name in labels[1])
    return [TensorType(call.input(0).element, shape)]


def _non_zero(call: Call) -> list[TensorType]:
    kind = call.input(0)
    return [TensorType(INT64, (len(kind.shape), kind.elements))]


def _suppression(call: Call) -> list[TensorType]:
    batch, boxes, classes = call.dimension(0, 0), call.dimension(0, 1), call.dimension(1, 1)
    asked = call.number(2) if call.has(2) else 0
    kept = boxes if asked is None else max(min(asked, boxes), 0)
    return [TensorType(INT64, (batch * classes * kept, 3))]


def _unique(call: Call) -> list[TensorType]:
    kind = call.input(0)
    axis = call.attributes.get("axis")
    count = call.dimension(0, axis) if isinstance(axis, int) else kind.elements
    made = kind if isinstance(axis, int) else kind._replace(shape=(kind.elements,))
    return [made, *[TensorType(INT64, (count,))] * 3]


def _compress(call: Call) -> list[TensorType]:
    kind = call.input(0)
    return [kind if "axis" in call.attributes else kind._replace(shape=(kind.elements,))]


def _sequence_construct(call: Call) -> list[TensorType]:
    parts = [kind for kind in call.inputs if kind is not None]
    return [max(parts, key=lambda kind: kind.bytes)._replace(tensors=len(parts))] if parts else []


def _split_to_sequence(call: Call) -> list[TensorType]:
    kind, axis = call.input(0), call.integer("axis", 0)
    length = call.dimension(0, axis)
    value = call.values[1] if len(call.values) > 1 else None
    piece = 1 if not call.has(1) else int(value.reshape(-1).max(initial=1)) if value is not None else length
    count = value.size if value is not None and value.ndim else -(-length // max(piece, 1))
    shape = list(kind.shape)
    if shape and not call.has(1) and not call.integer("keepdims", 1):
        del shape[axis % len(shape)]
    elif shape:
        shape[axis % len(shape)] = min(max(piece, 1), length)
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


def _same(call: Call) -> list[TensorType]:
    return [call.input(0)] if call.has(0) else []


OUTPUT_RULES: dict[tuple[str, str], Rule] = {
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
    (MICROSOFT, "Attention"): _fused_attention,
    (MICROSOFT, "QAttention"): _fused_attention,
    (MICROSOFT, "MultiHeadAttention"): _multi_head_attention,
    (MICROSOFT, "DecoderMaskedMultiHeadAttention"): _multi_head_attention,
    (MICROSOFT, "GroupQueryAttention"): _grouped_attention,
    (MICROSOFT, "EmbedLayerNormalization"): _embedding_normalization,
    (MICROSOFT, "GatherBlockQuantized"): _gathered_blocks,
    (MICROSOFT, "BiasSplitGelu"): _half_last,
    (MICROSOFT, "FusedMatMul"): _matrix(0, 1),
    (MICROSOFT, "TransposeMatMul"): _matrix(0, 1),
    (MICROSOFT, "FusedMatMulActivation"): _matrix(0, 1),
    (MICROSOFT, "FusedGemm"): _matrix(0, 1),
    (MICROSOFT, "GemmFloat8"): _matrix(0, 1),
    (MICROSOFT, "GemmFastGelu"): _matrix(0, 1),
    (MICROSOFT, "MatMulIntegerToFloat"): _matrix(0, 1, FLOAT),
    (MICROSOFT, "DynamicQuantizeMatMul"): _matrix(0, 1, FLOAT),
    (MICROSOFT, "QGemm"): _matrix(0, 3),
    (MICROSOFT, "MatMulNBits"): _packed_matrix,
    (MICROSOFT, "MatMulBnb4"): _packed_matrix,
    (MICROSOFT, "QLinearAdd"): _broadcast(0, 3),
    (MICROSOFT, "QLinearMul"): _broadcast(0, 3),
    (MICROSOFT, "QLinearConcat"): _quantized_concat,
    (MICROSOFT, "QLinearGlobalAveragePool"): _global_pool,
}
