"""OpenVINO's operations in the words of ONNX: one vocabulary, so that one cost model, one table of flops serve both.

In: a `Layer` and the types around it. Out: a `Call`, which the rules for ONNX nodes count. Simplified: an operation
that ONNX does not have goes by its nearest relative (see the table); what is not in the table keeps its name, and
counts as one operation per output element.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import prod
from typing import Any

from weftline.importers.onnx.call import Call, TensorType
from weftline.importers.onnx.work import flops_of, traffic_of
from weftline.importers.openvino.layers import Layer

__all__ = ["LayerCall", "api_kind", "layer_flops", "layer_traffic", "onnx_kind"]

_SAME_MEANING = {
    # elementwise
    "Multiply": "Mul",
    "Subtract": "Sub",
    "Divide": "Div",
    "Power": "Pow",
    "Maximum": "Max",
    "Minimum": "Min",
    "Negative": "Neg",
    "Ceiling": "Ceil",
    "Convert": "Cast",
    "ConvertLike": "CastLike",
    "Select": "Where",
    "Clamp": "Clip",
    "NotEqual": "Equal",
    "GreaterEqual": "GreaterOrEqual",
    "LessEqual": "LessOrEqual",
    "FloorMod": "Mod",
    "LogicalAnd": "And",
    "LogicalNot": "Not",
    "LogicalOr": "Or",
    "LogicalXor": "Xor",
    "SquaredDifference": "Sub",
    "FakeQuantize": "QuantizeLinear",
    "FakeConvert": "QuantizeLinear",
    # activations
    "HSwish": "HardSwish",
    "HSigmoid": "HardSigmoid",
    "SoftPlus": "Softplus",
    "SoftSign": "Softsign",
    # products
    "Convolution": "Conv",
    "BinaryConvolution": "Conv",
    "GroupConvolution": "Conv",
    "DeformableConvolution": "DeformConv",
    "ConvolutionBackpropData": "ConvTranspose",
    "GroupConvolutionBackpropData": "ConvTranspose",
    "ScaledDotProductAttention": "Attention",
    "LSTMSequence": "LSTM",
    "LSTMCell": "LSTM",
    "GRUSequence": "GRU",
    "GRUCell": "GRU",
    "RNNSequence": "RNN",
    "RNNCell": "RNN",
    # pooling, resampling, normalisation
    "AvgPool": "AveragePool",
    "ROIAlign": "RoiAlign",
    "ROIPooling": "MaxRoiPool",
    "Interpolate": "Resize",
    "MVN": "LayerNormalization",
    "NormalizeL2": "LpNormalization",
    "BatchNormInference": "BatchNormalization",
    "RMS": "RMSNormalization",
    "RoPE": "RotaryEmbedding",
    # movement of data
    "ShapeOf": "Shape",
    "VariadicSplit": "Split",
    "StridedSlice": "Slice",
    "Broadcast": "Expand",
    "ScatterUpdate": "ScatterND",
    "ScatterNDUpdate": "ScatterND",
    "ScatterElementsUpdate": "ScatterElements",
    "EmbeddingBagOffsets": "Gather",
    "EmbeddingBagOffsetsSum": "Gather",
    "EmbeddingBagPacked": "Gather",
    "EmbeddingBagPackedSum": "Gather",
    "RandomUniform": "RandomUniform",
    # control flow
    "TensorIterator": "Loop",
}
_IN_FILES = {"Const": "Constant", "ReLU": "Relu", "PReLU": "PRelu", "SoftMax": "Softmax"}

_RECURRENT = {  # where the input and the recurrent matrix stand
    "LSTMSequence": (4, 5),
    "LSTMCell": (3, 4),
    "GRUSequence": (3, 4),
    "GRUCell": (2, 3),
    "RNNSequence": (3, 4),
    "RNNCell": (2, 3),
}
_MOST_NUMBERS = 16


class LayerCall(Call):
    """A layer as the rules for ONNX nodes see it; `proto` is the dictionary of its attributes."""

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes that those rules ask for."""
        return dict(self.proto)


def api_kind(word: str) -> str:
    """The type of a layer as the API spells it; files spell a few differently."""
    return _IN_FILES.get(word, word)


def onnx_kind(kind: str) -> str:
    """ONNX's word for a type."""
    return _SAME_MEANING.get(kind, kind)


def layer_flops(layer: Layer, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> int:
    """Floating-point operations of one execution."""
    call = _call(layer, inputs, outputs)
    if layer.kind == "GroupConvolution":
        return 2 * call.output().elements * prod(call.input(1).shape[2:])
    if layer.kind == "GroupConvolutionBackpropData":
        return 2 * call.input(0).elements * prod(call.input(1).shape[2:])
    return flops_of(call)


def layer_traffic(layer: Layer, inputs: Sequence[TensorType], outputs: Sequence[TensorType], read: int) -> int:
    """Bytes that one execution moves; `read` is the size of all its inputs, each counted once."""
    return traffic_of(_call(layer, inputs, outputs), read)


def _call(layer: Layer, inputs: Sequence[TensorType], outputs: Sequence[TensorType]) -> LayerCall:
    return LayerCall(onnx_kind(layer.kind), "", _attributes(layer), _arguments(layer.kind, inputs), tuple(outputs))


def _arguments(kind: str, inputs: Sequence[TensorType]) -> tuple[TensorType | None, ...]:
    """The inputs where ONNX's operation has them."""
    if kind in _RECURRENT and len(inputs) > _RECURRENT[kind][1]:
        matrices = [_with_directions(inputs[place]) for place in _RECURRENT[kind]]
        return (inputs[0], *matrices)
    if kind == "ScaledDotProductAttention":
        return tuple(inputs[:3])
    if kind == "DeformableConvolution" and len(inputs) > 2:
        return (inputs[0], inputs[2], inputs[1])
    return tuple(inputs)


def _with_directions(kind: TensorType) -> TensorType:
    return kind if len(kind.shape) == 3 else kind._replace(shape=(1, *kind.shape))


def _attributes(layer: Layer) -> dict[str, Any]:
    given = layer.attributes
    found: dict[str, Any] = {}
    if layer.kind in ("MaxPool", "AvgPool"):
        found["kernel_shape"] = _numbers(given.get("kernel", ""))
    elif layer.kind == "MatMul":
        found["transA"] = int(given.get("transpose_a", "").lower() in ("true", "1"))
    elif layer.kind == "Einsum":
        found["equation"] = given.get("equation", "")
    elif layer.kind == "Interpolate":
        found["mode"] = "cubic" if "cubic" in given.get("mode", "") else given.get("mode", "").split("_")[0]
    elif layer.kind == "GridSample":
        found["mode"] = given.get("mode", "")
    elif layer.kind == "LRN":
        found["size"] = next(iter(_numbers(given.get("size", ""))), 1)
    elif layer.kind == "ROIAlign":
        found["sampling_ratio"] = next(iter(_numbers(given.get("sampling_ratio", ""))), 0)
    return found


def _numbers(text: str) -> tuple[int, ...]:
    """`3, 3` -> (3, 3); nothing where it is not a short list of numbers."""
    parts = [part.strip() for part in text.split(",")]
    if len(parts) > _MOST_NUMBERS or not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        return ()
    return tuple(map(int, parts))
