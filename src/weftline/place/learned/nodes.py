"""Nodes: what a learned solver decides on. Chains of ops, joined where ops must stand together.

In: a Problem. Out: the node of every op, the edges between nodes, the devices each node may take, and `lift`, which
makes placements of ops from devices of nodes. Nodes only make the search smaller: ops are what is simulated.
Simplified: the edges between nodes may form cycles (a `together` set may), so nodes have no order of their own but that
of their first ops.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.coarsen.coplace import chains
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.place.learned.components import components
from weftline.place.possible_devices import possible_devices
from weftline.problem import Problem

__all__ = ["Bools", "Nodes", "make_nodes"]

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Nodes:
    """N nodes of n ops, K devices; nodes are numbered by their first ops."""

    of: Indices
    """(n,): the node of each op."""
    source: Ints
    target: Ints
    """Edges between different nodes, each once, in the direction of the data."""
    allowed: Bools
    """(N, K): where a node may stand; every row has a device."""
    time: Ints
    """(N, K): ns of all its ops, without meaning where the node may not stand."""

    @property
    def count(self) -> int:
        """N."""
        return len(self.allowed)

    @property
    def fastest(self) -> Indices:
        """(N,): the allowed device that runs each node fastest."""
        place: Indices = np.where(self.allowed, self.time, 2**62).argmin(axis=1).astype(np.int32)
        return place

    @property
    def choices(self) -> float:
        """The number of different placements; infinite where a float cannot hold it."""
        with np.errstate(over="ignore"):
            return float(np.prod(self.allowed.sum(axis=1).astype(np.float64)))

    def lift(self, devices: Indices) -> Indices:
        """(B, N) devices of nodes -> (B, n) of ops. A node that may not stand there goes where it is fastest."""
        devices = np.atleast_2d(devices)
        able = self.allowed[np.arange(self.count), devices]
        placements: Indices = np.where(able, devices, self.fastest).astype(np.int32)[:, self.of]
        return placements

    def undirected(self) -> tuple[Ints, Ints]:
        """Every joined pair of nodes once, smaller number first."""
        low, high = np.minimum(self.source, self.target), np.maximum(self.source, self.target)
        key = np.unique(low * self.count + high)
        return key // self.count, key % self.count


def make_nodes(problem: Problem, *, coarse: bool = True, most: int | None = None) -> Nodes:
    """Chains (`coarse`) or single ops, joined by `together`; runs of them in order where there are more than `most`."""
    able = possible_devices(problem)[problem.group]
    if not able.any(axis=1).all():
        raise InfeasibleError("some op has no device that links join to its neighbours")
    alone = _numbered(problem.group)
    of = alone
    if coarse:
        joined = _joined(alone, _numbered(chains(problem)))
        if _common(joined, able).any(axis=1).all():
            of = joined
    if most is not None and int(of.max()) >= most:
        of = _runs(of, _common(of, able), most)
    allowed = _common(of, able)
    time = np.zeros(allowed.shape, np.int64)
    np.add.at(time, of, np.maximum(problem.cost.time, 0))
    source, target, _ = problem.graph.arrays.edges()
    key = np.unique(of[source].astype(np.int64) * len(allowed) + of[target])
    key = key[key // len(allowed) != key % len(allowed)]
    return Nodes(of, key // len(allowed), key % len(allowed), allowed, time)


def _numbered(group: Indices | Ints) -> Indices:
    """Groups as 0, 1 ... by their first op."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


def _joined(one: Indices, other: Indices) -> Indices:
    """Ops that share a group in either grouping, or by way of others, share one."""
    offset = int(one.max()) + 1
    label = components(offset + int(other.max()) + 1, one.astype(np.int64), other.astype(np.int64) + offset)
    return _numbered(label[one])


def _common(of: Indices, able: Bools) -> Bools:
    """(N, K): devices that all ops of a node may take."""
    allowed = np.ones((int(of.max()) + 1, able.shape[1]), np.bool_)
    np.logical_and.at(allowed, of, able)
    return allowed


def _runs(of: Indices, allowed: Bools, most: int) -> Indices:
    """Neighbours in the order of nodes are joined, so many at a time, as long as they have a device in common."""
    length = -(-len(allowed) // most)
    run = np.zeros(len(allowed), np.int32)
    common, size = allowed[0].copy(), 1
    for node in range(1, len(allowed)):
        both = common & allowed[node]
        if size < length and both.any():
            run[node], common, size = run[node - 1], both, size + 1
        else:
            run[node], common, size = run[node - 1] + 1, allowed[node].copy(), 1
    return run[of]
