"""The part of the memory of activations that no schedule can avoid: what one op needs while it runs.

The parts of the CP-SAT model of placement and order: variables, intervals, resources and memory.

In: tables and windows in the model's unit of time, and limits. Out: a `CpModel` with its variables, which `OrderModel`
hints, solves and reads. Ops and transfers that take no time have no interval, but keep their place in the order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.latency.bounds import Windows
from weftline.simulate.tables import Tables

__all__ = ["OrderBuild", "Sent", "running_bytes"]


def running_bytes(table: Tables) -> Ints:
    """(n,): bytes of inputs, outputs and workspace, all on the op's device while it runs; 0 under the static rule."""
    if not table.dynamic:
        return np.zeros(len(table.time), np.int64)
    need = table.workspace_bytes.astype(np.int64)
    tensor = np.repeat(np.arange(len(table.producer)), np.diff(table.consumer_ptr))
    np.add.at(need, table.consumer_of, table.tensor_bytes[tensor])
    made = table.producer >= 0
    np.add.at(need, table.producer[made], table.tensor_bytes[made])
    return need


MOST_BYTES = 2**50
"""Larger sums of bytes are rounded down to a larger unit, which only relaxes the limit."""


class Sent(NamedTuple):
    """One transfer that may happen."""

    tensor: int
    consumer: int
    """-1 = for all consumers on the target device."""
    start: Any
    """None where latency is a sum, so that times do not matter."""
    pairs: list[tuple[int, int, int, Any]]
    """(source, target, length, literal): at most one of them is true."""


class _Use(NamedTuple):
    """An interval that holds a device, a port or a bus."""

    head: int
    """It does not begin earlier."""
    after: int
    """What follows it takes at least so long."""
    size: int
    literal: Any
    interval: Any


class OrderBuild:
    """One model. Times are in the model's unit."""

    def __init__(self, table: Tables, windows: Windows, horizon: int, lower: int, group: Indices) -> None:
        from ortools.sat.python import cp_model

        self._table, self._horizon, self._group = table, horizon, group
        self._sum = cp_model.LinearExpr.weighted_sum
        self.model = cp_model.CpModel()
        self._one = self.model.new_constant(1)
        self._time: list[list[int]] = table.time.tolist()
        self._est: list[list[int]] = windows.head.tolist()
        self._tail: list[list[int]] = windows.tail.tolist()
        self.place: list[dict[int, Any]] = self._places(windows)
        """Op -> device -> the literal that says so, shared by ops of a group; only devices that the windows leave."""
        self.end: Any = self.model.new_int_var(lower, horizon, "")
        self._uses: dict[tuple[str, int], list[_Use]] = {}
        self.start: list[Any] = []
        self.sent: list[Sent] = []

    def fill(self, capacity: Ints | None, stop: Callable[[], bool]) -> bool:
        """Add everything; False if `stop` said so before the end."""
        if not self._table.sequential:
            self._starts()
        for tensor in range(len(self._table.producer)):
            if tensor % 50 == 0 and stop():
                return False
            self._tensor(tensor)
        if self._table.sequential:
            self._add_sum()
        else:
            self._exclude_overlaps()
        if capacity is not None:
            self._limit_memory(capacity)
        self.model.minimize(self.end)
        return True

    def _places(self, windows: Windows) -> list[dict[int, Any]]:
        model, places = self.model, []
        by_group: dict[int, dict[int, Any]] = {}
        for g, row in zip(self._group.tolist(), windows.able.tolist(), strict=True):
            if g not in by_group:
                devices = [k for k, yes in enumerate(row) if yes]
                if len(devices) == 1:
                    by_group[g] = {devices[0]: self._one}
                else:
                    by_group[g] = {k: model.new_bool_var("") for k in devices}
                    model.add_exactly_one(by_group[g].values())
            places.append(by_group[g])
        return places

    def _starts(self) -> None:
        """A start for every op within its window, its intervals, and the end of everything after it."""
        model = self.model
        for op, x in enumerate(self.place):
            est, tail, time = self._est[op], self._tail[op], self._time[op]
            low, short = min(est[k] for k in x), min(tail[k] for k in x)
            start = model.new_int_var(low, self._horizon - short, "")
            self.start.append(start)
            for k, here in x.items():
                if time[k] > 0:
                    interval = model.new_optional_fixed_size_interval_var(start, time[k], here, "")
                    self._use("device", k, est[k], tail[k] - time[k], time[k], here, interval)
            later = [(k, est[k] - low) for k in x if est[k] > low]
            if later:
                model.add(self._sum([start, *(x[k] for k, _ in later)], [1, *(-more for _, more in later)]) >= low)
            longer = [(k, tail[k] - short) for k in x if tail[k] > short]
            model.add(
                self._sum([self.end, start, *(x[k] for k, _ in longer)], [1, -1, *(-more for _, more in longer)])
                >= short
            )

    def _use(self, kind: str, number: int, head: int, after: int, size: int, literal: Any, interval: Any) -> None:
        self._uses.setdefault((kind, number), []).append(_Use(head, after, size, literal, interval))

    def _precede(self, maker: int, later: Any, *, only_if: Any = None) -> None:
        """`later` is not before the end of the op `maker`.

        One short row per device: CP-SAT propagates these much better than one row with all of them.
        """
        x, time, start = self.place[maker], self._time[maker], self.start[maker]
        least = min(time[k] for k in x)
        conditions = [] if only_if is None else [only_if]
        self._apart(start, later, least, conditions)
        for k, here in x.items():
            if time[k] > least:
                self._apart(start, later, time[k], [here, *conditions])

    def _apart(self, earlier: Any, later: Any, distance: int, conditions: list[Any]) -> None:
        row = self.model.add(later - earlier >= distance)
        if conditions:
            row.only_enforce_if(conditions)

    def _tensor(self, tensor: int) -> None:
        """Everything between the op that makes a tensor and the ops that read it."""
        table = self._table
        maker = int(table.producer[tensor])
        readers: list[int] = table.consumer_of[table.consumer_ptr[tensor] : table.consumer_ptr[tensor + 1]].tolist()
        if maker < 0 or not readers:
            return
        length: list[list[int]] = table.transfer[table.transfer_row[tensor]].tolist()
        possible = {reader: self._pairs(maker, reader, length) for reader in readers}
        if not table.sequential:
            for reader in readers:
                self._precede(maker, self.start[reader])
        if table.per_edge:
            for reader in readers:
                self._send_to_one(tensor, maker, [reader], possible[reader], length, reader)
            return
        sets: dict[int, list[int]] = {}
        for reader in readers:
            sets.setdefault(int(self._group[reader]), []).append(reader)
        if len(sets) == 1:
            common = set.intersection(*(set(pairs) for pairs in possible.values()))
            self._send_to_one(tensor, maker, readers, sorted(common), length, -1)
        else:
            self._send_to_many(tensor, maker, readers, possible, length)

    def _pairs(self, maker: int, reader: int, length: list[list[int]]) -> list[tuple[int, int]]:
        """Devices of maker and reader that have a link, and whose windows leave time for the transfer."""
        est, time, tail, late = self._est[maker], self._time[maker], self._tail[reader], self._horizon
        same = self._group[maker] == self._group[reader]
        return [
            (a, b)
            for a in self.place[maker]
            for b in self.place[reader]
            if (a == b or (not same and length[a][b] >= 0)) and est[a] + time[a] + length[a][b] + tail[b] <= late
        ]

    def _send_to_one(
        self,
        tensor: int,
        maker: int,
        readers: list[int],
        pairs: list[tuple[int, int]],
        length: list[list[int]],
        consumer: int,
    ) -> None:
        """One transfer at most: to one reader, or to readers that share their device."""
        x, y = self.place[maker], self.place[readers[0]]
        if x is y:
            return  # always on the same device
        if not any(length[a][b] for a, b in pairs):
            self._forbid_others(x, y, pairs)
            return
        chosen = self._joint(x, y, pairs)
        sent = [(a, b, length[a][b], chosen[a, b]) for a, b in pairs if length[a][b] > 0]
        if self._table.sequential:
            self.sent.append(Sent(tensor, consumer, None, sent))
            return
        est, time = self._est[maker], self._time[maker]
        tail = [max(self._tail[reader][b] for reader in readers) for b in range(len(time))]
        ready = min(est[a] + time[a] for a, _ in pairs)
        start = self.model.new_int_var(ready, max(self._horizon - length[a][b] - tail[b] for a, b in pairs), "")
        self.sent.append(Sent(tensor, consumer, start, sent))
        self._precede(maker, start)
        for reader in readers:
            terms = [self.start[reader], start, *(u for *_, u in sent)]
            self.model.add(self._sum(terms, [1, -1, *(-c for _, _, c, _ in sent)]) >= 0)
        for a, b, c, u in sent:
            self._book(a, b, est[a] + time[a], tail[b], c, u, start)

    def _send_to_many(
        self,
        tensor: int,
        maker: int,
        readers: list[int],
        possible: dict[int, list[tuple[int, int]]],
        length: list[list[int]],
    ) -> None:
        """One transfer per device on which some reader stands and the maker does not."""
        x, model = self.place[maker], self.model
        for reader in readers:
            self._forbid_others(x, self.place[reader], possible[reader])
        for b in sorted({b for reader in readers for b in self.place[reader]}):
            here = [reader for reader in readers if b in self.place[reader]]
            sources = [a for a in x if any((a, b) in possible[reader] for reader in here)]
            if not any(length[a][b] for a in sources):
                continue
            needed = self._any([self.place[reader][b] for reader in here])
            chosen = {a: self._both(x, a, needed) for a in sources}
            model.add_exactly_one([*chosen.values(), ~needed])
            sent = [(a, b, length[a][b], chosen[a]) for a in sources if length[a][b] > 0]
            if self._table.sequential:
                self.sent.append(Sent(tensor, -1, None, sent))
                continue
            est, time = self._est[maker], self._time[maker]
            tail = max(min(self._tail[reader][b] for reader in here), 0)
            ready = min(est[a] + time[a] for a in sources)
            start = model.new_int_var(ready, max(self._horizon - length[a][b] - tail for a in sources), "")
            self.sent.append(Sent(tensor, -1, start, sent))
            self._precede(maker, start, only_if=needed)
            for reader in here:
                terms = [self.start[reader], start, *(u for *_, u in sent)]
                row = self._sum(terms, [1, -1, *(-c for _, _, c, _ in sent)]) >= 0
                model.add(row).only_enforce_if(self.place[reader][b])
            for a, _, c, u in sent:
                self._book(a, b, est[a] + time[a], tail, c, u, start)

    def _book(self, a: int, b: int, head: int, after: int, size: int, literal: Any, start: Any) -> None:
        """A transfer holds the send port of `a`, the receive port of `b`, and their bus if there is one."""
        interval = self.model.new_optional_fixed_size_interval_var(start, size, literal, "")
        self._use("send", a, head, after, size, literal, interval)
        self._use("receive", b, head, after, size, literal, interval)
        bus = int(self._table.bus[a, b])
        if bus >= 0:
            self._use("bus", bus, head, after, size, literal, interval)

    def _forbid_others(self, x: dict[int, Any], y: dict[int, Any], pairs: list[tuple[int, int]]) -> None:
        allowed = set(pairs)
        for a, here in x.items():
            for b, there in y.items():
                if (a, b) not in allowed:
                    self.model.add_bool_or([~here, ~there])

    def _joint(self, x: dict[int, Any], y: dict[int, Any], pairs: list[tuple[int, int]]) -> dict[tuple[int, int], Any]:
        """For every pair the literal "this source and this target"; other pairs become impossible."""
        model = self.model
        if len(x) == 1 or len(y) == 1:
            self._forbid_others(x, y, pairs)
            return {(a, b): y[b] if len(x) == 1 else x[a] for a, b in pairs}
        joint = {pair: model.new_bool_var("") for pair in pairs}
        for a, here in x.items():
            model.add_exactly_one([*(u for (source, _), u in joint.items() if source == a), ~here])
        for b, there in y.items():
            model.add_exactly_one([*(u for (_, target), u in joint.items() if target == b), ~there])
        return joint

    def _any(self, literals: Sequence[Any]) -> Any:
        distinct = {literal.index: literal for literal in literals}
        if self._one.index in distinct or len(distinct) == 1:
            return self._one if self._one.index in distinct else literals[0]
        some = self.model.new_bool_var("")
        for literal in distinct.values():
            self.model.add_implication(literal, some)
        self.model.add_bool_or([*distinct.values(), ~some])
        return some

    def _both(self, x: dict[int, Any], a: int, other: Any) -> Any:
        if len(x) == 1:
            return other
        if other is self._one:
            return x[a]
        both = self.model.new_bool_var("")
        self.model.add_implication(both, x[a])
        self.model.add_bool_or([~x[a], ~other, both])
        return both

    def _exclude_overlaps(self) -> None:
        """One thing at a time on every device, port and bus; and what each has to do fits before the end."""
        known: set[frozenset[int]] = set()
        for uses in self._uses.values():
            which = frozenset(use.interval.index for use in uses)
            if len(uses) < 2 or which in known:
                continue
            known.add(which)
            self.model.add_no_overlap([use.interval for use in uses])
            least = min(use.head for use in uses) + min(use.after for use in uses)
            terms = [self.end, *(use.literal for use in uses)]
            self.model.add(self._sum(terms, [1, *(-use.size for use in uses)]) >= (least if self._always(uses) else 0))

    def _always(self, uses: list[_Use]) -> bool:
        return any(use.literal is self._one for use in uses)

    def _add_sum(self) -> None:
        """Nothing overlaps: the end is the sum of all ops and transfers."""
        terms, lengths = [self.end], [1]
        for time, x in zip(self._time, self.place, strict=True):
            terms += x.values()
            lengths += [-time[k] for k in x]
        for sent in self.sent:
            terms += [literal for *_, literal in sent.pairs]
            lengths += [-length for _, _, length, _ in sent.pairs]
        self.model.add(self._sum(terms, lengths) >= 0)

    def _limit_memory(self, capacity: Ints) -> None:
        """What a device holds all the time, and the most that one op needs there while it runs."""
        table = self._table
        total = int(table.static_bytes.sum() + table.tied_bytes.sum())
        around = running_bytes(table)
        for k, room in enumerate(capacity.tolist()):
            if total + int(around.max(initial=0)) <= room:
                continue
            unit = max(1, (total + int(around.max(initial=0))) // MOST_BYTES)
            load = [(int(table.static_bytes[op]) // unit, x[k]) for op, x in enumerate(self.place) if k in x]
            load += [(int(table.tied_bytes[w]) // unit, self._tied_there(w, k)) for w in range(len(table.tied_bytes))]
            running = [
                (int(around[op]) // unit, x[k])
                for op, x in enumerate(self.place)
                if k in x and self._time[op][k] > 0 and around[op] >= unit
            ]
            if running:
                most = self.model.new_int_var(0, max(size for size, _ in running), "")
                for size, here in running:
                    self.model.add(self._sum([most, here], [1, -size]) >= 0)
                load.append((1, most))
            used = [(size, what) for size, what in load if size and what is not None]
            if used:
                self.model.add(self._sum([what for _, what in used], [size for size, _ in used]) <= room // unit)

    def _tied_there(self, weight: int, device: int) -> Any:
        """Some user of a tied weight is on the device; None = never."""
        users = self._table.tied_of[self._table.tied_ptr[weight] : self._table.tied_ptr[weight + 1]].tolist()
        literals = [self.place[op][device] for op in users if device in self.place[op]]
        return self._any(literals) if literals else None
