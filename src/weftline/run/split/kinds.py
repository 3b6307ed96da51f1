"""What a value is that is no tensor: a sequence, an optional, a map; found from the file and from the ops that make it.

In: a scope. Out: names -> kinds (`value_kinds`), and a declaration for one of them (`declare_kind`). Simplified: an
unknown kind of node is taken to make tensors; what is in a map is known only where the file says it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from onnx import TypeProto

from weftline.importers.onnx.scope import Node, Scope

__all__ = ["TENSOR", "declare_kind", "value_kinds"]

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
        "ZipMap": "sequence of maps",
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


def declare_kind(kind: str, element: int) -> Any:
    """The type of a value of this kind, with elements of this type; None if that does not say enough."""
    made = TypeProto()
    if kind.startswith(_OPTIONAL):
        inner = declare_kind(kind.removeprefix(_OPTIONAL), element)
        if inner is not None:
            made.optional_type.elem_type.CopyFrom(inner)
        return made if inner is not None else None
    if kind == "sequence":
        made.sequence_type.elem_type.tensor_type.elem_type = element
        return made
    if kind == TENSOR:
        made.tensor_type.elem_type = element
        return made
    return None
