"""What a collected model is: who has it, how it is made, and what goes into it.

In: nothing. Out: `Source`, one model by name and kind with the packages it needs, and `Made`, its file with inputs for
one run. Simplified: packages are found by the names of their distributions, and never imported for a file in them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Feeds", "Made", "Source", "feeds_of", "missing", "package_file"]

Feeds = dict[str, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Made:
    """One model, ready to be read."""

    path: Path | None = None
    """ONNX or OpenVINO IR; None for a live module."""
    shapes: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """Said to the importer where the file leaves dimensions open."""
    feeds: Feeds = field(default_factory=dict)
    module: Any = None
    """The torch module it was made of."""
    inputs: Any = None
    """Example inputs of the module."""


@dataclass(frozen=True)
class Source:
    """One model of the collection."""

    name: str
    kind: str
    needs: tuple[str, ...]
    """Distributions, as pip calls them."""
    make: Callable[[Path], Made]
    """A folder that exists -> the model."""


def missing(source: Source) -> list[str]:
    """The distributions that are not installed."""
    found = []
    for name in source.needs:
        try:
            distribution(name)
        except PackageNotFoundError:
            found.append(name)
    return found


def package_file(package: str, path: str) -> Path:
    """A file of an installed distribution."""
    return Path(str(distribution(package).locate_file(path)))


def feeds_of(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Any],
    dims: Mapping[str, int],
    *,
    most: int = 2,
) -> tuple[dict[str, tuple[int, ...]], Feeds]:
    """Shapes of all inputs that have open dimensions, and values for all inputs.

    `values` sets an input to one number; other whole numbers are random below `most`, masks are 1.
    """
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    weights = {tensor.name for tensor in model.graph.initializer}
    generator = np.random.default_rng(0)
    opened: dict[str, tuple[int, ...]] = {}
    feeds: Feeds = {}
    for value in model.graph.input:
        if value.name in weights:
            continue
        declared = [dim.dim_value or dims.get(dim.dim_param, 0) for dim in value.type.tensor_type.shape.dim]
        closed = all(dim.dim_value > 0 for dim in value.type.tensor_type.shape.dim)
        shape = tuple(shapes.get(value.name, tuple(max(size, 1) for size in declared)))
        if not closed:
            opened[value.name] = shape
        dtype = np.dtype(onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type))
        feeds[value.name] = _values(value.name, shape, dtype, values, generator, most)
    return opened, feeds


def _values(
    name: str,
    shape: tuple[int, ...],
    dtype: np.dtype[Any],
    given: Mapping[str, Any],
    generator: np.random.Generator,
    most: int,
) -> NDArray[Any]:
    if name in given:
        return np.full(shape, given[name], dtype)
    if "mask" in name or dtype.kind == "b":
        return np.ones(shape, dtype)
    if dtype.kind in "iu":
        return generator.integers(0, most, shape).astype(dtype)
    return np.asarray(generator.standard_normal(shape)).astype(dtype)
