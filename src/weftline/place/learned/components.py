"""Connected components of an undirected graph, in a few numpy passes."""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Ints

__all__ = ["components"]


def components(count: int, a: Ints, b: Ints) -> Ints:
    """(count,): the smallest node of each node's component; (a, b) are the ends of the edges.

    Every pass hooks larger labels to smaller neighbours and follows labels to their ends, so that there are few passes.
    """
    label = np.arange(count, dtype=np.int64)
    while True:
        one, other = label[a], label[b]
        apart = one != other
        if not apart.any():
            return label
        low, high = np.minimum(one[apart], other[apart]), np.maximum(one[apart], other[apart])
        np.minimum.at(label, high, low)
        while True:
            further = label[label]
            if np.array_equal(further, label):
                break
            label = further
