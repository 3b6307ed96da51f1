"""Dominator trees against removal of single ops."""

import numpy as np
import pytest

from weftline.graph.arrays import Indices
from weftline.latency.anneal.state import dominator_ranges, dominators, post_dominator_ranges


def _random_rows(seed: int) -> list[list[int]]:
    """For every op the ops before it."""
    dice = np.random.default_rng(seed)
    rows: list[list[int]] = []
    for op in range(int(dice.integers(1, 30))):
        rows.append(sorted(set(dice.integers(0, op, size=int(dice.integers(0, 4))).tolist())) if op else [])
    return rows


def _flat(rows: list[list[int]]) -> tuple[Indices, Indices]:
    pointer = np.concatenate([[0], np.cumsum([len(row) for row in rows])]).astype(np.int32)
    return pointer, np.array([op for row in rows for op in row], np.int32)


def _unreachable_without(rows: list[list[int]], gone: int) -> set[int]:
    """Ops that no source reaches when one op is taken away: the op itself and all it dominates."""
    reached: set[int] = set()
    for op, before in enumerate(rows):
        if op != gone and (not before or reached & set(before)):
            reached.add(op)
    return set(range(len(rows))) - reached


def _subtree(ranges: tuple[Indices, Indices, Indices], op: int) -> set[int]:
    ops, place, size = ranges
    return set(ops[place[op] : place[op] + size[op]].tolist())


@pytest.mark.parametrize("seed", range(60))
def test_subtrees_are_what_an_op_dominates(seed: int) -> None:
    """Tests that the subtree of an op is what becomes unreachable without it, forward and backward."""
    rows = _random_rows(seed)
    n = len(rows)
    after: list[list[int]] = [[] for _ in rows]
    for op, before in enumerate(rows):
        for other in before:
            after[other].append(op)
    backward = [[n - 1 - op for op in after[n - 1 - i]] for i in range(n)]
    forward_ranges, backward_ranges = dominator_ranges(*_flat(rows)), post_dominator_ranges(*_flat(after))
    for op in range(n):
        assert _subtree(forward_ranges, op) == _unreachable_without(rows, op)
        assert _subtree(backward_ranges, op) == {n - 1 - x for x in _unreachable_without(backward, n - 1 - op)}


def test_long_chain_with_one_hub() -> None:
    """Tests a graph in which every op also reads the first one: the first dominates all."""
    rows = [[], [0], *([0, op - 1] for op in range(2, 50_000))]
    parent = dominators(*_flat(rows))
    assert parent[0] == -1
    assert np.all(parent[1:] == 0)
