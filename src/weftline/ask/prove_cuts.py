"""Trees of minimum cuts for pipelines of wide graphs: see `certify/bound_cuts.py`, which walks them again.

In: the problem as the checker reads it, a target. Out: a tree for a position that leaves no candidate, else trees for
all positions that leave few, or None. Simplified: depth first; a node is taken apart at a piece about which the cuts on
both sides of the best price disagree."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weftline.certify.allowance import Allowance
from weftline.certify.bound_cuts import PRICE_PARTS, CutGraph
from weftline.certify.merges import contract_named, inseparable
from weftline.certify.piece_graph import PieceGraph, contract, join_cycles, read_pieces
from weftline.certify.problem import PlanProblem, Refusal

__all__ = ["cut_trees", "named_merges"]

MOST_NODES = 2_000
MOST_NAMED = 300
"""Pieces of graphs whose pairs are tried one by one."""
MOST_CANDIDATES = 1_000
"""Ideals that are left at one position."""
Tree = Any


def named_merges(problem: PlanProblem, target: int, is_over: Callable[[], bool]) -> list[tuple[int, int]]:
    """Pairs of few pieces that a minimum cut each shows to be together below the target, costly tensors first."""
    graph, stages, found = PieceGraph(), problem.stage_limit, list[tuple[int, int]]()
    read_pieces(problem, graph)
    if not contract(graph, stages, target) or len(graph.work) > MOST_NAMED:
        return found
    pairs = [(m, r) for m in graph.work for r in sorted(set().union(*(graph.readers[t] for t in graph.made[m])))]
    for m, r in sorted(pairs, key=lambda pair: -graph.between(*pair)):
        if is_over():
            break
        a, b = graph.piece_of(m), graph.piece_of(r)
        if a == b or a not in graph.work or b not in graph.work or not inseparable(graph, a, b, stages, target):
            continue
        found.append((m, r))
        graph.join(a, b)
        join_cycles(graph)
        if not contract(graph, stages, target):
            break
    return found


def cut_trees(
    problem: PlanProblem, target: int, is_over: Callable[[], bool], merge: Sequence[tuple[int, int]] = ()
) -> dict[str, Tree] | None:
    """A position that no pipeline below the target has, as a tree, or all that are possible; None: none was found."""
    graph, stages = PieceGraph(), problem.stage_limit
    read_pieces(problem, graph)
    if not contract_named(graph, problem, {"merge": merge}, target, Allowance()):
        return None
    try:
        cuts = CutGraph.of(graph)
    except Refusal:
        return None
    positions = sorted(range(1, stages), key=lambda j: abs(2 * j - stages))
    for keeps in (0, MOST_CANDIDATES):
        trees: dict[str, Tree] = {}
        for j in positions:
            tree = _Grower(cuts, j, stages, target - 1, is_over).grow(keeps)
            if is_over() or (keeps and tree is None):
                return None
            if tree is not None:
                trees[str(j)] = tree
            if trees and not keeps:
                return trees
    return trees


class _Grower:
    """One position."""

    def __init__(self, cuts: CutGraph, j: int, stages: int, most: int, is_over: Callable[[], bool]) -> None:
        self.cuts, self.j, self.k, self.most, self.is_over = cuts, j, stages, most, is_over
        self.everything = (1 << len(cuts.work)) - 1
        self.total = sum(cuts.work)

    def grow(self, keeps: int) -> Tree | None:
        """None where more ideals than that are left, or where it takes too long."""
        root: list[Tree] = [None]
        waiting: list[tuple[list[Tree], int, int, int]] = [(root, 0, 0, 0)]
        nodes = 0
        while waiting:
            parent, place, inside, outside = waiting.pop()
            nodes += 1
            if nodes > MOST_NODES or self.is_over():
                return None
            leaf, left, right = self._price(inside, outside)
            if leaf is not None:
                parent[place] = [leaf]
                continue
            if inside | outside == self.everything:  # a pipeline below the target may be cut here
                parent[place], keeps = 0, keeps - 1
                if keeps < 0:
                    return None
                continue
            v = self._branch(inside, outside, left, right)
            node: list[Tree] = ["v", self.cuts.names[v], None, None]
            parent[place] = node
            waiting.append((node, 2, self.cuts.with_piece(inside, v), outside))
            waiting.append((node, 3, inside, self.cuts.without_piece(outside, v)))
        return root[0]

    def _price(self, inside: int, outside: int) -> tuple[int | None, int, int]:
        """The price at which the cut is too large; else the cuts left and right of where the two sides balance."""
        low, high = 0, PRICE_PARTS
        left, right = inside, self.everything & ~outside
        while low <= high:
            a = (low + high) // 2
            limit = (a * self.j + (PRICE_PARTS - a) * (self.k - self.j)) * self.most
            value, held = self.cuts.least_cut(a, inside, outside, limit)
            if value > limit:
                return a, 0, 0
            work, _ = self.cuts.measure(held)
            if 2 * work - self.total > (2 * self.j - self.k) * self.most:  # the left side grows with a
                right, low = held, a + 1
            else:
                left, high = held, a - 1
        return None, left, right

    def _branch(self, inside: int, outside: int, left: int, right: int) -> int:
        """The piece in dispute that decides most work whichever way it goes."""
        free = self.everything & ~(inside | outside)
        disputed = (left ^ right) & free or free

        def decided(v: int) -> int:
            return min(self._work(self.cuts.before[v] & free), self._work(self.cuts.behind[v] & free))

        choices = [v for v in range(len(self.cuts.work)) if disputed >> v & 1]
        return max(choices, key=lambda v: (decided(v) + self.cuts.work[v], -v))

    def _work(self, members: int) -> int:
        total = 0
        while members:
            bit = members & -members
            members ^= bit
            total += self.cuts.work[bit.bit_length() - 1]
        return total
