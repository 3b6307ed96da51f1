"""Net -> Graph: one op per live layer, weights counted by op, friendly names kept.

In: a `Net` with static shapes. Out: the graph, by the rules of the ONNX importer (the same code drops what is dead,
shares weights and counts work). Simplified: Parameter and Result are no ops but tensors that come in or go out;
constants and what follows from them alone are weights of their readers; a sub-graph is one op.
"""

from __future__ import annotations

from dataclasses import dataclass

from weftline.errors import InputError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph.ir import INPUT
from weftline.graph.rules import MAX_OPS
from weftline.importers.onnx.call import TensorType
from weftline.importers.onnx.constants import Cone, drop_dead_nodes, weights_by_op
from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.scope import Node, Scope, block_of
from weftline.importers.onnx.work import Work
from weftline.importers.openvino.kinds import layer_flops, layer_traffic, onnx_kind
from weftline.importers.openvino.layers import (
    CONSTANT,
    PARAMETER,
    RESULT,
    Layer,
    Net,
    estimated_type,
    one_name_each,
    port_type,
)

__all__ = ["graph_of_net"]

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


def graph_of_net(net: Net, name: str = "") -> Graph:
    """The graph for planning; a shape that is not static is an `InputError`."""
    if len(net.layers) > MAX_OPS:
        raise InputError(f"the model has {len(net.layers)} layers; the limit is {MAX_OPS}")
    one_name_each(net.layers)
    named = _named(net)
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
    producer = dict.fromkeys(named.scope.inputs, INPUT)
    consumers: dict[str, list[int]] = {}
    for index, node in enumerate(cone.live):
        layer = net.layers[node.position]
        if layer.bodies:
            work = _body_work(layer)
            weights[index] += sum(estimated_type(port).bytes for body in layer.bodies for port in body.weight_elements)
        else:
            ends = [types[output] for output in node.outputs]
            work = _work(layer, [types[read] for read in node.inputs], ends, sum(types[r].bytes for r in node.reads))
        ops.append(
            Op(node.name, node.kind, work.flops, weights[index], traffic_bytes=work.traffic, block=block_of(node.name))
        )
        producer.update((output, index) for output in node.outputs)
        for read in node.reads:
            consumers.setdefault(read, []).append(index)
    outputs = set(named.scope.outputs)
    tensors = []
    for tensor, made_by in producer.items():
        kind = types[tensor]
        reading = tuple(consumers.get(tensor, ()))
        tensors.append(Tensor(tensor, made_by, reading, kind.bytes, kind.shape, kind.dtype, tensor in outputs))
    return assemble(name, ops, tensors, tied)


def _work(layer: Layer, inputs: list[TensorType], outputs: list[TensorType], read: int) -> Work:
    return Work(layer_flops(layer, inputs, outputs), layer_traffic(layer, inputs, outputs, read))


def _body_work(layer: Layer) -> Work:
    """If costs its dearer branch, a loop its body times the rounds."""
    works = [_net_work(body) for body in layer.bodies]
    return Work(layer.rounds * max(work.flops for work in works), layer.rounds * max(work.traffic for work in works))


def _net_work(net: Net) -> Work:
    flops = traffic = 0
    for layer in net.layers:
        if layer.kind in (CONSTANT, PARAMETER, RESULT):
            continue
        if layer.bodies:
            work = _body_work(layer)
        else:
            inputs = [estimated_type(net.layers[source].outputs[port]) for source, port in layer.inputs]
            outputs = [estimated_type(port) for port in layer.outputs]
            work = _work(layer, inputs, outputs, sum(kind.bytes for kind in inputs))
        flops, traffic = flops + work.flops, traffic + work.traffic
    return Work(flops, traffic)


def _named(net: Net) -> _Named:
    """Give every tensor a name, and say everything in names: then the rules of the ONNX importer apply."""
    names = _tensor_names(net)
    named = _Named(Scope(nodes=[], inputs={}, outputs=(), constants={}, declared={}), Environment(), set())
    scope, packed, wanted = named.scope, set[str](), list[str]()
    for index, layer in enumerate(net.layers):
        inputs = tuple(names[place] for place in layer.inputs)
        if layer.kind == RESULT:
            wanted += inputs
            continue
        made = {names[index, n]: port for n, port in enumerate(layer.outputs) if (index, n) in names}
        named.types.types.update((name, port_type(layer, port)) for name, port in made.items())
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
