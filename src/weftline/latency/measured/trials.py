"""What learned solvers share: the nodes they decide on, and trials of many placements at once.

`Nodes`: chains of ops, joined where ops must stand together. In: a Problem. Out: the node of every op, the edges
between nodes, the devices each node may take, and `lift`, which makes placements of ops from devices of nodes. Nodes
only make the search smaller: ops are what is simulated. Simplified: the edges between nodes may form cycles (a
`together` set may), so nodes have no order of their own but that of their first ops.

`Trials`: devices of nodes, a batch at a time, become values in ns, INFEASIBLE where a limit is broken; what is a new
best is offered to the search, and the best few are kept as starts for the polish. Another meter (a real machine, say)
can take the simulator's place for the values that a network learns from; what is offered is always costed by the
search.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.anneal.annealer import Start
from weftline.latency.list.memory_left import possible_devices
from weftline.problem import Problem
from weftline.reduce.contract import chains
from weftline.reduce.reduction import device_of_each
from weftline.search import Search
from weftline.simulate import Timeline
from weftline.simulate.latency import INFEASIBLE, evaluate
from weftline.simulate.sentinels import NEVER
from weftline.simulate.tables import tables

__all__ = [
    "KEPT_PLACEMENTS",
    "Bools",
    "Nodes",
    "PlacementMeter",
    "Trials",
    "components",
    "make_nodes",
    "offer_single_devices",
    "simulated",
]


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


Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Nodes:
    """N nodes of n ops, K devices; nodes are numbered by their first ops. A reduction that keeps no bound."""

    problem: Problem
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
    def small(self) -> Nodes:
        """Nodes are a problem of their own: a device for each."""
        return self

    @property
    def count(self) -> int:
        """N."""
        return len(self.allowed)

    @property
    def fastest(self) -> Indices:
        """(N,): the allowed device that runs each node fastest."""
        place: Indices = np.where(self.allowed, self.time, NEVER).argmin(axis=1).astype(np.int32)
        return place

    @property
    def alone(self) -> Ints:
        """(K,): about what each device takes alone, in ns; nodes that it may not have count a lot."""
        times: Ints = np.where(self.allowed, self.time, 2**40).sum(axis=0)
        return times

    @property
    def choices(self) -> float:
        """The number of different placements; infinite where a float cannot hold it."""
        with np.errstate(over="ignore"):
            return float(np.prod(self.allowed.sum(axis=1).astype(np.float64)))

    def lift(self, devices: Indices) -> Indices:
        """(..., N) devices of nodes -> (..., n) of ops. A node that may not stand there goes where it is fastest."""
        able = self.allowed[np.arange(self.count), devices]
        placements: Indices = np.where(able, devices, self.fastest).astype(np.int32)[..., self.of]
        return placements

    def lower(self, placement: Indices) -> Indices | None:
        """(n,) devices of ops -> (N,) of nodes; None where ops of a node stand apart, or where it may not stand."""
        devices = device_of_each(self.of, self.count, placement)
        return devices if np.array_equal(self.lift(devices), placement) else None

    def lift_bound(self, bound: int) -> None:
        """None: the best plans may cut a node."""

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
    return Nodes(problem, of, key // len(allowed), key % len(allowed), allowed, time)


def _numbered(group: Indices | Ints) -> Indices:
    """Groups as 0, 1 ... by their first op."""
    _, first, inverse = np.unique(group, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int32)
    rank[np.argsort(first)] = np.arange(len(first), dtype=np.int32)
    return rank[inverse]


def _joined(one: Indices, other: Indices) -> Indices:
    """Ops that share a group in either grouping, or through others, share one."""
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


KEPT_PLACEMENTS = 6
"""Placements that are kept."""
FEW_CHOICES = 4096
"""If there are no more different placements, it is noticed when all have been tried."""


class PlacementMeter(Protocol):
    """What gives placements their values."""

    def __call__(self, placements: Indices, /) -> Ints:
        """(B, n) placements of ops -> (B,) values in ns, INFEASIBLE or more where one cannot run."""
        ...

    @property
    def over(self) -> bool:
        """Nothing more will be measured."""
        ...

    @property
    def samples(self) -> int:
        """Placements that may be asked for at a time."""
        ...


class Trials:
    """All trials of one search."""

    def __init__(self, search: Search, nodes: Nodes, meter: PlacementMeter | None = None) -> None:
        self.search, self.nodes = search, nodes
        self._meter = simulated(search.problem) if meter is None else meter
        self.kept: list[tuple[int, Indices]] = []
        """(value, device per node), best first."""
        self.count = 0
        self._seen: set[bytes] | None = set() if nodes.choices <= FEW_CHOICES else None

    @property
    def exhausted(self) -> bool:
        """Every placement there is has been tried, or no more may be."""
        return self._meter.over or (self._seen is not None and len(self._seen) >= self.nodes.choices)

    @property
    def best(self) -> int:
        """The least value so far, INFEASIBLE if there is none."""
        return self.kept[0][0] if self.kept else INFEASIBLE

    def begin(self, singles: Mapping[int, int]) -> None:
        """Keep what single devices gave. If the search has no answer yet, offer every node where it is fastest."""
        for device, value in singles.items():
            self.keep(value, np.full(self.nodes.count, device, np.int32))
        if self.search.best is None:
            self.search.offer(self.nodes.lift(self.nodes.fastest))

    def values(self, devices: Indices) -> Ints:
        """(B, N) devices of nodes -> (B,) values; the best is offered if it is new."""
        values = self._meter(self.nodes.lift(devices))
        self.count += len(devices)
        if self._seen is not None:
            self._seen.update(row.tobytes() for row in np.ascontiguousarray(devices, np.int32))
        best = int(values.argmin())
        if values[best] < self.best:
            self.offer(int(values[best]), devices[best])
        return values

    def offer(self, value: int, devices: Indices) -> None:
        """A placement that is better than those kept."""
        self.keep(value, devices)
        if not self.search.is_over:
            self.search.offer(self.nodes.lift(devices))

    def keep(self, value: int, devices: Indices) -> None:
        """Among the best few, each value once."""
        if value >= INFEASIBLE or any(value == other for other, _ in self.kept):
            return
        self.kept = sorted([*self.kept, (value, devices.copy())], key=lambda entry: entry[0])[:KEPT_PLACEMENTS]

    def starts(self) -> list[Start]:
        """Where annealing op by op begins: chains that were one node may come apart there."""
        starts: list[Start] = [(self.nodes.lift(devices), None) for _, devices in self.kept]
        best = self.search.best
        if isinstance(best, Timeline):
            starts.append((best.placement, best.order))
        return starts


def offer_single_devices(search: Search, meter: PlacementMeter | None = None) -> dict[int, int]:
    """Offer everything on one device, for each device, even after the limit if there is no answer -> their values.

    This needs neither nodes nor a network, so it comes first, and a search without time still has an answer. The values
    are those of `meter` if there is one.
    """
    values: dict[int, int] = {}
    for device in range(len(search.problem.devices)):
        if search.is_over and search.best is not None:
            break
        value = search.offer(np.full(len(search.problem.graph.ops), device, np.int32))
        if value is not None:
            values[device] = value
    if meter is None or not values:
        return values
    n = len(search.problem.graph.ops)
    found = meter(np.stack([np.full(n, device, np.int32) for device in values])).tolist()
    return {device: value for device, value in zip(values, found, strict=True) if value < INFEASIBLE}


class _Simulated:
    """The simulator with its default order, memory included where it can bind."""

    over = False
    samples = 2**30

    def __init__(self, problem: Problem) -> None:
        table = tables(problem)
        most = int(table.static_bytes.sum() + table.tied_bytes.sum() + table.workspace_bytes.sum())
        most += int((table.tensor_bytes * (1 + np.diff(table.consumer_ptr))).sum())
        self._problem, self._binds = problem, bool((most > problem.capacity).any())

    def __call__(self, placements: Indices, /) -> Ints:
        """Costed, INFEASIBLE where memory overflows."""
        found = evaluate(self._problem, placements, memory=self._binds)
        if found.peak is None:
            return found.value
        return np.where((found.peak <= self._problem.capacity).all(axis=1), found.value, INFEASIBLE)


def simulated(problem: Problem) -> PlacementMeter:
    """The meter that learned solvers have by default: the one simulator."""
    return _Simulated(problem)
