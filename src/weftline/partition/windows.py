"""How much work must come before each piece, and how much behind it: what a pipeline has to have room for."""

from __future__ import annotations

import numpy as np

from weftline.coarsen import Pieces
from weftline.graph.arrays import Indices, Ints
from weftline.simulate.jit import kernel

__all__ = ["work_before"]

MOST_PIECES = 20_000
"""Above it only the longest chains are counted: the sets of all ancestors would take too much memory."""


def work_before(pieces: Pieces, work: Ints) -> tuple[Ints, Ints]:
    """(P,) work of all ancestors of each piece, and of all its descendants (itself not counted)."""
    order = np.arange(len(work), dtype=np.int32)
    if len(work) > MOST_PIECES:
        return _chain(*pieces.before, order, work), _chain(pieces.next_ptr, pieces.next_of, order[::-1].copy(), work)
    before = _reached(*pieces.before, order, work)
    return before, _reached(pieces.next_ptr, pieces.next_of, order[::-1].copy(), work)


@kernel
def _reached(pointer: Indices, row: Indices, order: Indices, work: Ints) -> Ints:
    """Sum of work over everything that is reached through the rows."""
    n = len(work)
    words = (n + 63) // 64
    bits = np.zeros((n, words), np.uint64)
    total = np.zeros(n, np.int64)
    for v in order:
        for e in range(pointer[v], pointer[v + 1]):
            u = row[e]
            for word in range(words):
                bits[v, word] |= bits[u, word]
            bits[v, u >> 6] |= np.uint64(1) << np.uint64(u & 63)
        for word in range(words):
            rest = bits[v, word]
            while rest:
                low = rest & (~rest + np.uint64(1))
                position = 0
                while (low >> np.uint64(position)) != np.uint64(1):
                    position += 1
                total[v] += work[word * 64 + position]
                rest ^= low
    return total


@kernel
def _chain(pointer: Indices, row: Indices, order: Indices, work: Ints) -> Ints:
    """The largest work of a chain that is reached through the rows."""
    total = np.zeros(len(work), np.int64)
    for v in order:
        for e in range(pointer[v], pointer[v + 1]):
            total[v] = max(total[v], total[row[e]] + work[row[e]])
    return total
