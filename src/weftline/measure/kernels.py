"""Which ops does a kernel of an optimised graph stand for, and what does it cost to cut where layouts were changed?

In: a graph, its nodes as ONNX Runtime has them at ORT_ENABLE_EXTENDED, and at the level that runs, with their times.
Out: groups of ops, and the group of every node that runs. The regions of EXTENDED (`fusion.oracle`) are the groups; a
node that runs belongs to the one that makes what it makes. The CPU's blocked layout (NCHWc) renames tensors: the nodes
then bear the old name with `_nchwc`, and take later additions and activations along, whose groups are joined to theirs.
An op that still has no kernel belongs to its only reader's, or `OracleError`. And for every tensor that goes from
kernel to kernel in the blocked layout the time to change it back where it leaves a device, and again where it enters
another: two sessions exchange plain tensors. Simplified: a layout change that serves several groups is the first's; its
time is by bytes, at the rate of the changes that the whole model makes anyway; cuts between segments of one device are
not counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from weftline.cost.analytic import FREE_KINDS
from weftline.cost.profile_file import LayoutChange
from weftline.graph import Graph
from weftline.graph.arrays import Indices
from weftline.reduce.contract import is_acyclic
from weftline.reduce.fusion.oracle import OptimisedNode, OracleError, regions

__all__ = ["KernelGroups", "RunNode", "kernel_groups", "layout_changes"]

_BLOCKED = "_nchwc"
_SUFFIXES = (_BLOCKED, "_bn" + _BLOCKED, "_mul" + _BLOCKED)
MOST_ADDS = 4
"""A blocked convolution with so many inputs has taken an addition along."""


class RunNode(msgspec.Struct, frozen=True, array_like=True):
    """One node of an optimised graph, in the order of execution."""

    kind: str
    name: str
    reads: tuple[str, ...]
    makes: tuple[str, ...]


class KernelGroups(NamedTuple):
    """n ops, and the nodes that run."""

    group: Indices
    """(n,): group of each op."""
    of_node: Indices
    """(nodes,): group of each node."""


def kernel_groups(graph: Graph, extended: Sequence[RunNode], running: Sequence[RunNode]) -> KernelGroups:
    """Map the nodes that run to groups of ops; `OracleError` if some op or node finds no place."""
    nodes = [OptimisedNode(node.kind, node.reads, node.makes) for node in extended]
    base = regions(graph, nodes).group.tolist()
    joined = _Joined()
    of_node = _homes(graph, running, base, joined)
    _absorb(graph, running, base, of_node, len(extended), joined)
    group = np.array([joined.root(g) for g in base], np.int32)
    if not is_acyclic(graph, group):
        raise OracleError("the kernels that were found need each other's results")
    return KernelGroups(group, np.array([joined.root(g) for g in of_node], np.int32))


class _Joined:
    """Groups that have become one."""

    def __init__(self) -> None:
        self._parent: dict[int, int] = {}

    def root(self, group: int) -> int:
        while self._parent.get(group, group) != group:
            group = self._parent[group]
        return group

    def join(self, group: int, to: int) -> None:
        self._parent[self.root(group)] = self.root(to)


def _homes(graph: Graph, running: Sequence[RunNode], base: Sequence[int], joined: _Joined) -> list[int]:
    """Group of every node: that of the ops whose tensors it makes, else that of its first reader."""
    maker = {tensor.name: tensor.producer for tensor in graph.tensors if tensor.producer >= 0}
    readers: dict[str, list[int]] = {}
    for number, node in enumerate(running):
        for name in node.reads:
            readers.setdefault(name, []).append(number)
    homes = [-1] * len(running)
    for number in range(len(running) - 1, -1, -1):
        node = running[number]
        ops = [maker[name] for name in _marks(node) if name in maker]
        if not ops and node.name in graph.index:
            ops = [graph.index[node.name]]
        found = [base[op] for op in ops] or [homes[r] for name in node.makes for r in readers.get(name, ())]
        if not found:
            raise OracleError(f"node {node.name[:80]!r} ({node.kind}) stands for no op")
        homes[number] = found[0]
        if ops:
            for other in found[1:]:
                joined.join(other, found[0])
    return homes


def _marks(node: RunNode) -> list[str]:
    """Names of tensors that a node makes, by its outputs and by its own name."""
    labels = [node.name.removesuffix(suffix) for suffix in _SUFFIXES if node.name.endswith(suffix)]
    return [*node.makes, *labels]


def _absorb(
    graph: Graph, running: Sequence[RunNode], base: list[int], of_node: list[int], count: int, joined: _Joined
) -> None:
    """Join every group that has no kernel of its own to the kernel that took it along: one before it, or one after."""
    blocked = {of_node[i]: len(node.reads) for i, node in enumerate(running) if node.name.endswith(_BLOCKED)}
    has_kernel = set(of_node)
    members: dict[int, list[int]] = {}
    for op, group in enumerate(base):
        members.setdefault(group, []).append(op)
    work = {g for g, ops in members.items() if g < count and any(graph.ops[op].kind not in FREE_KINDS for op in ops)}
    inputs, outputs = _tensors_of_ops(graph)
    left = []
    for group, ops in members.items():  # in the order of their first ops: what was taken along comes one by one
        if group not in work or group in has_kernel:
            continue
        taker = _taker_before(graph, base, ops, inputs, blocked, joined)
        if taker is None:
            left.append(group)
        else:
            joined.join(group, taker)
    kernels = {joined.root(group) for group in has_kernel}
    for group in reversed(left):
        made = [graph.tensors[t] for op in members[group] for t in outputs[op]]
        readers = {joined.root(base[op]) for tensor in made for op in tensor.consumers} - {joined.root(group)}
        if len(readers) != 1 or not readers <= kernels or any(tensor.output for tensor in made):
            raise OracleError(f"op {graph.ops[members[group][0]].name[:80]!r} has no kernel of its own")
        joined.join(group, readers.pop())


def _taker_before(
    graph: Graph,
    base: Sequence[int],
    ops: Sequence[int],
    inputs: Sequence[Sequence[int]],
    blocked: dict[int, int],
    joined: _Joined,
) -> int | None:
    """The blocked kernel that makes what only these ops read; an addition is known by one more input of the kernel."""
    made = [graph.tensors[t] for op in ops for t in inputs[op] if graph.tensors[t].producer >= 0]
    outside = [tensor for tensor in made if base[tensor.producer] != base[ops[0]]]
    least = MOST_ADDS if len({tensor.name for tensor in outside}) > 1 else 1
    able = {
        joined.root(base[tensor.producer])
        for tensor in outside
        if all(base[reader] == base[ops[0]] for reader in tensor.consumers)
        and blocked.get(joined.root(base[tensor.producer]), 0) >= least
    }
    return able.pop() if len(able) == 1 else None


def _tensors_of_ops(graph: Graph) -> tuple[list[list[int]], list[list[int]]]:
    """Tensors that each op reads, and those that it makes."""
    inputs: list[list[int]] = [[] for _ in graph.ops]
    outputs: list[list[int]] = [[] for _ in graph.ops]
    for number, tensor in enumerate(graph.tensors):
        for op in tensor.consumers:
            inputs[op].append(number)
        if tensor.producer >= 0:
            outputs[tensor.producer].append(number)
    return inputs, outputs


ENTER, LEAVE = "ReorderInput", "ReorderOutput"
BLOCKED = "_nchwc"


def layout_changes(
    graph: Graph, groups: KernelGroups, nodes: Sequence[RunNode], ns: Sequence[int], speed: float
) -> tuple[LayoutChange, ...]:
    """For the tensors that are blocked inside one session; `ns` are the nodes' times at full speed."""
    group, of_node = groups.group.tolist(), groups.of_node.tolist()
    crossing = _crossing(nodes, of_node)
    if not crossing:
        return ()
    sizes = {tensor.name: tensor.bytes for tensor in graph.tensors}
    leaving = _rate(sizes, [(node.makes, ns[i]) for i, node in enumerate(nodes) if node.kind == LEAVE])
    entering = _rate(sizes, [(node.reads, ns[i]) for i, node in enumerate(nodes) if node.kind == ENTER])
    leaving, entering = leaving or entering or 0.0, entering or leaving or 0.0
    plain = {name for node in nodes for name in node.makes}
    changes = []
    for tensor in graph.tensors:
        if tensor.producer < 0:
            continue
        home = group[tensor.producer]
        if not any((home, group[op]) in crossing for op in tensor.consumers):
            continue
        leave = 0 if tensor.name in plain else round(tensor.bytes * leaving / speed)
        changes.append(LayoutChange(tensor.name, leave, round(tensor.bytes * entering / speed)))
    return tuple(changes)


def _crossing(nodes: Sequence[RunNode], of_node: Sequence[int]) -> set[tuple[int, int]]:
    """Pairs of groups between which a blocked tensor goes."""
    blocked: dict[str, int] = {}
    pairs: set[tuple[int, int]] = set()
    for number, node in enumerate(nodes):
        read = [blocked[name] for name in node.reads if name in blocked]
        pairs.update((home, of_node[number]) for home in read if home != of_node[number])
        # Additions, activations and concatenations between blocked kernels keep the layout.
        if node.kind != LEAVE and (read or node.kind == ENTER or node.name.endswith(BLOCKED)):
            blocked.update(dict.fromkeys(node.makes, of_node[number]))
    return pairs


def _rate(sizes: dict[str, int], changes: Sequence[tuple[tuple[str, ...], int]]) -> float | None:
    """Nanoseconds a byte."""
    known = [(sizes[names[0]], ns) for names, ns in changes if names and names[0] in sizes]
    total = sum(size for size, _ in known)
    return sum(ns for _, ns in known) / total if total else None
