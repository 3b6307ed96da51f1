"""What is known of a split model's values before it runs: open sizes, what is no tensor, numbers that fit.

In: the scope and types of a model, read as for planning. Out: `OpenShape` by name, for tensors whose sizes depend on
data or on open inputs; kinds of names that are no tensors (`value_kinds`, `declare_kind`); whole numbers that an input
may hold (`input_ranges`). What follows from open inputs is found by inferring the types again with other sizes there:
an axis that changes is open, and has the name of a symbol that changes alike. Simplified: where the model contradicts
itself under these other sizes, all that depends on an open input is open; behind data-dependent sizes all axes are; an
unknown kind of node is taken to make tensors; ranges are followed through ops that only reshape or convert.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from onnx import TypeProto

from weftline.errors import InputError
from weftline.importers.onnx.call import TensorType, declared_type
from weftline.importers.onnx.infer import Environment, Inference
from weftline.importers.onnx.scope import Node, Scope

__all__ = ["TENSOR", "OpenShape", "declare_kind", "input_ranges", "open_shapes", "value_kinds"]

BY_DATA = {"NonZero", "NonMaxSuppression", "Unique", "Compress", "If", "Loop", "SequenceAt", "OptionalGetElement"}
"""Kinds whose outputs may be smaller than planned, or of another size for every input."""
RANK_IS_SURE = {"Loop", "Scan", "Slice", "Range", "Tile", "Pad", "TopK", "Resize", "Concat", "Split", "Gather"}
"""Kinds that make a known number of dimensions, even where a size is a guess."""
RANK_IS_FREE = {"Reshape", "Expand", "ConstantOfShape"}
"""Kinds whose number of dimensions is that of a value."""
SIZE_FACTORS = (2, 3, 5, 7, 11, 13)
"""Sizes of open inputs are multiplied by these, a symbol after another: so they stay divisible by what they were."""


@dataclass(frozen=True)
class OpenShape:
    """What is not fixed about a tensor."""

    dynamic: tuple[int, ...] = ()
    """Axes whose size depends on data."""
    symbolic: tuple[int, ...] = ()
    """Axes whose size follows from open inputs."""
    names: tuple[tuple[int, str], ...] = ()
    """Axis and its symbol, where it has one."""
    guessed: bool = False
    """Not even the number of dimensions is sure."""


def open_shapes(
    scope: Scope, live: Iterable[Node], opsets: list[Any], given: Mapping[str, TensorType], symbols: Mapping[str, int]
) -> tuple[Environment, dict[str, OpenShape]]:
    """The types of every name, and what is open about them."""
    types = Inference(opsets, symbols).run(scope, given)
    found = _symbolic(scope, opsets, given, symbols, types)
    for name, guessed in _by_data(live, types).items():
        axes = tuple(range(len(types.types[name].shape)))
        found[name] = replace(found.get(name, OpenShape()), dynamic=axes, guessed=guessed)
    return types, found


def _by_data(live: Iterable[Node], types: Environment) -> dict[str, bool]:
    """Names whose shape may differ from the planned one -> is it a mere guess?"""
    found: dict[str, bool] = {}
    for node in live:
        guesses = [types.is_guessed(name) for name in node.outputs]
        before = [found[name] for name in node.reads if name in found]
        if node.kind in BY_DATA or before or any(guesses):
            begins = any(guesses) and not any(map(types.is_guessed, node.reads)) and node.kind not in RANK_IS_SURE
            free = any(guesses) and node.kind in RANK_IS_FREE
            guess = any(before) or begins or free or _ranks_differ(node, types)
            found.update((name, guess) for name in node.outputs if name)
    return found


def _ranks_differ(node: Node, types: Environment) -> bool:
    """Do the branches of an If end with different numbers of dimensions, or with some that nobody knows?"""
    if node.kind != "If":
        return False
    entered = [(call.body.outputs, inside) for call, inside in types.calls.get(node.position, ())]
    if any(inside.is_guessed(name) for names, inside in entered for name in names):
        return True
    ends = [[len(kind.shape) if (kind := inside.type_of(name)) else -1 for name in names] for names, inside in entered]
    return any(end != ends[0] for end in ends)


def _symbolic(
    scope: Scope, opsets: list[Any], given: Mapping[str, TensorType], symbols: Mapping[str, int], types: Environment
) -> dict[str, OpenShape]:
    """What changes with the sizes of open inputs."""
    factors = cycle(SIZE_FACTORS)
    factor = {symbol: next(factors) for symbol in symbols}
    larger = {symbol: max(size, 1) * factor[symbol] for symbol, size in symbols.items()}
    found: dict[str, OpenShape] = {}
    others: dict[str, TensorType] = dict(given)
    for name, proto in scope.inputs.items():
        if proto.WhichOneof("value") != "tensor_type":
            continue
        _, dimensions = declared_type(proto)
        declared = dimensions if dimensions is not None else [None] * len(given[name].shape)
        axes = tuple(axis for axis, size in enumerate(declared) if not isinstance(size, int))
        if not axes:
            continue
        sizes = list(given[name].shape)
        for axis in axes:
            size = declared[axis]
            known = isinstance(size, str) and size in larger
            sizes[axis] = larger[str(size)] if known else max(sizes[axis], 1) * next(factors)
        others[name] = given[name]._replace(shape=tuple(sizes))
        words = tuple((axis, word) for axis in axes if isinstance(word := declared[axis], str))
        found[name] = OpenShape(symbolic=axes, names=words, guessed=dimensions is None)
    if not found:
        return {}
    try:
        other = Inference(opsets, larger).run(scope, others)
    except InputError:  # the model has no sense at these sizes
        return {**_behind(scope, found, types), **found}
    symbol_of = {(size, larger[symbol]): symbol for symbol, size in symbols.items()}
    for name, kind in types.types.items():
        if name not in found and (axes := _changed(name, kind, other)):
            pairs = ((axis, (kind.shape[axis], _size(other, name, axis))) for axis in axes)
            found[name] = OpenShape(
                symbolic=axes, names=tuple((axis, symbol_of[pair]) for axis, pair in pairs if pair in symbol_of)
            )
    return found


def _changed(name: str, kind: TensorType, other: Environment) -> tuple[int, ...]:
    there, axes = other.types.get(name), tuple(range(len(kind.shape)))
    if there is None or len(there.shape) != len(kind.shape) or other.is_guessed(name):
        return axes
    return tuple(axis for axis in axes if kind.shape[axis] != there.shape[axis])


def _size(other: Environment, name: str, axis: int) -> int:
    shape = other.types[name].shape if name in other.types else ()
    return shape[axis] if axis < len(shape) else -1


def _behind(scope: Scope, inputs: Mapping[str, OpenShape], types: Environment) -> dict[str, OpenShape]:
    """All that depends on these inputs, with all its axes."""
    reached = set(inputs)
    for node in scope.nodes:
        if not reached.isdisjoint(node.reads):
            reached.update(filter(None, node.outputs))
    return {
        name: OpenShape(symbolic=tuple(range(len(types.types[name].shape)))) for name in reached if name in types.types
    }


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


PASSES_ON = {"Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Identity", "Expand", "Slice", "Transpose"}
LOOKS_UP = {"Gather": (0, 1), "GatherElements": (0, 1), "GatherND": (0, 1), "Embedding": (0, 1)}
"""Kind -> which input is the table, which the rows."""


def input_ranges(scope: Scope, types: Environment) -> dict[str, tuple[int, int]]:
    """For inputs of whole numbers of which something is known."""
    home = {
        name: name for name, kind in types.types.items() if name in scope.inputs and kind.dtype[:3] in ("int", "uin")
    }
    below: dict[str, int] = {}
    equal: dict[str, int] = {}
    for node in scope.nodes:
        first = home.get(node.inputs[0]) if node.inputs else None
        if node.kind in PASSES_ON and first is not None and node.outputs:
            home[node.outputs[0]] = first
        elif node.kind in LOOKS_UP and len(node.inputs) > 1 and node.inputs[1] in home:
            rows = _rows(node, types)
            if rows > 0:
                name = home[node.inputs[1]]
                below[name] = min(rows, below.get(name, rows))
        elif node.kind == "Equal" and len(node.inputs) == 2:
            for mine, other in (node.inputs, node.inputs[::-1]):
                value: Any = types.value_of(other)
                if mine in home and value is not None and value.size == 1:
                    equal.setdefault(home[mine], int(value.reshape(-1)[0]))
    found = {name: (0, rows) for name, rows in below.items()}
    for name, number in equal.items():
        if 0 <= number < below.get(name, number + 1) and not types.types[name].shape[1:]:  # a switch, not a padding id
            found[name] = (number, number + 1)
    return found


def _rows(node: Node, types: Environment) -> int:
    """Rows of the table that is looked up."""
    table = types.type_of(node.inputs[LOOKS_UP[node.kind][0]])
    if table is None or not table.shape:
        return 0
    axis = next((attribute.i for attribute in node.proto.attribute if attribute.name == "axis"), 0)
    return table.shape[axis] if -len(table.shape) <= axis < len(table.shape) else 0
