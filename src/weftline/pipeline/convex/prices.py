"""What a convex set costs at least along a tree, when its weight has a price.

Least of FINE * cost - price * weight: one pass up the tree for what lies below each state, one down for all the rest.
In: `Tree`, weights, a price. Out: both for every state, and the price at which a set of enough weight costs most.
"""

from __future__ import annotations

from weftline.graph.arrays import Ints
from weftline.pipeline.convex.graph import FINE
from weftline.pipeline.convex.tree import Tree
from weftline.simulate.kernels.jit import part

__all__ = ["NONE", "best_price", "downwards", "upwards"]

NONE = 2**60
"""Above every sum."""
MOST_PRICED = 2**56
"""Price times all weight, at most: sums stay far below NONE."""
STRETCH = 1.05
SEARCHES = 25


@part
def upwards(tree: Tree, pi: Ints, price: int, up: Ints, heavy: Ints) -> int:
    """Least of FINE * cost - price * weight below every state, and the weight where it is -> the least of all."""
    row_ptr, first_row, state_ptr = tree.row_ptr, tree.first_row, tree.state_ptr
    cost, piece, child, children, child_ptr = tree.cost, tree.piece, tree.child, tree.children, tree.child_ptr
    for step in range(len(children)):
        many = children[step]
        for state in range(state_ptr[step], state_ptr[step + 1]):
            best, weight = NONE, 0
            for row in range(first_row[state], first_row[state + 1]):
                value, mine = FINE * cost[row], 0
                if piece[row] >= 0:
                    mine = pi[piece[row]]
                    value -= price * mine
                at = child_ptr[step] + (row - row_ptr[step]) * many
                for c in range(many):
                    value += up[child[at + c]]
                    mine += heavy[child[at + c]]
                if value < best:
                    best, weight = value, mine
            up[state] = best
            heavy[state] = weight
    return int(up[len(up) - 1])


@part
def downwards(tree: Tree, pi: Ints, price: int, up: Ints, rest: Ints) -> None:
    """Least of the same over all that is not below a state."""
    row_ptr, first_row, state_ptr = tree.row_ptr, tree.first_row, tree.state_ptr
    cost, piece, child, children, child_ptr = tree.cost, tree.piece, tree.child, tree.children, tree.child_ptr
    for state in range(len(rest)):
        rest[state] = NONE
    rest[len(rest) - 1] = 0
    for step in range(len(children) - 1, -1, -1):
        many = children[step]
        for state in range(state_ptr[step], state_ptr[step + 1]):
            for row in range(first_row[state], first_row[state + 1]):
                value = FINE * cost[row] + rest[state]
                if piece[row] >= 0:
                    value -= price * pi[piece[row]]
                at = child_ptr[step] + (row - row_ptr[step]) * many
                for c in range(many):
                    value += up[child[at + c]]
                for c in range(many):
                    below = child[at + c]
                    rest[below] = min(rest[below], value - up[below])


@part
def best_price(tree: Tree, pi: Ints, least: int, price: int, up: Ints, heavy: Ints) -> int:
    """The price of weight at which all costs most: a concave function, each price gives one line of it."""
    low = high = -1
    low_value = high_value = low_weight = high_weight = 0
    best, best_value = price, -NONE
    stretch, total = STRETCH, 1
    for piece in range(len(pi)):
        total += abs(pi[piece])
    for _ in range(SEARCHES):
        value = upwards(tree, pi, price, up, heavy) + price * least
        weight = heavy[len(heavy) - 1]
        if value > best_value:
            best, best_value = price, value
        if weight < least:
            low, low_value, low_weight = price, value, weight
        else:
            high, high_value, high_weight = price, value, weight
        if low < 0:
            if high <= 1:
                break
            price = max(1, int(high / stretch))
        elif high < 0:
            price = int(low * stretch) + 1
            if price * total > MOST_PRICED:
                break
        else:
            # value + (x - price) * (least - weight) of both lines, where they meet
            step = (high_value - low_value + (low - high) * (least - high_weight)) / max(1, high_weight - low_weight)
            other = low + int(step)
            if other <= low or other >= high:
                break
            price = other
        stretch = min(4.0, stretch * stretch)
    return best
