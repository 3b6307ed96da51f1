"""Which sizes of a split model's tensors may be others when it runs: they depend on data, or on open inputs.

In: the scope and types of a model, read as for planning. Out: `OpenShape` by name, for tensors with such sizes alone.
What follows from open inputs is found by inferring the types again with other sizes there: an axis that changes is
open, and has the name of a symbol that changes alike. Simplified: where the model contradicts itself under these other
sizes, all that depends on an open input is open; behind data-dependent sizes all axes are.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import cycle
from typing import Any

from weftline.errors import InputError
from weftline.importers.onnx.call import TensorType, declared_type
from weftline.importers.onnx.infer import Environment, Inference
from weftline.importers.onnx.scope import Node, Scope

__all__ = ["OpenShape", "open_shapes"]

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
