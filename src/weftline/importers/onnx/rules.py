"""Output types that ONNX's own shape inference does not give: data-dependent shapes, sequences, common fused kinds, and
the bodies of If, Loop, Scan and SequenceMap.

In: a `Call`. Out: the types of its outputs, first ones first; of a node with bodies: what flows into them, how often
they run, and what comes out. Simplified: where the shape depends on data (NonZero, NonMaxSuppression, Unique, Compress)
the largest possible one is taken, since a plan must hold for every input; a Loop whose trip count is not constant
counts as one round; a value carried round keeps the shape that the first round gives it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from weftline.importers.onnx.call import BOOL, FLOAT, INT64, Call, TensorType
from weftline.importers.onnx.products import einsum_labels
from weftline.importers.onnx.scope import Node, Scope

__all__ = [
    "CONTROL_FLOW",
    "MICROSOFT",
    "OUTPUT_RULES",
    "STANDARD_NAMES",
    "BodyCall",
    "body_calls",
    "matrix_shape",
    "node_results",
]

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


CONTROL_FLOW = ("If", "Loop", "Scan", "SequenceMap")


class BodyCall(NamedTuple):
    """One body, entered `times` times with these inputs."""

    attribute: str
    body: Scope
    given: tuple[TensorType | None, ...]
    times: int


def body_calls(node: Node, call: Call) -> list[BodyCall]:
    """How a node enters each of its bodies."""
    if node.domain == "" and "body" in node.bodies:
        body = node.bodies["body"]
        if node.kind == "Loop":
            counter = (TensorType(INT64, ()), TensorType(BOOL, ()))
            return [BodyCall("body", body, (*counter, *call.inputs[2:]), _rounds(call))]
        if node.kind == "Scan":
            given, rounds = _scan_inputs(call, body)
            return [BodyCall("body", body, given, rounds)]
        if node.kind == "SequenceMap":
            single = tuple(kind and kind._replace(tensors=1) for kind in call.inputs)
            return [BodyCall("body", body, single, call.input(0).tensors)]
    return [BodyCall(attribute, body, (), 1) for attribute, body in node.bodies.items()]


def node_results(node: Node, call: Call, made: list[tuple[BodyCall, list[TensorType]]]) -> list[TensorType]:
    """The types of the node's outputs from those its bodies end with; none for kinds we do not know."""
    if node.domain or node.kind not in CONTROL_FLOW:
        return []
    entered, ends = made[0]
    if node.kind == "Loop":
        return _loop_results(call, entered, ends)
    if node.kind == "Scan":
        return _scan_results(call, entered, ends)
    if node.kind == "SequenceMap":
        return [kind._replace(tensors=entered.times) for kind in ends]
    # Branches may disagree: plan for the larger.
    sides = [types for _, types in made]
    count = max(map(len, sides))
    return [max((side[i] for side in sides if i < len(side)), key=lambda kind: kind.bytes) for i in range(count)]


def _rounds(call: Call) -> int:
    trips = call.number(0) if call.has(0) else None
    return 1 if trips is None else max(trips, 0)


def _loop_results(call: Call, entered: BodyCall, ends: list[TensorType]) -> list[TensorType]:
    carried = max(len(call.inputs) - 2, 0)
    results = []
    for index, kind in enumerate(ends[1:]):
        if index >= carried:
            results.append(kind._replace(shape=(entered.times, *kind.shape)))
            continue
        before = call.input(index + 2)
        grown = before.tensors + entered.times * (
            kind.tensors - before.tensors
        )  # a sequence that every round appends to
        results.append(kind._replace(tensors=max(grown, 0)))
    return results


def _batched(call: Call, body: Scope) -> bool:
    """The Scan of opset 8: sequence lengths come first, and every value has a batch dimension."""
    return len(call.inputs) == len(body.inputs) + 1


def _scan_inputs(call: Call, body: Scope) -> tuple[tuple[TensorType | None, ...], int]:
    batched = _batched(call, body)
    inputs = call.inputs[1:] if batched else call.inputs
    batch = call.dimension(1, 0) if batched else 1
    states = max(len(inputs) - call.integer("num_scan_inputs", 1), 0)
    axes = call.integers("scan_input_axes")
    given: list[TensorType | None] = []
    length = 1
    for index, kind in enumerate(inputs):
        if kind is None:
            given.append(None)
            continue
        shape = kind.shape[1:] if batched else kind.shape
        if index >= states and shape:
            axis = axes[index - states] if index - states < len(axes) and not batched else 0
            axis = axis % len(shape)
            length = shape[axis]
            shape = (*shape[:axis], *shape[axis + 1 :])
        given.append(kind._replace(shape=shape))
    return tuple(given), length * batch


def _scan_results(call: Call, entered: BodyCall, ends: list[TensorType]) -> list[TensorType]:
    batched = _batched(call, entered.body)
    states = max(len(entered.given) - call.integer("num_scan_inputs", 1), 0)
    axes = call.integers("scan_output_axes")
    batch = call.dimension(1, 0) if batched else 1
    results = []
    for index, kind in enumerate(ends):
        shape = kind.shape
        if index >= states:
            axis = axes[index - states] if index - states < len(axes) else 0
            axis = axis % (len(shape) + 1)
            shape = (*shape[:axis], entered.times // max(batch, 1), *shape[axis:])
        results.append(kind._replace(shape=(batch, *shape) if batched else shape))
    return results
