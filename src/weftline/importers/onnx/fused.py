"""Output types of fused kinds: what ONNX Runtime's optimisers and the builder of onnxruntime-genai write.

In: a `Call` of the domain com.microsoft. Out: the types of its outputs, first ones first. One table; every row is held
to the shapes that ONNX Runtime itself gives. Simplified: optional outputs that only training reads are left to ONNX.
"""

from __future__ import annotations

from collections.abc import Callable

from weftline.importers.onnx.call import FLOAT, Call, TensorType
from weftline.importers.onnx.sizes import broadcast, largest

__all__ = ["FUSED_RULES", "MICROSOFT", "STANDARD_NAMES", "Rule", "matrix_shape", "present_length"]

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
        batch = broadcast(rows[:-1], second[:-2])
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
            return [TensorType(first.element, broadcast(first.shape, second.shape))]
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


def present_length(call: Call) -> int:
    """Keys that a GroupQueryAttention sees: the past and this sequence, or what the model says about both."""
    past, sequence = call.dimension(3, 2) if call.has(3) else 0, call.dimension(0, 1)
    total = call.limit(6) if call.has(6) else None
    return past + sequence if total is None else largest(past, total)


def _grouped_attention(call: Call) -> list[TensorType]:
    query = call.input(0)
    heads, shared = max(call.integer("num_heads", 1), 1), max(call.integer("kv_num_heads", 1), 1)
    batch, sequence, hidden = (call.dimension(0, axis) for axis in range(3))
    if not call.has(1):  # query, key and value packed in one
        hidden = hidden * heads // (heads + 2 * shared)
    size = hidden // heads
    length = present_length(call)
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


def _same(call: Call) -> list[TensorType]:
    return [call.input(0)] if call.has(0) else []


def _skip_normalization(call: Call) -> list[TensorType]:
    kind = call.input(0)
    row = TensorType(FLOAT, (*kind.shape[:-1], 1) if kind.shape else ())
    return [kind, row, row, kind]


def _quantized_embedding(call: Call) -> list[TensorType]:
    ids, width = call.input(0), call.dimension(2, -1)
    return [TensorType(FLOAT, (*ids.shape, width)), TensorType(ids.element, ids.shape[:1])]


def _dynamic_lstm(call: Call) -> list[TensorType]:
    data = call.input(0)
    hidden, ways = call.integer("hidden_size", 1), 2 if call.text("direction", "forward") == "bidirectional" else 1
    steps, batch = call.dimension(0, 0), call.dimension(0, 1)
    last = TensorType(data.element, (ways, batch, hidden))
    return [TensorType(data.element, (steps, ways, batch, hidden)), last, last]


def _bias_of_positions(call: Call) -> list[TensorType]:
    heads, rows, columns = call.dimension(0, 1), call.limit(1), call.limit(2)
    return [] if rows is None or columns is None else [TensorType(call.input(0).element, (1, heads, rows, columns))]


def _distances(call: Call) -> list[TensorType]:
    return [TensorType(call.input(0).element, (call.dimension(0, 0), call.dimension(1, 0)))]


def _packed_attention(call: Call) -> list[TensorType]:
    sizes = call.integers("qkv_hidden_sizes")
    hidden = sizes[2] if len(sizes) == 3 else call.dimension(1, -1) // 3
    return [TensorType(call.input(0).element, (call.dimension(0, 0), hidden))]


_SAME_AS_FIRST = (
    "BiasGelu FastGelu Gelu QuickGelu BiasAdd BiasDropout BiasSoftmax GroupNorm Inverse Trilu RotaryEmbedding MoE QMoE "
    "LongformerAttention QLinearLeakyRelu QLinearSigmoid QLinearSoftmax SparseAttention"
)
FUSED_RULES: dict[tuple[str, str], Rule] = {
    **{(MICROSOFT, kind): _same for kind in _SAME_AS_FIRST.split()},
    (MICROSOFT, "SkipLayerNormalization"): _skip_normalization,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_normalization,
    (MICROSOFT, "QEmbedLayerNormalization"): _quantized_embedding,
    (MICROSOFT, "DynamicQuantizeLSTM"): _dynamic_lstm,
    (MICROSOFT, "RelativePositionBias"): _bias_of_positions,
    (MICROSOFT, "CDist"): _distances,
    (MICROSOFT, "PackedAttention"): _packed_attention,
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
