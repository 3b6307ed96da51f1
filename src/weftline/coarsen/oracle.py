"""The backend as oracle: which ops ONNX Runtime joins, found by comparing a graph with what it makes of it.

In: the graph and the nodes of the optimised graph. Out: the region of every op. A tensor whose name survives is a
landmark. Optimised nodes that are joined by other tensors are one region, and its ops are those on the way back from
the landmarks it makes to landmarks that others make. Ops that serve several regions (a shape that was folded into all
its readers) stay alone. Simplified: a name that survives is taken for the same value.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.coarsen.oracle_ask import OptimisedNode, OracleError
from weftline.coarsen.quotient import is_acyclic
from weftline.cost.efficiency import FREE_KINDS
from weftline.graph import Graph
from weftline.graph.arrays import Indices

__all__ = ["Regions", "regions"]

LARGEST = 64
"""Regions of several kernels and more ops than this are not kept together: too many names were lost there."""


class Regions(NamedTuple):
    """What the optimised graph says about the ops."""

    group: Indices
    """(n,): region of each op."""
    one_kernel: NDArray[np.bool_]
    """(n,): the region of the op is one kernel."""


def regions(graph: Graph, nodes: Sequence[OptimisedNode]) -> Regions:
    """Map the optimised nodes back; `OracleError` if an op is not covered or the regions form a cycle."""
    region, kernels = _joined(graph, nodes)
    serves = _served(graph, nodes, region)
    group = np.empty(len(graph.ops), np.int32)
    for op, found in enumerate(serves):
        if not found:
            raise OracleError(f"op {graph.ops[op].name[:80]!r} was not found again")
        group[op] = next(iter(found)) if len(found) == 1 else len(nodes) + op
    size = np.bincount(group, minlength=len(nodes) + len(graph.ops))
    one = np.ones(len(size), np.bool_)
    one[: len(nodes)] = kernels <= 1
    lost = (size > LARGEST) & ~one
    alone = lost[group]
    group[alone] = len(nodes) + np.flatnonzero(alone)
    if not is_acyclic(graph, group):
        raise OracleError("the regions that were found need each other's results")
    return Regions(group, one[group])


def _joined(graph: Graph, nodes: Sequence[OptimisedNode]) -> tuple[list[int], NDArray[np.int64]]:
    """Region of each optimised node, and the kernels of each region (those that move no data do not count)."""
    made_by = {name: index for index, node in enumerate(nodes) for name in node.makes}
    landmarks = {tensor.name for tensor in graph.tensors}
    parent = list(range(len(nodes)))

    def root(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for index, node in enumerate(nodes):
        for name in node.reads:
            if name in made_by and name not in landmarks:
                parent[root(made_by[name])] = root(index)
    region = [root(index) for index in range(len(nodes))]
    real = np.array([node.kind not in FREE_KINDS for node in nodes], np.int64)
    kernels = np.zeros(len(nodes), np.int64)
    np.add.at(kernels, region, real)
    return region, kernels


def _served(graph: Graph, nodes: Sequence[OptimisedNode], region: Sequence[int]) -> list[frozenset[int]]:
    """For every op the regions that need it: that of a landmark it makes, or those of the readers of what vanished."""
    survives = {name: region[index] for index, node in enumerate(nodes) for name in node.makes}
    arrays = graph.arrays
    serves: list[frozenset[int]] = [frozenset()] * len(graph.ops)
    for op in range(len(graph.ops) - 1, -1, -1):
        found: frozenset[int] = frozenset()
        for number in arrays.output_of[arrays.output_ptr[op] : arrays.output_ptr[op + 1]].tolist():
            tensor = graph.tensors[number]
            if tensor.name in survives:
                found |= {survives[tensor.name]}
            else:
                found = found.union(*(serves[reader] for reader in tensor.consumers))
        serves[op] = found
    return serves
