"""Columns of the covering program: the master program over known sets, and annealing for more of them.

The master covers every piece by sets cheaper than the target, with as few as possible. In: sets and their costs. Out:
how many sets the best fractional cover needs, and the dual weight of each piece. Only the weights are used, rounded to
integers, so tolerances of the solver cannot make a bound wrong.

Heuristic pricing (`draw_sets`) is annealing over convex sets for sets of much weight that cost less than the target.
In: `ConvexGraph`, weights, target, sets to start from. Out: distinct sets with f < target and pi >= wanted.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.pipeline.convex.graph import Bits, ConvexGraph, has, lowest
from weftline.simulate.kernels.jit import kernel, part

__all__ = ["Drawing", "Master", "draw_sets", "whole"]

Members = NDArray[np.bool_]


class Drawing(NamedTuple):
    """What sets annealing is to find, and how long it may look."""

    pi: Ints
    """Weight of each piece."""
    target: int
    """Sets cost less."""
    wanted: int
    """Sets weigh at least as much."""
    runs: int
    length: int
    """Steps of the shortest runs."""


class Master:
    """An incremental linear program; sets that cost too much for the target are switched off, not removed."""

    def __init__(self, pieces: int, stages: int) -> None:
        from ortools.math_opt.python import mathopt

        self._model = mathopt.Model()
        self._objective = self._model.objective
        self._solver_type = mathopt.SolverType.GLOP
        self._mathopt = mathopt
        self._solver: Any = None
        no_rest = mathopt.SparseVectorFilter[Any](filtered_items=[])
        self._answers = mathopt.ModelSolveParameters(
            variable_values_filter=mathopt.SparseVectorFilter[Any](skip_zero_values=True), reduced_costs_filter=no_rest
        )
        self._rows = [self._model.add_linear_constraint(lb=1.0) for _ in range(pieces)]
        self._columns: list[Any] = []
        self._place: dict[Any, int] = {}
        self.cost: list[int] = []
        self.members: list[Members] = []
        self._known: set[bytes] = set()
        self.target = -1
        for row in self._rows:
            # Leaving a piece out must cost more than all stages together; covering it twice is free, so that no
            # weight is negative: weaker in theory, but the weights settle much sooner.
            extra = self._model.add_variable(lb=0.0)
            row.set_coefficient(extra, 1.0)
            self._objective.set_linear_coefficient(extra, stages + 4.0)

    def add(self, members: Members, cost: int) -> bool:
        """A set -> False if it is known."""
        name = members.tobytes()
        if name in self._known:
            return False
        self._known.add(name)
        column = self._model.add_variable(lb=0.0, ub=float("inf") if cost < self.target else 0.0)
        for piece in np.flatnonzero(members).tolist():
            self._rows[piece].set_coefficient(column, 1.0)
        self._objective.set_linear_coefficient(column, 1.0)
        self._place[column] = len(self._columns)
        self._columns.append(column)
        self.cost.append(cost)
        self.members.append(members.copy())
        return True

    def aim(self, target: int) -> None:
        """Only sets cheaper than this may be used."""
        for column, cost in zip(self._columns, self.cost, strict=True):
            if (cost < target) != (cost < self.target):
                column.upper_bound = float("inf") if cost < target else 0.0
        self.target = target

    def solve(self) -> tuple[float, NDArray[np.float64], list[int]] | None:
        """(number of sets, weights of pieces, sets in use), or None if the solver failed."""
        result = self._result() or self._result()
        if result is None or not result.has_primal_feasible_solution() or not result.has_dual_feasible_solution():
            return None
        weights = np.array(result.dual_values(self._rows))
        amounts = result.variable_values()
        used = [self._place[column] for column, amount in amounts.items() if amount > 1e-6 and column in self._place]
        return float(result.objective_value()), weights, used

    def _result(self) -> Any:
        """Solve from where the solver is; None if it broke down (numbers), and then the next begins anew."""
        if self._solver is None:
            self._solver = self._mathopt.IncrementalSolver(self._model, self._solver_type)
        try:
            return self._solver.solve(model_params=self._answers)
        except Exception:  # of several kinds, some of them errors inside of the error handling
            self._solver = None
            return None

    def usable(self) -> list[Members]:
        """Sets cheaper than the target."""
        return [m for m, cost in zip(self.members, self.cost, strict=True) if cost < self.target]


def whole(weights: NDArray[np.float64], scale: int) -> Ints:
    """Weights rounded to integers."""
    return np.rint(weights * scale).astype(np.int64)


PRICE_ENTER, PRICE_LEAVE, PRICE_READERS = 0, 1, 2
"""Columns of `price`: what a tensor costs that enters or leaves, and its number of readers."""
MOST_MOVED = 8
"""Pieces that change sides at once."""
OVER_PENALTY = 6.0
"""Of a cost above the target, in units of the wanted weight."""


@part
def _toggle(
    touch_ptr: Indices, touch_of: Indices, maker: Indices, price: Ints, members: Bits, inside: Ints, piece: int
) -> int:
    """A piece changes sides -> how the cost of tensors changes; `inside` counts the readers of each that are in.

    `price` has PRICE_ENTER, PRICE_LEAVE and PRICE_READERS of each tensor.
    """
    joins = not has(members, piece)
    sign = 1 if joins else -1
    total = 0
    for t in range(touch_ptr[piece], touch_ptr[piece + 1]):
        tensor = touch_of[t]
        made, count = has(members, maker[tensor]), inside[tensor]
        if made:
            total -= price[tensor, PRICE_LEAVE] if count < price[tensor, PRICE_READERS] else 0
        elif count > 0:
            total -= price[tensor, PRICE_ENTER]
        if maker[tensor] == piece:
            made = joins
        else:
            count += sign
            inside[tensor] = count
        if made:
            total += price[tensor, PRICE_LEAVE] if count < price[tensor, PRICE_READERS] else 0
        elif count > 0:
            total += price[tensor, PRICE_ENTER]
    members[piece >> 6] ^= np.uint64(1) << np.uint64(piece & 63)
    return int(total)


@part
def _around(before: Bits, after: Bits, members: Bits, below: Bits, above: Bits) -> None:
    """What lies after and before members."""
    words = len(members)
    for j in range(words):
        below[j] = np.uint64(0)
        above[j] = np.uint64(0)
    for i in range(words):
        rest = members[i]
        while rest != np.uint64(0):
            member = i * 64 + lowest(rest)
            rest &= rest - np.uint64(1)
            for j in range(words):
                below[j] |= after[member, j]
                above[j] |= before[member, j]


@part
def _move(before: Bits, after: Bits, members: Bits, below: Bits, above: Bits, piece: int, pieces: Ints) -> int:
    """Pieces that must change sides with this one so that the set stays convex -> how many, 0 = too many."""
    words = len(members)
    pieces[0] = piece
    count, joins = 1, not has(members, piece)
    late = joins or np.random.random() < 0.5
    if not joins:
        early_too, late_too = False, False
        for j in range(words):
            early_too |= (before[piece, j] & members[j]) != np.uint64(0)
            late_too |= (after[piece, j] & members[j]) != np.uint64(0)
        if not (early_too and late_too):
            return 1
    for j in range(words):
        if joins:
            rest = ((below[j] & before[piece, j]) | (above[j] & after[piece, j])) & ~members[j]
        elif late:
            rest = after[piece, j] & members[j]
        else:
            rest = before[piece, j] & members[j]
        while rest != np.uint64(0):
            if count >= len(pieces):
                return 0
            pieces[count] = j * 64 + lowest(rest)
            rest &= rest - np.uint64(1)
            count += 1
    return count


@part
def _proposal(near_ptr: Indices, near_of: Indices, members: Bits) -> int:
    """A random piece; more often a member or a neighbour of one."""
    n = len(near_ptr) - 1
    piece = np.random.randint(n)
    if np.random.random() < 0.4:
        return piece
    for _ in range(20):
        if has(members, piece):
            break
        piece = np.random.randint(n)
    if not has(members, piece) or np.random.random() < 0.3 or near_ptr[piece] == near_ptr[piece + 1]:
        return piece
    return int(near_of[np.random.randint(near_ptr[piece], near_ptr[piece + 1])])


@kernel
def draw_sets(graph: ConvexGraph, drawing: Drawing, starts: Bits, seed: int, found: Bits, stop: Ints) -> int:
    """Anneal from the starts (and from single pieces) in turn -> number of sets found."""
    np.random.seed(seed)
    maker, words, count = graph.maker, graph.before.shape[1], 0
    price = np.zeros((len(maker), 3), np.int64)
    for tensor in range(len(maker)):
        price[tensor, PRICE_ENTER] = graph.enter[tensor]
        price[tensor, PRICE_LEAVE] = graph.leave[tensor]
        price[tensor, PRICE_READERS] = graph.reader_ptr[tensor + 1] - graph.reader_ptr[tensor]
    begin, inside = np.zeros(words, np.uint64), np.zeros(len(maker), np.int64)
    for run in range(drawing.runs):
        if stop[0] != 0 or count >= len(found):
            break
        begin[:] = np.uint64(0)
        if len(starts) and run % 4 != 3:
            chosen = np.random.randint(len(starts))
            for i in range(words):
                begin[i] = starts[chosen, i]
        else:
            piece = np.random.randint(len(graph.work))
            begin[piece >> 6] |= np.uint64(1) << np.uint64(piece & 63)
        inside[:] = 0
        count = _anneal(graph, drawing, price, begin, inside, drawing.length * (1 + run % 3), found, count)
    return count


@part
def _anneal(
    graph: ConvexGraph,
    drawing: Drawing,
    price: Ints,
    begin: Bits,
    inside: Ints,
    steps: int,
    found: Bits,
    count: int,
) -> int:
    """One run from a set -> number of sets found so far; in each third of it the heaviest that is cheap enough.

    `cost` and `weight` are those of `members`, which stays convex: a test compares every set with its definition.
    """
    work, before, after, near_ptr, near_of = graph.work, graph.before, graph.after, graph.near_ptr, graph.near_of
    touch_ptr, touch_of, maker = graph.touch_ptr, graph.touch_of, graph.maker
    pi, target, wanted, words = drawing.pi, drawing.target, drawing.wanted, len(begin)
    members, below, above = np.zeros(words, np.uint64), np.zeros(words, np.uint64), np.zeros(words, np.uint64)
    keep, pieces = np.zeros(words, np.uint64), np.zeros(MOST_MOVED, np.int64)
    third = max(1, steps // 3)
    cost, weight = 0, 0
    for piece in range(len(work)):
        if has(begin, piece):
            weight += pi[piece]
            cost += work[piece] + _toggle(touch_ptr, touch_of, maker, price, members, inside, piece)
    _around(before, after, members, below, above)
    best = wanted - 1
    for step in range(steps):
        if best >= wanted and step % third == 0:
            count += _new(found, count, keep)
            best = wanted - 1
            if count >= len(found):
                break
        temperature = 0.12 * (1.0 - step / steps) + 0.002
        piece = _proposal(near_ptr, near_of, members)
        size = _move(before, after, members, below, above, piece, pieces)
        if size == 0:
            continue
        more, heavier = 0, 0
        for p in range(size):
            sign = -1 if has(members, pieces[p]) else 1
            heavier += sign * pi[pieces[p]]
            more += sign * work[pieces[p]]
            more += _toggle(touch_ptr, touch_of, maker, price, members, inside, pieces[p])
        over = max(0.0, (cost + more) / target - 1.0) - max(0.0, cost / target - 1.0)
        worse = OVER_PENALTY * over - heavier / wanted
        if worse > 0 and np.random.random() >= np.exp(-worse / temperature):
            for p in range(size):
                _toggle(touch_ptr, touch_of, maker, price, members, inside, pieces[p])
            continue
        _around(before, after, members, below, above)
        cost += more
        weight += heavier
        if cost < target and weight > best:
            best = weight
            for i in range(words):
                keep[i] = members[i]
    if best >= wanted and count < len(found):
        count += _new(found, count, keep)
    return count


@part
def _new(found: Bits, count: int, keep: Bits) -> int:
    """Add a set unless it is there -> how many were added."""
    words = len(keep)
    for i in range(count):
        same = True
        for j in range(words):
            same = same and found[i, j] == keep[j]
        if same:
            return 0
    for j in range(words):
        found[count, j] = keep[j]
    return 1
