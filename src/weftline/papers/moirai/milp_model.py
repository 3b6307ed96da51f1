"""Transfers as nodes of Moirai's MILP, and which of them can never meet.

Moirai's MILP of placement and order (Zhang et al. 2023), corrected, for MathOpt.

In: flat tables and a horizon. Out: a model and the reading of its solutions. Corrected: pairs of ops or transfers are
left out only where one really comes after the other; one order variable per pair; M is what the windows at the horizon
leave. A tensor goes to each consumer (as published) or once to each device, as the problem asks; buses exclude
transfers like ports. Of the memory of activations only what one op needs while it runs is in the model.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.bounds import Windows
from weftline.latency.exact.order_build import running_bytes
from weftline.simulate.sentinels import NOBODY
from weftline.simulate.tables import Tables

__all__ = ["MODEL_HORIZON", "MilpModel", "Row", "TransferNode", "reachable"]

Row = dict[Any, float]
"""Variable -> coefficient."""


class TransferNode(NamedTuple):
    """One transfer that may happen."""

    tensor: int
    maker: int
    readers: list[int]
    alike: bool
    """All readers share the device to which it goes."""
    consumer: int
    """NOBODY = for all consumers on the target device."""
    start: Any
    """None where latency is a sum."""
    pairs: list[tuple[int, int, float, Any]]
    """(source, target, length, variable): at most one of them is 1."""
    ready: float
    """It does not start before."""
    done: float
    """It has ended by then."""

    def minus_end(self) -> Row:
        """The terms of minus its end."""
        return {self.start: -1.0, **{u: -length for _, _, length, u in self.pairs}}

    def uses(self, bus: Indices) -> dict[tuple[str, int], list[Any]]:
        """Ports and buses -> the variables of which at most one is 1, if it uses them."""
        found: dict[tuple[str, int], list[Any]] = {}
        for a, b, _, u in self.pairs:
            found.setdefault(("send", a), []).append(u)
            found.setdefault(("receive", b), []).append(u)
            if bus[a, b] >= 0:
                found.setdefault(("bus", int(bus[a, b])), []).append(u)
        return found

    def before(self, other: TransferNode, reach: NDArray[np.bool_]) -> bool:
        """Always over when the other begins: what reads it comes before what makes the other."""
        led = [bool(reach[reader, other.maker]) for reader in self.readers]
        return any(led) if self.alike else all(led)


def reachable(table: Tables) -> NDArray[np.bool_]:
    """(n, n): the second op depends on the first, or is it."""
    n = len(table.time)
    reach = np.eye(n, dtype=np.bool_)
    for op in range(n - 1, -1, -1):
        for tensor in table.output_of[table.output_ptr[op] : table.output_ptr[op + 1]].tolist():
            for reader in table.consumer_of[table.consumer_ptr[tensor] : table.consumer_ptr[tensor + 1]].tolist():
                reach[op] |= reach[reader]
    return reach


MODEL_HORIZON = 1000.0
"""The horizon in the model's own time: large numbers are poison for a solver in floating point."""


class MilpModel:
    """`windows`, `horizon` and `lower` are in the unit of the tables; inside, the horizon is `MODEL_HORIZON`."""

    def __init__(self, table: Tables, windows: Windows, horizon: int, lower: int, group: Indices) -> None:
        from ortools.math_opt.python import mathopt

        self._table, self._horizon, self._group = table, MODEL_HORIZON, group
        self._scale = MODEL_HORIZON / max(1, horizon)
        self._time: list[list[float]] = (table.time * self._scale).tolist()
        self._est: list[list[float]] = (windows.head * self._scale).tolist()
        self._tail: list[list[float]] = (windows.tail * self._scale).tolist()
        self.model = mathopt.Model()
        by_group: dict[int, dict[int, Any]] = {}
        self.place: list[dict[int, Any]] = []
        """Op -> device -> its binary variable, shared by ops of a group."""
        for g, row in zip(group.tolist(), windows.able.tolist(), strict=True):
            if g not in by_group:
                by_group[g] = {k: self.model.add_binary_variable() for k, yes in enumerate(row) if yes}
                self._row(dict.fromkeys(by_group[g].values(), 1.0), 1.0, 1.0)
            self.place.append(by_group[g])
        self.end = self._when(lower * self._scale, MODEL_HORIZON)
        self.start: list[Any] = []
        self.nodes: list[TransferNode] = []

    def fill(self, capacity: Ints, excluded: list[Indices], stop: Callable[[], bool]) -> bool:
        """Add everything; False if `stop` said so before the end."""
        self._starts()
        for tensor in range(len(self._table.producer)):
            if tensor % 50 == 0 and stop():
                return False
            self._tensor(tensor)
        if self._table.sequential:
            self._add_sum()
        elif not self._order_ops(stop) or not self._order_transfers(stop):
            return False
        self._limit_memory(capacity)
        for placement in excluded:
            used = [x.get(int(k)) for x, k in zip(self.place, placement, strict=True)]
            if all(x is not None for x in used):
                distinct = {x.id: x for x in used if x is not None}
                self._row(dict.fromkeys(distinct.values(), 1.0), -np.inf, len(distinct) - 1.0)
        self.model.minimize(self.end)
        return True

    def _when(self, low: float, high: float) -> Any:
        """A time; the limits may be equal but for rounding."""
        return self.model.add_variable(lb=low, ub=max(low, high))

    def _row(self, terms: Row, low: float, high: float) -> None:
        """low <= sum of terms <= high."""
        row = self.model.add_linear_constraint(lb=low, ub=high)
        for variable, coefficient in terms.items():
            row.set_coefficient(variable, float(coefficient))

    def _starts(self) -> None:
        """A start for every op within its window, and the end of everything after it."""
        if self._table.sequential:
            return
        for op, x in enumerate(self.place):
            est, tail = self._est[op], self._tail[op]
            start = self._when(min(est[k] for k in x), self._horizon - min(tail[k] for k in x))
            self.start.append(start)
            self._row({start: 1.0, **{x[k]: -est[k] for k in x}}, 0.0, np.inf)
            self._row({self.end: 1.0, start: -1.0, **{x[k]: -tail[k] for k in x}}, 0.0, np.inf)

    # -- transfers --

    def _tensor(self, tensor: int) -> None:
        """Everything between the op that makes a tensor and the ops that read it."""
        table = self._table
        maker = int(table.producer[tensor])
        readers: list[int] = table.consumer_of[table.consumer_ptr[tensor] : table.consumer_ptr[tensor + 1]].tolist()
        if maker < 0 or not readers:
            return
        length: list[list[float]] = (table.transfer[table.transfer_row[tensor]] * self._scale).tolist()
        for reader in readers if not table.sequential else ():
            self._row({self.start[reader]: 1.0, **self._minus_end(maker)}, 0.0, np.inf)
        if table.per_edge:
            for reader in readers:
                self._send_to_one(tensor, maker, [reader], length, reader)
        elif len({int(self._group[reader]) for reader in readers}) == 1:
            self._send_to_one(tensor, maker, readers, length, -1)
        else:
            self._send_to_many(tensor, maker, readers, length)

    def _minus_end(self, op: int) -> Row:
        return {self.start[op]: -1.0, **{x: -self._time[op][k] for k, x in self.place[op].items()}}

    def _possible(self, maker: int, readers: list[int], length: list[list[float]]) -> list[tuple[int, int]]:
        """Devices that have a link, and whose windows leave time for the transfer to every one of the readers."""
        est, time = self._est[maker], self._time[maker]
        return [
            (a, b)
            for a in self.place[maker]
            for b in self.place[readers[0]]
            if length[a][b] >= 0
            and est[a] + time[a] + length[a][b] + max(self._tail[reader][b] for reader in readers)
            <= MODEL_HORIZON * (1 + 1e-9)
        ]

    def _send_to_one(
        self, tensor: int, maker: int, readers: list[int], length: list[list[float]], consumer: int
    ) -> None:
        """One transfer at most: to one reader, or to readers that share their device."""
        x, y = self.place[maker], self.place[readers[0]]
        if x is y:
            return
        pairs = self._possible(maker, readers, length)
        if len(pairs) == len(x) * len(y) and not any(length[a][b] for a, b in pairs):
            return
        joint = {pair: self.model.add_variable(lb=0.0, ub=1.0) for pair in pairs}
        for k, here in x.items():
            self._row({here: -1.0, **{u: 1.0 for (a, _), u in joint.items() if a == k}}, 0.0, 0.0)
        for k, there in y.items():
            self._row({there: -1.0, **{u: 1.0 for (_, b), u in joint.items() if b == k}}, 0.0, 0.0)
        used = [(a, b, length[a][b], joint[a, b]) for a, b in pairs if length[a][b] > 0]
        tail = [max(self._tail[reader][b] for reader in readers) for b in range(len(length))]
        if not used:
            return
        node = self._node((tensor, maker, readers, consumer), pairs, used, tail, length)
        for reader in readers if not self._table.sequential else ():
            self._row({self.start[reader]: 1.0, **node.minus_end()}, 0.0, np.inf)
        if not self._table.sequential:
            self._row({node.start: 1.0, **self._minus_end(maker)}, 0.0, np.inf)

    def _send_to_many(self, tensor: int, maker: int, readers: list[int], length: list[list[float]]) -> None:
        """One transfer per device on which some reader stands and the maker does not."""
        x = self.place[maker]
        possible = {reader: set(self._possible(maker, [reader], length)) for reader in readers}
        for reader in readers:
            y = self.place[reader]
            for a, b in ((a, b) for a in x for b in y if (a, b) not in possible[reader]):
                self._row({x[a]: 1.0, y[b]: 1.0} if x[a].id != y[b].id else {x[a]: 2.0}, -np.inf, 1.0)
        for b in sorted({b for reader in readers for b in self.place[reader]}):
            here = [reader for reader in readers if b in self.place[reader]]
            pairs = [(a, b) for a in x if any((a, b) in possible[reader] for reader in here)]
            if not any(length[a][b] for a, _ in pairs):
                continue
            needed = self.model.add_variable(lb=0.0, ub=1.0)
            for there in {self.place[reader][b].id: self.place[reader][b] for reader in here}.values():
                self._row({needed: 1.0, there: -1.0}, 0.0, np.inf)
            chosen = {a: self.model.add_variable(lb=0.0, ub=1.0) for a, _ in pairs}
            self._row({needed: -1.0, **dict.fromkeys(chosen.values(), 1.0)}, 0.0, 0.0)
            for a, u in chosen.items():
                self._row({x[a]: 1.0, u: -1.0}, 0.0, np.inf)
            used = [(a, b, length[a][b], chosen[a]) for a, _ in pairs if length[a][b] > 0]
            tail = [min(self._tail[reader][b] for reader in here)] * len(length)
            node = self._node((tensor, maker, here, NOBODY), pairs, used, tail, length)
            if self._table.sequential:
                continue
            late = float(self._horizon)
            self._row({node.start: 1.0, needed: -late, **self._minus_end(maker)}, -late, np.inf)
            for reader in here:
                row: Row = {self.start[reader]: 1.0, **node.minus_end()}
                self._row({**row, self.place[reader][b]: -late}, -late, np.inf)

    def _node(
        self,
        ends: tuple[int, int, list[int], int],
        pairs: list[tuple[int, int]],
        used: list[tuple[int, int, float, Any]],
        tail: list[float],
        length: list[list[float]],
    ) -> TransferNode:
        """`ends`: tensor, maker, readers, and the consumer if there is one alone."""
        tensor, maker, readers, consumer = ends
        ready = min(self._est[maker][a] + self._time[maker][a] for a, _ in pairs)
        late = max(self._horizon - length[a][b] - tail[b] for a, b in pairs)
        done = max(self._horizon - tail[b] for _, b in pairs)
        start = None if self._table.sequential else self._when(ready, late)
        alike = len({int(self._group[reader]) for reader in readers}) == 1
        self.nodes.append(TransferNode(tensor, maker, readers, alike, consumer, start, used, ready, done))
        return self.nodes[-1]

    # -- one thing at a time --

    def _order_ops(self, stop: Callable[[], bool]) -> bool:
        reach, horizon = reachable(self._table), self._horizon
        begin = [min(self._est[op][k] for k in x) for op, x in enumerate(self.place)]
        late = [horizon - min(self._tail[op][k] for k in x) for op, x in enumerate(self.place)]
        done = [horizon - min(self._tail[op][k] - self._time[op][k] for k in x) for op, x in enumerate(self.place)]
        for i, j in combinations(range(len(self.place)), 2):
            if j == i + 1 and i % 20 == 0 and stop():
                return False
            if reach[i, j] or reach[j, i] or done[i] <= begin[j] or done[j] <= begin[i]:
                continue
            x, y = self.place[i], self.place[j]
            both = [k for k in x if k in y and self._time[i][k] > 0 and self._time[j][k] > 0]
            if both:
                first = self.model.add_binary_variable()
                for k in both:
                    apart: Row = {x[k]: 1.0, y[k]: 1.0} if x is not y else {x[k]: 2.0}
                    ends = {self.start[i]: 1.0}, {self.start[j]: 1.0}
                    self._either(
                        first,
                        apart,
                        (ends[0], self._time[i][k], late[i] + self._time[i][k] - begin[j]),
                        (ends[1], self._time[j][k], late[j] + self._time[j][k] - begin[i]),
                    )
        return True

    def _order_transfers(self, stop: Callable[[], bool]) -> bool:
        reach, bus = reachable(self._table), self._table.bus
        uses = [node.uses(bus) for node in self.nodes]
        for i, j in combinations(range(len(self.nodes)), 2):
            if j == i + 1 and stop():
                return False
            q, r = self.nodes[i], self.nodes[j]
            shared = [resource for resource in uses[i] if resource in uses[j]]
            if not shared or q.before(r, reach) or r.before(q, reach) or q.done <= r.ready or r.done <= q.ready:
                continue
            first = self.model.add_binary_variable()
            for resource in shared:
                self._either(
                    first,
                    dict.fromkeys((*uses[i][resource], *uses[j][resource]), 1.0),
                    ({u: -c for u, c in q.minus_end().items()}, 0, q.done - r.ready),
                    ({u: -c for u, c in r.minus_end().items()}, 0, r.done - q.ready),
                    (q.start, r.start),
                )
        return True

    def _either(
        self,
        first: Any,
        together: Row,
        one: tuple[Row, float, float],
        other: tuple[Row, float, float],
        starts: tuple[Any, Any] | None = None,
    ) -> None:
        """If both use the resource (`together` is 2): one ends before the other starts (`first`), or the reverse.

        Each is (terms of its end, a constant part of it, M).
        """
        begin = starts or (next(iter(one[0])), next(iter(other[0])))
        for (end, fixed, big), later, sign in ((one, begin[1], 1.0), (other, begin[0], -1.0)):
            slack = float(max(big, 0))
            row: Row = dict(end)
            for u, c in together.items():
                row[u] = row.get(u, 0.0) + slack * c
            row[later] = row.get(later, 0.0) - 1.0
            row[first] = sign * slack
            # end + fixed <= later + M (2 - together) + M (1 - first)   or, reversed,   ... + M first
            self._row(row, -np.inf, 2 * slack - fixed + (slack if sign > 0 else 0.0))

    def _add_sum(self) -> None:
        """Nothing overlaps: the end is the sum of all ops and transfers."""
        row: Row = {self.end: 1.0}
        for time, x in zip(self._time, self.place, strict=True):
            for k, here in x.items():
                row[here] = row.get(here, 0.0) - time[k]
        for node in self.nodes:
            row |= {u: -length for _, _, length, u in node.pairs}
        self._row(row, 0.0, np.inf)

    def _limit_memory(self, capacity: Ints) -> None:
        """As shares of each device's memory: what it holds all the time, and the most that one op needs there."""
        table = self._table
        around = running_bytes(table)
        total = int(table.static_bytes.sum() + table.tied_bytes.sum() + around.max(initial=0))
        for k, room in enumerate(capacity.tolist()):
            if total <= room:
                continue
            share = 1.0 / max(room, 1)
            row: Row = {}
            for op, x in enumerate(self.place):
                if k in x and table.static_bytes[op]:
                    row[x[k]] = row.get(x[k], 0.0) + int(table.static_bytes[op]) * share
            for weight, size in enumerate(table.tied_bytes.tolist()):
                users = table.tied_of[table.tied_ptr[weight] : table.tied_ptr[weight + 1]].tolist()
                held = self.model.add_variable(lb=0.0, ub=1.0)
                for user in users:
                    if k in self.place[user]:
                        self._row({held: 1.0, self.place[user][k]: -1.0}, 0.0, np.inf)
                row[held] = size * share
            most = self.model.add_variable(lb=0.0)
            for op, x in enumerate(self.place):
                if k in x and self._time[op][k] > 0 and around[op]:
                    self._row({most: 1.0, x[k]: -int(around[op]) * share}, 0.0, np.inf)
            row[most] = 1.0
            self._row(row, -np.inf, room * share + 1e-9)
