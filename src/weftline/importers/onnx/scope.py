"""Path -> ModelProto -> Scope: nodes in topological order, what defines every name, bodies of control flow likewise.

Local functions are inlined. Weights in other files are never opened, nor looked for. Whoever splits a model must load
it with `load_model` too: node positions then agree with the imported graph.

In: a file, or a GraphProto and how deep it is nested. Out: `Scope`. A name without a producer, with two, or a cycle is
an `InputError` that names the node and the tensor. Names a body takes from outside are its `captures`. Ops have one
unique name per node (so a plan can be mapped back to the file by position), and the layer or block that a path-like
name such as "/encoder/layer.3/attention/MatMul" stands in.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from onnx import ModelProto

from weftline.errors import InputError
from weftline.graph.arrays import ready_first
from weftline.graph.build import MAX_OPS

__all__ = [
    "MAX_NESTING",
    "Node",
    "Scope",
    "block_of",
    "load_model",
    "looks_like_onnx",
    "read_scope",
    "require_producers",
    "unique_names",
]

_VARINT, _BYTES = 0, 2

# Field number of ModelProto -> wire type.
_FIELDS = {1: _VARINT, 2: _BYTES, 3: _BYTES, 4: _BYTES, 5: _VARINT, 6: _BYTES, 7: _BYTES, 8: _BYTES, 14: _BYTES}
_FIELDS |= {20: _BYTES, 25: _BYTES, 26: _BYTES}
_IR_VERSION = 1
_TEXTS = (2, 3, 4, 6)
_MAX_IR_VERSION = 1000


def looks_like_onnx(head: bytes) -> bool:
    """Walk the fields of a ModelProto: all must be known, and a small ir_version must be among them."""
    place = 0
    seen: set[int] = set()
    while place < len(head):
        tag, place = _varint(head, place)
        value, place = _varint(head, place)
        if place > len(head):
            break  # the head ends inside this field's length
        number = tag >> 3
        if number not in _FIELDS or _FIELDS[number] != tag & 7:
            return False
        if number == _IR_VERSION and not 1 <= value <= _MAX_IR_VERSION:
            return False
        if number in _TEXTS and not _is_text(head[place : place + value], cut=place + value > len(head)):
            return False
        seen.add(number)
        place += value if _FIELDS[number] == _BYTES else 0
    return _IR_VERSION in seen and len(seen) > 1


def _varint(data: bytes, place: int) -> tuple[int, int]:
    """Value and the place after it, which lies beyond the end if the number is cut off."""
    value = 0
    for shift, byte in enumerate(data[place : place + 10]):
        value |= (byte & 127) << (7 * shift)
        if byte < 128:
            return value, place + shift + 1
    return value, max(place + 10, len(data) + 1)


def _is_text(data: bytes, cut: bool) -> bool:
    try:
        data.decode("utf-8")
    except UnicodeDecodeError as error:
        return cut and error.start >= len(data) - 3  # the last character may have lost its end
    return True


MAX_NESTING = 32


def load_model(path: Path) -> Any:
    """The model as the file says it, except that calls of the model's own functions are inlined."""
    try:
        model = ModelProto.FromString(path.read_bytes())
    except DecodeError as error:
        raise InputError(
            "not a readable ONNX model: damaged, cut off, nested too deeply, or larger than 2 GiB",
            hint="save it again; keep large weights as external data",
        ) from error
    if not model.HasField("graph") or not model.graph.node:
        raise InputError("the ONNX model has no graph, or a graph without nodes")
    return _inline(model) if model.functions else model


def _inline(model: Any) -> Any:
    """Replace every call by the function's body; the size after inlining is computed first, because it can explode."""
    from onnx.inliner import inline_local_functions

    bodies = {(function.domain, function.name): function for function in model.functions}
    sizes: dict[tuple[str, str], int] = {}

    def size_of(nodes: Any, calls: tuple[tuple[str, str], ...], nesting: int) -> int:
        if len(calls) > MAX_NESTING or nesting > MAX_NESTING:
            raise InputError(f"functions or bodies are nested more than {MAX_NESTING} deep")
        total = 0
        for node in nodes:
            key = (node.domain, node.op_type)
            if key in calls:
                raise InputError("a model function calls itself", where=f"function {node.op_type!r}")
            if key in bodies and key not in sizes:
                sizes[key] = size_of(bodies[key].node, (*calls, key), 0)
            total += sizes.get(key, 1)
            for attribute in node.attribute:
                graphs = [attribute.g, *attribute.graphs] if attribute.HasField("g") else attribute.graphs
                total += sum(size_of(graph.node, calls, nesting + 1) for graph in graphs)
            if total > MAX_OPS:
                raise InputError(f"the model has more than {MAX_OPS} nodes once its functions are inlined")
        return total

    size_of(model.graph.node, (), 0)
    try:
        return inline_local_functions(model)
    except Exception as error:  # the C++ side raises several unrelated types
        raise InputError(f"the functions of the model cannot be inlined: {str(error)[:200]}") from error


_NUMBERED = re.compile(r".*\d")
_SCOPES_KEY = "pkg.torch.onnx.name_scopes"
_QUOTED = re.compile(r"'([^']*)'")


def unique_names(nodes: Iterable[tuple[str, tuple[str, ...], str]]) -> list[str]:
    """Names for (node name, outputs, kind): the node's own, else that of its first output, else a number is added."""
    taken: set[str] = set()
    names: list[str] = []
    for position, (name, outputs, kind) in enumerate(nodes):
        made = next(filter(None, outputs), f"{kind}_{position}")
        chosen = name if name and name not in taken else made
        copy = 2
        while chosen in taken:
            chosen, copy = f"{name or made}#{copy}", copy + 1
        taken.add(chosen)
        names.append(chosen)
    return names


def block_of(name: str, properties: Any = ()) -> str:
    """The block of a node: its path up to the first part that ends with a number, else its parent path.

    `properties` are the node's metadata, where newer PyTorch exports keep the module path instead.
    """
    for entry in properties:
        if entry.key == _SCOPES_KEY and isinstance(entry.value, str):
            return _block_of_scopes(_QUOTED.findall(entry.value[:4000]))
    parents = [part for part in name.split("/")[:-1] if part]
    for length, part in enumerate(parents, start=1):
        if _NUMBERED.fullmatch(part):
            return "/".join(parents[:length])
    return "/".join(parents)


def _block_of_scopes(scopes: list[str]) -> str:
    """Scopes grow inwards: '', 'encoder', 'encoder.layer.3', ..., and the last one is the op itself."""
    modules = [scope for scope in scopes[:-1] if scope]
    numbered = [scope for scope in modules if _NUMBERED.fullmatch(scope)]
    return (numbered or modules[-1:] or [""])[0]


@dataclass(slots=True, eq=False)
class Node:
    """One NodeProto with its names read out."""

    proto: Any
    position: int
    """Index in the file's own node list."""
    kind: str
    domain: str
    """Empty for the standard operators."""
    name: str
    inputs: tuple[str, ...]
    """As in the file: "" where an optional input is left out."""
    outputs: tuple[str, ...]
    bodies: dict[str, Scope] = field(default_factory=dict)
    """Attribute name -> body, for control flow."""
    reads: tuple[str, ...] = ()
    """Every name it needs, each once: inputs, then what its bodies capture."""

    def __str__(self) -> str:
        made = next(filter(None, self.outputs), "")
        return f"node {self.name or made!r} ({self.kind})"


@dataclass(slots=True, eq=False)
class Scope:
    """One graph or body."""

    nodes: list[Node]
    inputs: dict[str, Any]
    """Name -> TypeProto, without those that are initializers."""
    outputs: tuple[str, ...]
    constants: dict[str, Any]
    """Name -> TensorProto or SparseTensorProto of an initializer."""
    declared: dict[str, Any]
    """Name -> TypeProto that the file notes for an intermediate value or an output."""
    captures: tuple[str, ...] = ()
    """Names that it takes from outside."""


def read_scope(graph: Any, depth: int = 0) -> Scope:
    """Read one graph and, recursively, the bodies in it."""
    if depth > MAX_NESTING:
        raise InputError(f"bodies are nested more than {MAX_NESTING} deep")
    if len(graph.node) > MAX_OPS:
        raise InputError(f"the model has {len(graph.node)} nodes; the limit is {MAX_OPS}")
    constants = _constants(graph)
    inputs: dict[str, Any] = {}
    for value in graph.input:
        name = _text(value.name, "an input")
        if not name or name in inputs:
            raise InputError(f"input name {name!r} is empty or used twice")
        inputs[name] = value.type
    scope = Scope(
        nodes=[_read_node(proto, position, depth) for position, proto in enumerate(graph.node)],
        inputs={name: proto for name, proto in inputs.items() if name not in constants},
        outputs=tuple(dict.fromkeys(_text(value.name, "an output") for value in graph.output)),
        constants=constants,
        declared={value.name: value.type for value in (*graph.value_info, *graph.output)},
    )
    producer = _producers(scope)
    scope.nodes = _sorted(scope.nodes, producer)
    given = {*scope.inputs, *constants, *producer}
    wanted = [name for node in scope.nodes for name in node.reads] + list(scope.outputs)
    scope.captures = tuple(name for name in dict.fromkeys(wanted) if name not in given)
    return scope


def require_producers(scope: Scope) -> None:
    """The outermost graph must define every name that it uses."""
    if not scope.captures:
        return
    missing = scope.captures[0]
    reader = next((node for node in scope.nodes if missing in node.reads), None)
    if reader is None:
        raise InputError("is an output of the graph, but nothing produces it", where=f"tensor {missing!r}")
    raise InputError(
        f"reads tensor {missing!r}, which is neither an input, nor an initializer, nor made by any node",
        where=str(reader),
        hint="the file is incomplete; export the model again",
    )


def _read_node(proto: Any, position: int, depth: int) -> Node:
    kind = _text(proto.op_type, f"the kind of node {position}")
    domain = _text(proto.domain, f"the domain of node {position}")
    node = Node(
        proto=proto,
        position=position,
        kind=kind,
        domain="" if domain == "ai.onnx" else domain,
        name=_text(proto.name, f"the name of node {position}"),
        inputs=tuple(proto.input),
        outputs=tuple(proto.output),
    )
    for name in (*node.inputs, *node.outputs):
        _text(name, f"a tensor of node {position}")
    for attribute in proto.attribute:
        if attribute.HasField("g"):
            node.bodies[str(attribute.name)] = read_scope(attribute.g, depth + 1)
        for index, graph in enumerate(attribute.graphs):
            node.bodies[f"{attribute.name}[{index}]"] = read_scope(graph, depth + 1)
    captured = [name for body in node.bodies.values() for name in body.captures]
    node.reads = tuple(dict.fromkeys(name for name in (*node.inputs, *captured) if name))
    return node


def _constants(graph: Any) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tensor in (*graph.initializer, *graph.sparse_initializer):
        sparse = tensor.DESCRIPTOR.name == "SparseTensorProto"
        name = _text(tensor.values.name if sparse else tensor.name, "an initializer")
        if not name or name in found:
            raise InputError(f"initializer name {name!r} is empty or used twice")
        found[name] = tensor
    return found


def _producers(scope: Scope) -> dict[str, int]:
    producer: dict[str, int] = {}
    for index, node in enumerate(scope.nodes):
        for name in node.outputs:
            if not name:
                continue
            if name in producer or name in scope.inputs or name in scope.constants:
                by = str(scope.nodes[producer[name]]) if name in producer else "an input or initializer"
                raise InputError(f"makes tensor {name!r}, which {by} also is or makes", where=str(node))
            producer[name] = index
    return producer


def _sorted(nodes: list[Node], producer: dict[str, int]) -> list[Node]:
    """Topological order that keeps the file's order wherever it is valid."""
    waits = [{producer[name] for name in node.reads if name in producer} for node in nodes]
    if all(not before or max(before) < index for index, before in enumerate(waits)):
        return nodes
    successors: list[list[int]] = [[] for _ in nodes]
    for index, before in enumerate(waits):
        for earlier in before:
            successors[earlier].append(index)
    waiting = [len(before) for before in waits]
    order = ready_first(successors, waiting)
    if len(order) < len(nodes):
        raise _cycle(nodes, waits, waiting)
    return [nodes[index] for index in order]


def _cycle(nodes: Sequence[Node], waits: Sequence[set[int]], waiting: Sequence[int]) -> InputError:
    """Every node that still waits has a predecessor that still waits: walk back until one comes again."""
    index = next(index for index, count in enumerate(waiting) if count)
    path: dict[int, None] = {}
    while index not in path:
        path[index] = None
        index = next(earlier for earlier in waits[index] if waiting[earlier])
    walked = list(path)
    cycle = [str(nodes[step]) for step in [*walked[walked.index(index) :], index]][::-1]
    shown = cycle if len(cycle) <= 7 else [*cycle[:3], "...", *cycle[-3:]]
    return InputError(f"the graph has a cycle: {' -> '.join(shown)}", hint="ONNX writes loops as Loop or Scan nodes")


def _text(value: str | bytes, what: str) -> str:
    if isinstance(value, bytes):
        raise InputError(f"{what} is not UTF-8 text: {value[:40]!r}")
    return value
