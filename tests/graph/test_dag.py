"""Levels, longest paths and reachability against plain recursion over all paths."""

from __future__ import annotations

import numpy as np
import pytest

from weftline.errors import UsageError
from weftline.graph import Graph, Op, Tensor, assemble
from weftline.graph import arrays as dag
from weftline.graph.arrays import adjacency, descendants, levels, longest_path_to, ready_first
from weftline.testing import SeededChooser, make_graph

GRAPHS = [make_graph(SeededChooser(seed), 10) for seed in range(40)]


def _successors(graph: Graph) -> list[list[int]]:
    found: list[set[int]] = [set() for _ in graph.ops]
    for tensor in graph.tensors:
        if tensor.producer >= 0:
            found[tensor.producer] |= set(tensor.consumers)
    return [sorted(row) for row in found]


def _paths_from(successors: list[list[int]], op: int) -> list[list[int]]:
    return [[op]] + [[op, *rest] for after in successors[op] for rest in _paths_from(successors, after)]


@pytest.mark.parametrize("graph", GRAPHS)
def test_against_all_paths(graph: Graph) -> None:
    """Tests that every algorithm agrees with the list of all paths."""
    n, successors = len(graph.ops), _successors(graph)
    paths = [path for op in range(n) for path in _paths_from(successors, op)]
    weight = np.arange(1, n + 1, dtype=np.int64) * 7 % 5
    pointer, after = adjacency(graph.arrays)
    assert [after[pointer[op] : pointer[op + 1]].tolist() for op in range(n)] == successors
    total = {tuple(path): int(weight[path].sum()) for path in paths}
    assert longest_path_to(graph.arrays, weight).tolist() == [
        max(value for path, value in total.items() if path[-1] == op) for op in range(n)
    ]
    waiting = np.bincount(after, minlength=n).tolist()
    assert ready_first(successors, waiting) == list(range(n))
    assert levels(graph.arrays).tolist() == [max(len(p) for p in paths if p[-1] == op) - 1 for op in range(n)]
    bits = descendants(graph.arrays)
    for op in range(n):
        reached = {path[-1] for path in paths if path[0] == op} - {op}
        assert {j for j in range(n) if int(bits[op, j >> 6]) >> (j & 63) & 1} == reached


def test_reachability_beyond_one_word() -> None:
    """Tests that the bit matrix is right across the borders of 64-bit words."""
    n = 130
    graph = assemble("chain", [Op(f"o{i}") for i in range(n)], [Tensor(f"t{i}", i, (i + 1,)) for i in range(n - 1)])
    bits = descendants(graph.arrays)
    assert bits.shape == (n, 3)
    assert [int(sum(int(word).bit_count() for word in row)) for row in bits] == list(range(n - 1, -1, -1))


def test_no_edges() -> None:
    """Tests that a graph without tensors is no special case."""
    graph = assemble("dots", [Op("a"), Op("b")], [])
    assert levels(graph.arrays).tolist() == [0, 0]
    assert not descendants(graph.arrays).any()


def test_too_large_for_a_bit_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests that an absurd matrix is refused instead of attempted."""
    monkeypatch.setattr(dag, "MAX_REACHABILITY", 1)
    with pytest.raises(UsageError, match="the limit is 1 ops"):
        descendants(assemble("two", [Op("a"), Op("b")], []).arrays)
