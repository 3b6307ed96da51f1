"""Cut an ONNX model into segments: one ONNX file each, one file of weights, and a manifest.

In: the model file, its graph, `Parts`, the ids of the devices, a folder that exists. Out: the files, and the
`Manifest`. The model is read once, as for planning (`SplitModel`); a segment has its nodes, the constants they need,
what comes in and goes out. The constant closure is cloned into every segment that reads it, and never sent; nor are
sequences, optionals and maps (`value_kinds`). The model's outputs are what they were. Simplified: shapes are those of
the graph, and open where they depend on data; only plain tensors of fixed-size elements go from one segment to another;
dead nodes are left out; an unknown kind of node is taken to make tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onnx import GraphProto, ModelProto, ValueInfoProto

from weftline.errors import InputError
from weftline.files import write_atomically
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.onnx.constants import Cone, drop_dead_nodes, find_cone
from weftline.importers.onnx.infer import Environment, Inference
from weftline.importers.onnx.model import input_types, opsets_of
from weftline.importers.onnx.scope import Node, Scope, read_scope, require_producers, unique_names
from weftline.run.split.manifest import Manifest, ModelSegment, ModelWire, write_manifest
from weftline.run.split.weights import INLINE_BYTES, WeightStore

if TYPE_CHECKING:
    from weftline.run.split.segments import Parts

__all__ = [
    "TENSOR",
    "SplitModel",
    "has_external_weights",
    "read_split_model",
    "segment_model",
    "split_model",
    "value_kinds",
]

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


def split_model(
    model: Path | str, graph: Graph, parts: Parts, devices: Sequence[str], folder: Path | str, *, in_place: bool = False
) -> Manifest:
    """Write the segments into a folder. `devices` are the ids of all devices, in the order of the problem.

    Weights that lie in files beside the model are copied, or, `in_place`, stay there: then the manifest says where.
    """
    from weftline.importers.onnx.scope import load_model
    from weftline.importers.registry import file_sha256
    from weftline.run.split.weights import WeightStore

    model, folder = Path(model), Path(folder)
    if len(parts.part) != len(graph.ops):
        raise InputError(f"the segments are those of {len(parts.part)} ops, the graph has {len(graph.ops)}")
    try:
        split = read_split_model(load_model(model), graph)
        wires = _wires(split, graph, parts)
        source, stays = model.parent.resolve(), in_place and has_external_weights(split.model)
        with WeightStore(source, folder, stays) as store:
            segments = _segments(graph, parts, devices, wires)
            for segment in segments:
                ops = [graph.index[name] for name in segment.ops]
                made = segment_model(split, ops, segment.inputs, segment.outputs, store)
                write_atomically(folder / segment.file, _serialized(made))
    except InputError as error:
        raise error.at(str(model)) from error
    except RecursionError as error:
        raise InputError("the model is nested too deeply", where=str(model)) from error
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror or error}", where=str(model)) from error
    manifest = Manifest(
        format="weftline-stages",
        version=1,
        model=graph.name,
        model_sha256=file_sha256(model),
        inputs=tuple(split.scope.inputs),
        outputs=tuple(value.name for value in split.model.graph.output),
        segments=tuple(segments),
        tensors=tuple(wires),
        weights_folder=str(source) if stays else "",
    )
    write_manifest(manifest, folder)
    return manifest


def _segments(graph: Graph, parts: Parts, devices: Sequence[str], wires: Sequence[ModelWire]) -> list[ModelSegment]:
    count = len(parts.device)
    ops: list[list[str]] = [[] for _ in range(count)]
    inputs: list[list[str]] = [[] for _ in range(count)]
    outputs: list[list[str]] = [[] for _ in range(count)]
    for op, part in zip(graph.ops, parts.part.tolist(), strict=True):
        ops[part].append(op.name)
    for wire in wires:
        if wire.source != MODEL_INPUT:
            outputs[wire.source].append(wire.name)
        for target in wire.targets:
            inputs[target].append(wire.name)
    return [
        ModelSegment(
            number=number,
            device=devices[parts.device[number]],
            file=f"segment_{number:0{len(str(count - 1))}}.onnx",
            ops=tuple(ops[number]),
            inputs=tuple(inputs[number]),
            outputs=tuple(outputs[number]),
        )
        for number in range(count)
    ]


def _wires(split: SplitModel, graph: Graph, parts: Parts) -> list[ModelWire]:
    """Every tensor that enters, leaves or crosses; outputs that are constants come from the first segment."""
    part, wires = parts.part.tolist(), []
    for tensor in graph.tensors:
        source = MODEL_INPUT if tensor.producer < 0 else part[tensor.producer]
        targets = tuple(sorted({part[op] for op in tensor.consumers} - {source}))
        if targets and targets[0] <= source:
            raise InputError(f"tensor {tensor.name[:80]!r} would go back from segment {source} to {targets[0]}")
        kind = split.kinds.get(tensor.name, "")
        if targets and source != MODEL_INPUT:
            _require_sendable(tensor.name, kind, tensor.dtype, graph.ops[tensor.producer].name)
        if targets or source == MODEL_INPUT or tensor.output:
            dtype = "" if kind else tensor.dtype
            wires.append(ModelWire(tensor.name, dtype, tensor.shape, source, targets, tensor.output))
    known = {tensor.name for tensor in graph.tensors}
    for name in split.scope.outputs:
        if name not in known:
            made = split.types.types[name]
            wires.append(ModelWire(name, "" if name in split.kinds else made.dtype, made.shape, 0, (), True))
    return wires


def _require_sendable(name: str, kind: str, dtype: str, maker: str) -> None:
    if kind or dtype == "str":
        raise InputError(
            f"is {f'a value of kind {kind}' if kind else 'text'}, which cannot go from one device to another",
            where=f"tensor {name[:80]!r}, made by op {maker[:80]!r}",
            hint="keep the ops that make and read it on one device: [limits] together in the cluster file",
        )


def _serialized(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf has its own, for messages over 2 GiB
        raise InputError(f"a segment cannot be written: {str(error)[:200]}") from error
