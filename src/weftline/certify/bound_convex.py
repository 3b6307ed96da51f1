"""No pipeline has all loads below T: whatever the stages are, one of them holds its share, and that costs too much.

In: the embedded problem and {"kind": "convex-set", "target": T, "weights": [[op, pi], ...], "tree": [...]}; "merge" may
name pairs that `merges` joins. Out: whether T is refuted. Simplified: as in `piece_graph`; memory is ignored, and
tensors that are read before they are made are refused.

**Share.** Give each piece a whole weight pi >= 0. A pipeline of k stages shares out all pieces, so a stage S has
pi(S) >= rho = ceil(pi(all) / k). S is convex: what lies between two of its pieces is in it. Let U = T - 1. If no convex
S has f(S) <= U and pi(S) >= rho, there is no pipeline below T.

**Price.** For a price mu >= 0 every such S has M f(S) - mu pi(S) <= M U - mu rho, M = 2^20. The least left side over
all sets is one minimum cut: a piece pays M w - mu pi if it is in S, a tensor M c if it enters or leaves S, which is if
its maker and readers are not all on one side. If the cut is larger than the right side, there is no S.

**Tree**, in preorder: `[op]`: the piece of an op is in S, then it is not; a number: the price whose cut is too large,
with what has been decided; -1: the decisions contradict each other. More follows from what the tree has decided: what
lies between two pieces of S is in S; if x is not in S and lies behind a piece of S, nothing behind x is in S; in
reverse before. In the cut, for x behind a piece of S: if a successor of x is in S, so is x. In reverse before.
"""

from __future__ import annotations

from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.bound_cuts import CutGraph
from weftline.certify.flow import ENDLESS_ROOM, Flow
from weftline.certify.merges import contract_named
from weftline.certify.piece_graph import PieceGraph, read_pieces
from weftline.certify.problem import MAX_NUMBER, PlanProblem, need, rows, whole

__all__ = ["ConvexCuts", "read_convex", "refute_by_convex_sets"]

PRICE_UNITS = 2**20
SOURCE_NODE, SINK_NODE = 0, 1


class ConvexCuts:
    """Pieces with weights, and minimum cuts around what has been decided: (in S, not in S) as bits."""

    def __init__(self, cuts: CutGraph, pi: list[int], stages: int) -> None:
        self.cuts, self.pi, self.n = cuts, pi, len(pi)
        self.share = -(-sum(pi) // stages)

    def decide(self, inside: int, outside: int) -> tuple[int, int] | None:
        """With all that follows; None for a contradiction."""
        cuts = self.cuts
        while True:
            below, above = self._reach(inside)
            more, less = inside | below & above, outside
            for v in _numbers(outside & below):
                less |= cuts.behind[v]
            for v in _numbers(outside & above):
                less |= cuts.before[v]
            if more & less:
                return None
            if (more, less) == (inside, outside):
                return inside, outside
            inside, outside = more, less

    def _reach(self, inside: int) -> tuple[int, int]:
        below = above = 0
        for v in _numbers(inside):
            below |= self.cuts.behind[v]
            above |= self.cuts.before[v]
        return below, above

    def limit(self, most: int, price: int) -> int:
        """What no cut may reach that refutes loads up to `most`."""
        return PRICE_UNITS * most - price * self.share

    def least(self, inside: int, outside: int, price: int, stop: int) -> tuple[int, int]:
        """The least M f(S) - price pi(S), and an S; no S where it is more than `stop`."""
        cuts = self.cuts
        free = [v for v in range(self.n) if not (inside | outside) >> v & 1]
        place = [SOURCE_NODE if inside >> v & 1 else SINK_NODE for v in range(self.n)]
        for number, v in enumerate(free):
            place[v] = number + 2
        flow, fixed = Flow(len(free) + 2), 0
        for v in range(self.n):
            cost = PRICE_UNITS * cuts.work[v] - price * self.pi[v]
            if place[v] == SOURCE_NODE or (place[v] != SINK_NODE and cost < 0):
                fixed += cost
            if place[v] > SINK_NODE:
                flow.join(place[v], SINK_NODE, cost)
                flow.join(SOURCE_NODE, place[v], -cost)
        for maker, readers, _, cost in cuts.tensors:
            fixed += self._tensor(flow, {place[maker], *(place[r] for r in readers)}, PRICE_UNITS * cost)
        below, above = self._reach(inside)
        for x, y in cuts.edges:
            if below >> x & 1 and place[y] > SINK_NODE and place[x] != SOURCE_NODE:
                flow.join(place[y], place[x], ENDLESS_ROOM)
            if above >> y & 1 and place[x] > SINK_NODE and place[y] != SOURCE_NODE:
                flow.join(place[x], place[y], ENDLESS_ROOM)
        value, side = flow.run(stop - fixed)
        return fixed + value, inside | sum(1 << v for v in free if side[place[v]])

    def _tensor(self, flow: Flow, ends: set[int], cost: int) -> int:
        """It costs once where not all ends are on one side -> what it costs for certain."""
        if SOURCE_NODE in ends and SINK_NODE in ends:
            return cost
        free = ends - {SOURCE_NODE, SINK_NODE}
        if len(ends) == 2:
            one, two = sorted(ends)
            if one != SINK_NODE:
                flow.join(one, two, cost)
            if one != SOURCE_NODE:
                flow.join(two, one, cost)
        elif SOURCE_NODE in ends:
            gate = flow.add()
            flow.join(SOURCE_NODE, gate, cost)
            for end in free:
                flow.join(gate, end, ENDLESS_ROOM)
        elif SINK_NODE in ends:
            gate = flow.add()
            flow.join(gate, SINK_NODE, cost)
            for end in free:
                flow.join(end, gate, ENDLESS_ROOM)
        elif len(ends) > 2:
            enter, leave = flow.add(), flow.add()
            flow.join(enter, leave, cost)
            for end in free:
                flow.join(end, enter, ENDLESS_ROOM)
                flow.join(leave, end, ENDLESS_ROOM)
        return 0


def _numbers(mask: int) -> list[int]:
    """Of the bits that are set."""
    found = []
    while mask:
        low = mask & -mask
        found.append(low.bit_length() - 1)
        mask ^= low
    return found


def read_convex(
    problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance
) -> tuple[PieceGraph, ConvexCuts] | None:
    """Pieces, contracted below the target, with their weights; None where contraction leaves no pipeline."""
    graph, stages = PieceGraph(), problem.stage_limit
    read_pieces(problem, graph)
    if not contract_named(graph, problem, witness, target, allowance):
        return None
    cuts = CutGraph.of(graph)
    number = {name: v for v, name in enumerate(cuts.names)}
    pi = [0] * len(number)
    for row in rows(witness["weights"], "weights"):
        need(len(rows(row, "weight")) == 2, "witness", "a weight is [op, weight]")
        piece = graph.piece_of(whole(row[0], "op of a weight", 0, len(problem.names) - 1))
        if piece in number:  # what was left out has no work and is in no way
            pi[number[piece]] += whole(row[1], "weight", 0, MAX_NUMBER)
    return graph, ConvexCuts(cuts, pi, stages)


def refute_by_convex_sets(problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance) -> bool:
    """True if the tree leaves no convex set that holds its share and costs less than the target."""
    found = read_convex(problem, witness, target, allowance)
    if found is None:
        return True
    graph, sets = found
    number = {name: v for v, name in enumerate(sets.cuts.names)}
    waiting: list[tuple[int, int] | None] = [(0, 0)]
    for node in rows(witness["tree"], "tree"):
        allowance.spend("nodes")
        need(bool(waiting), "witness", "the tree goes on behind its end")
        state = waiting.pop()
        if node == -1 and type(node) is int:
            need(state is None, "witness", "decisions that do not contradict each other")
            continue
        need(state is not None, "witness", "decisions that contradict each other")
        assert state is not None
        inside, outside = state
        if type(node) is int:
            price = whole(node, "price", 0, MAX_NUMBER)
            allowance.spend("flows")
            allowance.look()
            limit = sets.limit(target - 1, price)
            need(sets.least(inside, outside, price, limit)[0] > limit, "witness", "a cut of a leaf is not too large")
            continue
        op = whole(rows(node, "node")[0], "op of a node", 0, len(problem.names) - 1)
        v = number.get(graph.piece_of(op), -1)
        need(v >= 0 and not (inside | outside) >> v & 1, "witness", "a branch on a piece that is gone or decided")
        waiting += [sets.decide(inside, outside | 1 << v), sets.decide(inside | 1 << v, outside)]
    need(not waiting, "witness", "the tree ends early")
    return True
