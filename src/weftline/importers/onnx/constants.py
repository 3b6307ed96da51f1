"""The constant cone: nodes that depend on nothing but stored weights are folded away, and what they make is a weight.

In: a `Scope` and its types. Out: `Cone` (live nodes, constant names), and the weights by op: own bytes or `Tied`.
Simplified: a moved weight (Transpose, Reshape ...) is the weight it came from; a dequantised weight is held quantised;
scalars and shape vectors up to 64 bytes are copied to every op that reads them instead of being tied.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weftline.graph import Tied
from weftline.importers.onnx.call import TensorType, tensor_type
from weftline.importers.onnx.infer import Environment
from weftline.importers.onnx.scope import Node, Scope

__all__ = ["Cone", "body_weight_bytes", "drop_dead_nodes", "find_cone", "weights_by_op"]

COPIED_BYTES = 64

_RANDOM = {"RandomNormal", "RandomUniform", "RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli"}
_MOVES = {"Transpose", "Reshape", "Identity", "Unsqueeze", "Squeeze", "Flatten", "Dropout"}
_NOTHING = TensorType(1, (0,))


@dataclass(frozen=True)
class Cone:
    """What is constant in a scope."""

    names: frozenset[str]
    """Initializers and everything that follows from them alone."""
    folded: tuple[Node, ...]
    live: tuple[Node, ...]
    """The nodes that depend on an input (or on chance): the ops of the graph."""


def drop_dead_nodes(scope: Scope) -> None:
    """Remove the nodes that no output of the scope depends on."""
    wanted = set(scope.outputs)
    kept = []
    for node in reversed(scope.nodes):
        if not wanted.isdisjoint(node.outputs):
            kept.append(node)
            wanted.update(node.reads)
    scope.nodes = kept[::-1]


def find_cone(scope: Scope) -> Cone:
    """Split the nodes into those that can be computed once and for all, and the live ones."""
    names = set(scope.constants)
    folded, live = [], []
    for node in scope.nodes:
        # A foreign kind without any input is a source of its own (a clock, a state), not a constant.
        source = bool(node.domain) and not node.reads
        if not source and names.issuperset(node.reads) and not _random(node):
            folded.append(node)
            names.update(filter(None, node.outputs))
        else:
            live.append(node)
    return Cone(frozenset(names), tuple(folded), tuple(live))


def weights_by_op(scope: Scope, cone: Cone, types: Environment) -> tuple[list[int], list[Tied]]:
    """Bytes of the weights that each live node has for itself, and the weights that several share."""
    root, held = _origins(scope, cone, types)
    users: dict[str, set[int]] = {}
    size: dict[str, int] = {}
    own = [body_weight_bytes(node) for node in cone.live]
    for index, node in enumerate(cone.live):
        for name in node.reads:
            if name in cone.names:
                origin = root.get(name, name)
                users.setdefault(origin, set()).add(index)
                size[origin] = max(size.get(origin, 0), held.get(name, 0))
    tied = []
    for origin, ops in users.items():
        copied = size[origin] <= COPIED_BYTES and len((types.type_of(origin) or _NOTHING).shape) <= 1
        if len(ops) == 1 or copied:
            for index in ops:
                own[index] += size[origin]
        else:
            tied.append(Tied(origin, size[origin], tuple(sorted(ops))))
    return own, tied


def body_weight_bytes(node: Node) -> int:
    """Weights stored inside the bodies of a control-flow node; every one of them is held, whichever branch runs."""
    total = 0
    for body in node.bodies.values():
        for name, tensor in body.constants.items():
            dense = tensor if hasattr(tensor, "data_location") else tensor.values
            total += tensor_type(name, dense.data_type, tensor.dims).bytes
        for inner in body.nodes:
            total += body_weight_bytes(inner)
            for attribute in inner.proto.attribute:
                if inner.kind == "Constant" and attribute.HasField("t"):
                    total += tensor_type(str(inner), attribute.t.data_type, attribute.t.dims).bytes
    return total


def _random(node: Node) -> bool:
    inner: Sequence[Node] = [inner for body in node.bodies.values() for inner in body.nodes]
    return node.kind in _RANDOM or any(map(_random, inner))


def _origins(scope: Scope, cone: Cone, types: Environment) -> tuple[dict[str, str], dict[str, int]]:
    """For every constant name the weight it is a form of, and the bytes a device holds for it."""
    root = {name: name for name in scope.constants}
    held = {name: (types.type_of(name) or _NOTHING).bytes for name in scope.constants}
    for node in cone.folded:
        first = node.inputs[0] if node.inputs else ""
        for name in filter(None, node.outputs):
            size = (types.type_of(name) or _NOTHING).bytes
            root[name], held[name] = name, size
            if first not in root:
                continue
            if node.kind == "DequantizeLinear":
                root[name], held[name] = root[first], sum(held.get(given, 0) for given in node.inputs)
            elif node.kind in _MOVES and size == (types.type_of(first) or _NOTHING).bytes:
                root[name], held[name] = root[first], held[first]
    return root, held
