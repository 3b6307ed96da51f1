"""Cut an ONNX model into segments: one ONNX file each, one file of weights, and a manifest.

In: the model file, its graph, `Parts`, the ids of the devices, a folder that exists. Out: the files, and the
`Manifest`. The model is read once, as for planning (`SplitModel`); a segment has its nodes, the constants they need,
what comes in and goes out. The constant closure is cloned into every segment that reads it, and never sent. Inputs of
the model are declared as the file has them; other sizes are those of the graph where they are fixed, symbols where they
follow from the inputs, and open where they depend on data or are a guess. Simplified: sequences, optionals and maps go
from one segment to another only where the file or the op says what is in them (`value_kinds`); dead nodes are left out;
an unknown kind of node is taken to make tensors.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from onnx import GraphProto, ModelProto, ValueInfoProto

from weftline.errors import InputError, unreadable
from weftline.files import unchanged, write_atomically
from weftline.graph import Graph
from weftline.graph.ir import MODEL_INPUT
from weftline.importers.onnx.call import declared_type
from weftline.importers.onnx.constants import Cone, drop_dead_nodes, find_cone
from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.model import input_types, opsets_of
from weftline.importers.onnx.scope import Node, Scope, read_scope, require_producers, unique_names
from weftline.run.split.manifest import Manifest, ModelSegment, ModelWire, segment_file, write_manifest
from weftline.run.split.values import OpenShape, declare_kind, input_ranges, open_shapes, value_kinds
from weftline.run.split.weights import INLINE_BYTES, WeightStore

if TYPE_CHECKING:
    from weftline.run.split.segments import Parts

__all__ = ["SplitModel", "has_external_weights", "read_split_model", "segment_model", "split_lanes", "split_model"]


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
    open: dict[str, OpenShape] = field(default_factory=dict)
    """Names whose shape may differ from the planned one -> how."""
    ranges: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Input -> whole numbers that it may hold."""
    shapes: bool = True
    """False: segments say no shape but those of the model's inputs."""

    def fixed(self, name: str) -> bool:
        """Is the shape the planned one, whatever the inputs are?"""
        return self.shapes and name not in self.open


def read_split_model(model: Any, graph: Graph, *, shapes: bool = True) -> SplitModel:
    """Find the node of every op; `InputError` if the model is another than the graph's."""
    scope = read_scope(model.graph)
    require_producers(scope)
    in_file_order = sorted(scope.nodes, key=lambda node: node.position)
    names = unique_names((node.name, node.outputs, node.kind) for node in in_file_order)
    drop_dead_nodes(scope)
    planned = {tensor.name: tensor.shape for tensor in graph.tensors if tensor.producer == MODEL_INPUT}
    plain = {name for name, proto in scope.inputs.items() if proto.WhichOneof("value") == "tensor_type"}
    given, symbols = input_types(scope, {name: shape for name, shape in planned.items() if name in plain})
    cone = find_cone(scope)
    types, unfixed = open_shapes(scope, cone.live, opsets_of(model), given, symbols)
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
        open=unfixed,
        ranges=input_ranges(scope, types),
        shapes=shapes,
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
    noted = (value for value in split.model.graph.value_info if value.name in made)
    graph.value_info.extend(value for value in noted if _is_right(split, value))
    return model


def _is_right(split: SplitModel, value: Any) -> bool:
    """Does a note of the file say what was computed? Others may be wrong, and ONNX Runtime finds out by itself."""
    if not split.fixed(value.name) or value.name in split.kinds or value.name not in split.types.types:
        return False
    return declared_type(value.type)[1] == list(split.types.types[value.name].shape)


def has_external_weights(model: Any) -> bool:
    """Does any tensor of a model lie in another file?"""
    sparse = [part for tensor in model.graph.sparse_initializer for part in (tensor.values, tensor.indices)]
    inner = (tensor for node in model.graph.node for tensor in _tensors(node))
    return any(tensor.data_location == tensor.EXTERNAL for tensor in (*model.graph.initializer, *sparse, *inner))


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
    said = split.scope.inputs.get(name) or (split.scope.declared.get(name) if name in split.kinds else None)
    if said is not None:  # as the file has it
        value.type.CopyFrom(said)
        return value
    if name in split.kinds:
        value.type.CopyFrom(declare_kind(split.kinds[name], split.types.types[name].element))
        return value
    kind, unfixed = split.types.types[name], split.open.get(name, OpenShape())
    value.type.tensor_type.elem_type = kind.element
    if unfixed.guessed or not split.shapes:
        return value
    value.type.tensor_type.shape.SetInParent()
    words = dict(unfixed.names)
    for axis, size in enumerate(kind.shape):
        dimension = value.type.tensor_type.shape.dim.add()
        if axis in unfixed.dynamic:
            continue
        if axis not in unfixed.symbolic:
            dimension.dim_value = size
        elif axis in words:
            dimension.dim_param = words[axis]
    return value


def split_model(
    model: Path | str,
    graph: Graph,
    parts: Parts,
    devices: Sequence[str],
    folder: Path | str,
    *,
    in_place: bool = False,
    shapes: bool = True,
) -> Manifest:
    """Write the segments into a folder. `devices` are the ids of all devices, in the order of the problem.

    Weights that lie in files beside the model are copied, or, `in_place`, stay there: then the manifest says where.
    Without `shapes` segments declare those of the model's inputs alone.
    """
    return split_lanes(model, graph, [parts], devices, folder, in_place=in_place, shapes=shapes)


def split_lanes(
    model: Path | str,
    graph: Graph,
    lanes: Sequence[Parts],
    devices: Sequence[str],
    folder: Path | str,
    *,
    rates: tuple[int, ...] = (),
    in_place: bool = False,
    shapes: bool = True,
) -> Manifest:
    """The same for several ways through the model; segments that are the same in several lanes have one file."""
    from weftline.importers.onnx.scope import load_model
    from weftline.importers.registry import file_sha256

    model, folder = Path(model), Path(folder)
    for parts in lanes:
        if len(parts.part) != len(graph.ops):
            raise InputError(f"the segments are those of {len(parts.part)} ops, the graph has {len(graph.ops)}")
    try:
        with unchanged(model):
            split, digest = read_split_model(load_model(model), graph, shapes=shapes), file_sha256(model)
        wires = [_wires(split, graph, parts) for parts in lanes]
        source, stays = model.parent.resolve(), in_place and has_external_weights(split.model)
        segments = _with_files(_segments(graph, p, devices, w) for p, w in zip(lanes, wires, strict=True))
        with WeightStore(source, folder, stays) as store:
            for segment in {segment.file: segment for segment in segments}.values():
                ops = [graph.index[name] for name in segment.ops]
                made = segment_model(split, ops, segment.inputs, segment.outputs, store)
                write_atomically(folder / segment.file, _serialized(made))
    except InputError as error:
        if error.where == str(model):
            raise
        raise error.at(str(model)) from error
    except RecursionError as error:
        raise InputError("the model is nested too deeply", where=str(model)) from error
    except OSError as error:
        raise unreadable(model, error) from error
    manifest = Manifest(
        format="weftline-stages",
        version=1,
        model=graph.name,
        model_sha256=digest,
        inputs=tuple(split.scope.inputs),
        outputs=tuple(value.name for value in split.model.graph.output),
        segments=tuple(segments),
        tensors=tuple(_numbered_wires(wires, [len(parts.device) for parts in lanes])),
        weights_folder=str(source) if stays else "",
        rates=rates,
    )
    write_manifest(manifest, folder)
    return manifest


def _with_files(lanes: Iterable[list[ModelSegment]]) -> list[ModelSegment]:
    """The segments of all lanes, numbered through, with the names of their files."""
    found = [replace(segment, lane=lane) for lane, segments in enumerate(lanes) for segment in segments]
    first: dict[tuple[tuple[str, ...], ...], int] = {}
    numbers = [first.setdefault((s.ops, s.inputs, s.outputs), number) for number, s in enumerate(found)]
    return [
        replace(segment, number=number, file=segment_file(numbers[number], len(found)))
        for number, segment in enumerate(found)
    ]


def _numbered_wires(lanes: Sequence[Sequence[ModelWire]], counts: Sequence[int]) -> Iterator[ModelWire]:
    """The tensors of all lanes, with the numbers that their segments have among all."""
    begin = 0
    for lane, (wires, count) in enumerate(zip(lanes, counts, strict=True)):
        for wire in wires:
            source = wire.source if wire.source == MODEL_INPUT else begin + wire.source
            yield replace(wire, lane=lane, source=source, targets=tuple(begin + target for target in wire.targets))
        begin += count


def _segments(graph: Graph, parts: Parts, devices: Sequence[str], wires: Sequence[ModelWire]) -> list[ModelSegment]:
    """Those of one lane, without their files."""
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
        ModelSegment(n, devices[parts.device[n]], "", tuple(ops[n]), tuple(inputs[n]), tuple(outputs[n]))
        for n in range(count)
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
            _require_sendable(split, tensor.name, kind, graph.ops[tensor.producer].name)
        if targets or source == MODEL_INPUT or tensor.output:
            dtype = "" if kind else tensor.dtype
            wires.append(_wire(split, tensor.name, dtype, tensor.shape, (source, targets, tensor.output)))
    known = {tensor.name for tensor in graph.tensors}
    for name in split.scope.outputs:
        if name not in known:
            made = split.types.types[name]
            wires.append(_wire(split, name, "" if name in split.kinds else made.dtype, made.shape, (0, (), True)))
    return wires


def _wire(
    split: SplitModel, name: str, dtype: str, shape: tuple[int, ...], ends: tuple[int, tuple[int, ...], bool]
) -> ModelWire:
    unfixed = split.open.get(name, OpenShape())
    guessed = unfixed.guessed or not (split.shapes or name in split.scope.inputs)
    between = split.ranges.get(name, ())
    return ModelWire(name, dtype, shape, *ends, unfixed.dynamic, unfixed.symbolic, guessed, between)


def _require_sendable(split: SplitModel, name: str, kind: str, maker: str) -> None:
    if kind and name not in split.scope.declared and declare_kind(kind, split.types.types[name].element) is None:
        raise InputError(
            f"is a value of kind {kind}, which cannot go from one device to another",
            where=f"tensor {name[:80]!r}, made by op {maker[:80]!r}",
            hint="keep the ops that make and read it on one device: [limits] together in the cluster file",
        )


def _serialized(model: Any) -> bytes:
    try:
        return bytes(model.SerializeToString())
    except Exception as error:  # protobuf has its own, for messages over 2 GiB
        raise InputError(f"a segment cannot be written: {str(error)[:200]}") from error
