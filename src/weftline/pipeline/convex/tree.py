"""A tree decomposition for the search over convex sets: sparse graphs fall apart at few pieces.

Each piece is before the set, in it, or behind it, and never behind a successor of its own: this is what convex means,
said of neighbours only. A tensor of several readers is a variable too: where its maker is, and whether it is paid for.
Variables are eliminated one after another, each when few others stand around it. In: Pieces. Out: `Tree`, for each step
the consistent values of a variable and those around it as flat rows; None if there are too many.

What a convex set costs at least along the tree when its weight has a price is the least of FINE_UNITS * cost - price *
weight: one pass up the tree for what lies below each state, one down for all the rest.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.convex.graph import FINE_UNITS, ConvexGraph
from weftline.pipeline.pieces import Pieces
from weftline.simulate.kernels.jit import part

__all__ = [
    "ABOVE_ALL",
    "HALF_UNITS",
    "MOST_ROWS",
    "MOST_VALUES",
    "Tree",
    "best_price",
    "downwards",
    "make_tree",
    "upwards",
]

MOST_ROWS = 400_000
"""Of all steps together."""
MOST_AROUND = 18
"""Variables around one that is eliminated: their values must fit one integer."""
ELIMINATION_TRIES = 12
MOST_VALUES = 6
"""Values of a variable at most: a tensor's maker is at 0, 1, 2 and it is paid for or not."""
HALF_UNITS = 2
"""Costs of a tree are twice those of the graph, so that half a cost is a number."""

ABOVE_ALL = 2**60
"""Above every sum."""
MOST_PRICED = 2**56
"""Price times all weight, at most: sums stay far below ABOVE_ALL."""
FIRST_STRETCH = 1.05
MOST_PRICES_TRIED = 25

Values = NDArray[np.int64]


class Tree(NamedTuple):
    """Steps in an order in which those that a step needs lie directly before it; the last one joins all parts.

    A state is a choice of values around a step's variable, a row one more value, of the variable itself.
    """

    row_ptr: Indices
    """Step -> its rows, sorted by state."""
    state_ptr: Indices
    """Step -> its states."""
    first_row: Indices
    """State -> its first row; one more at the end."""
    cost: Ints
    """Row -> HALF_UNITS times what the values decide: the work of the piece, tensors."""
    piece: Indices
    """Row -> the piece that is in the set, or -1."""
    child_ptr: Indices
    """Step -> where its rows' children begin in `child`: as many for each row."""
    children: Indices
    """Step -> number of children."""
    child: Indices
    """State of each child, row by row."""


@dataclass
class _Relations:
    """Which values of two variables go together, and what they cost."""

    size: list[int]
    pair: dict[tuple[int, int], Values]
    """(lower variable, higher) -> cost of each pair of values, -1 = impossible."""

    def add(self, a: int, b: int, cost: Values) -> None:
        if a > b:
            a, b, cost = b, a, cost.T
        known = self.pair.get((a, b))
        self.pair[a, b] = cost if known is None else np.where((known < 0) | (cost < 0), -1, known + cost)

    def cost(self, a: int, b: int) -> Values | None:
        found = self.pair.get((min(a, b), max(a, b)))
        return found if found is None or a < b else found.T


_PLACES = np.arange(3)
_ORDERED = np.where(_PLACES[:, None] <= _PLACES, 0, -1)
_CUT = ((_PLACES[:, None] == 1) != (_PLACES == 1)).astype(np.int64)
_MADE = np.where(_PLACES[:, None] == np.arange(6) // 2, 0, -1)
_READ = np.where((np.arange(6)[:, None] % 2 == 1) | ((np.arange(6)[:, None] // 2 == 1) == (_PLACES == 1)), 0, -1)
_LATER = np.where(np.arange(6)[:, None] // 2 <= _PLACES, 0, -1)


def _relations(pieces: Pieces, graph: ConvexGraph) -> tuple[_Relations, list[int]]:
    """All relations, and for each variable beyond the pieces the cost of paying for its tensor."""
    n = len(graph.work)
    relations = _Relations([3] * n, {})
    source, target = pieces.edges
    waiting = set(zip(source.tolist(), target.tolist(), strict=True))
    paid = []
    for tensor, price in enumerate(graph.enter.tolist()):
        maker = int(graph.maker[tensor])
        readers = graph.reader_of[graph.reader_ptr[tensor] : graph.reader_ptr[tensor + 1]].tolist()
        if price == 0:
            continue
        if len(readers) <= 2:  # cut where its pieces are not together: half the cost between each two of three
            for reader in readers:
                relations.add(maker, reader, HALF_UNITS * price // len(readers) * _CUT)
            if len(readers) == 2:
                relations.add(readers[0], readers[1], price * _CUT)
            continue
        variable = len(relations.size)
        relations.size.append(MOST_VALUES)
        paid.append(HALF_UNITS * price)
        in_order = [(maker, reader) in waiting for reader in readers]
        relations.add(maker, variable, np.where(np.arange(6) == 5, -1, _MADE) if all(in_order) else _MADE)
        for reader, ordered in zip(readers, in_order, strict=True):
            waiting.discard((maker, reader))
            relations.add(variable, reader, np.where((_READ < 0) | (_LATER < 0), -1, 0) if ordered else _READ)
    for early, late in waiting:
        relations.add(early, late, _ORDERED)
    return relations, paid


def _order(relations: _Relations, seed: int) -> list[tuple[int, tuple[int, ...]]]:
    """Eliminate variables: (variable, those around it then), few new neighbours first."""
    chooser = random.Random(seed)
    around: dict[int, set[int]] = {v: set() for v in range(len(relations.size))}
    for a, b in relations.pair:
        around[a].add(b)
        around[b].add(a)

    def score(v: int) -> tuple[int, int, float]:
        near = sorted(around[v])
        missing = sum(b not in around[a] for i, a in enumerate(near) for b in near[:i])
        return missing, len(near), chooser.random()

    scores = {v: score(v) for v in around}
    steps = []
    while around:
        variable = min(scores, key=scores.__getitem__)
        near = around.pop(variable)
        del scores[variable]
        steps.append((variable, tuple(sorted(near))))
        for a in near:
            around[a] |= near
            around[a] -= {a, variable}
        for a in near.union(*(around[b] for b in near)) if near else ():
            scores[a] = score(a)
    return steps


def make_tree(pieces: Pieces, graph: ConvexGraph) -> Tree | None:
    """The best of a few orders of elimination; None where even it has too many rows."""
    relations, paid = _relations(pieces, graph)
    orders = [_order(relations, seed) for seed in range(ELIMINATION_TRIES)]
    n = len(graph.work)
    steps = min(
        orders, key=lambda order: sum(float(np.prod([2.2 if v < n else 3.2 for v in near])) for _, near in order)
    )
    if max((len(near) for _, near in steps), default=0) > MOST_AROUND:
        return None
    number = {variable: i for i, (variable, _) in enumerate(steps)}
    below: list[list[int]] = [[] for _ in range(len(steps) + 1)]
    for i, (_, near) in enumerate(steps):
        below[min((number[v] for v in near), default=len(steps))].append(i)
    rows = _Rows(relations, graph, paid)
    order: list[int] = []
    stack = [(len(steps), False)]
    while stack:  # children directly before their step
        i, ready = stack.pop()
        if ready:
            order.append(i)
        else:
            stack.append((i, True))
            stack += [(j, False) for j in below[i]]
    for i in order:
        variable, near = steps[i] if i < len(steps) else (-1, ())
        if not rows.add(i, variable, near, [j for j in order if j in set(below[i])] if below[i] else []):
            return None
    return rows.tree()


class _Rows:
    """Collects the rows of one step after another."""

    def __init__(self, relations: _Relations, graph: ConvexGraph, paid: list[int]) -> None:
        self.relations, self.graph, self.paid = relations, graph, paid
        self.keys: dict[int, tuple[tuple[int, ...], Values, int]] = {}
        """Step -> the variables of its states, their values as sorted integers, number of its first state."""
        self.cost: list[Values] = []
        self.piece: list[Values] = []
        self.child: list[Values] = []
        self.children: list[int] = []
        self.row_ptr, self.state_ptr, self.first_row = [0], [0], [0]

    def add(self, step: int, variable: int, near: tuple[int, ...], below: list[int]) -> bool:
        """All consistent values -> False if they are too many."""
        values = self._values(variable, near, below)
        if values is None:
            return False
        cost, piece = np.zeros(len(values), np.int64), np.full(len(values), -1)
        if variable >= 0:
            mine, n = values[:, 0], len(self.graph.work)
            if variable < n:
                cost += HALF_UNITS * self.graph.work[variable] * (mine == 1)
                piece[mine == 1] = variable
            else:
                cost += self.paid[variable - n] * (mine & 1)
            for i, other in enumerate(near):
                table = self.relations.cost(variable, other)
                if table is not None:
                    cost += table[mine, values[:, 1 + i]]
        key = _key(values[:, values.shape[1] - len(near) :])
        order = np.argsort(key, kind="stable")
        states, first = np.unique(key[order], return_index=True)
        place = {v: i for i, v in enumerate((variable, *near) if variable >= 0 else ())}
        child = []
        for other in below:
            seen, known, base = self.keys[other]
            child.append(base + np.searchsorted(known, _key(values[:, [place[v] for v in seen]])))
        self.keys[step] = (near, states, self.state_ptr[-1])
        for other in below:
            del self.keys[other]
        self.cost.append(cost[order])
        self.piece.append(piece[order])
        self.child.append(np.array(child, np.int64).reshape(len(below), len(values)).T[order].ravel())
        self.children.append(len(below))
        self.first_row += (self.row_ptr[-1] + np.append(first[1:], len(values))).tolist()
        self.row_ptr.append(self.row_ptr[-1] + len(values))
        self.state_ptr.append(self.state_ptr[-1] + len(states))
        return self.row_ptr[-1] <= MOST_ROWS

    def _values(self, variable: int, near: tuple[int, ...], below: list[int]) -> Values | None:
        """Rows of values: of the variable, then of those around it."""
        names = (variable, *near) if variable >= 0 else ()
        values = np.zeros((1, 0), np.int64)
        for i, name in enumerate(names):
            size = self.relations.size[name]
            values = np.column_stack([np.repeat(values, size, axis=0), np.tile(np.arange(size), len(values))])
            for j, other in enumerate(names[:i]):
                table = self.relations.cost(other, name)
                if table is not None:
                    values = values[table[values[:, j], values[:, i]] >= 0]
            for step in below:  # what is gone already ties others together
                seen, known, _ = self.keys[step]
                if seen and name in seen and all(v in names[: i + 1] for v in seen):
                    values = values[np.isin(_key(values[:, [names.index(v) for v in seen]]), known)]
            if len(values) > MOST_ROWS:
                return None
        return values

    def tree(self) -> Tree:
        """What was collected, as arrays."""
        counts = np.diff(self.row_ptr) * self.children
        return Tree(
            np.array(self.row_ptr, np.int32),
            np.array(self.state_ptr, np.int32),
            np.array(self.first_row, np.int32),
            np.concatenate(self.cost),
            np.concatenate(self.piece).astype(np.int32),
            np.concatenate([[0], np.cumsum(counts)]).astype(np.int32),
            np.array(self.children, np.int32),
            np.concatenate(self.child).astype(np.int32),
        )


def _key(values: Values) -> Values:
    """Rows of values as integers."""
    key = np.zeros(len(values), np.int64)
    for column in range(values.shape[1]):
        key = key * MOST_VALUES + values[:, column]
    return key


@part
def upwards(tree: Tree, pi: Ints, price: int, up: Ints, heavy: Ints) -> int:
    """Least of FINE_UNITS * cost - price * weight below every state, and the weight where it is -> the least of all."""
    row_ptr, first_row, state_ptr = tree.row_ptr, tree.first_row, tree.state_ptr
    cost, piece, child, children, child_ptr = tree.cost, tree.piece, tree.child, tree.children, tree.child_ptr
    for step in range(len(children)):
        many = children[step]
        for state in range(state_ptr[step], state_ptr[step + 1]):
            best, weight = ABOVE_ALL, 0
            for row in range(first_row[state], first_row[state + 1]):
                value, mine = FINE_UNITS * cost[row], 0
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
        rest[state] = ABOVE_ALL
    rest[len(rest) - 1] = 0
    for step in range(len(children) - 1, -1, -1):
        many = children[step]
        for state in range(state_ptr[step], state_ptr[step + 1]):
            for row in range(first_row[state], first_row[state + 1]):
                value = FINE_UNITS * cost[row] + rest[state]
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
    best, best_value = price, -ABOVE_ALL
    stretch, total = FIRST_STRETCH, 1
    for piece in range(len(pi)):
        total += abs(pi[piece])
    for _ in range(MOST_PRICES_TRIED):
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
