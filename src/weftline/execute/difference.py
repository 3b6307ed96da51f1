"""How far outputs are from those of the unsplit model, and random inputs to compare with.

In: arrays. Out: one number, relative; whole numbers must be equal. Simplified: values that are tiny beside the largest
of their output are compared with a hundredth of that, for what rounding does to them is as large as to the others;
half precision is held to the same tolerance.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["difference", "random_values"]

SMALL = 1e-2
"""Outputs below this share of the largest are compared with that share instead of with themselves."""


def difference(ours: Sequence[NDArray[Any]], expected: Sequence[NDArray[Any]]) -> float:
    """The largest |a - b| / |b|, where |b| counts as at least a hundredth of the largest of its output."""
    worst = 0.0
    for a, b in zip(ours, expected, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return float("inf")
        if a.dtype.kind != "f" or not a.size:  # ids and counts are right or wrong
            worst = max(worst, 0.0 if np.array_equal(a, b) else float("inf"))
            continue
        x, y = a.astype(np.float64), b.astype(np.float64)
        odd = ~np.isfinite(y)
        if not np.array_equal(x[odd], y[odd], equal_nan=True) or not np.isfinite(x[~odd]).all():
            return float("inf")
        x, y = x[~odd], y[~odd]
        floor = max(SMALL * float(np.abs(y).max(initial=0.0)), float(np.finfo(np.float32).tiny))
        worst = max(worst, float((np.abs(x - y) / np.maximum(np.abs(y), floor)).max(initial=0.0)))
    return worst


def random_values(name: str, shape: tuple[int, ...], dtype: np.dtype[Any], dice: np.random.Generator) -> NDArray[Any]:
    """Normal, whole numbers 0 or 1 (so that they can be ids), masks 1; the caller converts them to its type."""
    if "mask" in name.lower() or dtype.kind == "b":
        return np.ones(shape, dtype)
    return dice.integers(0, 2, shape) if dtype.kind in "iu" else dice.standard_normal(shape)
