"""What it costs to cut where a backend has changed the layout of tensors.

In: a graph, the groups of its kernels, the nodes that run with their times. Out: for every tensor that goes from kernel
to kernel in the CPU's blocked layout (NCHWc), the time to change it back where it leaves a device, and to change it
again where it enters another. Two sessions exchange plain tensors, so a cut adds both. Simplified: by bytes, at the
rate of the changes that the whole model makes anyway; cuts between segments of one device are not counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from weftline.cost.profile_file import LayoutChange
from weftline.execute.profile_kernels import KernelGroups, RunNode
from weftline.graph import Graph

__all__ = ["layout_changes"]

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
