"""Which values of an ONNX graph are no plain tensors: sequences, optionals, maps. These cannot go between devices.

In: a `Scope`. Out: name -> kind ("sequence", "optional sequence", "map" ...), for those names alone. Simplified: only
the kinds of nodes that the standard and ai.onnx.ml have for it; an unknown kind is taken to make tensors.

One segment as a ModelProto of its own: its nodes, the constants they need, what comes in and goes out.

In: a `SplitModel` (the model read as for planning) and the positions of the segment's nodes. Out: a ModelProto. The
constant closure is cloned into every segment that reads it, and never sent. Simplified: shapes of inputs and outputs
are those of the plan, and open where they depend on data.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from onnx import GraphProto, ModelProto, ValueInfoProto

from weftline.errors import InputError
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.onnx.constants import Cone, drop_dead_nodes, find_cone
from weftline.importers.onnx.infer import Environment, Inference
from weftline.importers.onnx.model import input_types, opsets_of
from weftline.importers.onnx.scope import Node, Scope, read_scope, require_producers, unique_names
from weftline.run.split.weights import INLINE_BYTES, WeightStore

__all__ = ["TENSOR", "SplitModel", "has_external_weights", "read_split_model", "segment_model", "value_kinds"]

TENSOR = "tensor"
_OPTIONAL = "optional "
_SEQUENCES = {"SequenceConstruct", "SequenceEmpty", "SequenceInsert", "SequenceErase", "SplitToSequence", "SequenceMap"}


def value_kinds(scope: Scope, outside: Mapping[str, str] | None = None) -> dict[str, str]:
    """What every value is that is no tensor; `outside` are the kinds of names that a body may capture."""
    kinds = dict(outside or {})
    for name, proto in scope.inputs.items():
        if name not in kinds:
            kinds[name] = _kind_of(proto)
    for node in scope.nodes:
        for name, kind in zip(node.outputs, _made(node, kinds), strict=False):
            kinds[name] = kind
    return {name: kind for name, kind in kinds.items() if kind != TENSOR}


def _made(node: Node, kinds: Mapping[str, str]) -> list[str]:
    """Kinds of a node's outputs, first ones first; those left out are tensors."""
    first = kinds.get(node.inputs[0], TENSOR) if node.inputs else TENSOR
    if node.kind in ("If", "Loop"):
        return _made_by_bodies(node, kinds)
    if node.kind == "Optional" and not node.inputs:
        first = next((_kind_of(attribute.tp) for attribute in node.proto.attribute if attribute.HasField("tp")), first)
    if node.kind in _SEQUENCES:
        return ["sequence"] * len(node.outputs)
    passed = {
        "Optional": _OPTIONAL + first,
        "OptionalGetElement": first.removeprefix(_OPTIONAL),
        "Identity": first,
        "ZipMap": "sequence",
    }
    return [passed[node.kind]] if node.kind in passed else []


def _made_by_bodies(node: Node, kinds: Mapping[str, str]) -> list[str]:
    if node.kind == "If":
        return max((_ends(body, kinds) for body in node.bodies.values()), key=len, default=[])
    if "body" not in node.bodies:
        return []
    body = node.bodies["body"]
    carried = [kinds.get(name, TENSOR) for name in node.inputs[2:]]
    return _ends(body, {**kinds, **dict(zip(list(body.inputs)[2:], carried, strict=False))})[1:]


def _ends(body: Scope, outside: Mapping[str, str]) -> list[str]:
    inside = value_kinds(body, outside)
    return [inside.get(name, TENSOR) for name in body.outputs]


def _kind_of(proto: Any) -> str:
    which = proto.WhichOneof("value")
    if which == "optional_type":
        return _OPTIONAL + _kind_of(proto.optional_type.elem_type)
    return {"sequence_type": "sequence", "map_type": "map", "sparse_tensor_type": "sparse tensor"}.get(which, TENSOR)


_BY_DATA = {"NonZero", "NonMaxSuppression", "Unique", "Compress", "If", "Loop", "SequenceAt", "OptionalGetElement"}
"""Kinds whose outputs may be smaller than planned, or of another size for every input."""


@dataclass(frozen=True, eq=False)
class SplitModel:
    """A model, read as for planning."""

    model: Any
    scope: Scope
    cone: Cone
    types: Environment
    kinds: dict[str, str]
    """Names that are no tensors -> what they are."""
    nodes: list[Node]
    """The node of every op of the graph."""
    maker: dict[str, Node] = field(default_factory=dict)
    """Constant name -> the folded node that makes it."""
    loose: frozenset[str] = frozenset()
    """Names whose shape may differ from the planned one."""


def read_split_model(model: Any, graph: Graph) -> SplitModel:
    """Find the node of every op; `InputError` if the model is another than the graph's."""
    scope = read_scope(model.graph)
    require_producers(scope)
    in_file_order = sorted(scope.nodes, key=lambda node: node.position)
    names = unique_names((node.name, node.outputs, node.kind) for node in in_file_order)
    drop_dead_nodes(scope)
    shapes = {tensor.name: tensor.shape for tensor in graph.tensors if tensor.producer == MODEL_INPUT}
    plain = {name for name, proto in scope.inputs.items() if proto.WhichOneof("value") == "tensor_type"}
    given, symbols = input_types(scope, {name: shape for name, shape in shapes.items() if name in plain})
    types = Inference(opsets_of(model), symbols).run(scope, given)
    cone = find_cone(scope)
    by_name = {names[node.position]: node for node in cone.live}
    if by_name.keys() != graph.index.keys():
        odd = sorted(by_name.keys() ^ graph.index.keys())[0]
        raise InputError(f"is not the model of this graph: op {odd[:80]!r} is in one of them only")
    return SplitModel(
        model=model,
        scope=scope,
        cone=cone,
        types=types,
        kinds=value_kinds(scope),
        nodes=[by_name[op.name] for op in graph.ops],
        maker={name: node for node in cone.folded for name in node.outputs if name},
        loose=_loose(cone.live, types),
    )


def segment_model(
    split: SplitModel, ops: Sequence[int], inputs: Sequence[str], outputs: Sequence[str], store: WeightStore
) -> Any:
    """The model of one segment: `ops` in topological order, tensors that it receives, tensors that it gives."""
    nodes = [split.nodes[op] for op in ops]
    wanted = {name for node in nodes for name in node.reads} | set(outputs)
    folded, stored = _closure(split, wanted)
    model = ModelProto()
    for name in ("ir_version", "producer_name", "producer_version", "domain", "model_version", "doc_string"):
        if split.model.HasField(name):
            setattr(model, name, getattr(split.model, name))
    for name in ("opset_import", "metadata_props", "functions"):
        getattr(model, name).extend(getattr(split.model, name))
    graph = model.graph
    graph.name = split.model.graph.name or "model"
    graph.input.extend(_value(split, name) for name in inputs)
    graph.output.extend(_value(split, name) for name in outputs)
    _add_constants(split, graph, stored, store)
    for node in (*folded, *nodes):
        _add_node(graph, node, store)
    made = {name for node in (*folded, *nodes) for name in node.outputs} - set(outputs)
    graph.value_info.extend(value for value in split.model.graph.value_info if value.name in made)
    return model


def has_external_weights(model: Any) -> bool:
    """Does any tensor of a model lie in another file?"""
    sparse = [part for tensor in model.graph.sparse_initializer for part in (tensor.values, tensor.indices)]
    inner = (tensor for node in model.graph.node for tensor in _tensors(node))
    return any(tensor.data_location == tensor.EXTERNAL for tensor in (*model.graph.initializer, *sparse, *inner))


def _loose(live: Iterable[Node], types: Environment) -> frozenset[str]:
    loose: set[str] = set()
    for node in live:
        if node.kind in _BY_DATA or not loose.isdisjoint(node.reads):
            loose.update(node.outputs)
        loose.update(name for name in node.outputs if name and types.is_guessed(name))
    return frozenset(loose)


def _closure(split: SplitModel, wanted: Iterable[str]) -> tuple[list[Node], dict[str, Any]]:
    """Folded nodes in topological order, and stored tensors by name, that make the wanted constants.

    A large Constant node is a stored tensor too, so that its bytes can lie outside of the segment.
    """
    stored: dict[str, Any] = {}
    positions: dict[int, Node] = {}
    waiting = [name for name in wanted if name in split.cone.names]
    while waiting:
        name = waiting.pop()
        node = split.maker.get(name)
        if node is None:
            stored[name] = split.scope.constants[name]
        elif (tensor := _constant(node)) is not None:
            stored[name] = tensor
        elif node.position not in positions:
            positions[node.position] = node
            waiting.extend(node.reads)
    return [node for node in split.cone.folded if node.position in positions], stored


def _constant(node: Node) -> Any:
    """The tensor of a Constant node, if it is large."""
    if node.kind == "Constant" and not node.domain and len(node.outputs) == 1:
        for attribute in node.proto.attribute:
            if attribute.name == "value" and attribute.HasField("t"):
                tensor = attribute.t
                if tensor.data_location == tensor.EXTERNAL or tensor.ByteSize() > INLINE_BYTES:
                    return tensor
    return None


def _add_constants(split: SplitModel, graph: GraphProto, stored: dict[str, Any], store: WeightStore) -> None:
    for name in sorted(stored):
        tensor = stored[name]
        if hasattr(tensor, "data_location"):
            graph.initializer.append(store.moved(name, tensor))
        else:
            graph.sparse_initializer.append(tensor)
            for dense in (graph.sparse_initializer[-1].values, graph.sparse_initializer[-1].indices):
                store.relocate(dense)
    if split.model.ir_version < 4:  # initializers had to be inputs, too
        known = {value.name: value for value in split.model.graph.input}
        graph.input.extend(known.get(name) or _value(split, name) for name in sorted(stored))


def _add_node(graph: GraphProto, node: Node, store: WeightStore) -> None:
    proto = graph.node.add()
    proto.CopyFrom(node.proto)
    for tensor in _tensors(proto):
        store.relocate(tensor)


def _tensors(proto: Any) -> Iterator[Any]:
    """Every dense tensor in the attributes of a node, in its bodies too."""
    for attribute in proto.attribute:
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        sparse = [attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else []
        sparse += attribute.sparse_tensors
        for body in [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs:
            yield from body.initializer
            sparse += body.sparse_initializer
            for inner in body.node:
                yield from _tensors(inner)
        for stored in sparse:
            yield from (stored.values, stored.indices)


def _value(split: SplitModel, name: str) -> Any:
    """Declaration of an input or output."""
    value = ValueInfoProto(name=name)
    if split.kinds.get(name, TENSOR) != TENSOR:  # an input or output of the model, as the file has it
        value.type.CopyFrom(split.scope.inputs.get(name) or split.scope.declared[name])
        return value
    kind = split.types.types[name]
    value.type.tensor_type.elem_type = kind.element
    value.type.tensor_type.shape.SetInParent()
    for size in kind.shape:
        dimension = value.type.tensor_type.shape.dim.add()
        if name not in split.loose:
            dimension.dim_value = size
    return value
