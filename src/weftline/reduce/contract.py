"""Contraction for latency: a problem and groups of its ops -> a problem whose ops are the groups, and back.

In: a latency Problem and the group of every op (any whole numbers). Out: `Contracted`: the smaller problem, and how its
placements and orders are carried back. It makes the search smaller: no plan of it cuts a group, and a group runs
without a break, when everything it reads is there. Good plans may be lost, so a bound of the smaller problem does NOT
hold for the problem itself, and the value of a lifted plan is what the simulator says about it.
Simplified: tensors inside a group are workspace of the group; under `per-edge` a tensor that several ops of a group
read is sent to it once.

Groups must be able to run one after another: `in_order` numbers them so, `split_cycles` splits those that could not.
Each step looks at each edge a few times, so 100,000 ops take less than a second or two. Two groupings are made here,
for the search alone: HSDAG's chains and Baechi's co-placement. In both an op joins its only reader, so a group is seen
from outside at its last op alone and no two groups need each other; no group becomes one that no device can run, or
that fills more than half of the largest device.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.cost import NO_TIME, CostTable
from weftline.errors import UsageError
from weftline.graph import Graph, Op, Tensor, Tied
from weftline.graph.arrays import Indices, Ints, adjacency
from weftline.problem import Problem
from weftline.problem.feasible import merge_together
from weftline.reduce.reduction import device_of_each

__all__ = ["Contracted", "acyclic", "chains", "contract", "coplace", "in_order", "is_acyclic", "split_cycles"]

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


def chains(problem: Problem) -> Indices:
    """HSDAG's co-location: an op joins its only reader, if that reads from it alone."""
    pointer, successors = adjacency(problem.graph.arrays)
    read_from = np.bincount(successors, minlength=len(pointer) - 1)
    return _join_readers(problem, read_from == 1)


def coplace(problem: Problem) -> Indices:
    """Baechi's co-placement: an op joins its only reader."""
    return _join_readers(problem, np.ones(len(problem.graph.ops), np.bool_))


def _join_readers(problem: Problem, joinable: NDArray[np.bool_]) -> Indices:
    """Every op whose only reader is joinable goes to the group of that reader, if the group can take it."""
    arrays = problem.graph.arrays
    pointer, successors = adjacency(arrays)
    single = np.flatnonzero(np.diff(pointer) == 1)
    reader = successors[pointer[single]]
    good = joinable[reader]
    held = arrays.weight_bytes + (arrays.workspace_bytes if problem.rules.memory == "static" else 0)
    able = [sum(1 << d for d in np.flatnonzero(row).tolist()) for row in problem.cost.time != NO_TIME]
    room = [int(capacity) // 2 for capacity in problem.capacity]  # a group takes at most half of a device
    group, total, bits = list(range(len(able))), held.tolist(), able
    for op, target in zip(single[good][::-1].tolist(), reader[good][::-1].tolist(), strict=True):
        home = group[target]  # readers stand behind, so theirs is settled
        common, size = bits[home] & bits[op], total[home] + total[op]
        if common and (total[op] == 0 or size <= max(room[d] for d in range(len(room)) if common >> d & 1)):
            group[op], bits[home], total[home] = home, common, size
    return np.array(group, np.int32)


@dataclass(frozen=True, eq=False)
class Contracted:
    """G groups of n ops: a reduction that keeps no bound."""

    problem: Problem
    small: Problem
    """Its ops are the groups, in topological order."""
    of: Indices
    """(n,): the group of each op."""

    @cached_property
    def members(self) -> tuple[Indices, Indices]:
        """Pointer and row of each group: its ops, ascending, which is a topological order."""
        pointer = np.zeros(len(self.small.graph.ops) + 1, np.int32)
        np.cumsum(np.bincount(self.of, minlength=len(pointer) - 1), out=pointer[1:])
        return pointer, np.argsort(self.of, kind="stable").astype(np.int32)

    def lift(self, placement: Indices) -> Indices:
        """Device of each group -> device of each op."""
        return np.asarray(placement, np.int32)[self.of]

    def lower(self, placement: Indices) -> Indices | None:
        """Device of each op -> device of each group; None where the ops of a group stand apart."""
        device = device_of_each(self.of, len(self.small.graph.ops), placement)
        return device if np.array_equal(device[self.of], placement) else None

    def lift_bound(self, bound: int) -> None:
        """None: the best plans of the problem may cut a group."""

    def lift_order(self, order: Indices) -> Indices:
        """A topological order of the groups -> one of the ops, in which those of a group stand side by side."""
        pointer, members = self.members
        sizes = np.diff(pointer)[order]
        starts = np.concatenate([[0], np.cumsum(sizes)[:-1]])
        return members[np.repeat(pointer[:-1][order] - starts, sizes) + np.arange(len(members))]


def acyclic(problem: Problem, group: Indices | Ints) -> Indices:
    """The grouping with those groups split that lie on a cycle of groups, so that it can be contracted."""
    return split_cycles(problem.graph, _checked(problem, group))


def contract(problem: Problem, group: Indices | Ints) -> Contracted:
    """Make one op of each group; `UsageError` if the groups could not run one after another (see `acyclic`)."""
    if problem.rules.objective != "latency":
        raise UsageError("only problems of latency are contracted; pipelines have pieces")
    of = in_order(problem.graph, _checked(problem, group))
    if of is None:
        raise UsageError("two groups need each other's results, so neither can run first; split them with `acyclic`")
    count = int(of.max()) + 1
    own, tied = _tied(problem.graph, of, count)
    tensors, kept = _tensors(problem.graph, of)
    time = _sums(of, np.maximum(problem.cost.time, 0), count)
    able = np.ones(time.shape, np.bool_)
    np.logical_and.at(able, of, problem.cost.time != NO_TIME)
    ops = _ops(problem, of, count, own, kept)
    cost = CostTable(
        np.where(able, time, NO_TIME), problem.cost.transfer, problem.cost.transfer_row[kept], problem.cost.source
    )
    together = merge_together([sorted({int(of[op]) for op in members}) for members in problem.together])
    graph = Graph(problem.graph.name, ops, tensors, tied)
    return Contracted(problem, replace(problem, graph=graph, cost=cost, together=together), of)


def _checked(problem: Problem, group: Indices | Ints) -> Ints:
    if np.shape(group) != (len(problem.graph.ops),):
        raise UsageError(f"a grouping needs one group for each of the {len(problem.graph.ops)} ops")
    return np.asarray(group, np.int64)


def _ops(problem: Problem, of: Indices, count: int, own: Ints, kept: Ints) -> tuple[Op, ...]:
    """One op for each group, called after the op that takes longest in it."""
    graph, arrays = problem.graph, problem.graph.arrays
    longest = problem.cost.time.max(axis=1)
    by_length = np.lexsort((np.arange(len(of)), -longest, of))
    lead = by_length[np.searchsorted(of[by_length], np.arange(count))].tolist()
    flops = _sums(of, np.array([op.flops for op in graph.ops], np.int64), count).tolist()
    traffic = _sums(of, np.array([op.traffic_bytes for op in graph.ops], np.int64), count).tolist()
    weights = (_sums(of, arrays.weight_bytes, count) + own).tolist()
    guessed = (_sums(of, np.array([op.guessed for op in graph.ops], np.int64), count) > 0).tolist()
    if problem.rules.memory == "static":
        workspace = _sums(of, arrays.workspace_bytes, count).tolist()
    else:
        workspace = _workspace(graph, of, count, kept).tolist()
    return tuple(
        Op(
            name=graph.ops[op].name,
            kind=graph.ops[op].kind,
            flops=flops[g],
            weight_bytes=weights[g],
            workspace_bytes=workspace[g],
            traffic_bytes=traffic[g],
            block=graph.ops[op].block,
            backward=graph.ops[op].backward,
            guessed=guessed[g],
        )
        for g, op in enumerate(lead)
    )


def _workspace(graph: Graph, of: Indices, count: int, kept: Ints) -> Ints:
    """(G,): the peak of workspace and of tensors that stay inside a group, when its ops run one after another."""
    arrays = graph.arrays
    order = np.argsort(of, kind="stable")
    place = np.empty(len(of), np.int64)
    place[order] = np.arange(len(of))
    inside = np.ones(len(arrays.producer), np.bool_)
    inside[kept] = False
    last = np.zeros(len(arrays.producer), np.int64)
    reads = np.repeat(np.arange(len(last)), np.diff(arrays.consumer_ptr))
    np.maximum.at(last, reads, place[arrays.consumer_of])
    change = np.zeros(len(of) + 1, np.int64)
    np.add.at(change, place[arrays.producer[inside]], arrays.tensor_bytes[inside])
    np.add.at(change, last[inside] + 1, -arrays.tensor_bytes[inside])
    level = np.cumsum(change)[:-1] + arrays.workspace_bytes[order]
    peak = np.zeros(count, np.int64)
    np.maximum.at(peak, of[order], level)
    return peak


def _tensors(graph: Graph, of: Indices) -> tuple[tuple[Tensor, ...], Ints]:
    """Tensors that leave their group, enter the model, leave it or are read by nobody; and their old numbers."""
    arrays, count = graph.arrays, int(of.max()) + 1
    maker = np.where(arrays.producer >= 0, of[arrays.producer], -1)
    reads = np.repeat(np.arange(len(maker), dtype=np.int64), np.diff(arrays.consumer_ptr))
    key = np.unique(reads * count + of[arrays.consumer_of])
    tensor, reader = key // count, key % count
    outside = reader != maker[tensor]
    tensor, reader = tensor[outside], reader[outside]
    unread = np.diff(arrays.consumer_ptr) == 0
    keep: NDArray[np.bool_] = unread | arrays.is_output | (maker < 0)
    keep[tensor] = True
    kept = np.flatnonzero(keep)
    low = np.searchsorted(tensor, kept).tolist()
    high = np.searchsorted(tensor, kept, side="right").tolist()
    readers = reader.tolist()
    tensors = []
    for number, a, b in zip(kept.tolist(), low, high, strict=True):
        old = graph.tensors[number]
        made_by, read_by = int(maker[number]), tuple(readers[a:b])
        tensors.append(msgspec.structs.replace(old, producer=made_by, consumers=read_by))
    return tuple(tensors), kept


def _tied(graph: Graph, of: Indices, count: int) -> tuple[Ints, tuple[Tied, ...]]:
    """Shared weights that only one group uses are its own: (G,) bytes of those, and the others."""
    own, tied = np.zeros(count, np.int64), []
    for weight in graph.tied:
        users = sorted({int(of[op]) for op in weight.ops})
        if len(users) == 1:
            own[users[0]] += weight.bytes
        else:
            tied.append(Tied(weight.name, weight.bytes, tuple(users)))
    return own, tuple(tied)


def _sums(key: Indices, value: Ints, count: int) -> Ints:
    """Exact sums by group (bincount would go through floats)."""
    total = np.zeros((count, *value.shape[1:]), np.int64)
    np.add.at(total, key, value)
    return total
