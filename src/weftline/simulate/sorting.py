"""Heap sort for kernels: numba compiles it in a fraction of the time that `np.argsort` takes, and it needs no copy."""

from __future__ import annotations

from weftline.graph.arrays import Ints
from weftline.simulate.jit import part

__all__ = ["sort_rows"]


@part
def sort_rows(rows: Ints, count: int) -> None:
    """Sort the first `count` rows ascending by column 0, ties by column 1 (which must differ where order matters)."""
    for root in range(count // 2 - 1, -1, -1):
        _sift(rows, root, count)
    for last in range(count - 1, 0, -1):
        _swap(rows, 0, last)
        _sift(rows, 0, last)


@part
def _swap(rows: Ints, a: int, b: int) -> None:
    for column in range(rows.shape[1]):
        kept = rows[a, column]
        rows[a, column] = rows[b, column]
        rows[b, column] = kept


@part
def _sift(rows: Ints, root: int, count: int) -> None:
    """Let the row at `root` sink until no child is larger."""
    while 2 * root + 1 < count:
        child = 2 * root + 1
        if child + 1 < count and _less(rows, child, child + 1):
            child += 1
        if not _less(rows, root, child):
            return
        _swap(rows, root, child)
        root = child


@part
def _less(rows: Ints, a: int, b: int) -> bool:
    return bool(rows[a, 0] < rows[b, 0] or (rows[a, 0] == rows[b, 0] and rows[a, 1] < rows[b, 1]))
