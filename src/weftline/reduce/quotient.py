"""The quotient graph of a grouping of ops: is it acyclic, in which order do the groups stand, how is a cycle split?

In: a graph and the group of every op (any whole numbers). Out: group numbers in a topological order, or a finer
grouping without cycles. Every step looks at each edge a few times, so 100,000 ops take less than a second or two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from weftline.graph import Graph
from weftline.graph.arrays import Indices, Ints

__all__ = ["in_order", "is_acyclic", "split_cycles"]

Numbers = Indices | Ints


def in_order(graph: Graph, group: Numbers) -> Indices | None:
    """Groups renumbered 0, 1 ... in a topological order near the order of the ops; None if there is a cycle."""
    import rustworkx

    number, count = _compact(group)
    source, target = _links(graph, number, count)
    if (source < target).all():
        return number.astype(np.int32)
    quotient = _digraph(source, target, count)
    names = [f"{place:012d}" for place in range(count)]
    try:
        order = list(rustworkx.lexicographical_topological_sort(quotient, key=names.__getitem__))
    except rustworkx.DAGHasCycle:
        return None
    if len(order) < count:  # some versions leave the cycle out instead of raising
        return None
    place = np.empty(count, np.int32)
    place[order] = np.arange(count, dtype=np.int32)
    return place[number]


def is_acyclic(graph: Graph, group: Numbers) -> bool:
    """Can the groups run one after another?"""
    return in_order(graph, group) is not None


def split_cycles(graph: Graph, group: Numbers) -> Indices:
    """Split the groups that lie on a cycle of groups, so that none is left; the others stay as they are.

    An op of such a group has a depth: how often the longest path to it, inside the cycle, changes from one group to
    another. Ops of one group and one depth stay together. An edge between two parts then always goes up in depth.
    """
    import rustworkx

    number, count = _compact(group)
    source, target = _links(graph, number, count)
    if (source < target).all():
        return number.astype(np.int32)
    component = np.arange(count)
    knotted = np.zeros(count, np.bool_)
    for index, members in enumerate(rustworkx.strongly_connected_components(_digraph(source, target, count))):
        component[members] = index
        knotted[members] = len(members) > 1
    if not knotted.any():
        return number.astype(np.int32)
    depth = _depth(graph, number, component, knotted)
    part = number * (int(depth.max()) + 1) + depth
    return _compact(part)[0].astype(np.int32)


def _depth(graph: Graph, number: Ints, component: Ints, knotted: NDArray[np.bool_]) -> Ints:
    """(n,): changes of group on the longest path inside the same cycle; 0 for ops that lie on none."""
    source, target, _ = graph.arrays.edges()
    a, b = number[source], number[target]
    inside = knotted[a] & (component[a] == component[b])
    order = np.argsort(source[inside], kind="stable")
    depth = [0] * len(number)
    changes = (a != b)[inside][order].tolist()
    for u, v, change in zip(source[inside][order].tolist(), target[inside][order].tolist(), changes, strict=True):
        depth[v] = max(depth[v], depth[u] + change)  # edges come by their source, ops stand in topological order
    return np.array(depth, np.int64)


def _compact(group: Numbers) -> tuple[Ints, int]:
    """Groups as 0, 1 ... by their first op, and how many there are."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    return rank[inverse], len(first)


def _links(graph: Graph, number: Ints, count: int) -> tuple[Ints, Ints]:
    """Edges between different groups, each once."""
    source, target, _ = graph.arrays.edges()
    key = np.unique(number[source] * count + number[target])
    key = key[key // count != key % count]
    return key // count, key % count


def _digraph(source: Ints, target: Ints, count: int) -> Any:
    import rustworkx

    graph = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(count))
    graph.add_edges_from_no_data(list(zip(source.tolist(), target.tolist(), strict=True)))
    return graph
