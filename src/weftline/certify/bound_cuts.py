"""No pipeline has all loads below T, for graphs with too many ideals: trees of minimum cuts.

In: the embedded problem and {"kind": "cut-trees", "target": T, "trees": {position: tree}}. Out: whether T is refuted.
Simplified: as in `piece_graph`; memory is ignored, and tensors that are read before they are made are refused.

Let U = T - 1. The end I of stage j of a pipeline below T has W(I) + cut(I) <= j U and W - W(I) + cut(I) <= (k - j) U
(`bound_pipeline`): it is a candidate of position j. For whole numbers a, b >= 0 with a + b = 64 every candidate has a
W(I) + b W(V - I) + 64 cut(I) <= (a j + b (k - j)) U. The least left side over all ideals is one minimum cut; if it is
larger than the right side, there is no candidate. A tree of position j takes the ideals apart: ["v", piece, tree,
tree] holds those with the piece (and what comes before it) and those without it (and what comes behind it), pieces
named by the least op that they hold; [a] says that the cut for a is too large, with what has been decided; 0 that one
ideal is left, which is tested by itself. If a position has no candidate, T is refuted; else all positions must have
trees, and the chain program runs on their candidates."""

from __future__ import annotations

from typing import Any, NamedTuple

from weftline.certify.allowance import Allowance
from weftline.certify.bound_pipeline import MOST_BYTES, Ideals, chain_exists
from weftline.certify.flow import ENDLESS_ROOM, Flow
from weftline.certify.merges import contract_named
from weftline.certify.piece_graph import PieceGraph, read_pieces
from weftline.certify.problem import PlanProblem, need, rows, whole

__all__ = ["PRICE_PARTS", "CutGraph", "refute_by_trees"]

PRICE_PARTS = 64
MOST_DEPTH = 400


class CutGraph(NamedTuple):
    """Pieces by number, with everything before and behind them as bits."""

    names: list[int]
    work: list[int]
    before: list[int]
    behind: list[int]
    edges: list[tuple[int, int]]
    tensors: list[tuple[int, list[int], int, int]]
    """Maker, readers, both as bits, cost."""

    @classmethod
    def of(cls, graph: PieceGraph) -> CutGraph:
        """Refused where a tensor is read before it is made."""
        number = {piece: i for i, piece in enumerate(graph.work)}
        after = [[number[b] for b in graph.after[piece]] for piece in graph.work]
        behind = [0] * len(number)
        waiting = [len(graph.before[piece]) for piece in graph.work]
        order = [v for v, count in enumerate(waiting) if not count]
        for v in order:  # grows while it is read
            for w in after[v]:
                waiting[w] -= 1
                if not waiting[w]:
                    order.append(w)
        before = [0] * len(number)
        for v in reversed(order):
            for w in after[v]:
                behind[v] |= behind[w] | 1 << w
        for v in order:
            for w in after[v]:
                before[w] |= before[v] | 1 << v
        tensors = []
        for t, cost in graph.cost.items():
            maker, readers = number[graph.maker[t]], [number[r] for r in graph.readers[t]]
            forward = all(behind[maker] >> r & 1 for r in readers)
            need(forward, "witness", "a tensor is read before it is made")
            tensors.append((maker, readers, 1 << maker | sum(1 << r for r in readers), cost))
        edges = [(v, w) for v, ends in enumerate(after) for w in ends]
        return cls(list(graph.work), list(graph.work.values()), before, behind, edges, tensors)

    def with_piece(self, inside: int, v: int) -> int:
        """And all that comes before it."""
        return inside | self.before[v] | 1 << v

    def without_piece(self, outside: int, v: int) -> int:
        """And all that comes behind it."""
        return outside | self.behind[v] | 1 << v

    def measure(self, members: int) -> tuple[int, int]:
        """Work and cut of an ideal."""
        work = sum(w for v, w in enumerate(self.work) if members >> v & 1)
        return work, sum(cost for _, _, ends, cost in self.tensors if ends & members and ends & ~members)

    def least_cut(self, a: int, inside: int, outside: int, stop: int) -> tuple[int, int]:
        """The least a W(I) + b W(V - I) + 64 cut(I), and an I for it; no I where it is more than `stop`."""
        b = PRICE_PARTS - a
        free = [v for v in range(len(self.work)) if not (inside | outside) >> v & 1]
        place = {v: i + 2 for i, v in enumerate(free)}
        flow = Flow(len(free) + 2)
        fixed = sum(a * w if inside >> v & 1 else b * w for v, w in enumerate(self.work) if v not in place)
        for v in free:
            w = self.work[v]
            fixed += min(a, b) * w
            if b > a:
                flow.join(0, place[v], (b - a) * w)
            elif a > b:
                flow.join(place[v], 1, (a - b) * w)
        for v, w in self.edges:
            if v in place and w in place:
                flow.join(place[w], place[v], ENDLESS_ROOM)
        for maker, readers, ends, cost in self.tensors:
            if outside >> maker & 1 or not ends & ~inside:
                continue
            price = PRICE_PARTS * cost
            if ends & outside:
                if maker in place:
                    flow.join(place[maker], 1, price)
                else:
                    fixed += price
                continue
            source = place.get(maker, 0)
            open_ones = [place[r] for r in readers if r in place]
            if len(open_ones) == 1:
                flow.join(source, open_ones[0], price)
                continue
            gate = flow.add()
            flow.join(source, gate, price)
            for r in open_ones:
                flow.join(gate, r, ENDLESS_ROOM)
        value, side = flow.run(stop - fixed)
        return fixed + value, inside | sum(1 << v for v in free if side[place[v]])


def refute_by_trees(problem: PlanProblem, witness: dict[str, Any], target: int, allowance: Allowance) -> bool:
    """True if the trees leave no chain of ideals."""
    graph, stages = PieceGraph(), problem.stage_limit
    read_pieces(problem, graph)
    if not contract_named(graph, problem, witness, target, allowance):
        return True
    cuts, most, trees = CutGraph.of(graph), target - 1, witness["trees"]
    need(isinstance(trees, dict) and bool(trees), "witness", "trees by position, at least one")
    found: set[int] = set()
    for key, tree in trees.items():
        need(isinstance(key, str) and key.isdecimal() and len(key) < 6, "witness", "the name of a tree is a position")
        j = whole(int(key), "position", 1, stages - 1)
        candidates = _walk(cuts, (j * most, (stages - j) * most), tree, (j, stages), most, allowance)
        if not candidates:
            return True
        found |= candidates
    need(len(trees) == stages - 1, "witness", "a position without a tree, and none that is empty")
    return not chain_exists(_ideals_of(cuts, found), stages, most, MOST_BYTES, allowance)


def _walk(
    cuts: CutGraph, room: tuple[int, int], tree: Any, position: tuple[int, int], most: int, allowance: Allowance
) -> set[int]:
    """The candidates that a tree leaves."""
    number = {name: i for i, name in enumerate(cuts.names)}
    j, k = position
    total, everything = sum(cuts.work), (1 << len(cuts.work)) - 1
    found = set()
    waiting = [(tree, 0, 0, 0)]
    while waiting:
        node, inside, outside, depth = waiting.pop()
        allowance.spend("nodes")
        need(depth <= MOST_DEPTH, "witness-size", f"a tree deeper than {MOST_DEPTH}")
        if type(node) is int:
            need(node == 0 and inside | outside == everything, "witness", "a leaf leaves pieces undecided")
            work, cut = cuts.measure(inside)
            if work + cut <= room[0] and total - work + cut <= room[1]:
                found.add(inside)
            continue
        parts = rows(node, "node of a tree")
        if len(parts) == 1:
            a = whole(parts[0], "price", 0, PRICE_PARTS)
            allowance.spend("flows")
            allowance.look()
            limit = (a * j + (PRICE_PARTS - a) * (k - j)) * most
            value, _ = cuts.least_cut(a, inside, outside, limit)
            need(value > limit, "witness", "a cut of a leaf is not too large")
            continue
        need(len(parts) == 4 and parts[0] == "v", "witness", "a node of a tree is a leaf or has two branches")
        v = number.get(whole(parts[1], "piece of a tree"), -1)
        need(v >= 0 and not (inside | outside) >> v & 1, "witness", "a branch on a piece that is gone or decided")
        waiting.append((parts[2], cuts.with_piece(inside, v), outside, depth + 1))
        waiting.append((parts[3], inside, cuts.without_piece(outside, v), depth + 1))
    return found


def _ideals_of(cuts: CutGraph, found: set[int]) -> Ideals:
    """The candidates, the empty ideal and all pieces, by size."""
    everything = (1 << len(cuts.work)) - 1
    members = sorted(found | {0, everything}, key=int.bit_count)
    measured = [cuts.measure(held) for held in members]
    ends, cost = [t[2] for t in cuts.tensors], [t[3] for t in cuts.tensors]
    crossing = [sum(1 << t for t, mask in enumerate(ends) if mask & held and mask & ~held) for held in members]
    none = [0] * len(members)
    return Ideals(members, [w for w, _ in measured], crossing, [c for _, c in measured], none, cost, ends, [], [], [])
