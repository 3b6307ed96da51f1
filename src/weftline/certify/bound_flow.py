"""The cheapest stage around one op: a minimum cut.

In: the embedded problem and the op. Out: what every stage with that op costs at least. Simplified: a stage is any set
of ops, or, with `"convex": true`, any set of pieces (`piece_graph`) that is closed as the op sees it.

A set S with the op pays the least time of each op inside, and the least transfer of each tensor across its border.
Op -> sink carries its time. Maker inside and a reader outside: maker -> gate -> reader. A reader inside and the maker
outside: reader -> gate -> maker. The least cut that separates the op from the sink is the cheapest S.
Closed: a stage that holds the op and something behind it holds all that lies between. So of what is behind the op,
whoever is in S needs its predecessors there in S; of what is before it, its successors. These are arcs without end.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weftline.certify.flow import ENDLESS_ROOM, Flow
from weftline.certify.piece_graph import PieceGraph, read_pieces
from weftline.certify.problem import MAX_NUMBER, PlanProblem, flag, group_times, groups_of, need, whole

__all__ = ["StageNetwork", "closure", "cut_witness", "reachable"]


class StageNetwork:
    """Sets of nodes by what they cost as a stage."""

    def __init__(self, times: dict[int, int], tensors: Iterable[tuple[int, Iterable[int], int]]) -> None:
        self.times, self.tensors = times, list(tensors)

    @classmethod
    def of(cls, graph: PieceGraph) -> StageNetwork:
        """Of pieces."""
        return cls(graph.work, [(graph.maker[t], graph.readers[t], cost) for t, cost in graph.cost.items()])

    def cheapest(self, inside: int, outside: Iterable[int] = (), arcs: Iterable[tuple[int, int]] = ()) -> int:
        """The least cost of a set with one node and without others; an arc (a, b): whoever holds a holds b."""
        place = {node: i + 2 for i, node in enumerate(self.times)}
        place[inside] = 0
        flow = Flow(len(place) + 2)
        for node, time in self.times.items():
            flow.join(place[node], 1, time)
        for node in outside:
            flow.join(place[node], 1, ENDLESS_ROOM)
        for a, b in arcs:
            flow.join(place[a], place[b], ENDLESS_ROOM)
        for maker, readers, cost in self.tensors:
            leaves, enters = flow.add(), flow.add()
            flow.join(place[maker], leaves, cost)
            flow.join(enters, place[maker], cost)
            for reader in readers:
                flow.join(leaves, place[reader], ENDLESS_ROOM)
                flow.join(place[reader], enters, ENDLESS_ROOM)
        value, _ = flow.run(MAX_NUMBER)
        return value


def cut_witness(problem: PlanProblem, witness: dict[str, Any]) -> int:
    """The cheapest set of ops around one op."""
    added = problem.rule("objective", "throughput") and problem.rule("communication", "added")
    need(added, "witness", "a cut bounds throughput with added communication alone")
    op = whole(witness["op"], "op of the witness", 0, len(problem.names) - 1)
    if flag(witness, "convex"):
        graph = PieceGraph()
        read_pieces(problem, graph)
        piece = graph.piece_of(next(group[0] for group in groups_of(problem) if op in group))
        return StageNetwork.of(graph).cheapest(piece, arcs=closure(graph, piece))
    hosts = any(problem.host)
    groups = [[op] for op in range(len(problem.names))] if hosts else groups_of(problem)
    node = {op: number for number, group in enumerate(groups) for op in group}
    times = [group_times(problem, group) for group in groups]
    able = [[t for t, host in zip(row, problem.host, strict=True) if t >= 0 and not host] for row in times]
    least: dict[int, int] = {}  # of each distinct row of transfer times
    for row in {id(row): row for row in problem.transfer}.values():
        lengths = [x for i, x in enumerate(row) if x >= 0 and i % (len(problem.ids) + 1)]
        least[id(row)] = min(lengths, default=MAX_NUMBER)
    tensors = []
    for t, maker in enumerate(problem.producer):
        readers = {node[reader] for reader in problem.consumers[t]} - {node.get(maker)}
        if maker >= 0 and readers and least[id(problem.transfer[t])] > 0:
            tensors.append((node[maker], readers, least[id(problem.transfer[t])]))
    network = StageNetwork({v: min(row, default=MAX_NUMBER) for v, row in enumerate(able)}, tensors)
    on_host = [t for t, host in zip(times[node[op]], problem.host, strict=True) if t >= 0 and host]
    return min([network.cheapest(node[op]), *on_host])


def closure(graph: PieceGraph, piece: int) -> list[tuple[int, int]]:
    """(a, b): a stage with the piece and a holds b, too."""
    behind, before = reachable(graph.after, piece), reachable(graph.before, piece)
    arcs = [(d, p) for d in behind for p in graph.before[d] if p in behind]
    return arcs + [(a, s) for a in before for s in graph.after[a] if s in before]


def reachable(following: dict[int, set[int]], start: int) -> set[int]:
    """What follows a piece, directly or not."""
    found: set[int] = set()
    waiting = [start]
    while waiting:
        for other in following[waiting.pop()] - found:
            found.add(other)
            waiting.append(other)
    return found
