"""Units: the smallest pieces a pipeline can be cut into, in an order that any cut into contiguous pieces keeps acyclic.

Ops that must share a device are one unit, and so is everything on a cycle once they are joined (forward ops alone
count: backward ops follow their forward op). In: a Problem. Out: `Units`.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices, least_memory

__all__ = ["Units", "make_units"]


@dataclass(frozen=True, eq=False)
class Units:
    """Numbered in topological order."""

    of: Indices
    """(n,): unit of each op."""
    size: Ints
    """(U,): number of ops."""
    time: Ints
    """(U, K): total time on each device, where allowed."""
    allowed: NDArray[np.bool_]
    """(U, K)"""
    weight: Ints
    """(U,): bytes of weights."""
    edges: tuple[tuple[int, int], ...]
    """Pairs of units with a forward tensor between them, each once."""


def make_units(problem: Problem) -> Units:
    """Contract `together` sets, then cycles, and sort."""
    import rustworkx

    group = problem.group
    graph = rustworkx.PyDiGraph(multigraph=False)
    graph.add_nodes_from(range(int(group.max()) + 1))
    source, target, _ = problem.graph.arrays.edges()
    forward = ~(problem.graph.arrays.backward[source] | problem.graph.arrays.backward[target])
    pairs = {(int(group[a]), int(group[b])) for a, b in zip(source[forward], target[forward], strict=True)}
    graph.add_edges_from_no_data([(a, b) for a, b in sorted(pairs) if a != b])
    component = np.zeros(len(graph), np.int64)
    components = rustworkx.strongly_connected_components(graph)
    for number, members in enumerate(components):
        component[members] = number
    # Topological, and near the graph's own order: by the first op of each component.
    first = np.full(len(components), len(group), np.int64)
    np.minimum.at(first, component[group], np.arange(len(group)))
    quotient = rustworkx.PyDiGraph(multigraph=False)
    quotient.add_nodes_from(range(len(components)))
    links = {(int(component[a]), int(component[b])) for a, b in pairs}
    quotient.add_edges_from_no_data([(a, b) for a, b in sorted(links) if a != b])
    order = rustworkx.lexicographical_topological_sort(quotient, key=lambda c: f"{first[c]:012d}")
    position = np.zeros(len(components), np.int64)
    position[order] = np.arange(len(components))
    edges = sorted((int(position[a]), int(position[b])) for a, b in links if a != b)
    return _collect(problem, position[component], tuple(edges))


def _collect(problem: Problem, unit_of_group: Ints, edges: tuple[tuple[int, int], ...]) -> Units:
    count = int(unit_of_group.max()) + 1
    of = unit_of_group[problem.group].astype(np.int32)
    time = np.zeros((count, len(problem.devices)), np.int64)
    np.add.at(time, of, np.maximum(problem.cost.time, 0))
    allowed = np.ones(time.shape, np.bool_)
    np.logical_and.at(allowed, unit_of_group, allowed_devices(problem))
    weight = np.zeros(count, np.int64)
    np.add.at(weight, unit_of_group, least_memory(problem))
    return Units(of, np.bincount(of, minlength=count), time, allowed, weight, edges)
