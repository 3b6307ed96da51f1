"""Makes the trees of priced cuts with which the checker shows that no stage that holds its share is cheap.

In: the problem as it stands in the plan, a target, weights of ops, seconds. Out: a witness, or None. Simplified: depth
first; prices by the slopes of a concave function; branched is on a piece that cuts of two prices dispute.
"""

from __future__ import annotations

from collections.abc import Callable

from weftline.certify.allowance import Allowance
from weftline.certify.bound_convex import PRICE_UNITS, ConvexCuts, read_convex
from weftline.certify.problem import PlanProblem, Refusal

__all__ = ["convex_witness"]

MOST_LEAVES = 2_000
FIRST_PRICES, MORE_PRICES = 24, 8
"""Tried at the root, and at other nodes."""

Node = int | list[int]


def convex_witness(
    problem: PlanProblem, target: int, weights: list[list[int]], is_over: Callable[[], bool]
) -> dict[str, object] | None:
    """`weights` are rows [op, weight]; None where a set is left, the tree grows too large, or there is no time."""
    witness: dict[str, object] = {"kind": "convex-set", "target": target, "weights": weights}
    try:
        found = read_convex(problem, witness, target, Allowance())
    except Refusal:
        return None
    if found is None:
        return {**witness, "tree": []}
    tree = _Tree(found[1], target - 1, is_over).grow()
    return None if tree is None else {**witness, "tree": tree}


class _Tree:
    """One target."""

    def __init__(self, sets: ConvexCuts, most: int, is_over: Callable[[], bool]) -> None:
        self.sets, self.most, self.is_over = sets, most, is_over
        self.everything = (1 << sets.n) - 1

    def grow(self) -> list[Node] | None:
        """In preorder."""
        tree: list[Node] = []
        waiting: list[tuple[tuple[int, int] | None, int]] = [((0, 0), 0)]
        while waiting:
            state, price = waiting.pop()
            if len(tree) > 2 * MOST_LEAVES or self.is_over():
                return None
            if state is None:
                tree.append(-1)
                continue
            inside, outside = state
            refuted, price, light, heavy = self._price(inside, outside, price, MORE_PRICES if tree else FIRST_PRICES)
            if refuted:
                tree.append(price)
                continue
            v = self._branch(inside, outside, light, heavy)
            if v is None:
                return None
            tree.append([self.sets.cuts.names[v]])
            waiting.append((self.sets.decide(inside, outside | 1 << v), price))
            waiting.append((self.sets.decide(inside | 1 << v, outside), price))
        return tree

    def _price(self, inside: int, outside: int, price: int, steps: int) -> tuple[bool, int, int, int]:
        """A price that refutes all sets that are left; else the best one, with the lightest and heaviest set there."""
        sets = self.sets
        start = PRICE_UNITS * self.most // max(1, sets.share)
        price = price or start
        low: tuple[int, int, int] | None = None
        high: tuple[int, int, int] | None = None
        light, heavy = inside, self.everything & ~outside
        for _ in range(steps):
            limit = sets.limit(self.most, price)
            value, members = sets.least(inside, outside, price, limit)
            if value > limit:
                return True, price, 0, 0
            weight = sum(pi for v, pi in enumerate(sets.pi) if members >> v & 1)
            line = price, value + price * weight, weight
            if weight < sets.share:
                low, light = line, members
            else:
                high, heavy = line, members
            if low is None:
                price //= 2
            elif high is None:
                price = 2 * price + 1
            else:
                price = (high[1] - low[1]) // max(1, high[2] - low[2])
                if not low[0] < price < high[0]:
                    break
        return False, price if price > 0 else start, light, heavy

    def _branch(self, inside: int, outside: int, light: int, heavy: int) -> int | None:
        """The piece in dispute with most work and weight; None where nothing is left to decide."""
        free = self.everything & ~(inside | outside)
        disputed = (light ^ heavy) & free or free
        work, pi, share = self.sets.cuts.work, self.sets.pi, max(1, self.sets.share)
        choices = [v for v in range(self.sets.n) if disputed >> v & 1]
        return max(choices, key=lambda v: (work[v] / (self.most + 1) + pi[v] / share, -v), default=None)
