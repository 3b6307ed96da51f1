"""Net -> Graph: one op per live layer, weights counted by op, friendly names kept.

In: a `Net` whose inputs have a size or a limit. Out: the graph, by the rules of the ONNX importer (the same code drops
what is dead, shares weights and counts work: OpenVINO's operations are said in the words of ONNX first). Simplified:
Parameter and Result are no ops but tensors that come in or go out; constants and what follows from them alone are
weights of their readers; a sub-graph is one op. An operation that ONNX does not have goes by its nearest relative (see
the table); what is not in the table keeps its name, and counts as one operation per output element; a loop of which the
number of rounds is not known counts one, which is called a guess.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

from msgspec.structs import replace

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.build import MAX_OPS
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.onnx.call import Call, TensorType
from weftline.importers.onnx.constants import Cone, drop_dead_nodes, weights_by_op
from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.scope import Node, Scope, block_of
from weftline.importers.onnx.sizes import dynamic_axes, is_guessed, largest
from weftline.importers.onnx.work import NodeWork, flops_of, traffic_of
from weftline.importers.openvino.layers import (
    CONSTANT,
    PARAMETER,
    RESULT,
    Layer,
    Net,
    one_name_each,
    port_type,
)

__all__ = ["LayerCall", "api_kind", "graph_of_net", "layer_flops", "layer_traffic", "onnx_kind"]

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


_SINKS = ("Assign",)
"""They write a state that outlives the call, so they are needed although nobody reads what they make."""
_NEVER_CONSTANT = ("ReadValue", "Assign", "RandomUniform", "Multinomial", "RandomPoisson", "Bernoulli")
_UNPACKING = ("Convert", "Subtract", "Multiply")
_FEW_BITS = frozenset(("i8", "u8", "i4", "u4", "nf4", "i2", "u2", "u1", "u3", "u6", "f8e4m3", "f8e5m2", "f4e2m1"))


@dataclass(frozen=True)
class _Named:
    """A net in terms of tensor names."""

    scope: Scope
    types: Environment
    fixed: set[str]
    """Constants and everything that follows from them alone."""
    usual: int
    """Stand-in for a size of which nothing is known: the largest of the model's inputs."""


def graph_of_net(net: Net, name: str = "") -> Graph:
    """The graph for planning."""
    if len(net.layers) > MAX_OPS:
        raise InputError(f"the model has {len(net.layers)} layers; the limit is {MAX_OPS}")
    named = _named(net)
    fixed = {node.position for node in named.scope.nodes if named.fixed.issuperset(node.outputs)}
    one_name_each([layer for index, layer in enumerate(net.layers) if index not in fixed])
    if not named.scope.outputs:
        raise InputError("the model has no result, so nothing of it is needed")
    drop_dead_nodes(named.scope)
    folded = tuple(node for node in named.scope.nodes if named.fixed.issuperset(node.outputs))
    live = tuple(node for node in named.scope.nodes if not named.fixed.issuperset(node.outputs))
    if not live:
        raise InputError("every result of the model is constant: there is nothing to plan")
    return _graph(name or net.name or "model", net, named, Cone(frozenset(named.fixed), folded, live))


def _graph(name: str, net: Net, named: _Named, cone: Cone) -> Graph:
    weights, tied = weights_by_op(named.scope, cone, named.types)
    types = named.types.types
    ops: list[Op] = []
    producer = dict.fromkeys(named.scope.inputs, MODEL_INPUT)
    consumers: dict[str, list[int]] = {}
    for index, node in enumerate(cone.live):
        layer = net.layers[node.position]
        if layer.bodies:
            work = _body_work(layer, named.usual)
            weights[index] += sum(_weight_bytes(layer, body) for body in layer.bodies)
        else:
            ends = [types[output] for output in node.outputs]
            work = _work(layer, [types[read] for read in node.inputs], ends, sum(types[r].bytes for r in node.reads))
        ops.append(
            Op(
                name=node.name,
                kind=node.kind,
                flops=int(work.flops),
                weight_bytes=int(weights[index]),
                traffic_bytes=int(work.traffic),
                block=block_of(node.name),
                guessed=is_guessed(work.flops) or is_guessed(work.traffic),
            )
        )
        producer.update((output, index) for output in node.outputs)
        for read in node.reads:
            consumers.setdefault(read, []).append(index)
    outputs = set(named.scope.outputs)
    tensors = []
    for tensor, made_by in producer.items():
        kind = types[tensor]
        reading = tuple(consumers.get(tensor, ()))
        shape = tuple(map(int, kind.shape))
        made = Tensor(tensor, made_by, reading, int(kind.bytes), shape, kind.dtype, tensor in outputs)
        if axes := dynamic_axes(kind.shape):
            made = replace(made, dynamic=axes, guessed=any(map(is_guessed, kind.shape)))
        tensors.append(made)
    return assemble(name, ops, tensors, tied)


def _work(layer: Layer, inputs: list[TensorType], outputs: list[TensorType], read: int) -> NodeWork:
    return NodeWork(layer_flops(layer, inputs, outputs), layer_traffic(layer, inputs, outputs, read))


def _body_work(layer: Layer, usual: int) -> NodeWork:
    """If costs its more expensive branch, a loop its body times the rounds."""
    works = [_net_work(body, usual) for body in layer.bodies]
    return NodeWork(
        layer.rounds * largest(*(work.flops for work in works)),
        layer.rounds * largest(*(work.traffic for work in works)),
    )


def _net_work(net: Net, usual: int) -> NodeWork:
    flops = traffic = 0
    types: dict[tuple[int, int], TensorType] = {}
    for index, layer in enumerate(net.layers):
        inputs = [types[source] for source in layer.inputs]
        outputs = [port_type(layer, port, inputs, usual) for port in layer.outputs]
        types.update(((index, number), kind) for number, kind in enumerate(outputs))
        if layer.kind in (CONSTANT, PARAMETER, RESULT):
            continue
        if layer.bodies:
            work = _body_work(layer, usual)
        else:
            work = _work(layer, inputs, outputs, sum(kind.bytes for kind in inputs))
        flops, traffic = flops + work.flops, traffic + work.traffic
    return NodeWork(flops, traffic)


def _weight_bytes(layer: Layer, body: Net) -> int:
    return sum(port_type(layer, port, (), 1).bytes for port in body.weight_elements)


def _named(net: Net) -> _Named:
    """Give every tensor a name, and say everything in names: then the rules of the ONNX importer apply."""
    names = _tensor_names(net)
    given = [
        size for layer in net.layers if layer.kind == PARAMETER for port in layer.outputs for size in port.shape or ()
    ]
    usual = max([2, *map(int, given)])
    named = _Named(Scope(nodes=[], inputs={}, outputs=(), constants={}, declared={}), Environment(), set(), usual)
    scope, packed, wanted = named.scope, set[str](), list[str]()
    for index, layer in enumerate(net.layers):
        inputs = tuple(names[place] for place in layer.inputs)
        if layer.kind == RESULT:
            wanted += inputs
            continue
        made = {names[index, n]: port for n, port in enumerate(layer.outputs) if (index, n) in names}
        read = [named.types.types[name] for name in inputs]
        named.types.types.update((name, port_type(layer, port, read, usual)) for name, port in made.items())
        if layer.kind == PARAMETER:
            scope.inputs.update(made)
            continue
        if layer.kind == CONSTANT:
            scope.constants.update(made)
            packed.update(name for name, port in made.items() if port.element in _FEW_BITS)
            named.fixed.update(made)
            continue
        kind = onnx_kind(layer.kind)
        if inputs and layer.kind not in _NEVER_CONSTANT and named.fixed.issuperset(inputs):
            named.fixed.update(made)
            if inputs[0] in packed:  # a weight in few bits is held so: the device unpacks it as it computes
                packed.update(made)
                kind = "DequantizeLinear" if layer.kind in _UNPACKING else kind
        if layer.kind in _SINKS:
            wanted += made
        reads = tuple(dict.fromkeys(inputs))
        scope.nodes.append(Node(None, index, kind, "", layer.name, inputs, tuple(made), reads=reads))
    scope.outputs = tuple(dict.fromkeys(wanted))
    return named


def _tensor_names(net: Net) -> dict[tuple[int, int], str]:
    """(layer, output) -> the tensor's own name if it has one, else layer:output; outputs nobody reads have none."""
    read = {place for layer in net.layers for place in layer.inputs}
    names: dict[tuple[int, int], str] = {}
    taken: set[str] = set()
    copies: dict[str, int] = {}
    """Name -> the number that its next copy gets."""
    for index, layer in enumerate(net.layers):
        for number, port in enumerate(layer.outputs):
            if layer.kind == RESULT or (number and (index, number) not in read):
                continue
            plain = f"{layer.name}:{number}"
            chosen = next((name for name in (*port.names, plain) if name not in taken), "")
            while not chosen or chosen in taken:
                copy = copies.get(plain, 2)
                chosen, copies[plain] = f"{plain}#{copy}", copy + 1
            taken.add(chosen)
            names[index, number] = chosen
    return names
