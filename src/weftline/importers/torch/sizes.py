"""Sizes of an exported program: symbols of open dimensions, and of what depends on data -> numbers.

In: a `torch.export.ExportedProgram`, example inputs or sizes by name. Out: `OpenSizes`: shapes in which what is not
exact is a `Size`: the limit that PyTorch knows or the caller says, else a stand-in that is called guessed. An input
that is open without a limit is an `InputError`. Simplified: of an input whose size is an expression (`2*batch`) the
caller must give the symbol by another input or by name; a stand-in is as large as the largest of the inputs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

from weftline.errors import InputError
from weftline.importers.onnx.sizes import Size
from weftline.units import MAX_QUANTITY

__all__ = ["OpenSizes", "by_data", "dim_names"]


class OpenSizes:
    """The sizes of a program's symbols: given, at most so much, or a stand-in."""

    def __init__(self, program: Any, inputs: Any, dims: Mapping[str, int], names: Mapping[str, str]) -> None:
        """`names`: of a symbol, as its user calls it."""
        self._exact: dict[Any, int] = {}
        self._names = names
        self._ranges: dict[Any, Any] = dict(program.range_constraints)
        self._known: dict[Any, int] = {}
        shapes = _input_shapes(program)
        by_name = {self._word(symbol): symbol for shape in shapes.values() for symbol in _symbols(shape)}
        for word, size in dims.items():
            symbol = by_name.get(word) or next((s for s in by_name.values() if str(s) == word), None)
            if symbol is None:
                hint = f"its open dimensions: {', '.join(by_name)}" if by_name else "it has no open dimensions"
                raise InputError(
                    f"a size is given for dimension {word!r:.80}, which the program does not have", hint=hint
                )
            self._set(symbol, size)
        if inputs is not None:
            self._fit(shapes, _given_shapes(inputs, list(shapes)))
        for name, shape in shapes.items():
            for symbol in _symbols(shape):
                if symbol not in self._exact and self._limit(symbol) is None:
                    word = self._word(symbol)
                    hint = f"give example inputs of the size to plan for, or dims={{{word!r}: 8}}"
                    where = f"input {name!r:.80}"
                    raise InputError(
                        f"dimension {word!r} of shape {self._written(shape)} is open", where=where, hint=hint
                    )
        self._usual = 2
        self._usual = max([2, *(int(self.of(size)) for shape in shapes.values() for size in shape)])

    def _word(self, symbol: Any) -> str:
        return self._names.get(str(symbol), str(symbol))

    def _written(self, shape: Any) -> str:
        words = (size if isinstance(size, int) else self._word(size.node.expr) for size in shape)
        return _times(list(words))

    def shape(self, value: Any) -> tuple[int, ...]:
        """Of a tensor; a size that is not exact is a `Size`."""
        sizes = tuple(map(self.of, value.shape))
        if prod(sizes) * value.element_size() <= MAX_QUANTITY:
            return sizes
        return tuple(Size(min(int(s), self._usual), guessed=True) if isinstance(s, Size) else s for s in sizes)

    def of(self, size: Any) -> int:
        """A size as PyTorch has it -> a number."""
        if isinstance(size, int):
            return size
        said = size.node.expr
        if said not in self._known:
            self._known[said] = self._number(said)
        return self._known[said]

    def _number(self, said: Any) -> int:
        from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy

        if said.free_symbols <= self._exact.keys():
            return int(said.subs(self._exact))
        ranges = {symbol: ValueRanges(size, size) for symbol, size in self._exact.items()}
        most = bound_sympy(said, {**self._ranges, **ranges}).upper
        if most.is_Integer and 0 <= most <= MAX_QUANTITY:
            return Size(int(most))
        stand_ins = {symbol: self._limit(symbol) or self._usual for symbol in said.free_symbols}
        return Size(max(int(said.subs({**stand_ins, **self._exact})), 0), guessed=True)

    def _limit(self, symbol: Any) -> int | None:
        """The largest number that it can be, where there is one."""
        most = self._ranges[symbol].upper if symbol in self._ranges else None
        return int(most) if most is not None and most.is_Integer and most <= MAX_QUANTITY else None

    def limit(self, value: Any, most: int) -> None:
        """What data decide about the shape of a tensor is at most this; PyTorch's own limit may be larger, or none."""
        from torch.utils._sympy.value_ranges import ValueRanges

        for size in value.shape:
            symbol = None if isinstance(size, int) else size.node.expr
            if symbol in by_data(value):
                known = self._limit(symbol)
                self._ranges[symbol] = ValueRanges(0, most if known is None else min(known, most))

    def _set(self, symbol: Any, size: Any) -> None:
        where, allowed = f"dimension {self._word(symbol)!r:.80}", self._ranges.get(symbol)
        if not isinstance(size, int) or isinstance(size, bool) or size < 0:
            raise InputError(f"the given size {size!r:.40} is not a whole number", where=where)
        if allowed is not None and not allowed.lower <= size <= allowed.upper:
            what = f"the given size {size} is not in {allowed.lower}..{allowed.upper}, for which it was exported"
            raise InputError(what, where=where)
        if self._exact.setdefault(symbol, size) != size:
            raise InputError(f"it is given two sizes: {self._exact[symbol]} and {size}", where=where)

    def _fit(self, shapes: Mapping[str, Any], given: Mapping[str, tuple[int, ...]]) -> None:
        """Take the sizes of example inputs; `InputError` where they are none that the program takes."""
        pairs = [(name, zip(sizes, shapes[name], strict=False)) for name, sizes in given.items()]
        for _, sides in pairs:
            for size, said in sides:
                if not isinstance(said, int) and said.node.expr.is_Symbol:
                    self._set(said.node.expr, size)
        for name, sizes in given.items():
            said = [size if isinstance(size, int) else size.node.expr.subs(self._exact) for size in shapes[name]]
            known = [(a, b) for a, b in zip(sizes, said, strict=False) if not getattr(b, "free_symbols", None)]
            if len(sizes) != len(said) or any(a != b for a, b in known):
                wrong = f"shape {_times(sizes)} is given, the program says {self._written(shapes[name])}"
                raise InputError(wrong, where=f"input {name!r:.80}")


def _times(sizes: Sequence[object]) -> str:
    return "x".join(map(str, sizes)) or "scalar"


def dim_names(program: Any) -> dict[str, str]:
    """Symbol -> the name of its `Dim`, where PyTorch has kept it."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    nodes = (node.meta.get("val") for node in program.graph.nodes if node.op == "placeholder")
    env = next((value.fake_mode.shape_env for value in nodes if hasattr(value, "fake_mode")), None)
    if not isinstance(env, ShapeEnv):
        return {}
    symbols, names = getattr(env, "source_to_var", {}), getattr(env, "source_name_to_debug_name", {})
    return {str(symbols[source]): str(word) for source, word in names.items() if source in symbols}


def _input_shapes(program: Any) -> dict[str, Any]:
    """Input -> its shape, as PyTorch has it."""
    names = set(program.graph_signature.user_inputs)
    nodes = (node for node in program.graph.nodes if node.op == "placeholder" and node.name in names)
    return {node.name: node.meta["val"].shape for node in nodes if hasattr(node.meta.get("val"), "shape")}


def _given_shapes(inputs: Any, names: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """Input -> the shape of what is given for it."""
    if isinstance(inputs, Mapping):
        found = dict(inputs)
    else:
        found = dict(zip(names, inputs if isinstance(inputs, Sequence) else (inputs,), strict=False))
    for name, value in found.items():
        if name not in names or not hasattr(value, "shape"):
            hint = f"its inputs are {', '.join(names[:8])}"
            raise InputError(
                "example inputs are tensors, for inputs of the program", where=f"input {name!r:.80}", hint=hint
            )
    return {str(name): tuple(map(int, value.shape)) for name, value in found.items()}


def _symbols(shape: Any) -> list[Any]:
    """Of a shape, each once."""
    open_sizes = (size.node.expr for size in shape if not isinstance(size, int))
    return list(dict.fromkeys(symbol for said in open_sizes for symbol in sorted(said.free_symbols, key=str)))


def by_data(value: Any) -> set[Any]:
    """Symbols in a number, or in the shape of a tensor, that depend on data."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    parts = value if isinstance(value, tuple | list) else (value,)
    return set().union(
        *(free_unbacked_symbols(part) for part in parts if hasattr(part, "node") or hasattr(part, "shape"))
    )
