"""A Problem -> what the policy's network sees of every op on every device: numbers without a scale of time.

In: a Problem in which HEFT or cPEFT find a device for every op. Out: Features, with (n, K, FEATURE_COUNT) numbers, the
edges, the unit of a bias and the plans the numbers come from. Multiplying all times by a factor changes nothing;
renumbering ops or devices renumbers the rows (up to ties). Simplified: tensors are counted per edge, links by their
means.

`NotingDecoder` makes one decode without a bias that also notes when each op would have ended on every device.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.decoder import DEAD_END, Floats, optimistic_costs
from weftline.latency.list.list_schedule import (
    BookingTables,
    booking_tables,
    clear_board,
    commit,
    earliest_starts,
    make_board,
)
from weftline.latency.list.list_schedule import ListSchedule as Board
from weftline.latency.list.memory_left import (
    Bools,
    WeightRoom,
    clear_room,
    close_unlinked,
    make_room,
    open_devices,
    possible_devices,
    settle,
)
from weftline.latency.list.schedulers import bias_unit
from weftline.problem import Problem
from weftline.simulate import simulate_latency
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.latency import INFEASIBLE, evaluate
from weftline.simulate.sentinels import NEVER, NOBODY
from weftline.simulate.tables import Tables, default_order, edge_readers, tables, upward_rank

__all__ = ["FEATURE_COUNT", "NOT_OPEN", "Edges", "Features", "Noted", "NotingDecoder", "Singles", "edges_of", "see"]

NOT_OPEN = -1
"""End on a device that was not open to the op."""


@dataclass(frozen=True, eq=False)
class Noted:
    """A schedule and the ends that were compared."""

    placement: Indices
    start: Ints
    end: Ints
    ends: Ints
    """(n, K): earliest end on each device when it was the op's turn, NOT_OPEN = it was not."""

    @property
    def value(self) -> int:
        """Planned latency."""
        return int(self.end.max())


class NotingDecoder:
    """The space of one problem, for several decodes."""

    def __init__(self, problem: Problem) -> None:
        self._problem, self._table = problem, tables(problem)
        self._room, self._board = make_room(problem), make_board(problem)
        self._space = self._table, booking_tables(self._table), self._room, self._board

    def decode(self, lam: int, capacity: Ints | None = None) -> Noted | None:
        """None where some op finds no device."""
        problem, board = self._problem, self._board
        self._room.capacity[:] = problem.capacity if capacity is None else capacity
        future = optimistic_costs(problem) if lam else np.zeros(self._table.time.shape, np.int64)
        ends = np.full(self._table.time.shape, NOT_OPEN, np.int64)
        if not _note(*self._space, default_order(problem), future, ends):
            return None
        return Noted(board.placement.copy(), board.start.copy(), board.end.copy(), ends)


@kernel
def _note(
    table: Tables, wires: BookingTables, room: WeightRoom, board: Board, order: Indices, future: Ints, ends: Ints
) -> bool:
    """Fill the board and the ends -> whether every op found a device. The first of equals wins."""
    clear_room(room)
    clear_board(board)
    is_open, begin = np.zeros(len(board.number), np.bool_), np.zeros(len(board.number), np.int64)
    total = 0
    for position in range(len(order)):
        op = int(order[position])
        open_devices(room, op, is_open)
        if room.gaps:
            close_unlinked(table, room, op, is_open)
        earliest_starts(wires, board, op, True, is_open, begin)
        least, best = NEVER, NOBODY
        for device in range(len(begin)):
            if begin[device] >= 0:
                ends[op, device] = begin[device] + int(wires.time[op, device])
                score = ends[op, device] + future[op, device]
                if score < least:
                    least, best = score, device
        if best < 0:
            return False
        settle(room, op, best)
        total = commit(wires, board, op, best, True, total)
    return True


Singles = NDArray[np.float32]

FEATURE_COUNT = 43
LARGEST_FEATURE = 8.0
"""No feature is larger."""


@dataclass(frozen=True, eq=False)
class Edges:
    """Who reads from whom, in both directions, as compressed rows."""

    before_ptr: Ints
    before: Ints
    """Op -> ops that it reads from."""
    after_ptr: Ints
    after: Ints
    """Op -> ops that read from it."""


@dataclass(frozen=True, eq=False)
class Features:
    """What the network sees, and what is needed to act on what it says."""

    features: Singles
    """(n, K, FEATURE_COUNT)"""
    edges: Edges
    unit: Floats
    """(n,): ns in which a bias of each op is measured."""
    possible: Bools
    """(n, K)"""
    plain: Indices
    """Where cPEFT puts every op (HEFT, where cPEFT finds no device)."""
    simple: Indices
    """(K + 3, n): single devices, greedy, HEFT, cPEFT (or HEFT and cPEFT alike, where one of them fails)."""
    simple_values: Floats
    """(K + 3,): ns, infinite where devices, links or weights do not fit."""


def edges_of(table: Tables) -> Edges:
    """The edges of a graph; an op that reads two tensors of another counts twice."""
    n, reader, maker = len(table.time), edge_readers(table), table.edge_maker.astype(np.int64)
    by_maker = np.argsort(maker, kind="stable")
    after_ptr = np.zeros(n + 1, np.int64)
    np.cumsum(np.bincount(maker, minlength=n), out=after_ptr[1:])
    return Edges(table.edge_ptr.astype(np.int64), maker, after_ptr, reader[by_maker])


def see(problem: Problem, capacity: Ints | None = None) -> Features | None:
    """None where neither HEFT nor cPEFT find a device for every op. `capacity` (K,) is the memory for weights."""
    table, decoder = tables(problem), NotingDecoder(problem)
    heft, cpeft = decoder.decode(0, capacity), decoder.decode(1, capacity)
    first, second = heft or cpeft, cpeft or heft
    if first is None or second is None:
        return None
    possible = possible_devices(problem)[problem.group]
    look = _Look(problem, table, possible, first, second)
    return Features(look.features(), look.edges, look.unit, possible, second.placement, look.simple, look.values)


class _Look:
    """The numbers that several features share. `cost` has no gaps: what cannot run there is four times the slowest."""

    def __init__(self, problem: Problem, table: Tables, possible: Bools, heft: Noted, cpeft: Noted) -> None:
        self.problem, self.table, self.possible, self.heft, self.cpeft = problem, table, possible, heft, cpeft
        time = table.time.astype(np.float64)
        known = np.where(possible, time, -1.0)
        self.cost = np.where(possible, time, 4.0 * np.maximum(known.max(axis=1), 1.0)[:, None])
        self.least = np.maximum(self.cost.min(axis=1), 1.0)[:, None]
        self.mean = float(self.least.mean())
        self.unit = np.maximum(bias_unit(problem), 1.0)
        self.edges = edges_of(table)
        self.reader, self.maker = edge_readers(table), self.edges.before
        self.row = table.transfer_row[table.edge_tensor]
        self.by_maker = np.argsort(self.maker, kind="stable")
        links = table.transfer.astype(np.float64)
        gap = links < 0
        self.links = np.where(gap, 4.0 * max(1.0, float(links.max(initial=0.0))), links)
        self.greedy = _fastest(self.cost, problem.group)
        self._plans()

    def _plans(self) -> None:
        """Values of the simple plans, and when ops start in the best of them."""
        n, k = self.cost.shape
        alone = np.repeat(np.arange(k, dtype=np.int32)[:, None], n, axis=1)
        self.simple = np.concatenate([alone, self.greedy[None], self.heft.placement[None], self.cpeft.placement[None]])
        values = np.zeros(len(self.simple), np.float64)
        fits = evaluate(self.problem, self.simple[: k + 1])
        values[: k + 1] = np.where(fits.value < INFEASIBLE, fits.value, np.inf)
        values[k + 1 :] = self.heft.value, self.cpeft.value
        values[: k + 1] = np.where(self._fit(), values[: k + 1], np.inf)
        best = int(values.argmin())
        self.values, self.best = np.maximum(values, 1.0), self.simple[best]
        if best <= k:
            timeline = simulate_latency(self.problem, self.best)
            self.start, self.end = timeline.start, timeline.end
        else:
            noted = (self.heft, self.cpeft)[best - k - 1]
            self.start, self.end = noted.start, noted.end
        self.total = max(1.0, float(values[best]))

    def _fit(self) -> Bools:
        """(K + 1,): do the weights of the single-device plans and of the greedy one fit?"""
        k = self.cost.shape[1]
        weight = self.table.static_bytes.astype(np.float64)
        held = np.stack([np.bincount(row, weights=weight, minlength=k) for row in self.simple[: k + 1]])
        fits: Bools = np.all(held <= self.problem.capacity, axis=1)
        return fits

    def features(self) -> Singles:
        """(n, K, FEATURE_COUNT)"""
        n, k = self.cost.shape
        out = np.zeros((n, k, FEATURE_COUNT), np.float32)
        columns = [*self._of_costs(), *self._of_transfers(), *self._of_plans(), *self._of_futures(), *self._of_memory()]
        columns += [np.full((1, 1), np.log(n) / 8.0), np.full((1, 1), k / 5.0)]
        for number, column in enumerate(columns):
            out[:, :, number] = np.clip(column, -LARGEST_FEATURE, LARGEST_FEATURE)
        assert len(columns) == FEATURE_COUNT
        return out

    def _of_costs(self) -> list[Floats]:
        """How good is the device for the op, and for all ops?"""
        cost, least = self.cost, self.least
        everything = np.maximum(cost.sum(axis=0), 1.0)
        fastest = float(everything.min())
        return [
            np.log(np.maximum(cost, 1.0) / least),
            least / np.maximum(cost, 1.0),
            np.log1p(cost / self.mean),
            np.log1p(least / self.mean),
            np.log(np.maximum(cost, 1.0) / np.maximum(cost.mean(axis=1, keepdims=True), 1.0)),
            self.possible.astype(np.float64),
            (fastest / everything)[None],
            np.full((1, 1), fastest / self.total),
        ]

    def _of_transfers(self) -> list[Floats]:
        """What comes in and goes out, by the means of the device's links; degrees."""
        k = self.cost.shape[1]
        others = max(1, k - 1)
        into, out_of = self.links.sum(axis=1) / others, self.links.sum(axis=2) / others
        arrives, leaves = self._by_reader(into[self.row]), self._by_maker(out_of[self.row])
        degree_in, degree_out = np.diff(self.edges.before_ptr), np.diff(self.edges.after_ptr)
        unit = self.unit[:, None]
        return [
            np.log1p(arrives / self.mean),
            np.log1p(leaves / self.mean),
            np.log1p(arrives / np.maximum(self.cost, 1.0)),
            np.log1p(leaves / np.maximum(self.cost, 1.0)),
            np.log1p((arrives + leaves) / unit),
            np.log1p(degree_in)[:, None],
            np.log1p(degree_out)[:, None],
        ]

    def _of_plans(self) -> list[Floats]:
        """What the simple plans do, how good they are, and what happens in the best of them."""
        n, k = self.cost.shape
        unit, total = self.unit[:, None], self.total
        device = np.arange(k)
        chosen = [
            plan[:, None] == device for plan in (self.heft.placement, self.cpeft.placement, self.greedy, self.best)
        ]
        single = device[None] == int(self.values[:k].argmin())
        ops = np.arange(n)
        load = np.bincount(self.best, weights=self.cost[ops, self.best], minlength=k)
        load_cpeft = np.bincount(self.cpeft.placement, weights=self.cost[ops, self.cpeft.placement], minlength=k)
        ended = self.end[self.maker].astype(np.float64)
        arrival = ended[:, None] + self.links[self.row, self.best[self.maker]]
        ready = self._latest(arrival)
        moved = self._by_reader(self.links[self.row, self.best[self.maker]])
        moved += self._by_maker(self.links[self.row, :, self.best[self.reader]])
        now = np.take_along_axis(moved, self.best[:, None].astype(np.int64), axis=1)
        wait = self.start - np.take_along_axis(ready, self.best[:, None].astype(np.int64), axis=1)[:, 0]
        return [
            *(each.astype(np.float64) for each in chosen),
            single.astype(np.float64),
            (load / total)[None],
            (load_cpeft / total)[None],
            (self.start / total)[:, None],
            np.log1p(np.maximum(wait, 0.0) / self.unit)[:, None],
            np.log1p(moved / unit),
            _symmetric_log((moved - now) / unit),
            _symmetric_log((ready + self.cost - self.end[:, None]) / unit),
            np.log(np.minimum(self.values[:k], 1e30) / total)[None],
            np.full((1, 1), np.log(self.heft.value / total if self.heft.value else 1.0)),
            np.full((1, 1), np.log(self.cpeft.value / total if self.cpeft.value else 1.0)),
        ]

    def _of_futures(self) -> list[Floats]:
        """What follows the op, and what other devices would have cost in HEFT and cPEFT."""
        unit = self.unit[:, None]
        future = optimistic_costs(self.problem).astype(np.float64)
        future = np.where(future >= DEAD_END, 4.0 * self.total, future)
        both = future + self.cost
        rank = upward_rank(self.problem).astype(np.float64)
        slack = self.total - (self.start[:, None] + both)
        return [
            (rank / max(1.0, float(rank.max())))[:, None],
            future / self.total,
            np.log1p((future - future.min(axis=1, keepdims=True)) / unit),
            np.log1p((both - both.min(axis=1, keepdims=True)) / unit),
            np.log1p(_regret(self.heft.ends) / unit),
            np.log1p(_regret(self.cpeft.ends) / unit),
            np.log1p(_regret(np.where(self.cpeft.ends < 0, -1, self.cpeft.ends + future)) / unit),
            slack / self.total,
        ]

    def _of_memory(self) -> list[Floats]:
        """The weights of the op and of everything, against what the device holds; all 0 without limits."""
        k = self.cost.shape[1]
        limited = np.array([device.capacity is not None for device in self.problem.devices])
        if not limited.any():
            return [np.zeros((1, 1))] * 3
        weight = self.table.static_bytes.astype(np.float64)
        room = np.where(limited, np.maximum(self.problem.capacity, 1).astype(np.float64), np.inf)
        filled = np.bincount(self.best, weights=weight, minlength=k)
        return [
            np.minimum(1.0, weight[:, None] / room[None]),
            np.minimum(2.0, filled / room)[None],
            np.full((1, k), min(2.0, float(weight.sum() / room.sum()))),
        ]

    def _by_reader(self, values: Floats) -> Floats:
        """(edges, K) -> (n, K): sums over what an op reads."""
        return _sums(values, self.edges.before_ptr)

    def _by_maker(self, values: Floats) -> Floats:
        """(edges, K) -> (n, K): sums over who reads from an op."""
        return _sums(values[self.by_maker], self.edges.after_ptr)

    def _latest(self, values: Floats) -> Floats:
        """(edges, K) -> (n, K): the largest over what an op reads, 0 where it reads nothing."""
        found = np.zeros(self.cost.shape)
        some = np.diff(self.edges.before_ptr) > 0
        if some.any():
            found[some] = np.maximum.reduceat(values, self.edges.before_ptr[:-1][some], axis=0)
        return found


def _fastest(cost: Floats, group: Indices) -> Indices:
    """(n,): where every op runs fastest; ops that must stay together, where they do so together."""
    total = np.zeros((int(group.max()) + 1, cost.shape[1]))
    np.add.at(total, group, cost)
    found: Indices = total.argmin(axis=1)[group].astype(np.int32)
    return found


def _sums(values: Floats, pointer: Ints) -> Floats:
    found = np.zeros((len(pointer) - 1, values.shape[1]))
    some = np.diff(pointer) > 0
    if some.any():
        found[some] = np.add.reduceat(values, pointer[:-1][some], axis=0)
    return found


def _regret(ends: Floats | Ints) -> Floats:
    """Above the least of the open devices; closed ones are twice as bad as the worst that is open."""
    closed = ends < 0
    least = np.where(closed, np.inf, ends).min(axis=1, keepdims=True)
    regret = np.where(closed, 0.0, ends - least)
    return np.where(closed, 2.0 * regret.max(axis=1, keepdims=True) + 1.0, regret)


def _symmetric_log(values: Floats) -> Floats:
    found: Floats = np.sign(values) * np.log1p(np.abs(values))
    return found
