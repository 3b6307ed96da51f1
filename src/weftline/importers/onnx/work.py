"""Work of one node: flops by one table of kinds, bytes moved; bodies included.

In: a `Call` and the sizes of what it reads, each tensor once. Out: `NodeWork`: floating-point operations of one
execution (a multiply-add is two; moving data is none), and bytes read and written in the device's memory. If costs its
more expensive branch, Loop and Scan their body times the rounds (see `bodies` for trip counts). Simplified: an
elementwise kind costs a fixed number per element, given here; a kind that is not in the table costs one per output
element. Caches are ignored, so every tensor is read and written once; kinds that only rename a buffer move nothing;
lookups read the rows they find.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod
from typing import NamedTuple

from weftline.importers.onnx import products
from weftline.importers.onnx.bodies import CONTROL_FLOW
from weftline.importers.onnx.call import Call
from weftline.importers.onnx.fused import MICROSOFT
from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.scope import Node, Scope
from weftline.importers.onnx.sizes import largest, least

__all__ = ["FLOPS", "NodeWork", "flops_of", "traffic_of", "work_of"]

Flops = Callable[[Call], int]


def flops_of(call: Call) -> int:
    """Floating-point operations of one node."""
    rule = FLOPS.get(f"{call.domain}:{call.kind}") or FLOPS.get(call.kind)
    return rule(call) if rule else call.output().elements


def _per_output(flops: int) -> Flops:
    return lambda call: flops * call.output().elements


def _per_input(flops: int) -> Flops:
    return lambda call: flops * call.input(0).elements


def _logarithmic(call: Call) -> int:
    """Sorting and the like: n log n."""
    count = call.input(0).elements
    return count * max(count - 1, 1).bit_length()


def _pooling(call: Call) -> int:
    return call.output().elements * prod(call.integers("kernel_shape"))


def _region_pooling(call: Call) -> int:
    samples = max(call.integer("sampling_ratio", 0), 1) ** 2
    return 8 * samples * call.output().elements


def _local_response(call: Call) -> int:
    return (2 * call.integer("size", 1) + 5) * call.output().elements


def _resize(call: Call) -> int:
    """Each output element is a weighted mean of 2 or 4 neighbours along every axis that changes."""
    changed = sum(a != b for a, b in zip(call.input(0).shape, call.output().shape, strict=False))
    neighbours = {"linear": 2, "bilinear": 2, "cubic": 4, "bicubic": 4}.get(call.text("mode", "nearest"), 0)
    return 2 * neighbours**changed * call.output().elements if neighbours else 0


def _grid_sample(call: Call) -> int:
    neighbours = {"nearest": 1, "cubic": 16, "bicubic": 16}.get(call.text("mode", "linear"), 4)
    return 2 * neighbours * call.output().elements


def _fourier(call: Call, length: int) -> int:
    """Transforms of so many points, of which a fast one takes 5 n log n; of real numbers, half of that."""
    real = call.dimension(0, -1) == 1 or (call.kind == "STFT" and len(call.input(0).shape) == 2)
    points = call.output().elements // 2
    if call.kind == "STFT":  # batch x frames x bins x 2
        points = prod(call.output().shape[:2]) * length
    elif call.integer("onesided", 0):
        points = max(points, call.input(0).elements // (1 if real else 2))
    return 5 * points * max(length - 1, 1).bit_length() // (2 if real else 1)


def _whole_transform(call: Call) -> int:
    axis = call.number(2) if call.has(2) else call.integer("axis", 1)
    axis = -2 if axis is None else axis
    shape = call.output().shape
    made = shape[axis] if -len(shape) <= axis < len(shape) else 1
    return _fourier(call, largest(made, call.dimension(0, axis)))


def _framed_transform(call: Call) -> int:
    length = call.dimension(2, 0) if call.has(2) else call.limit(3) or call.output().elements
    return _fourier(call, length)


def _variadic(call: Call) -> int:
    return max(len(call.inputs) - 1, 1) * call.output().elements


def _suppression(call: Call) -> int:
    scores = call.input(1).elements
    return scores * max(scores - 1, 1).bit_length()


def _half(flops: int) -> Flops:
    return lambda call: flops * call.input(0).elements // 2


_MOVEMENT = (
    "Reshape Transpose Concat Split Slice Gather GatherElements GatherND Scatter ScatterElements ScatterND "
    "TensorScatter Expand Tile Pad Shape Size Squeeze Unsqueeze Flatten Identity Dropout Constant ConstantOfShape "
    "DepthToSpace SpaceToDepth ReverseSequence Compress EyeLike OneHot Trilu CenterCropPad Optional "
    "OptionalGetElement OptionalHasElement SequenceAt SequenceConstruct SequenceEmpty SequenceErase SequenceInsert "
    "SequenceLength SplitToSequence ConcatFromSequence BitCast MaxUnpool Col2Im QLinearConcat GatherBlockQuantized "
    "RemovePadding RestorePadding ImageDecoder StringConcat StringNormalizer StringSplit RegexFullMatch"
)
_ONE_PER_OUTPUT = (
    "Abs Add And BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor Cast CastLike Ceil Div Equal Floor Greater "
    "GreaterOrEqual IsInf IsNaN Less LessOrEqual Mod Mul Neg Not Or Reciprocal Relu Round Sign Sub Where Xor Range "
    "BiasAdd"
)
_TWO_PER_OUTPUT = "Clip LeakyRelu PRelu ThresholdedRelu Shrink QuantizeLinear DequantizeLinear BatchNormalization"
_TRANSCENDENTAL = "Acos Acosh Asin Asinh Atan Atanh Cos Cosh Sin Sinh Tan Erf Exp Log Pow Sqrt"
_REDUCTIONS_ONE = "ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceL1 ArgMax ArgMin CumSum CumProd"

FLOPS: dict[str, Flops] = {
    **dict.fromkeys(_MOVEMENT.split(), lambda call: 0),
    **dict.fromkeys(_ONE_PER_OUTPUT.split(), _per_output(1)),
    **dict.fromkeys(_TWO_PER_OUTPUT.split(), _per_output(2)),
    **dict.fromkeys(_TRANSCENDENTAL.split(), _per_output(4)),
    **dict.fromkeys(_REDUCTIONS_ONE.split(), _per_input(1)),
    **dict.fromkeys(("Sum", "Max", "Min", "Mean"), _variadic),
    # activations
    **dict.fromkeys(("Tanh", "Sigmoid", "Softplus", "Softsign", "Elu", "Selu", "Celu"), _per_output(5)),
    **dict.fromkeys(("HardSigmoid", "HardSwish"), _per_output(4)),
    **dict.fromkeys(("Swish", "QuickGelu"), _per_output(6)),
    **dict.fromkeys(("Gelu", "FastGelu", "BiasGelu", "Mish"), _per_output(8)),
    **dict.fromkeys(("SwiGLU", "BiasSplitGelu"), _half(7)),
    "Softmax": _per_output(products.SOFTMAX_FLOPS),
    **dict.fromkeys(("LogSoftmax", "BiasSoftmax"), _per_output(6)),
    "Hardmax": _per_output(2),
    # convolutions and matrix products
    **dict.fromkeys(("Conv", "ConvInteger", "FusedConv", "NhwcConv", "NhwcFusedConv"), products.convolution()),
    "QLinearConv": products.convolution(weight=3),
    "DeformConv": products.convolution(),
    **dict.fromkeys(("ConvTranspose", "ConvTransposeWithDynamicPads"), products.transposed_convolution),
    "CausalConvWithState": products.causal_convolution,
    **dict.fromkeys(("MatMul", "Gemm", "MatMulInteger", "QLinearMatMul", "QGemm"), products.matrix_product()),
    **dict.fromkeys(("FusedMatMul", "TransposeMatMul", "FusedMatMulActivation"), products.matrix_product()),
    **dict.fromkeys(("FusedGemm", "GemmFastGelu", "GemmFloat8"), products.matrix_product()),
    **dict.fromkeys(("MatMulIntegerToFloat", "DynamicQuantizeMatMul"), products.matrix_product()),
    **dict.fromkeys(("MatMulNBits", "MatMulBnb4"), products.packed_product),
    "Einsum": products.einsum,
    # attention, recurrence, experts
    **dict.fromkeys(("Attention", "FlexAttention"), products.attention),
    f"{MICROSOFT}:Attention": products.fused_attention(),
    "QAttention": products.fused_attention(past=8),
    "MultiHeadAttention": products.multi_head_attention(past=6),
    "DecoderMaskedMultiHeadAttention": products.multi_head_attention(past=5),
    **dict.fromkeys(("GroupQueryAttention", "SparseAttention"), products.grouped_attention),
    **dict.fromkeys(("PackedAttention", "PackedMultiHeadAttention"), products.packed_attention),
    "LongformerAttention": products.longformer,
    "GatedRelativePositionBias": products.gated_positions,
    "CDist": products.distances,
    "LinearAttention": products.linear_attention,
    "RotaryEmbedding": _per_input(3),
    "LSTM": products.recurrent(gate_flops=30),
    "DynamicQuantizeLSTM": products.recurrent(gate_flops=30, hidden_axis=1),
    "GRU": products.recurrent(gate_flops=25),
    "RNN": products.recurrent(gate_flops=6),
    **dict.fromkeys(("MoE", "QMoE"), products.experts),
    # pooling and resampling
    **dict.fromkeys(("MaxPool", "NhwcMaxPool", "AveragePool", "LpPool", "QLinearAveragePool"), _pooling),
    **dict.fromkeys(("GlobalAveragePool", "GlobalMaxPool", "QLinearGlobalAveragePool"), _per_input(1)),
    "GlobalLpPool": _per_input(2),
    **dict.fromkeys(("RoiAlign", "MaxRoiPool"), _region_pooling),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    "GridSample": _grid_sample,
    "AffineGrid": _per_output(6),
    # normalisation
    **dict.fromkeys(("LayerNormalization", "InstanceNormalization", "GroupNormalization", "GroupNorm"), _per_input(8)),
    **dict.fromkeys(("RMSNormalization", "SimplifiedLayerNormalization"), _per_input(5)),
    **dict.fromkeys(("SkipLayerNormalization", "SkipGroupNorm"), _per_input(9)),
    "SkipSimplifiedLayerNormalization": _per_input(6),
    **dict.fromkeys(("EmbedLayerNormalization", "QEmbedLayerNormalization"), _per_output(10)),
    "MeanVarianceNormalization": _per_input(6),
    "LpNormalization": _per_input(4),
    "LRN": _local_response,
    # reductions, search, losses
    **dict.fromkeys(("ReduceL2", "ReduceSumSquare"), _per_input(2)),
    **dict.fromkeys(("ReduceLogSum", "ReduceLogSumExp"), _per_input(5)),
    **dict.fromkeys(("TopK", "Unique", "NonZero"), _logarithmic),
    "NonMaxSuppression": _suppression,
    "DFT": _whole_transform,
    "STFT": _framed_transform,
    "Det": lambda call: call.input(0).elements * call.dimension(0, -1),
    "Inverse": lambda call: 2 * call.input(0).elements * call.dimension(0, -1),
    **dict.fromkeys(("SoftmaxCrossEntropyLoss", "NegativeLogLikelihoodLoss"), _per_input(6)),
    # quantised elementwise kinds: dequantise, compute, quantise
    "DynamicQuantizeLinear": _per_input(5),
    **dict.fromkeys(("QLinearAdd", "QLinearMul", "QLinearLeakyRelu"), _per_output(6)),
    **dict.fromkeys(("QLinearSigmoid", "QLinearSoftmax"), _per_output(9)),
    # chance
    **dict.fromkeys(("RandomNormal", "RandomNormalLike"), _per_output(10)),
    **dict.fromkeys(("RandomUniform", "RandomUniformLike", "Bernoulli"), _per_output(5)),
}


_RENAMING = {
    *("Shape", "Size", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Dropout", "Constant"),
    *("Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct", "SequenceEmpty"),
    *("SequenceInsert", "SequenceErase", "SequenceLength"),
}


def traffic_of(call: Call, read: int) -> int:
    """Bytes moved by one execution; `read` is the size of all its inputs, each counted once."""
    if call.kind in _RENAMING:
        return 0
    rule = _TRAFFIC.get(call.kind)
    return rule(call) if rule else read + _written(call)


def _written(call: Call) -> int:
    return sum(kind.bytes for kind in call.outputs if kind is not None)


def _copied(call: Call) -> int:
    """What comes out was read: the rest of the input is not touched."""
    return 2 * _written(call)


def _looked_up(call: Call) -> int:
    return 2 * call.output().bytes + call.input(1).bytes


def _embedded(call: Call) -> int:
    """Word, position and segment rows are read for every token."""
    rows = 3 if call.has(4) else 2
    ids = sum(call.input(index).bytes for index in (0, 1) if call.has(index))
    return rows * call.output().bytes + _written(call) + ids


def _quantized_rows(call: Call) -> int:
    """Gathered rows are read quantised: at most a quarter of what is written."""
    return call.output().bytes + call.output().bytes // 4 + call.input(1).bytes


def _experts(call: Call) -> int:
    """Only the chosen experts' weights are read."""
    tokens = call.input(0).elements // max(call.dimension(0, -1), 1)
    total = 0
    for kind in call.inputs:
        if kind is not None and len(kind.shape) == 3 and kind.shape[0]:
            chosen = least(kind.shape[0], tokens * max(call.integer("k", 1), 1))
            total += kind.bytes * chosen // kind.shape[0]
        elif kind is not None:
            total += kind.bytes
    return total + _written(call)


_TRAFFIC: dict[str, Callable[[Call], int]] = {
    "Gather": _looked_up,
    "GatherElements": _looked_up,
    "GatherND": _looked_up,
    "GatherBlockQuantized": _quantized_rows,
    "EmbedLayerNormalization": _embedded,
    "Slice": _copied,
    "Split": _copied,
    "SplitToSequence": _copied,
    "MoE": _experts,
    "QMoE": _experts,
}


class NodeWork(NamedTuple):
    """What one execution costs."""

    flops: int
    traffic: int


def work_of(node: Node, types: Environment) -> NodeWork:
    """Flops and bytes of one node."""
    runs = []
    if node.domain or node.kind not in CONTROL_FLOW:
        call = types.call(node)
        kinds = [types.type_of(name) for name in node.reads]
        runs.append(NodeWork(flops_of(call), traffic_of(call, sum(kind.bytes for kind in kinds if kind is not None))))
        if not node.bodies:
            return runs[0]
    for entered, inside in types.calls.get(node.position, ()):
        once = _body_work(entered.body, inside)
        runs.append(NodeWork(once.flops * entered.times, once.traffic * entered.times))
    if node.kind == "If":
        return NodeWork(largest(0, *(run.flops for run in runs)), largest(0, *(run.traffic for run in runs)))
    return NodeWork(sum(run.flops for run in runs), sum(run.traffic for run in runs))


def _body_work(body: Scope, types: Environment) -> NodeWork:
    works = [work_of(node, types) for node in body.nodes]
    return NodeWork(sum(work.flops for work in works), sum(work.traffic for work in works))
