"""Types and small values of every tensor in one forward pass over a scope and its bodies.

In: a `Scope` with the types of its inputs. Out: `Environment`. For each node our own rules come first, then ONNX's
inference for that one node, then the file's notes. ONNX's inference is C++, and a few malformed nodes would end the
process: `is_safe_to_infer` says whether it may be asked, by rules found by mutating models of every standard kind.
Simplified: a dimension that stays unknown counts as 1, and a kind that nobody knows is taken to keep the type of its
first input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from onnx import NodeProto, TypeProto, defs, numpy_helper
from onnx.shape_inference import infer_node_outputs

from weftline.errors import InputError
from weftline.importers.onnx.call import (
    FLOAT,
    INT64,
    STRING,
    Array,
    Call,
    Dimensions,
    TensorType,
    declared_type,
    tensor_type,
)
from weftline.importers.onnx.rules import OUTPUT_RULES, STANDARD_NAMES, BodyCall, body_calls, node_results
from weftline.importers.onnx.scope import Node, Scope
from weftline.importers.onnx.values import can_evaluate, constant_value, stored_value, value_of

__all__ = ["Environment", "Inference", "is_safe_to_infer"]


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


_Declared = tuple[int, Dimensions | None]


@dataclass(slots=True, eq=False)
class Environment:
    """What is known about the names of one scope."""

    parent: Environment | None = None
    types: dict[str, TensorType] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    guessed: set[str] = field(default_factory=set)
    """Names whose type rests on a guess."""
    calls: dict[int, list[tuple[BodyCall, Environment]]] = field(default_factory=dict)
    """Node position -> its bodies as entered."""

    def type_of(self, name: str) -> TensorType | None:
        """Type of a name here or further outside."""
        home = self._home(name)
        return home.types[name] if home else None

    def value_of(self, name: str) -> Array | None:
        """Value of a small tensor, where it is known."""
        home = self._home(name)
        return home.values.get(name) if home else None

    def is_guessed(self, name: str) -> bool:
        """Does the type of this name rest on a guess?"""
        home = self._home(name)
        return home is not None and name in home.guessed

    def call(self, node: Node) -> Call:
        """The node with all its types."""
        return Call(
            node.kind,
            node.domain,
            node.proto,
            tuple(self.type_of(name) if name else None for name in node.inputs),
            tuple(self.types.get(name) if name else None for name in node.outputs),
            tuple(self.value_of(name) if name else None for name in node.inputs),
        )

    def _home(self, name: str) -> Environment | None:
        here: Environment | None = self
        while here is not None and name not in here.types:
            here = here.parent
        return here


@dataclass(frozen=True)
class Inference:
    """The forward pass; `opsets` are the model's opset imports, `symbols` the dimensions that the inputs fixed."""

    opsets: list[Any]
    symbols: Mapping[str, int]
    schemas: dict[tuple[str, str], Any] = field(default_factory=dict)
    answers: dict[Any, list[_Declared]] = field(default_factory=dict)

    def run(self, scope: Scope, given: Mapping[str, TensorType], parent: Environment | None = None) -> Environment:
        """Type every name of a scope."""
        here = Environment(parent)
        here.types.update(given)
        for name, tensor in scope.constants.items():
            self._store(here, name, tensor)
        for node in scope.nodes:
            if node.kind == "Constant" and not node.domain:
                self._constant(here, node)
            else:
                self._node(here, scope, node)
        return here

    def _store(self, here: Environment, name: str, tensor: Any) -> None:
        dense = tensor if hasattr(tensor, "data_location") else tensor.values
        here.types[name] = kind = tensor_type(name, dense.data_type, tensor.dims)
        value = stored_value(tensor, kind)
        if value is not None:
            here.values[name] = value

    def _constant(self, here: Environment, node: Node) -> None:
        attributes = Call(node.kind, node.domain, node.proto, ()).attributes
        here.types.update((name, TensorType(FLOAT, (0,))) for name in node.outputs)  # it should have one output only
        name = next(filter(None, node.outputs), "")
        stored = attributes.get("value", attributes.get("sparse_value"))
        value = constant_value(attributes)
        if hasattr(stored, "dims"):
            self._store(here, name, stored)
        elif value is not None:
            here.values[name] = value
            here.types[name] = TensorType(numpy_helper.from_array(value).data_type, value.shape)
        else:
            longest = max((len(item) for item in attributes.values() if isinstance(item, tuple)), default=1)
            element = FLOAT if "value_floats" in attributes else INT64 if "value_ints" in attributes else STRING
            here.types[name] = TensorType(element, (longest,))

    def _node(self, here: Environment, scope: Scope, node: Node) -> None:
        call = here.call(node)
        rule = OUTPUT_RULES.get((node.domain, node.kind))
        results = self._bodies(here, node, call) if node.bodies else rule(call) if rule else []
        inferred = [] if len(results) >= len(node.outputs) else self._standard(node, call)
        doubtful = any(map(here.is_guessed, node.reads)) or (node.kind == "Loop" and call.number(0) is None)
        for index, name in enumerate(node.outputs):
            if not name:
                continue
            noted = declared_type(scope.declared[name]) if name in scope.declared else (0, None)
            found = results[index] if index < len(results) else None
            guessed = doubtful
            if found is None:
                found, guess = self._settled(inferred[index] if inferred else (0, None), noted, call)
                guessed = guessed or guess
            if guessed and noted[1] is not None and None not in (sizes := self._sizes(noted[1])):
                found = TensorType(found.element, tuple(size for size in sizes if size is not None), found.tensors)
                guessed = False
            here.types[name] = tensor_type(name, found.element, found.shape)._replace(tensors=found.tensors)
            if guessed:
                here.guessed.add(name)
        self._evaluate(here, node, call)

    def _evaluate(self, here: Environment, node: Node, call: Call) -> None:
        if node.outputs and can_evaluate(node.kind, node.domain) and not any(map(here.is_guessed, node.reads)):
            made = value_of(replace(call, outputs=(here.types.get(node.outputs[0]),)))
            if made is not None:
                here.values[node.outputs[0]] = made

    def _bodies(self, here: Environment, node: Node, call: Call) -> list[TensorType]:
        entered = []
        for body_call in body_calls(node, call):
            given = {}
            for index, (name, proto) in enumerate(body_call.body.inputs.items()):
                kind = body_call.given[index] if index < len(body_call.given) else None
                given[name] = kind or self._filled(*declared_type(proto))
            entered.append((body_call, self.run(body_call.body, given, here)))
        here.calls[node.position] = entered
        ends = []
        for body_call, inside in entered:
            kinds = [inside.type_of(name) for name in body_call.body.outputs]
            if None in kinds:
                raise InputError("a body ends with a value that nothing produces", where=str(node))
            ends.append((body_call, [kind for kind in kinds if kind is not None]))
        return node_results(node, call, ends)

    def _standard(self, node: Node, call: Call) -> list[_Declared]:
        """What ONNX infers for one node; layers repeat, so equal questions are asked once."""
        attributes = b"".join(attribute.SerializeToString() for attribute in node.proto.attribute)
        given = tuple(bool(name) for name in node.outputs)
        values = tuple(None if value is None else (value.dtype.str, value.tobytes()) for value in call.values)
        key = (node.kind, node.domain, attributes, given, call.inputs, values)
        if key not in self.answers:
            self.answers[key] = self._ask(node, call)
        return self.answers[key]

    def _ask(self, node: Node, call: Call) -> list[_Declared]:
        """A kind of another domain that has a standard name is tried under it."""
        schema = self._schema(node.kind, node.domain)
        if schema is None or not is_safe_to_infer(call, len(node.outputs)):
            return []
        try:
            pairs = zip(node.inputs, call.inputs, strict=True)
            kinds = {name: _proto(kind) for name, kind in pairs if kind is not None}
            known = zip(node.inputs, call.values, strict=True)
            data = {name: numpy_helper.from_array(value) for name, value in known if value is not None}
            proto = node.proto if schema.name == node.kind and schema.domain == node.domain else _renamed(node, schema)
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

    def _settled(self, inferred: _Declared, noted: _Declared, call: Call) -> tuple[TensorType, bool]:
        """Inferred, else noted in the file, else as the first input; and whether any of it is a guess."""
        element, shape = inferred
        if element and shape is not None and None not in (sizes := self._sizes(shape)):
            return TensorType(element, tuple(size for size in sizes if size is not None)), False
        first = next((kind for kind in call.inputs if kind is not None), TensorType(FLOAT, ()))
        element = element or noted[0] or first.element
        if shape is None and noted[1] is None:
            return TensorType(element, first.shape, first.tensors), True
        if shape is None or noted[1] is None or len(noted[1]) != len(shape):
            shape = noted[1] if shape is None else shape
        else:
            pairs = zip(shape, noted[1], strict=True)
            shape = [size if isinstance(size, int) else note for size, note in pairs]
        filled = self._filled(element, shape)
        if call.kind == "Reshape" and not call.domain and filled.elements != first.elements:
            filled = _same_elements(filled, self._sizes(shape or []), first.elements)
        return filled, None in self._sizes(shape or [])

    def _sizes(self, shape: Dimensions) -> list[int | None]:
        return [self.symbols.get(size) if isinstance(size, str) else size for size in shape]

    def _filled(self, element: int, shape: Dimensions | None) -> TensorType:
        return TensorType(element or FLOAT, tuple(1 if size is None else size for size in self._sizes(shape or [])))


def _renamed(node: Node, schema: Any) -> Any:
    """The node as the standard kind that it extends, without the attributes that kind does not have."""
    kept = [attribute for attribute in node.proto.attribute if attribute.name in schema.attributes]
    return NodeProto(op_type=schema.name, input=node.inputs, output=node.outputs, attribute=kept)


def _same_elements(kind: TensorType, shape: list[int | None], elements: int) -> TensorType:
    """A Reshape to an unknown shape still holds as many elements: the last unknown dimension takes them."""
    unknown = [axis for axis, size in enumerate(shape) if size is None]
    if not unknown or kind.elements == 0:
        return kind
    sizes = list(kind.shape)
    sizes[unknown[-1]] = max(elements * sizes[unknown[-1]] // kind.elements, 1)
    return kind._replace(shape=tuple(sizes))


@lru_cache(maxsize=4096)
def _proto(kind: TensorType) -> Any:
    proto = TypeProto()
    proto.tensor_type.elem_type = kind.element
    proto.tensor_type.shape.SetInParent()
    for size in kind.shape:
        proto.tensor_type.shape.dim.add().dim_value = size
    return proto
