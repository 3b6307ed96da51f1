"""How far outputs are from those of the unsplit model, and how far they may be.

In: outputs of both (arrays, text, lists and maps of such), and the graph. Out: a relative difference, and the
`Precision` that says what rounding alone can do: where kernels are cut apart other kernels run, and they round
otherwise. Simplified: the coarsest arithmetic in the model counts for all its outputs; values that are tiny beside the
largest of their output are compared with a share of that, for what rounding does to them is as large as to the others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph import Graph
from weftline.run.result import OUTPUT_TOLERANCE

__all__ = ["PRECISIONS", "Precision", "as_numbers", "difference", "output_difference", "precision_of"]

SMALL_VALUE = 1e-2
"""Outputs below this share of the largest are compared with that share instead of with themselves."""


class Precision(NamedTuple):
    """Of the arithmetic of a model."""

    name: str
    tolerance: float
    """Differences up to this are rounding."""
    floor: float = SMALL_VALUE
    """Values count as at least this share of the largest of their output."""


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "float32": Precision("float32", OUTPUT_TOLERANCE),
        "float16": Precision("float16", 2e-2, 1.0),
        "8 bits": Precision("8 bits", 5e-2, 1.0),
        "bfloat16": Precision("bfloat16", 1e-1, 1.0),
        "float8": Precision("float8", 5e-1, 1.0),
    }
)
"""Finer ones first: about 80 times the rounding of one op for float32, 10 to 20 times for others."""
QUANTISED = frozenset({"QAttention", "QGemm", "QMoE"})


def precision_of(graph: Graph) -> Precision:
    """The coarsest arithmetic that the model has."""
    found = {"float32"}
    for tensor in graph.tensors:
        if tensor.dtype in ("float16", "bfloat16"):
            found.add(tensor.dtype)
        elif tensor.dtype.startswith("float8"):
            found.add("float8")
    if any(_is_quantised(op.kind) for op in graph.ops):
        found.add("8 bits")
    return PRECISIONS[max(found, key=list(PRECISIONS).index)]


def _is_quantised(kind: str) -> bool:
    """Does it round to eight bits while it runs? DequantizeLinear alone does not."""
    return kind in QUANTISED or any(word in kind for word in ("Quantize", "QLinear", "MatMulInteger", "ConvInteger"))


def difference(
    ours: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]], precision: Precision = PRECISIONS["float32"]
) -> float:
    """The largest |a - b| / |b|, where |b| counts as at least a share of the largest of its output."""
    return max((_array_difference(a, b, precision) for a, b in zip(ours, expected, strict=True)), default=0.0)


def output_difference(ours: Any, expected: Any, precision: Precision) -> float:
    """The same for one output of any kind: lists and maps have equal lengths and keys, None is None."""
    if isinstance(ours, np.ndarray) and isinstance(expected, np.ndarray):
        return _array_difference(ours, expected, precision)
    if isinstance(ours, list) and isinstance(expected, list) and len(ours) == len(expected):
        pairs = zip(ours, expected, strict=True)
        return max((output_difference(a, b, precision) for a, b in pairs), default=0.0)
    if isinstance(ours, dict) and isinstance(expected, dict) and ours.keys() == expected.keys():
        return max((output_difference(ours[key], expected[key], precision) for key in ours), default=0.0)
    return 0.0 if ours is None and expected is None else float("inf")


def _array_difference(a: NDArray[Any], b: NDArray[Any], precision: Precision) -> float:
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.dtype.kind == "c":
        return max(_array_difference(part(a), part(b), precision) for part in (np.real, np.imag))
    if a.dtype.kind in "iu" and a.dtype.itemsize == 1 and precision.name == "8 bits" and a.size:  # steps of a scale
        return float(np.abs(a.astype(np.int64) - b.astype(np.int64)).max()) / 255
    if a.dtype.kind != "f" or not a.size:  # ids, counts and text are right or wrong
        return 0.0 if np.array_equal(a, b) else float("inf")
    x, y = a.astype(np.float64), b.astype(np.float64)
    odd = ~np.isfinite(y)
    if not np.array_equal(x[odd], y[odd], equal_nan=True) or not np.isfinite(x[~odd]).all():
        return float("inf")
    x, y = x[~odd], y[~odd]
    floor = max(precision.floor * float(np.abs(y).max(initial=0.0)), float(np.finfo(np.float32).tiny))
    return float((np.abs(x - y) / np.maximum(np.abs(y), floor)).max(initial=0.0))


def as_numbers(values: Any, dtype: str) -> Any:
    """What was moved, as numbers that can be compared."""
    if not isinstance(values, np.ndarray):
        return values
    if dtype == "bfloat16" and values.dtype == np.uint16:
        return (values.astype(np.uint32) << 16).view(np.float32)
    if dtype.startswith("float8") and values.dtype == np.uint8:
        import ml_dtypes

        return values.view(getattr(ml_dtypes, dtype)).astype(np.float32)
    return values
