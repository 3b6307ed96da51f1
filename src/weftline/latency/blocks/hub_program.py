"""The program of the hub bound: which path a chain takes, how long its spans are, and where the ops beside it run.

With the hub on a known device, the ops beside the chain know where their input is. A linear program lets every span
choose its devices and be longer than its least length, puts the ops beside it somewhere, and asks that over every range
of spans those that must run within it, their transfers and what the blocks themselves need fit on every device and
port. In: spans with lower bounds, an upper limit of interest. Simplified: what ops beside the chain hand to blocks is
not sent.

BlockWork: what a block between two devices must do on devices and ports if it is no longer than some length. In: a
span, the devices of its ends, the longest length of interest, prices of resources. Out: the least sum of work times
price, by a linear program in which devices, ports and paths have so long, and how it falls when the block may be
longer. The least is convex in the length, so its tangent holds for every length up to the longest of interest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.blocks.chain import Hub
from weftline.latency.blocks.energy_rows import (
    IS_CERTAIN,
    Columns,
    Items,
    balance_rows,
    make_columns,
    make_items,
    path_rows,
)
from weftline.latency.blocks.spans import LP_TOLERANCE, Part, Span, distances, part_windows
from weftline.latency.bounds import OUT_OF_REACH, Windows
from weftline.search.lp import Answer, GrowingProgram, Program, minimise
from weftline.simulate.tables import Tables

__all__ = ["BlockWork", "HubProgram", "Step", "block_work", "make_hub_program"]

WORK_SECONDS = 5.0
"""Of the program of one block."""
MOST_RANGES = 12
"""Distinct beginnings, and distinct ends, of the ranges of spans that get rows."""
MOST_PAIRS = 40_000
"""Ops beside the chain x pairs of devices; a larger program would take minutes to build."""
CUT_BEYOND = 1e-3
"""Cuts are made for lengths this much above the least: there the work of a block may fall as steeply as it likes."""
LEAST_TAKEN = 1e-7
"""Less than this is nothing."""


@dataclass(frozen=True, eq=False)
class BlockWork:
    """A block with fixed ends. Resources: K devices, K send ports, K receive ports, buses."""

    part: Part
    slack: int
    """Longest length of interest, ns."""
    windows: Windows
    columns: Columns
    items: Items
    certain: NDArray[np.float64]
    """By resource: work that is there whatever is chosen, ns."""

    def least(
        self, prices: Mapping[int, float], length: int, stop: Callable[[], bool] | None = None
    ) -> tuple[float, float]:
        """Least work times price if the block is so long, and its change per unit of length (0 or less)."""
        items, unit = self.items, float(max(1, self.slack))
        price = np.zeros(max(len(self.certain), 1 + max(prices)))
        price[list(prices)] = list(prices.values())
        sure = float(self.certain @ price[: len(self.certain)])
        mine = (items.column != IS_CERTAIN) & (price[items.resource] > 0.0)
        if not mine.any():
            return sure, 0.0
        weight = items.work[mine] * price[items.resource[mine]] / unit
        cost = np.bincount(items.column[mine], weight, self.columns.total).astype(np.float64)
        program, row = self._program(cost, length)
        answer = minimise(program, seconds=WORK_SECONDS, stop=stop)
        if not np.isfinite(answer.value):
            return sure, 0.0
        return max(sure, sure + (answer.value - LP_TOLERANCE) * unit), min(0.0, float(answer.prices[row]))

    def _program(self, cost: NDArray[np.float64], length: int) -> tuple[Program, int]:
        """The program, and the row that sets the length."""
        part, items, columns, unit = self.part, self.items, self.columns, float(max(1, self.slack))
        sums = balance_rows(part.pairs, columns, part.table, part.leader)
        open_items = items.column != IS_CERTAIN
        used, inverse = np.unique(items.resource[open_items], return_inverse=True)
        count, first, n = len(used), len(sums.low), len(part.table.time)
        path = path_rows(part.table, part.pairs, columns, first + count + 1, max(1, self.slack))
        program = Program(
            np.concatenate([cost, np.zeros(n)]),
            np.concatenate([np.zeros(columns.total), least_starts(self.windows) / unit]),
            np.full(columns.total + n, np.inf),
            np.concatenate([sums.low, np.full(count, -np.inf), [length / unit], path.low]),
            np.concatenate([sums.high, -self.certain[used] / unit, [length / unit], path.high]),
            np.concatenate([sums.rows, first + inverse, first + np.arange(count), [first + count], path.rows]),
            np.concatenate([sums.cols, items.column[open_items], np.zeros(count, np.int64), [0], path.cols]),
            np.concatenate([sums.values, items.work[open_items] / unit, -np.ones(count), [1.0], path.values]),
        )
        return program, first + count


def least_starts(found: Windows) -> Ints:
    """(n,): no op starts earlier."""
    starts: Ints = np.where(found.able, found.head, np.iinfo(np.int64).max).min(axis=1)
    return starts


def block_work(span: Span, k: int, j: int, slack: int) -> BlockWork | None:
    """The block of a span between two devices; None if it cannot be done within the slack."""
    part = span.part.at(span.ends(k, j))
    found = part_windows(part, slack)
    if found is None:
        return None
    columns = make_columns(part.table, part.pairs, found, slack, part.leader)
    items = make_items(part.table, part.pairs, found, columns)
    sure, devices = items.column == IS_CERTAIN, part.table.time.shape[1]
    resources = 3 * devices + int(part.table.bus.max(initial=-1)) + 1
    certain = np.bincount(items.resource[sure], items.work[sure], resources).astype(np.float64)
    return BlockWork(part, slack, found, columns, items, certain)


Step = tuple[int, int, int]
"""Span, device before, device after."""


@dataclass(eq=False)
class _ArcColumns:
    """A span between two devices as columns: is it taken, how long is it, what does it do on resources."""

    step: Step
    like: tuple[bytes, int, int]
    """Arcs with the same one differ in times alone."""
    block: BlockWork
    low: int
    flow: int
    long: int
    work: dict[int, int]
    """Resource -> column."""
    asked: tuple[float, ...] = ()
    """Length and prices of the last cut."""


Range = tuple[int, int, int, int]
"""Row, resource, first and last span."""


@dataclass(eq=False)
class HubProgram:
    """One program: columns in shares of `upper`."""

    upper: int
    """A plan of this length or more is of no interest."""
    rows: GrowingProgram
    arcs: list[list[_ArcColumns]]
    """By span: what a better plan may do there."""
    ranges: list[Range]
    places: list[dict[int, int]]
    """Of each op beside the chain: device -> column."""

    def solve(self, held: Mapping[int, int], seconds: float, stop: Callable[[], bool]) -> Answer:
        """With some ops of the chain (by place) on these devices."""
        for b, span in enumerate(self.arcs):
            for arc in span:
                _, k, j = arc.step
                free = held.get(b - 1, k) == k and held.get(b, j) == j and arc.low <= arc.block.slack
                self.rows.limit(arc.flow, np.inf if free else 0.0)
        return self.rows.solve(seconds, stop)

    def flows(self, answer: Answer, devices: int) -> NDArray[np.float64]:
        """(chain, K): share of a solution in which an op of the chain is on a device."""
        found = np.zeros((len(self.arcs) - 1, devices))
        for b, span in enumerate(self.arcs[:-1]):
            for arc in span:
                found[b, arc.step[2]] += answer.solution[arc.flow]
        return found

    def beside_devices(self, answer: Answer) -> Indices:
        """Where a solution has most of each op beside the chain."""
        best = [max(column, key=lambda k: answer.solution[column[k]]) for column in self.places]
        return np.array(best, np.int32)

    def lengthen(self, answer: Answer, raised: Callable[[Step], int], stop: Callable[[], bool]) -> int:
        """Better lengths of arcs that a solution takes, and of arcs like them -> how many became longer."""
        found = 0
        every = [arc for span in self.arcs for arc in span]
        taken = {arc.like for arc in every if answer.solution[arc.flow] > LEAST_TAKEN}
        for arc in every:
            if arc.like not in taken or stop():
                continue
            low = raised(arc.step)
            if arc.low < low <= arc.block.slack:  # no better plan takes a longer one
                self.rows.row([(arc.long, 1.0), (arc.flow, -low / self.upper)], 0.0, np.inf)
            found += low > arc.low
            arc.low = max(arc.low, low)
        return found

    def cut(self, answer: Answer, stop: Callable[[], bool]) -> int:
        """Where the blocks of a solution do less than they must, at its prices: rows against it -> how many."""
        added, x = 0, answer.solution
        for b, span in enumerate(self.arcs):
            prices: dict[int, float] = {}
            for row, resource, begin, end in self.ranges:
                if begin <= b <= end:
                    prices[resource] = prices.get(resource, 0.0) + max(0.0, -float(answer.prices[row]))
            for arc in span:
                if x[arc.flow] < LEAST_TAKEN or len(arc.block.part.table.time) <= 2 or stop():
                    continue
                mine = {resource: prices.get(resource, 0.0) for resource in arc.work}
                if max(mine.values()) < LEAST_TAKEN:  # nobody asked yet
                    devices = arc.block.part.table.time.shape[1]
                    mine = {resource: float(resource < devices) for resource in arc.work}
                done = sum(price * float(x[arc.work[resource]]) for resource, price in mine.items())
                long = x[arc.long] / x[arc.flow] * self.upper
                long = min(max(int(long), int(arc.low * (1 + CUT_BEYOND))), arc.block.slack)
                asked = long, *mine.values()
                if asked == arc.asked:
                    continue
                value, slope = arc.block.least(mine, long, stop)
                arc.asked = () if stop() else asked
                level = (value - slope * long) / self.upper
                if done < level * float(x[arc.flow]) + slope * float(x[arc.long]) - LEAST_TAKEN:
                    terms = [(arc.work[resource], price) for resource, price in mine.items() if price > 0]
                    self.rows.row([*terms, (arc.flow, -level), (arc.long, -slope)], 0.0, np.inf)
                    added += 1
        return added


def make_hub_program(
    table: Tables,
    hub: Hub,
    device: int,
    spans: list[Span],
    lengths: list[Ints],
    upper: int,
    stop: Callable[[], bool],
) -> HubProgram | None:
    """With the hub on a device; None if the program would be too large or `stop` says so."""
    if len(hub.beside) * table.time.shape[1] ** 2 > MOST_PAIRS:
        return None
    ahead, back = distances(lengths)
    rows = GrowingProgram()
    arcs = _all_arcs(rows, spans, lengths, ahead, back, upper, stop)
    if arcs is None:
        return None
    places, demands = _demands_beside(rows, table, hub, device, spans[hub.place + 1], upper)
    return HubProgram(upper, rows, arcs, _range_rows(rows, demands, arcs), places)


def _all_arcs(
    rows: GrowingProgram,
    spans: list[Span],
    lengths: list[Ints],
    ahead: list[Ints],
    back: list[Ints],
    upper: int,
    stop: Callable[[], bool],
) -> list[list[_ArcColumns]] | None:
    """Flow along arcs that a better plan may use, by span; None if it was stopped."""
    found: list[list[_ArcColumns]] = []
    entering: dict[int, list[tuple[int, float]]] = {}
    for b, (span, low) in enumerate(zip(spans, lengths, strict=True)):
        leaving: dict[int, list[tuple[int, float]]] = {}
        start: dict[int, list[tuple[int, float]]] = {}
        found.append([])
        for k, j in np.argwhere(low < OUT_OF_REACH).tolist():
            slack = upper - 1 - int(ahead[b][k]) - int(back[b + 1][j])
            block = block_work(span, k, j, slack) if low[k, j] <= slack else None
            if stop():
                return None
            if block is not None:
                arc = _arc_columns(rows, (b, k, j), span, block, int(low[k, j]), upper)
                start.setdefault(k, []).append((arc.flow, 1.0))
                leaving.setdefault(j, []).append((arc.flow, 1.0))
                found[b].append(arc)
        if b == 0:
            rows.row([term for terms in start.values() for term in terms], 1.0, 1.0)
        else:
            for device in set(start) | set(entering):
                out = [(column, -1.0) for column, _ in start.get(device, [])]
                rows.row([*entering.get(device, []), *out], 0.0, 0.0)
        entering = leaving
    return found


def _arc_columns(rows: GrowingProgram, step: Step, span: Span, block: BlockWork, low: int, upper: int) -> _ArcColumns:
    """Columns of an arc; the devices of its ends get columns for work, with their ports."""
    flow, long = rows.column(), rows.column(cost=1.0)
    rows.row([(long, 1.0), (flow, -low / upper)], 0.0, np.inf)
    _, k, j = step
    ends = {k if span.first >= 0 else j, j if span.last >= 0 else k}
    devices, work = block.part.table.time.shape[1], {}
    for resource in sorted(kind * devices + device for device in ends for kind in range(3)):
        work[resource] = rows.column()
        if block.certain[resource] > 0:
            rows.row([(work[resource], 1.0), (flow, -block.certain[resource] / upper)], 0.0, np.inf)
    return _ArcColumns(step, (span.shape, k, j), block, low, flow, long, work)


class Demand(NamedTuple):
    """What must happen on a resource (device, K + send port, 2 K + receive port) within some spans."""

    resource: int
    begin: int
    end: int
    column: int
    work: float


def _demands_beside(
    rows: GrowingProgram, table: Tables, hub: Hub, device: int, after: Span, upper: int
) -> tuple[list[dict[int, int]], list[Demand]]:
    """Where the ops beside the chain go, and what they and their transfers take.

    A tensor that is sent once for all readers of a device, and that the block after the hub reads too, is that block's.
    """
    shared = set() if table.per_edge else set(after.tensors[after.part.table.edge_tensor].tolist())
    devices = table.time.shape[1]
    number = {op: i for i, op in enumerate(hub.beside)}
    column = [{k: rows.column() for k in range(devices) if table.time[op, k] >= 0} for op in hub.beside]
    demands: list[Demand] = []
    for i, op in enumerate(hub.beside):
        rows.row([(x, 1.0) for x in column[i].values()], 1.0, 1.0)
        for k, x in column[i].items():
            if table.time[op, k] > 0:
                demands.append(Demand(k, int(hub.begin[i]), int(hub.end[i]), x, table.time[op, k] / upper))
    sent: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    for i, op in enumerate(hub.beside):
        for e in range(int(table.edge_ptr[op]), int(table.edge_ptr[op + 1])):
            tensor, maker = int(table.edge_tensor[e]), int(table.edge_maker[e])
            times = table.transfer[table.transfer_row[tensor]]
            if maker == hub.op and tensor in shared:
                continue
            if maker == hub.op:
                pairs = {(device, k): x for k, x in column[i].items()}
                first = hub.place + 1
            elif maker in number:
                pairs = _pairs(rows, column[number[maker]], column[i])
                first = int(hub.begin[number[maker]])
            else:
                continue
            for (a, b), x in pairs.items():
                if a == b or times[a, b] <= 0:
                    if times[a, b] < 0:
                        rows.row([(x, 1.0)], 0.0, 0.0)
                    continue
                if table.per_edge:
                    for resource in (devices + a, 2 * devices + b):
                        demands.append(Demand(resource, first, int(hub.end[i]), x, times[a, b] / upper))
                else:
                    once, begin, end = sent.get((tensor, a, b), (-1, first, -1))
                    once = rows.column() if once < 0 else once
                    rows.row([(once, 1.0), (x, -1.0)], 0.0, np.inf)
                    sent[tensor, a, b] = once, min(begin, first), max(end, int(hub.end[i]))
    for (tensor, a, b), (once, begin, end) in sent.items():
        work = table.transfer[table.transfer_row[tensor], a, b] / upper
        demands += [Demand(resource, begin, end, once, work) for resource in (devices + a, 2 * devices + b)]
    return column, demands


def _pairs(rows: GrowingProgram, left: dict[int, int], right: dict[int, int]) -> dict[tuple[int, int], int]:
    """Columns of both ends together."""
    both = {(k, j): rows.column() for k in left for j in right}
    for k, x in left.items():
        rows.row([(x, -1.0), *((both[k, j], 1.0) for j in right)], 0.0, 0.0)
    for j, x in right.items():
        rows.row([(x, -1.0), *((both[k, j], 1.0) for k in left)], 0.0, 0.0)
    return both


def _range_rows(rows: GrowingProgram, demands: list[Demand], arcs: list[list[_ArcColumns]]) -> list[Range]:
    """What must happen within a range of spans is not longer than they are."""
    begins = _spread(sorted({demand.begin for demand in demands}))
    ends = _spread(sorted({demand.end for demand in demands}))
    found: list[Range] = []
    for resource in sorted({demand.resource for demand in demands}):
        mine = [demand for demand in demands if demand.resource == resource]
        for begin in begins:
            for end in ends:
                inside = [(one.column, one.work) for one in mine if one.begin >= begin and one.end <= end]
                if not inside:
                    continue
                for arc in (arc for b in range(begin, end + 1) for arc in arcs[b]):
                    inside.append((arc.long, -1.0))
                    if resource in arc.work:
                        inside.append((arc.work[resource], 1.0))
                found.append((rows.height, resource, begin, end))
                rows.row(inside, -np.inf, 0.0)
    return found


def _spread(values: list[int]) -> list[int]:
    if len(values) <= MOST_RANGES:
        return values
    return [values[i * (len(values) - 1) // (MOST_RANGES - 1)] for i in range(MOST_RANGES)]
