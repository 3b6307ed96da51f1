"""What ONNX's own shape inference says about one node.

In: a node and its `Call`. Out: element type and dimensions of each output, exact or a `Size`. ONNX's inference is C++,
and a few malformed nodes would end the process: `is_safe_to_infer` says whether it may be asked, by rules found by
mutating models of every standard kind. Where sizes are not exact it is asked once with the largest numbers, and once
with symbols, which tells what depends on them. Simplified: sizes grow with what they depend on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from onnx import NodeProto, TypeProto, defs, helper, numpy_helper
from onnx.shape_inference import infer_node_outputs

from weftline.importers.onnx.call import Array, Call, Dimensions, TensorType, declared_type
from weftline.importers.onnx.fused import STANDARD_NAMES
from weftline.importers.onnx.scope import Node
from weftline.importers.onnx.sizes import Shape, Size, dynamic_axes, is_guessed

__all__ = ["Declared", "StandardInference", "is_safe_to_infer"]

Declared = tuple[int, Dimensions | None]
"""Element type (0 = not said) and dimensions (None = not even the rank is said)."""

FORGOTTEN_DEFAULTS: dict[str, dict[str, int]] = {"STFT": {"onesided": 1}}
"""Defaults of the standard that its own inference does not apply."""


def is_safe_to_infer(call: Call, outputs: int) -> bool:
    """False for nodes whose attributes point outside their inputs; these are then treated as unknown kinds."""
    rank = max((len(kind.shape) for kind in call.inputs if kind is not None), default=0)
    if not -rank - 1 <= call.integer("axis", 0) <= rank + 1 or not 0 <= call.integer("batch_dims", 0) <= rank:
        return False
    return call.kind != "Split" or _pieces(call, outputs) == outputs


def _pieces(call: Call, outputs: int) -> int:
    """Into how many parts a Split says that it splits."""
    given = call.values[1] if len(call.values) > 1 else None
    if given is not None:
        return given.size
    return len(call.integers("split")) or call.integer("num_outputs", outputs)


@dataclass(frozen=True)
class StandardInference:
    """Questions about single nodes; `opsets` are the model's opset imports."""

    opsets: list[Any]
    schemas: dict[tuple[str, str], Any] = field(default_factory=dict)
    answers: dict[Any, list[Declared]] = field(default_factory=dict)

    def outputs(self, node: Node, call: Call) -> list[Declared]:
        """What ONNX infers for one node; layers repeat, so equal questions are asked once."""
        attributes = b"".join(attribute.SerializeToString() for attribute in node.proto.attribute)
        given = tuple(bool(name) for name in node.outputs)
        values = tuple(None if value is None else (value.dtype.str, value.tobytes()) for value in call.values)
        key = (node.kind, node.domain, attributes, given, call.inputs, values)
        if call.is_open:
            return self._ask_twice(node, call)
        if key not in self.answers:
            self.answers[key] = self._ask(node, call, call.values, {})
        return self.answers[key]

    def _ask_twice(self, node: Node, call: Call) -> list[Declared]:
        """With the largest numbers, and with symbols: what is a number there is exact."""
        known = [part if part is None or part.dtype != object else part.astype("int64") for part in call.parts]
        most = self._ask(node, call, tuple(known), {})
        names: dict[Any, str] = {}
        open_sizes: dict[str, Size] = {}
        for index, kind in enumerate(call.inputs):
            for axis in dynamic_axes(kind.shape) if kind is not None else ():
                size = kind.shape[axis] if kind is not None else 0
                assert isinstance(size, Size)
                names[index, axis] = f"unknown {size.symbol}" if size.symbol else f"unknown {index},{axis}"
                open_sizes[names[index, axis]] = size
        symbolic = self._ask(node, call, call.values, names)
        doubt = any(is_guessed(size) for kind in call.inputs if kind is not None for size in kind.shape) or any(
            is_guessed(entry) for part in call.parts if part is not None and part.dtype == object for entry in part.flat
        )
        merged: list[Declared] = []
        for index, (element, sizes) in enumerate(most):
            other = symbolic[index][1] if index < len(symbolic) else None
            if sizes is None:
                merged.append((element, other))
                continue
            exact: Dimensions = [None] * len(sizes) if other is None or len(other) != len(sizes) else other
            pairs = zip(sizes, exact, strict=True)
            merged.append((element, [_either_answer(a, b, open_sizes, doubt) for a, b in pairs]))
        return merged or symbolic

    def _ask(
        self, node: Node, call: Call, values: tuple[Array | None, ...], names: Mapping[Any, str]
    ) -> list[Declared]:
        """A kind of another domain that has a standard name is tried under it; `names` are symbols for axes."""
        schema = self._schema(node.kind, node.domain)
        if schema is None or not is_safe_to_infer(call, len(node.outputs)):
            return []
        try:
            pairs = enumerate(zip(node.inputs, call.inputs, strict=True))
            kinds = {name: _proto(kind, index, names) for index, (name, kind) in pairs if kind is not None}
            known = zip(node.inputs, values, strict=True)
            data = {name: numpy_helper.from_array(value) for name, value in known if value is not None}
            proto = node.proto if schema.name == node.kind and schema.domain == node.domain else _renamed(node, schema)
            if node.kind in FORGOTTEN_DEFAULTS:
                proto = _with_defaults(proto, FORGOTTEN_DEFAULTS[node.kind])
            found = infer_node_outputs(schema, proto, kinds, data, opset_imports=self.opsets)
        except Exception:  # inference errors, and what the C++ side makes of odd nodes: then nothing is known
            return []
        return [declared_type(found[name]) if name in found else (0, None) for name in node.outputs]

    def _schema(self, kind: str, domain: str) -> Any:
        key = (kind, domain)
        if key not in self.schemas:
            self.schemas[key] = None
            for name, home in dict.fromkeys(((kind, domain), (STANDARD_NAMES.get(kind, kind), ""))):
                version = next((opset.version for opset in self.opsets if opset.domain == home), 1)
                try:
                    self.schemas[key] = defs.get_schema(name, version, home)
                    break
                except Exception:  # SchemaError is not a public name; TypeError for absurd versions
                    continue
        return self.schemas[key]


def _either_answer(
    most: int | str | None, exact: int | str | None, sizes: Mapping[str, Size], doubt: bool
) -> int | None:
    if isinstance(exact, int):
        return exact
    if isinstance(exact, str) and exact in sizes:
        return sizes[exact]
    return Size(most, guessed=doubt) if isinstance(most, int) else None


def _with_defaults(proto: Any, defaults: Mapping[str, int]) -> Any:
    """The node with the attributes that it leaves out."""
    said = {attribute.name for attribute in proto.attribute}
    more = [helper.make_attribute(name, value) for name, value in defaults.items() if name not in said]
    return NodeProto(op_type=proto.op_type, input=proto.input, output=proto.output, attribute=[*proto.attribute, *more])


def _renamed(node: Node, schema: Any) -> Any:
    """The node as the standard kind that it extends, without the attributes that kind does not have."""
    kept = [attribute for attribute in node.proto.attribute if attribute.name in schema.attributes]
    return NodeProto(op_type=schema.name, input=node.inputs, output=node.outputs, attribute=kept)


def _proto(kind: TensorType, index: int, names: Mapping[Any, str]) -> Any:
    if not names:
        return _plain_proto(kind.element, kind.shape)
    proto = TypeProto()
    proto.tensor_type.elem_type = kind.element
    proto.tensor_type.shape.SetInParent()
    for axis, size in enumerate(kind.shape):
        dimension = proto.tensor_type.shape.dim.add()
        if (index, axis) in names:
            dimension.dim_param = names[index, axis]
        else:
            dimension.dim_value = size
    return proto


@lru_cache(maxsize=4096)
def _plain_proto(element: int, shape: Shape) -> Any:
    proto = TypeProto()
    proto.tensor_type.elem_type = element
    proto.tensor_type.shape.SetInParent()
    for size in shape:
        proto.tensor_type.shape.dim.add().dim_value = size
    return proto
