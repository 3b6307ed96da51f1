"""Pairs of pieces that every pipeline below T keeps together, named by a witness and shown by a minimum cut each.

In: pieces, contracted as far as `piece_graph` does it by itself, and {"merge": [[m, r], ...]} as numbers of ops. Out:
the graph with these pairs joined, one after another; a `Refusal` where a pair is not shown. Simplified: as in
`piece_graph`.

r must lie behind m. Say that they are apart in a pipeline with all loads at most U = T - 1; then r is in a later
stage.
C2  The ideal up to the stage of m holds m and not r. Each tensor across it is paid once before it and once behind it,
    and all loads sum to at most k U. So if W + 2 cut(I) > k U for every ideal I with m and without r, they are
    together.
C3  The stage of m holds m, nothing of r and what is behind it, and is closed as m sees it (`bound_flow`). If every
    such set costs at least T, they are together. Or: the stage of r holds r, nothing of m and what is before it.
"""

from __future__ import annotations

from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.bound_flow import StageNetwork, closure, reachable
from weftline.certify.flow import ENDLESS_ROOM, Flow
from weftline.certify.piece_graph import PieceGraph, contract, join_cycles
from weftline.certify.problem import PlanProblem, need, rows, whole

__all__ = ["contract_named", "inseparable"]


def contract_named(
    graph: PieceGraph, problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance
) -> bool:
    """Reduce, contract and join what is named -> False where that leaves no pipeline below the target."""
    stages = problem.stage_limit
    if not contract(graph, stages, target):
        return False
    for pair in rows(witness.get("merge", []), "merge"):
        named = [whole(op, "op of a merge", 0, len(problem.names) - 1) for op in rows(pair, "pair of a merge")]
        need(len(named) == 2, "witness", "a merge names two ops")
        m, r = (graph.piece_of(op) for op in named)
        need(m in graph.work and r in graph.work, "witness", "a merge names an op that is no piece")
        if m == r:
            continue
        allowance.spend("flows", 3)
        allowance.look()
        need(inseparable(graph, m, r, stages, target), "witness", "a merge that is not shown")
        graph.join(m, r)
        join_cycles(graph)
        if not contract(graph, stages, target):
            return False
    return True


def inseparable(graph: PieceGraph, m: int, r: int, stages: int, target: int) -> bool:
    """Does every pipeline below the target keep them together, by C2 or C3?"""
    behind, before = reachable(graph.after, r), reachable(graph.before, m)
    if m not in reachable(graph.before, r):
        return False
    if sum(graph.work.values()) + 2 * _least_cut(graph, m, r) > stages * (target - 1):
        return True
    network = StageNetwork.of(graph)
    if network.cheapest(m, {r, *behind}, closure(graph, m)) >= target:
        return True
    return network.cheapest(r, {m, *before}, closure(graph, r)) >= target


def _least_cut(graph: PieceGraph, m: int, r: int) -> int:
    """Of the ideals with m and without r: all tensors with an end on both sides."""
    place = {piece: i + 2 for i, piece in enumerate(graph.work)}
    place[m], place[r] = 0, 1
    flow = Flow(len(place) + 2)
    for b, earlier in graph.before.items():
        for a in earlier:
            flow.join(place[b], place[a], ENDLESS_ROOM)
    for t, cost in graph.cost.items():
        one, other = flow.add(), flow.add()
        flow.join(one, other, cost)
        for end in (graph.maker[t], *graph.readers[t]):
            flow.join(place[end], one, ENDLESS_ROOM)
            flow.join(other, place[end], ENDLESS_ROOM)
    value, _ = flow.run(stop=2 * ENDLESS_ROOM)
    return value
