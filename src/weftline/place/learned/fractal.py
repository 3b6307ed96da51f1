"""The fractal dimension of each node of a graph: how fast the number of nodes within r hops grows with r.

D(v) is the slope of the least-squares line of log N(v, r) over log r, where N(v, r) counts the nodes within r hops of v
(itself too), for r = 1 ... until nothing new is reached; 0 where there are fewer than two radii.
Simplified: at most MOST_RADII radii, and 0 everywhere in graphs of more than MOST_NODES nodes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Ints

__all__ = ["fractal_dimension"]

MOST_RADII = 64
MOST_NODES = 5_000
_ONES = np.array([value.bit_count() for value in range(256)], np.int64)


def fractal_dimension(count: int, a: Ints, b: Ints) -> NDArray[np.float64]:
    """(count,): D of every node; (a, b) are the ends of the undirected edges, each edge once."""
    if count > MOST_NODES or not len(a):
        return np.zeros(count)
    sizes = _neighbourhoods(count, a, b)
    grown = np.diff(sizes, axis=1, prepend=1) > 0
    radii = np.where(grown, np.log(np.arange(1, sizes.shape[1] + 1)), np.nan)
    values = np.where(grown, np.log(sizes), np.nan)
    number = grown.sum(axis=1)
    several = np.flatnonzero(number >= 2)
    slope = np.zeros(count)
    x, y = radii[several], values[several]
    x = x - np.nanmean(x, axis=1, keepdims=True)
    slope[several] = np.nansum(x * y, axis=1) / np.nansum(x * x, axis=1)
    return slope


def _neighbourhoods(count: int, a: Ints, b: Ints) -> Ints:
    """(count, R): nodes within 1, 2 ... R hops. A row of bits per node says what it has reached."""
    node, other = np.concatenate([a, b, np.arange(count)]), np.concatenate([b, a, np.arange(count)])
    order = np.argsort(node, kind="stable")
    other = other[order]
    begin = np.searchsorted(node[order], np.arange(count))
    reached = np.zeros((count, (count + 7) // 8), np.uint8)
    reached[np.arange(count), np.arange(count) // 8] = 128 >> (np.arange(count) % 8)
    sizes = [np.ones(count, np.int64)]
    while len(sizes) <= MOST_RADII:
        reached = np.bitwise_or.reduceat(reached[other], begin, axis=0)
        size = _ONES[reached].sum(axis=1)
        if np.array_equal(size, sizes[-1]):
            break
        sizes.append(size)
    return np.stack(sizes[1:] or sizes, axis=1)
