"""Least squares of relative errors with coefficients that may not fall below physical limits.

In: terms of measured times, one row per measurement. Out: coefficients. Simplified: few columns: all sets of
columns at their limit are tried.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

__all__ = ["Terms", "bounded_fit", "quantile"]

Terms = NDArray[np.float64]
TINY_GAIN = 1e-12


def bounded_fit(terms: Terms, times: Terms, least: Sequence[float], weights: Terms, fixed: Sequence[int] = ()) -> Terms:
    """The coefficients, none below `least`, with the smallest weighted sum of squared relative errors; those of
    the columns `fixed` are as in `least`."""
    scale = np.sqrt(weights)[:, None]
    matrix = terms / times[:, None] * scale
    limits = np.asarray(least, dtype=np.float64)
    rest = scale[:, 0] - matrix @ limits
    free = matrix.copy()
    free[:, list(fixed)] = 0.0
    extra = _nonnegative(free, rest)
    return np.asarray(limits + extra, dtype=np.float64)


def _nonnegative(matrix: Terms, wanted: Terms) -> Terms:
    """The best x >= 0; a column that is zero everywhere keeps 0."""
    used = [column for column in range(matrix.shape[1]) if np.any(matrix[:, column])]
    best, least = np.zeros(matrix.shape[1]), float(wanted @ wanted)
    for size in range(len(used), 0, -1):
        for chosen in combinations(used, size):
            found, *_ = np.linalg.lstsq(matrix[:, chosen], wanted, rcond=None)
            error = float(np.sum((matrix[:, chosen] @ found - wanted) ** 2))
            if np.all(found >= 0) and error < least - TINY_GAIN:
                best, least = np.zeros(matrix.shape[1]), error
                best[list(chosen)] = found
    return best


def quantile(values: Sequence[float], weights: Sequence[float], share: float) -> float:
    """The smallest value with at least this share of the weight at or below it."""
    order = np.argsort(values)
    reached = np.cumsum(np.asarray(weights)[order])
    at = int(np.searchsorted(reached, share * reached[-1] * (1 - 1e-9)))
    return float(np.asarray(values)[order][min(at, len(order) - 1)])
