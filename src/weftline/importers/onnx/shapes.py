"""Shapes of the model's inputs: what the file fixes, what the user adds, and an error for what stays open.

In: the outermost `Scope` and `ImportOptions.shapes`. Out: a static type per input, and the value of every symbol that
the inputs fix. Simplified: a symbol that the user fixed on one input is filled in on the others.
"""

from __future__ import annotations

from collections.abc import Mapping

from weftline.errors import InputError
from weftline.importers.onnx.scope import Scope
from weftline.importers.onnx.types import FLOAT, Dimensions, TensorType, declared_type, tensor_type

__all__ = ["input_types"]


def input_types(scope: Scope, shapes: Mapping[str, tuple[int, ...]]) -> tuple[dict[str, TensorType], dict[str, int]]:
    """Static types of the inputs and the symbols they fix; every open dimension is an `InputError`."""
    for name in shapes:
        if name not in scope.inputs:
            known = ", ".join(list(scope.inputs)[:8]) or "none"
            raise InputError(f"a shape is given for {name!r}, which is not an input", hint=f"inputs: {known}")
    declared = {name: declared_type(proto) for name, proto in scope.inputs.items()}
    symbols: dict[str, int] = {}
    for name, shape in shapes.items():
        for size, symbol in zip(shape, _checked(name, declared[name][1], shape), strict=True):
            if isinstance(symbol, str):
                symbols.setdefault(symbol, size)
    types = {}
    for name, (element, dimensions) in declared.items():
        if name in shapes:
            types[name] = tensor_type(name, element or FLOAT, shapes[name])
        elif scope.inputs[name].WhichOneof("value") in ("tensor_type", "sparse_tensor_type", None):
            types[name] = tensor_type(name, element or FLOAT, _closed(name, dimensions, symbols))
        else:  # a sequence, optional or map: its size is not fixed by the file, so one element stands for it
            sizes = [symbols.get(size, 1) if isinstance(size, str) else size for size in dimensions or []]
            types[name] = tensor_type(name, element or FLOAT, [1 if size is None else size for size in sizes])
    return types, symbols


def _checked(name: str, dimensions: Dimensions | None, shape: tuple[int, ...]) -> Dimensions:
    """The declared dimensions, once the given shape is seen not to contradict them."""
    where, given = f"input {name!r}", "x".join(map(str, shape))
    if any(size < 0 for size in shape):
        raise InputError(f"the given shape {given} has a negative dimension", where=where)
    if dimensions is None:
        return [None] * len(shape)
    if len(dimensions) != len(shape):
        hint = f"the file says {_written(dimensions)}"
        raise InputError(
            f"the given shape {given} has {len(shape)} dimensions, not {len(dimensions)}", where=where, hint=hint
        )
    if any(isinstance(fixed, int) and fixed != size for fixed, size in zip(dimensions, shape, strict=True)):
        raise InputError(
            f"the given shape {given} contradicts the file, which says {_written(dimensions)}", where=where
        )
    return dimensions


def _closed(name: str, dimensions: Dimensions | None, symbols: Mapping[str, int]) -> list[int]:
    if dimensions is None:
        raise InputError(
            "the file does not say its shape", where=f"input {name!r}", hint=f"try --shape {name}=1x3x224x224"
        )
    sizes = [symbols.get(size, size) if isinstance(size, str) else size for size in dimensions]
    still = [f"{axis} ({size or 'no name'})" for axis, size in enumerate(sizes) if not isinstance(size, int)]
    if still:
        example = "x".join(str(size) if isinstance(size, int) else "1" for size in sizes)
        raise InputError(
            f"shape {_written(dimensions)} is not fixed: dimension {', '.join(still)}",
            where=f"input {name!r}",
            hint=f"try --shape {name}={example}",
        )
    return [size for size in sizes if isinstance(size, int)]


def _written(dimensions: Dimensions) -> str:
    return "x".join("?" if size is None else str(size) for size in dimensions) or "scalar"
