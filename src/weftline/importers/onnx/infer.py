"""Types and small values of every tensor in one forward pass over a scope and its bodies.

In: a `Scope` with the types of its inputs. Out: `Environment`. For each node our own rules come first, then ONNX's
inference for that one node, then the file's notes. A dimension that is not exact is a `Size`. Simplified: where nothing
limits a size, it is that of the same axis of an input, or the largest of the model's inputs, and called guessed; a kind
that nobody knows is taken to keep the type of its first input.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from onnx import numpy_helper

from weftline.errors import InputError
from weftline.importers.onnx.bodies import BodyCall, body_calls, node_results, widened
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
from weftline.importers.onnx.rules import OPEN_RULES, OUTPUT_RULES
from weftline.importers.onnx.scope import Node, Scope
from weftline.importers.onnx.sizes import Shape, Size, dynamic_axes, is_guessed
from weftline.importers.onnx.standard import Declared, StandardInference
from weftline.importers.onnx.values import (
    can_evaluate,
    constant_value,
    part_of,
    stored_value,
    unknown_entries,
    value_of,
)
from weftline.units import MAX_QUANTITY

__all__ = ["Environment", "Inference"]


@dataclass(slots=True, eq=False)
class Environment:
    """What is known about the names of one scope."""

    parent: Environment | None = None
    types: dict[str, TensorType] = field(default_factory=dict)
    values: dict[str, Array] = field(default_factory=dict)
    """Also those of which only some entries are exact (`values.part_of`)."""
    calls: dict[int, list[tuple[BodyCall, Environment]]] = field(default_factory=dict)
    """Node position -> its bodies as entered."""

    def type_of(self, name: str) -> TensorType | None:
        """Type of a name here or further outside."""
        home = self._home(name)
        return home.types[name] if home else None

    def part_of(self, name: str) -> Array | None:
        """Value of a small tensor, where at least some of it is known."""
        home = self._home(name)
        return home.values.get(name) if home else None

    def value_of(self, name: str) -> Array | None:
        """Value of a small tensor, where it is known."""
        found = self.part_of(name)
        return None if found is None or found.dtype == object else found

    def is_guessed(self, name: str) -> bool:
        """Does the type of this name rest on a guess?"""
        kind = self.type_of(name)
        return kind is not None and is_guessed(kind.bytes)

    def call(self, node: Node) -> Call:
        """The node with all its types."""
        return Call(
            node.kind,
            node.domain,
            node.proto,
            tuple(self.type_of(name) if name else None for name in node.inputs),
            tuple(self.types.get(name) if name else None for name in node.outputs),
            tuple(self.value_of(name) if name else None for name in node.inputs),
            tuple(self.part_of(name) if name else None for name in node.inputs),
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
    usual: int = 1
    """Stand-in for a size of which nothing is known."""
    stand_ins: dict[str, int] = field(default_factory=dict)
    """Symbol of the file that nobody has set -> what stands for it."""
    asked: list[StandardInference] = field(default_factory=list)

    @property
    def standard(self) -> StandardInference:
        """ONNX's own inference."""
        if not self.asked:
            self.asked.append(StandardInference(self.opsets))
        return self.asked[0]

    def run(self, scope: Scope, given: Mapping[str, TensorType], parent: Environment | None = None) -> Environment:
        """Type every name of a scope."""
        if parent is None and self.usual == 1:
            most = max((int(size) for kind in given.values() for size in kind.shape), default=1)
            return replace(self, usual=max(most, 2)).run(scope, given)
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
        call = self._with_stand_ins(here.call(node), node)
        _require_inner(scope, node, call)
        results = self._bodies(here, node, call) if node.bodies else _ruled(node, call)
        inferred = [] if len(results) >= len(node.outputs) else self.standard.outputs(node, call)
        for index, name in enumerate(node.outputs):
            if not name:
                continue
            noted = declared_type(scope.declared[name]) if name in scope.declared else (0, None)
            found = results[index] if index < len(results) else None
            if found is None:
                found = self._settled(inferred[index] if inferred else (0, None), noted, call, name)
            found = self._noted(found, noted[1])
            shape = [
                Size(size, guessed=size.guessed, symbol=size.symbol or f"{name}:{axis}")
                if isinstance(size, Size)
                else size
                for axis, size in enumerate(self._bounded(found))
            ]
            here.types[name] = tensor_type(name, found.element, shape)._replace(tensors=found.tensors)
        self._evaluate(here, node, call)

    def _with_stand_ins(self, call: Call, node: Node) -> Call:
        """Short lists of whole numbers that are not known at all get entries that say so, where a rule reads them."""
        if node.domain or not (node.kind in OPEN_RULES or any(part is not None for part in call.parts)):
            return call
        filled = zip(node.inputs, call.inputs, call.parts, strict=True)
        parts = [unknown_entries(n, kind, self.usual) if part is None else part for n, kind, part in filled]
        return replace(call, parts=tuple(parts))

    def _bounded(self, kind: TensorType) -> Shape:
        """A size that is no limit to speak of gives way to a guess: largest numbers multiply."""
        if kind.bytes <= MAX_QUANTITY or not dynamic_axes(kind.shape):
            return kind.shape
        return tuple(
            Size(min(int(size), self.usual), guessed=True) if isinstance(size, Size) else size for size in kind.shape
        )

    def _evaluate(self, here: Environment, node: Node, call: Call) -> None:
        if not node.outputs or not can_evaluate(node.kind, node.domain):
            return
        call = replace(call, outputs=(here.types.get(node.outputs[0]),))
        made = value_of(call)
        if made is None and (call.is_open or node.kind in ("Shape", "Size")):
            made = part_of(call)
        if made is not None:
            here.values[node.outputs[0]] = made

    def _entered(self, here: Environment, calls: list[BodyCall]) -> list[tuple[BodyCall, Environment]]:
        entered = []
        for body_call in calls:
            given = {}
            for index, (name, proto) in enumerate(body_call.body.inputs.items()):
                kind = body_call.given[index] if index < len(body_call.given) else None
                given[name] = kind or self._filled(*declared_type(proto))
            entered.append((body_call, self.run(body_call.body, given, here)))
        return entered

    def _bodies(self, here: Environment, node: Node, call: Call) -> list[TensorType]:
        entered = self._entered(here, body_calls(node, call))
        if node.kind == "Loop" and entered:
            ends = [inside.type_of(name) for _, inside in entered[:1] for name in entered[0][0].body.outputs]
            wide = widened(entered[0][0], [kind for kind in ends if kind is not None]) if None not in ends else None
            entered = entered if wide is None else self._entered(here, [wide])
        here.calls[node.position] = entered
        if node.kind == "If" and len(entered) == 1:
            body, inside = entered[0]
            pairs = zip(node.outputs, body.body.outputs, strict=False)
            here.values.update((out, value) for out, name in pairs if (value := inside.part_of(name)) is not None)
        made = []
        for body_call, inside in entered:
            kinds = [inside.type_of(name) for name in body_call.body.outputs]
            if None in kinds:
                raise InputError("a body ends with a value that nothing produces", where=str(node))
            made.append((body_call, [kind for kind in kinds if kind is not None]))
        return node_results(node, call, made)

    def _settled(self, inferred: Declared, noted: Declared, call: Call, name: str) -> TensorType:
        """Inferred, else noted in the file, else as the first input."""
        element, shape = inferred
        first = next((kind for kind in call.inputs if kind is not None), TensorType(FLOAT, ()))
        element = element or noted[0] or first.element
        if shape is None and noted[1] is None:
            return TensorType(element, tuple(Size(int(size), guessed=True) for size in first.shape), first.tensors)
        told = shape is None
        sizes = self._sizes(noted[1] or [] if shape is None else shape)
        return TensorType(
            element,
            tuple(
                self._stand_in(call, axis, len(sizes), f"{name}:{axis}")
                if size is None
                else Size(size)  # a note may be wrong: what the model makes decides
                if told and not isinstance(size, Size)
                else size
                for axis, size in enumerate(sizes)
            ),
        )

    def _stand_in(self, call: Call, axis: int, rank: int, symbol: str) -> Size:
        """As large as the same axis of an input, else as the largest input of the model."""
        like = [int(kind.shape[axis]) for kind in call.inputs if kind is not None and len(kind.shape) == rank]
        return Size(max([*like, 1]) if like else self.usual, guessed=True, symbol=symbol)

    def _noted(self, kind: TensorType, note: Dimensions | None) -> TensorType:
        """Notes of the file help where a size is not exact: numbers that it says, symbols that the user has set."""
        if note is None or len(note) != len(kind.shape) or not dynamic_axes(kind.shape):
            return kind
        sizes = list(kind.shape)
        for axis, (size, said) in enumerate(zip(kind.shape, note, strict=True)):
            if not isinstance(size, Size) or said is None:
                continue
            if isinstance(said, int):
                sizes[axis] = Size(said) if size.guessed else size
            elif said in self.symbols:
                sizes[axis] = Size(self.symbols[said], symbol=said)
            elif size.guessed:
                sizes[axis] = Size(self.stand_ins.setdefault(said, int(size)), guessed=True, symbol=said)
            else:
                sizes[axis] = Size(size, symbol=size.symbol or said)
        return kind._replace(shape=tuple(sizes))

    def _sizes(self, shape: Dimensions) -> list[int | None]:
        return [self.symbols.get(size) if isinstance(size, str) else size for size in shape]

    def _filled(self, element: int, shape: Dimensions | None) -> TensorType:
        """The type of a body's input that nobody gives."""
        sizes = [Size(self.usual, guessed=True) if size is None else size for size in self._sizes(shape or [])]
        return TensorType(element or FLOAT, tuple(sizes))


def _ruled(node: Node, call: Call) -> list[TensorType]:
    """What our own rules say."""
    rule = OUTPUT_RULES.get((node.domain, node.kind))
    if rule is None and not node.domain and call.is_open:
        rule = OPEN_RULES.get(node.kind)
    return rule(call) if rule else []


def _require_inner(scope: Scope, node: Node, call: Call) -> None:
    """A matrix product whose inner dimensions disagree is an error that names both sides."""
    if node.domain or node.kind not in ("MatMul", "Gemm", "MatMulInteger") or not (call.has(0) and call.has(1)):
        return
    left, right = call.input(0).shape, call.input(1).shape
    if not left or not right:
        return
    inner = left[0] if call.integer("transA", 0) and len(left) == 2 else left[-1]
    other = right[-1] if len(right) == 1 or (call.integer("transB", 0) and len(right) == 2) else right[-2]
    if inner == other or isinstance(inner, Size) or isinstance(other, Size):
        return
    sides = [
        f"{_maker(scope, name)} makes {'x'.join(map(str, shape))}"
        for name, shape in zip(node.inputs[:2], (left, right), strict=True)
    ]
    raise InputError(
        f"inner dimensions {inner} and {other} disagree: {' and '.join(sides)}",
        where=str(node),
        hint="look at the shapes that are given, or at the file's own",
    )


def _maker(scope: Scope, name: str) -> str:
    by = next((str(node) for node in scope.nodes if name in node.outputs), "")
    return by or f"{'weight' if name in scope.constants else 'input'} {name!r}"
