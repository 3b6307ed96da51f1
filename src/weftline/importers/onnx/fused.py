"""Output types of fused kinds: what ONNX Runtime's optimisers and the builder of onnxruntime-genai write.

In: a `Call` of the domain com.microsoft. Out: the types of its outputs, first ones first. One table; every row is held
to what ONNX Runtime itself makes (tests/importers/test_onnx_contrib.py): to the arrays of its CPU kernel, or where it
has none to its own types and the op's documentation. Three forms of attention are not run by
that test and follow the documentation alone: packed keys and values, quantised caches, and the shared buffer of the
kind Attention. Simplified: a length that only a run knows is the largest one.
"""

from __future__ import annotations

from collections.abc import Callable

from weftline.importers.onnx.call import BOOL, FLOAT, INT32, Call, TensorType, transposed_windows, windows
from weftline.importers.onnx.sizes import Shape, Size, broadcast, is_guessed, largest

__all__ = ["FUSED_RULES", "MICROSOFT", "STANDARD_NAMES", "Rule", "matrix_shape", "present_length"]

MICROSOFT = "com.microsoft"

STANDARD_NAMES = {"FusedConv": "Conv"}
"""Fused kinds whose output is that of a standard kind."""

Rule = Callable[[Call], list[TensorType]]


def matrix_shape(call: Call, left: int = 0, right: int = 1) -> tuple[int, ...]:
    """Shape of a (batched, broadcast, perhaps transposed) matrix product of two inputs."""
    first = _turned(call.input(left).shape, call.integer("transBatchA", 0))
    second = _turned(call.input(right).shape, call.integer("transBatchB", 0))
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


def _turned(shape: Shape, batch_last: int) -> Shape:
    """The first axis moved behind the batch axes."""
    return (*shape[1:-1], shape[0], shape[-1]) if batch_last and len(shape) > 2 else shape


def _matrix(left: int, right: int, like: int | None = None) -> Rule:
    """The element type is that of the left operand, or of the input `like`."""

    def rule(call: Call) -> list[TensorType]:
        source = call.input(left if like is None else like)
        return [TensorType(source.element, matrix_shape(call, left, right))]

    return rule


def _float8_matrix(call: Call) -> list[TensorType]:
    return [TensorType(call.integer("dtype", FLOAT), matrix_shape(call))]


def _quantized_gemm(call: Call) -> list[TensorType]:
    """Quantised only if the zero point of the output is given."""
    return [TensorType(call.input(8).element if call.has(8) else FLOAT, matrix_shape(call, 0, 3))]


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


def _quantized_where(call: Call) -> list[TensorType]:
    shape = call.input(0).shape
    try:
        for index in (1, 4):
            shape = broadcast(shape, call.input(index).shape)
    except ValueError:
        shape = call.input(1).shape
    return [TensorType(call.input(1).element, shape)]


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


def _channels_first(shape: Shape) -> Shape:
    return (*shape[:1], *shape[-1:], *shape[1:-1])


def _channels_last(shape: Shape) -> Shape:
    return (*shape[:1], *shape[2:], *shape[1:2])


def _pool(call: Call) -> list[TensorType]:
    last = call.kind.startswith("Nhwc") or call.integer("channels_last", 0)
    data = call.input(0)
    shape = _channels_first(data.shape) if last else data.shape
    made = (*shape[:2], *windows(call, shape[2:], call.integers("kernel_shape")))
    return [data._replace(shape=_channels_last(made) if last else made)]


def _convolution(weight: int) -> Rule:
    """Convolutions that may have their channels last; filters have their output channels first in any case."""

    def rule(call: Call) -> list[TensorType]:
        last = call.kind.startswith("Nhwc") or call.integer("channels_last", 0)
        shape, filters = call.input(0).shape, call.input(weight).shape
        if last:
            shape = _channels_first(shape)
        inner = filters[1:-1] if call.kind.startswith("Nhwc") else filters[2:]
        made = (*shape[:1], *filters[:1], *windows(call, shape[2:], call.integers("kernel_shape") or inner))
        element = call.input(7 if weight == 3 else 0).element
        return [TensorType(element, _channels_last(made) if last else made)]

    return rule


def _transposed_convolution(call: Call) -> list[TensorType]:
    data, filters = call.input(0), call.input(1).shape
    pads = call.values[2] if len(call.values) > 2 else None
    if call.has(2) and (pads is None or pads.dtype.kind not in "iu"):
        return []
    cut = () if pads is None else tuple(pads.reshape(-1).tolist())
    sizes = transposed_windows(call, data.shape[2:], call.integers("kernel_shape") or filters[2:], cut)
    return [data._replace(shape=(*data.shape[:1], call.dimension(1, 1) * call.integer("group", 1), *sizes))]


def _fused_attention(past: int) -> Rule:
    """Attention of com.microsoft: (batch, sequence, hidden) times packed query/key/value weights."""

    def rule(call: Call) -> list[TensorType]:
        heads = max(call.integer("num_heads", 1), 1)
        sizes = call.integers("qkv_hidden_sizes")
        hidden = sizes[2] if len(sizes) == 3 else call.dimension(1, -1) // 3
        batch, sequence = call.dimension(0, 0), call.dimension(0, 1)
        total = sequence + (call.dimension(past, 3) if call.has(past) else 0)
        if call.integer("past_present_share_buffer", 0) and call.has(past):
            total = call.dimension(past, 3)
        element = FLOAT if call.kind == "QAttention" else call.input(0).element
        present = TensorType(element, (2, batch, heads, total, hidden // heads))
        return [TensorType(element, (batch, sequence, hidden)), present]

    return rule


def _multi_head_attention(past: int) -> Rule:
    """Query, key and value are apart, or packed as (batch, sequence, heads, 3, size), or key and value with a 2."""

    def rule(call: Call) -> list[TensorType]:
        query, key, heads = call.input(0), call.input(1).shape, max(call.integer("num_heads", 1), 1)
        batch, sequence = call.dimension(0, 0), call.dimension(0, 1)
        hidden = query.shape[2] * query.shape[4] if len(query.shape) == 5 else call.dimension(0, -1)
        value = call.input(2).shape if call.has(2) else ()
        width = value[1] * value[3] if len(value) == 4 else value[-1] if value else hidden
        keys = call.dimension(1, 2 if len(key) == 4 else 1) if call.has(1) else sequence
        seen = keys = keys + (call.dimension(past, 2) if call.has(past) else 0)
        if call.has(past) and (call.integer("past_present_share_buffer", 0) or call.has(past + 2)):
            keys = call.dimension(past, 2)
            seen = _filled(keys)
        presents = [TensorType(query.element, (batch, heads, keys, size // heads)) for size in (hidden, width)]
        scores = TensorType(query.element, (batch, heads, sequence, seen))
        return [TensorType(query.element, (batch, sequence, width)), *presents, scores]

    return rule


def present_length(call: Call) -> int:
    """Keys that a GroupQueryAttention sees: the past and this sequence, or what the model says about both."""
    past, sequence = call.dimension(3, 2) if call.has(3) else 0, call.dimension(0, 1)
    if call.kind == "SparseAttention":
        return past
    total = call.limit(6) if call.has(6) else None
    if total is not None:
        return largest(past, total)
    # The past may be a buffer with room for what comes: then the present is no longer than it.
    most = past + sequence
    return _filled(most) if call.has(3) else most


def _filled(length: int) -> int:
    """How much of a buffer is in use: at most all of it."""
    return length if isinstance(length, Size) else Size(length)


def _grouped_attention(call: Call) -> list[TensorType]:
    """Also SparseAttention, which writes into the buffers of its past."""
    query = call.input(0)
    heads, shared = max(call.integer("num_heads", 1), 1), max(call.integer("kv_num_heads", 1), 1)
    batch, sequence, hidden = (call.dimension(0, axis) for axis in range(3))
    if not call.has(1):  # query, key and value packed in one
        hidden = hidden * heads // (heads + 2 * shared)
    length = present_length(call)
    cache = [call.input(index) if call.has(index) else None for index in (3, 4)]  # its elements may be quantised
    presents = [
        TensorType(
            query.element if past is None else past.element,
            (batch, shared, length, hidden // heads if past is None or not past.shape else past.shape[-1]),
        )
        for past in cache
    ]
    scores = TensorType(query.element, (batch, heads, sequence, _filled(length) if call.has(3) else length))
    return [TensorType(query.element, (batch, sequence, hidden)), *presents, scores][: 3 + (call.kind[0] == "G")]


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


def _simplified_normalization(call: Call) -> list[TensorType]:
    kind, axis = call.input(0), call.integer("axis", -1)
    axis = axis % len(kind.shape) if kind.shape else 0
    row = TensorType(call.integer("stash_type", FLOAT), (*kind.shape[:axis], *[1] * len(kind.shape[axis:])))
    return [kind._replace(element=call.input(1).element), row]


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


def _gated_positions(call: Call) -> list[TensorType]:
    """With padding removed the token offsets say batch and sequence."""
    batch, sequence = (call.dimension(6 if call.has(6) else 0, axis) for axis in (0, 1))
    return [TensorType(call.input(0).element, (batch, call.integer("num_heads", 1), sequence, sequence))]


def _without_padding(call: Call) -> list[TensorType]:
    """How many tokens are left depends on the data."""
    data, batch, sequence = call.input(0), call.dimension(0, 0), call.dimension(0, 1)
    tokens = Size(batch * sequence, guessed=is_guessed(batch * sequence))
    counts = [TensorType(INT32, shape) for shape in ((batch, sequence), (batch + 1,), (1,))]
    return [data._replace(shape=(tokens, call.dimension(0, 2))), *counts]


def _with_padding(call: Call) -> list[TensorType]:
    return [call.input(0)._replace(shape=(*call.input(1).shape, call.dimension(0, 1)))]


def _packed_heads(call: Call) -> list[TensorType]:
    query = call.input(0)
    packed = query.shape[1] * query.shape[3] if len(query.shape) == 4 else call.dimension(0, -1)
    return [query._replace(shape=(call.dimension(0, 0), call.dimension(2, -1) if call.has(2) else packed))]


def _packed_attention(call: Call) -> list[TensorType]:
    sizes = call.integers("qkv_hidden_sizes")
    hidden = sizes[2] if len(sizes) == 3 else call.dimension(1, -1) // 3
    return [TensorType(call.input(0).element, (call.dimension(0, 0), hidden))]


_SAME_AS_FIRST = (
    "BiasGelu FastGelu Gelu QuickGelu BiasAdd BiasSoftmax GroupNorm Inverse Trilu RotaryEmbedding MoE QMoE "
    "LongformerAttention QLinearLeakyRelu QLinearSigmoid QLinearSoftmax"
)
FUSED_RULES: dict[tuple[str, str], Rule] = {
    **{(MICROSOFT, kind): _same for kind in _SAME_AS_FIRST.split()},
    (MICROSOFT, "BiasDropout"): lambda call: [call.input(0), TensorType(BOOL, call.input(0).shape)],
    (MICROSOFT, "SkipGroupNorm"): lambda call: [call.input(0), call.input(0)],
    ("", "SimplifiedLayerNormalization"): _simplified_normalization,
    (MICROSOFT, "SkipLayerNormalization"): _skip_normalization,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): _skip_normalization,
    (MICROSOFT, "QEmbedLayerNormalization"): _quantized_embedding,
    (MICROSOFT, "DynamicQuantizeLSTM"): _dynamic_lstm,
    (MICROSOFT, "RelativePositionBias"): _bias_of_positions,
    (MICROSOFT, "GatedRelativePositionBias"): _gated_positions,
    (MICROSOFT, "RemovePadding"): _without_padding,
    (MICROSOFT, "RestorePadding"): _with_padding,
    (MICROSOFT, "CDist"): _distances,
    (MICROSOFT, "NhwcMaxPool"): _pool,
    (MICROSOFT, "QLinearAveragePool"): _pool,
    (MICROSOFT, "NhwcConv"): _convolution(1),
    (MICROSOFT, "NhwcFusedConv"): _convolution(1),
    (MICROSOFT, "QLinearConv"): _convolution(3),
    (MICROSOFT, "ConvTransposeWithDynamicPads"): _transposed_convolution,
    (MICROSOFT, "PackedAttention"): _packed_attention,
    (MICROSOFT, "PackedMultiHeadAttention"): _packed_heads,
    (MICROSOFT, "Attention"): _fused_attention(past=4),
    (MICROSOFT, "QAttention"): _fused_attention(past=8),
    (MICROSOFT, "MultiHeadAttention"): _multi_head_attention(past=6),
    (MICROSOFT, "DecoderMaskedMultiHeadAttention"): _multi_head_attention(past=5),
    (MICROSOFT, "GroupQueryAttention"): _grouped_attention,
    (MICROSOFT, "SparseAttention"): _grouped_attention,
    (MICROSOFT, "EmbedLayerNormalization"): _embedding_normalization,
    (MICROSOFT, "GatherBlockQuantized"): _gathered_blocks,
    (MICROSOFT, "BiasSplitGelu"): _half_last,
    (MICROSOFT, "FusedMatMul"): _matrix(0, 1),
    (MICROSOFT, "TransposeMatMul"): _matrix(0, 1),
    (MICROSOFT, "FusedMatMulActivation"): _matrix(0, 1),
    (MICROSOFT, "FusedGemm"): _matrix(0, 1),
    (MICROSOFT, "GemmFloat8"): _float8_matrix,
    (MICROSOFT, "GemmFastGelu"): _matrix(0, 1),
    (MICROSOFT, "MatMulIntegerToFloat"): _matrix(0, 1, like=2),
    (MICROSOFT, "DynamicQuantizeMatMul"): _matrix(0, 1),
    (MICROSOFT, "QGemm"): _quantized_gemm,
    (MICROSOFT, "MatMulNBits"): _packed_matrix,
    (MICROSOFT, "MatMulBnb4"): _packed_matrix,
    (MICROSOFT, "QLinearAdd"): _broadcast(0, 3),
    (MICROSOFT, "QLinearMul"): _broadcast(0, 3),
    (MICROSOFT, "QLinearWhere"): _quantized_where,
    (MICROSOFT, "QLinearConcat"): _quantized_concat,
    (MICROSOFT, "QLinearGlobalAveragePool"): _global_pool,
}
