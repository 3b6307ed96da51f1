"""Trees that leave no plan of a block within a horizon: `certify/chain_leaves.py` says what they mean and walks them.

In: a block as the checker reads it, devices of its ends, a horizon. Out: a tree, or None. Simplified: depth first. At
each node: the checker's own propagation, sets of certain items that do not fit, then a linear program of all rows. If
its least end lies beyond the horizon, its prices, scaled and rounded to integers, are a leaf; else its solution says on
which op to branch: the one that it splits most. Where every op has its device, the tightest pair without an order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from weftline.certify.chain_block import BlockState, ChainBlock, begin_block, shrink
from weftline.certify.chain_leaves import MOST_DEPTH, Possible, PossibleItem, RowLeaf
from weftline.certify.problem import MAX_NUMBER
from weftline.search.lp import Answer, Program, minimise

__all__ = ["Ends", "grow_tree"]

Ends = tuple[int | None, int | None]
Node = list[Any]

MOST_LEVELS = 7
"""Heads, and tails, of the rows of one resource."""
SCALES = (10, 16, 24, 34)
"""Bits of a multiplier, tried in turn."""
NEARLY_ONE = 1e-6
MOST_TRIED = 8
"""Ops on which it might branch."""
SIZE_ROOT = [n**0.5 for n in range(65)]
LEAST_EXCESS = 1e-9
"""Of the least end beyond the horizon, in shares of it."""
IMPOSSIBLE_COST = 4.0
"""Of what no plan has, in horizons; the checker's own price is larger."""
PROGRAM_SECONDS = 2.0


def grow_tree(
    block: ChainBlock, ends: Ends, horizon: int, most_nodes: int, is_over: Callable[[], bool]
) -> list[Node] | None:
    """None where a plan may be left, or where it takes too long."""
    if horizon < 0:
        return None
    tree: list[Node] = []
    waiting = [(0, _Case.of(block, begin_block(block, *ends), horizon))]
    while waiting:
        depth, case = waiting.pop()
        if len(tree) + len(waiting) >= most_nodes or depth > MOST_DEPTH or is_over():
            return None
        if not case.is_open:
            tree.append(["w"])
            continue
        node, children = _expand(block, case.state, horizon)
        if node is None:
            return None
        tree.append(node)
        waiting += [(depth + 1, child) for child in reversed(children)]
    return tree


class _Case(NamedTuple):
    """A state after propagation."""

    state: BlockState
    is_open: bool

    @staticmethod
    def of(block: ChainBlock, state: BlockState, horizon: int) -> _Case:
        return _Case(state, shrink(block, state, horizon))

    def size(self, block: ChainBlock) -> float:
        """How much is left to decide, as a guess of the size of a tree."""
        return (
            float(np.prod([SIZE_ROOT[len(self.state.able[leader])] for leader in block.members]))
            if self.is_open
            else 0.0
        )


def _expand(block: ChainBlock, state: BlockState, horizon: int) -> tuple[Node | None, list[_Case]]:
    """A leaf, or a branch with its cases; None if a plan is left."""
    full = _full_set(state, horizon)
    if full is not None:
        return full, []
    ops: list[int] = []
    if any(len(devices) > 1 for devices in state.able):
        program = _RowProgram(block, state, horizon)
        leaf = program.leaf()
        if leaf is not None:
            return leaf, []
        ops = program.most_split()
    pairs = [] if ops else _tightest_pairs(state, horizon)
    if not ops:
        ops = [i for i in block.members if len(state.able[i]) > 1][:MOST_TRIED]
    branches = [
        (["b", op, *([d] for d in state.able[op])], [state.child(op, [d]) for d in state.able[op]]) for op in ops
    ]
    branches += [(["o", x, y], [state.child(order=(x, y)), state.child(order=(y, x))]) for x, y in pairs]
    return _best_branch(block, horizon, branches)


def _best_branch(
    block: ChainBlock, horizon: int, branches: list[tuple[Node, list[BlockState]]]
) -> tuple[Node | None, list[_Case]]:
    """The one whose cases leave least to decide."""
    best, found = np.inf, None
    for node, states in branches:
        cases = [_Case.of(block, state, horizon) for state in states]
        size = sum(case.size(block) for case in cases)
        if size < best:
            best, found = size, (node, cases)
    return (None, []) if found is None else found


def _full_set(state: BlockState, horizon: int) -> Node | None:
    """Certain items of a resource that do not fit, over all pairs of levels."""
    for resource, items in state.items.items():
        by_after = sorted(items, key=lambda item: -item.after)
        for head in sorted({item.head for item in items}):
            total = 0
            for item in by_after:
                if item.head >= head:
                    total += item.length
                    if head + total + item.after > horizon:
                        return ["e", resource, head, item.after]
    return None


def _tightest_pairs(state: BlockState, horizon: int) -> list[tuple[int, int]]:
    """Certain items of one resource that may still come in both orders, those with least room first."""
    found: dict[tuple[int, int], int] = {}
    decided = set(state.orders)
    for items in state.items.values():
        for i, x in enumerate(items):
            for y in items[:i]:
                one = x.head + x.length + y.length + y.after
                other = y.head + y.length + x.length + x.after
                if max(one, other) <= horizon and not _comes_first(x, y) and not _comes_first(y, x):
                    found[x.name, y.name] = min(one, other)
    pairs = (pair for pair in found if pair not in decided and pair[::-1] not in decided)
    return sorted(pairs, key=lambda pair: -found[pair])[:MOST_TRIED]


def _comes_first(x: Any, y: Any) -> bool:
    """By their windows alone."""
    return bool(x.head + x.length <= y.head and x.after >= y.length + y.after)


@dataclass
class _Rows:
    """A linear program in the making; column 0 is the end of everything, in shares of the horizon."""

    columns: int = 1
    entries: list[tuple[int, int, float]] = field(default_factory=list)
    low: list[float] = field(default_factory=list)
    equal: list[bool] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    """Columns that no plan has."""

    def column(self) -> int:
        self.columns += 1
        return self.columns - 1

    def row(self, terms: Sequence[tuple[int, float]], low: float, *, equal: bool = False) -> int:
        number = len(self.low)
        self.entries += [(number, column, value) for column, value in terms]
        self.low.append(low)
        self.equal.append(equal)
        return number

    def solve(self) -> Answer:
        rows, columns, values = (np.array(part) for part in zip(*self.entries, strict=True))
        cost, high = np.zeros(self.columns), np.full(self.columns, np.inf)
        cost[0] = 1.0
        cost[list(self.closed)] = IMPOSSIBLE_COST
        low = np.array(self.low)
        return minimise(
            Program(
                cost,
                np.zeros(self.columns),
                high,
                low,
                np.where(np.array(self.equal), low, np.inf),
                rows.astype(np.int64),
                columns.astype(np.int64),
                values.astype(np.float64),
            ),
            seconds=PROGRAM_SECONDS,
        )


class _RowProgram:
    """All rows of a state, the ops that are open, and the edges between them."""

    def __init__(self, block: ChainBlock, state: BlockState, horizon: int) -> None:
        self.block, self.able, self.horizon = block, state.able, horizon
        self.possible = Possible(block, state, horizon)
        self.rows = _Rows()
        self.levels: list[tuple[int, int, int, int]] = []
        """Number of a row, its resource and levels."""
        self.on: dict[tuple[int, int], int] = {}
        """Open leader, device -> column."""
        self.joint: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
        """Pair of open leaders -> devices -> column."""
        self.sides: dict[tuple[int, int], tuple[dict[int, int], dict[int, int]]] = {}
        """Pair -> the rows that join it with the one and the other, by device."""
        self.shared: list[tuple[int, int, int, int]] = []
        """Row, edge, source, target: a transfer is no less there than one of its readers."""
        self.known: dict[int, int | None] = {}
        """id of an item -> its column, None if it is certain; of those that stand in a row."""
        self.is_impossible = False
        self.answer: Answer | None = None
        for leader in block.members:
            if len(self.able[leader]) > 1:
                for d in self.able[leader]:
                    self.on[leader, d] = self.rows.column()
                self.rows.row([(self.on[leader, d], 1.0) for d in self.able[leader]], 1.0, equal=True)
        self._exclude()
        for resource, items in self.possible.by_resource.items():
            self._resource(resource, items)

    def _exclude(self) -> None:
        for edge, a, b in self.possible.excluded:
            column = self._edge(edge, a, b)
            if column is None:
                self.is_impossible = True
            else:
                self.rows.closed.add(column)

    def _edge(self, edge: int, a: int, b: int) -> int | None:
        """The column of an edge between two devices; None if it certainly lies there."""
        _, maker, reader = self.block.edges[edge]
        u, v = self.block.group[maker], self.block.group[reader]
        if len(self.able[u]) == 1:
            return self.on.get((v, b))
        if len(self.able[v]) == 1:
            return self.on[u, a]
        pair, devices = ((u, v), (a, b)) if u < v else ((v, u), (b, a))
        if pair not in self.joint:
            self._join(*pair)
        return self.joint[pair][devices]

    def _join(self, u: int, v: int) -> None:
        columns = {(a, b): self.rows.column() for a in self.able[u] for b in self.able[v]}
        self.joint[u, v] = columns
        mine = {
            a: self.rows.row([(self.on[u, a], -1.0), *((columns[a, b], 1.0) for b in self.able[v])], 0.0, equal=True)
            for a in self.able[u]
        }
        yours = {
            b: self.rows.row([(self.on[v, b], -1.0), *((columns[a, b], 1.0) for a in self.able[u])], 0.0, equal=True)
            for b in self.able[v]
        }
        self.sides[u, v] = mine, yours

    def _present(self, item: PossibleItem) -> int | None:
        """The column that says whether an item is there; None if it certainly is."""
        op, a, b = item.where
        if b < 0:
            column = self.on.get((self.block.group[op], a))
        else:
            columns = [self._edge(edge, a, b) for edge in item.edges]
            column = columns[0]
            if None in columns:
                column = None
            elif len(columns) > 1:
                column = self.rows.column()
                for edge, each in zip(item.edges, columns, strict=True):
                    assert each is not None
                    row = self.rows.row([(column, 1.0), (each, -1.0)], 0.0)
                    self.shared.append((row, edge, a, b))
        self.known[id(item)] = column
        return column

    def _resource(self, resource: int, items: list[PossibleItem]) -> None:
        """Rows that could bind, no two for the same items."""
        seen: set[tuple[int, int, int]] = set()
        behind = sorted(items, key=lambda item: -item.after)
        afters = set(_picked({item.after for item in items}))
        for level in _picked({item.head for item in items}):
            inside = [item for item in behind if item.head >= level]
            total, head = 0, self.horizon
            for count, item in enumerate(inside, 1):
                total += item.length
                head = item.head if item.head < head else head
                after = item.after
                if after not in afters or head + total + after <= self.horizon:
                    continue
                if count < len(inside) and inside[count].after == after:
                    continue
                if (head, after, total) not in seen:
                    seen.add((head, after, total))
                    self._add_row(resource, level, after, head + after, inside[:count])

    def _add_row(self, resource: int, head: int, after: int, least: int, inside: list[PossibleItem]) -> None:
        terms, certain = [(0, 1.0)], 0
        for item in inside:
            column = self.known[id(item)] if id(item) in self.known else self._present(item)
            if column is None:
                certain += item.length
            else:
                terms.append((column, -item.length / self.horizon))
        if len(terms) > 1 or least + certain > self.horizon:
            row = self.rows.row(terms, (least + certain) / self.horizon)
            self.levels.append((row, resource, head, after))

    def leaf(self) -> Node | None:
        """Rows with integer multipliers that leave no plan."""
        if self.is_impossible:
            return ["d", [], [], []]
        if not self.levels:
            return None
        self.answer = self.rows.solve()
        if not 1.0 + LEAST_EXCESS < self.answer.value < np.inf:
            return None
        return next(
            (leaf for bits in SCALES if (leaf := self._scaled(self.answer.prices, 1 << bits)) is not None), None
        )

    def _scaled(self, prices: Any, scale: int) -> Node | None:
        """The prices as integers, if these are enough."""
        if scale * self.horizon > MAX_NUMBER // 4:
            return None
        times = scale * self.horizon
        rows = [[*levels, y] for row, *levels in self.levels if (y := round(float(prices[row]) * scale)) > 0]
        shares = [[*where, s] for row, *where in self.shared if (s := int(float(prices[row]) * times)) > 0]
        messages = []
        for pair, (mine, yours) in self.sides.items():
            sent = [
                [round(float(prices[side[d]]) * times) if d in side else 0 for d in range(self.block.k)]
                for side in (mine, yours)
            ]
            if any(map(any, sent)):
                messages.append([*pair, *sent])
        found = RowLeaf(self.possible)
        for row in rows:
            found.add_row(*row)
        return ["d", rows, shares, messages] if found.is_too_much(shares, messages) else None

    def most_split(self) -> list[int]:
        """The open ops that the solution divides most between devices; none if it divides none."""
        if self.answer is None or not np.isfinite(self.answer.value):
            return []
        most: dict[int, float] = {}
        for leader in self.block.members:
            if len(self.able[leader]) > 1:
                most[leader] = max(float(self.answer.solution[self.on[leader, d]]) for d in self.able[leader])
        split = sorted((leader for leader in most if most[leader] < 1.0 - NEARLY_ONE), key=lambda leader: most[leader])
        return split[:MOST_TRIED]


def _picked(values: set[int]) -> list[int]:
    """Some of them, the least among them."""
    found = sorted(values)
    if len(found) <= MOST_LEVELS:
        return found
    return [found[i * (len(found) - 1) // (MOST_LEVELS - 1)] for i in range(MOST_LEVELS)]
