"""The hub: an op whose outputs jump over much of a chain, and the ops beside the chain that it feeds.

In: a chain, who comes before whom. Out: the hub, the chain with it in, and in which segments each of the ops beside the
chain ("side ops") can run. `side_program` and `side_search` make a bound of them.

The program of the hub bound: which way a chain goes, how long its segments are, and where the ops beside it run.

With the hub on a known device, side ops know where their input is. A linear program lets every segment choose its
devices and be longer than its least length, puts the side ops somewhere, and asks that over every range of segments the
side ops that must run within it, their transfers and what the blocks themselves need fit on every device and port. In:
segments with lower bounds, an upper limit of interest. Simplified: what side ops hand to blocks is not sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices, Ints
from weftline.latency.blocks.chain import Chain, through
from weftline.latency.blocks.hub.work import BlockWork, block_work
from weftline.latency.blocks.spans import Segment, distances
from weftline.latency.blocks.windows import NEVER
from weftline.search.lp import Answer, GrowingProgram
from weftline.simulate.tables import Tables, edge_readers

__all__ = ["Hub", "SideProgram", "Step", "make_hub", "make_side_program", "pick_hub"]

CANDIDATES = 8
KEPT = 0.95
"""Share of what the blocks hold that must remain when the chain goes through the hub."""

Bools = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class Hub:
    """An op of the chain whose outputs jump over much of it, and the ops that stand beside the chain."""

    place: int
    """In the chain."""
    op: int
    side: tuple[int, ...]
    begin: Ints
    """First segment in which a side op can run."""
    end: Ints
    """Last one."""


def pick_hub(table: Tables, before: Bools, chain: Chain, most: int) -> tuple[int, Chain] | None:
    """The op whose outputs jump over most of the chain, weighed by what they cost to send, and the chain with it in.

    None if nothing jumps, or if the chain would lose too much by going through what does.
    """
    chain_ops = np.array(chain.ops)
    after = before[:, chain_ops].sum(axis=1)  # ops of the chain before an op: they come first
    after[chain_ops] += 1
    target = edge_readers(table)
    source = table.edge_maker.astype(np.int64)
    ends = after[target] - np.isin(target, chain_ops)
    beside = ~_held(before, chain)[target]  # what waits for nothing else of the chain is needed only where it is read
    ends[beside] = (len(chain_ops) - before[chain_ops].sum(axis=0))[target[beside]]
    cost = table.transfer.max(axis=(1, 2)).astype(np.float64)[table.transfer_row[table.edge_tensor]]
    weight = np.bincount(source, np.maximum(ends - after[source], 0) * cost, len(after))
    for op in np.argsort(-weight, kind="stable")[:CANDIDATES].tolist():
        if weight[op] > 0.0:
            longer = through(table, before, chain, op, most)
            if longer.inside >= KEPT * chain.inside:
                return op, longer
    return None


def make_hub(before: Bools, chain: Chain, op: int) -> Hub | None:
    """A hub that stands in the chain; None if no op stands beside the chain."""
    chain_ops = np.array(chain.ops)
    side = np.flatnonzero(~_held(before, chain))
    if not len(side):
        return None
    begin = before[side][:, chain_ops].sum(axis=1).astype(np.int64)
    end = (len(chain_ops) - before[chain_ops][:, side].sum(axis=0)).astype(np.int64)
    return Hub(chain.ops.index(op), op, tuple(side.tolist()), begin, end)


def _held(before: Bools, chain: Chain) -> Bools:
    """(n,): ops of the chain or of a block."""
    held = np.zeros(len(before), np.bool_)
    held[list(chain.ops)] = True
    for block in chain.blocks:
        held[block] = True
    return held


MOST_RANGES = 12
"""Distinct beginnings, and distinct ends, of the ranges of segments that get rows."""
MOST_PAIRS = 40_000
"""Side ops x pairs of devices; a larger program would take minutes to build."""
BEYOND = 1e-3
"""Cuts are made for lengths this much above the least: there the work of a block may fall as steeply as it likes."""
TAKEN = 1e-7
"""Less than this is nothing."""

Step = tuple[int, int, int]
"""Segment, device before, device after."""


@dataclass(eq=False)
class _Way:
    """A segment between two devices as columns: is it taken, how long is it, what does it do on resources."""

    arc: Step
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
"""Row, resource, first and last segment."""


@dataclass(eq=False)
class SideProgram:
    """One program: columns in shares of `upper`."""

    upper: int
    """A plan of this length or more is of no interest."""
    rows: GrowingProgram
    ways: list[list[_Way]]
    """By segment: what a better plan may do there."""
    ranges: list[Range]
    places: list[dict[int, int]]
    """Of each side op: device -> column."""

    def solve(self, held: Mapping[int, int], seconds: float, stop: Callable[[], bool]) -> Answer:
        """With some ops of the chain (by place) on these devices."""
        for b, segment in enumerate(self.ways):
            for way in segment:
                _, k, j = way.arc
                free = held.get(b - 1, k) == k and held.get(b, j) == j and way.low <= way.block.slack
                self.rows.limit(way.flow, np.inf if free else 0.0)
        return self.rows.solve(seconds, stop)

    def flows(self, answer: Answer, devices: int) -> NDArray[np.float64]:
        """(chain, K): share of a solution in which an op of the chain is on a device."""
        found = np.zeros((len(self.ways) - 1, devices))
        for b, segment in enumerate(self.ways[:-1]):
            for way in segment:
                found[b, way.arc[2]] += answer.solution[way.flow]
        return found

    def side_devices(self, answer: Answer) -> Indices:
        """Where a solution has most of each side op."""
        best = [max(column, key=lambda k: answer.solution[column[k]]) for column in self.places]
        return np.array(best, np.int32)

    def lengthen(self, answer: Answer, raised: Callable[[Step], int], stop: Callable[[], bool]) -> int:
        """Better lengths of arcs that a solution takes, and of arcs like them -> how many became longer."""
        found = 0
        every = [way for segment in self.ways for way in segment]
        taken = {way.like for way in every if answer.solution[way.flow] > TAKEN}
        for way in every:
            if way.like not in taken or stop():
                continue
            low = raised(way.arc)
            if way.low < low <= way.block.slack:  # no better plan takes a longer one
                self.rows.row([(way.long, 1.0), (way.flow, -low / self.upper)], 0.0, np.inf)
            found += low > way.low
            way.low = max(way.low, low)
        return found

    def cut(self, answer: Answer, stop: Callable[[], bool]) -> int:
        """Where the blocks of a solution do less than they must, at its prices: rows against it -> how many."""
        added, x = 0, answer.solution
        for b, segment in enumerate(self.ways):
            prices: dict[int, float] = {}
            for row, resource, begin, end in self.ranges:
                if begin <= b <= end:
                    prices[resource] = prices.get(resource, 0.0) + max(0.0, -float(answer.prices[row]))
            for way in segment:
                if x[way.flow] < TAKEN or len(way.block.part.table.time) <= 2 or stop():
                    continue
                mine = {resource: prices.get(resource, 0.0) for resource in way.work}
                if max(mine.values()) < TAKEN:  # nobody asked yet
                    devices = way.block.part.table.time.shape[1]
                    mine = {resource: float(resource < devices) for resource in way.work}
                done = sum(price * float(x[way.work[resource]]) for resource, price in mine.items())
                long = x[way.long] / x[way.flow] * self.upper
                long = min(max(int(long), int(way.low * (1 + BEYOND))), way.block.slack)
                asked = long, *mine.values()
                if asked == way.asked:
                    continue
                value, slope = way.block.least(mine, long, stop)
                way.asked = () if stop() else asked
                level = (value - slope * long) / self.upper
                if done < level * float(x[way.flow]) + slope * float(x[way.long]) - TAKEN:
                    terms = [(way.work[resource], price) for resource, price in mine.items() if price > 0]
                    self.rows.row([*terms, (way.flow, -level), (way.long, -slope)], 0.0, np.inf)
                    added += 1
        return added


def make_side_program(
    table: Tables,
    hub: Hub,
    device: int,
    segments: list[Segment],
    lengths: list[Ints],
    upper: int,
    stop: Callable[[], bool],
) -> SideProgram | None:
    """With the hub on a device; None if the program would be too large or `stop` says so."""
    if len(hub.side) * table.time.shape[1] ** 2 > MOST_PAIRS:
        return None
    ahead, back = distances(lengths)
    rows = GrowingProgram()
    ways = _ways(rows, segments, lengths, ahead, back, upper, stop)
    if ways is None:
        return None
    places, demands = _side_demands(rows, table, hub, device, segments[hub.place + 1], upper)
    return SideProgram(upper, rows, ways, _range_rows(rows, demands, ways), places)


def _ways(
    rows: GrowingProgram,
    segments: list[Segment],
    lengths: list[Ints],
    ahead: list[Ints],
    back: list[Ints],
    upper: int,
    stop: Callable[[], bool],
) -> list[list[_Way]] | None:
    """Flow along arcs that a better plan may use, by segment; None if it was stopped."""
    found: list[list[_Way]] = []
    entering: dict[int, list[tuple[int, float]]] = {}
    for b, (segment, low) in enumerate(zip(segments, lengths, strict=True)):
        leaving: dict[int, list[tuple[int, float]]] = {}
        start: dict[int, list[tuple[int, float]]] = {}
        found.append([])
        for k, j in np.argwhere(low < NEVER).tolist():
            slack = upper - 1 - int(ahead[b][k]) - int(back[b + 1][j])
            block = block_work(segment, k, j, slack) if low[k, j] <= slack else None
            if stop():
                return None
            if block is not None:
                way = _way(rows, (b, k, j), segment, block, int(low[k, j]), upper)
                start.setdefault(k, []).append((way.flow, 1.0))
                leaving.setdefault(j, []).append((way.flow, 1.0))
                found[b].append(way)
        if b == 0:
            rows.row([term for terms in start.values() for term in terms], 1.0, 1.0)
        else:
            for device in set(start) | set(entering):
                out = [(column, -1.0) for column, _ in start.get(device, [])]
                rows.row([*entering.get(device, []), *out], 0.0, 0.0)
        entering = leaving
    return found


def _way(rows: GrowingProgram, arc: Step, segment: Segment, block: BlockWork, low: int, upper: int) -> _Way:
    """Columns of an arc; the devices of its ends get columns for work, with their ports."""
    flow, long = rows.column(), rows.column(cost=1.0)
    rows.row([(long, 1.0), (flow, -low / upper)], 0.0, np.inf)
    _, k, j = arc
    ends = {k if segment.first >= 0 else j, j if segment.last >= 0 else k}
    devices, work = block.part.table.time.shape[1], {}
    for resource in sorted(kind * devices + device for device in ends for kind in range(3)):
        work[resource] = rows.column()
        if block.certain[resource] > 0:
            rows.row([(work[resource], 1.0), (flow, -block.certain[resource] / upper)], 0.0, np.inf)
    return _Way(arc, (segment.shape, k, j), block, low, flow, long, work)


Demand = tuple[int, int, int, list[tuple[int, float]]]
"""Resource (device, K + send port, 2 K + receive port), first and last segment, terms."""


def _side_demands(
    rows: GrowingProgram, table: Tables, hub: Hub, device: int, after: Segment, upper: int
) -> tuple[list[dict[int, int]], list[Demand]]:
    """Where the side ops go, and what they and their transfers take.

    A tensor that is sent once for all readers of a device, and that the block after the hub reads too, is that block's.
    """
    shared = set() if table.per_edge else set(after.tensors[after.part.table.edge_tensor].tolist())
    devices = table.time.shape[1]
    number = {op: i for i, op in enumerate(hub.side)}
    column = [{k: rows.column() for k in range(devices) if table.time[op, k] >= 0} for op in hub.side]
    demands: list[Demand] = []
    for i, op in enumerate(hub.side):
        rows.row([(x, 1.0) for x in column[i].values()], 1.0, 1.0)
        for k, x in column[i].items():
            if table.time[op, k] > 0:
                demands.append((k, int(hub.begin[i]), int(hub.end[i]), [(x, table.time[op, k] / upper)]))
    sent: dict[tuple[int, int, int], tuple[int, int, int]] = {}
    for i, op in enumerate(hub.side):
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
                        demands.append((resource, first, int(hub.end[i]), [(x, times[a, b] / upper)]))
                else:
                    once, begin, end = sent.get((tensor, a, b), (-1, first, -1))
                    once = rows.column() if once < 0 else once
                    rows.row([(once, 1.0), (x, -1.0)], 0.0, np.inf)
                    sent[tensor, a, b] = once, min(begin, first), max(end, int(hub.end[i]))
    for (tensor, a, b), (once, begin, end) in sent.items():
        work = table.transfer[table.transfer_row[tensor], a, b] / upper
        demands += [(resource, begin, end, [(once, work)]) for resource in (devices + a, 2 * devices + b)]
    return column, demands


def _pairs(rows: GrowingProgram, left: dict[int, int], right: dict[int, int]) -> dict[tuple[int, int], int]:
    """Columns of both ends together."""
    both = {(k, j): rows.column() for k in left for j in right}
    for k, x in left.items():
        rows.row([(x, -1.0), *((both[k, j], 1.0) for j in right)], 0.0, 0.0)
    for j, x in right.items():
        rows.row([(x, -1.0), *((both[k, j], 1.0) for k in left)], 0.0, 0.0)
    return both


def _range_rows(rows: GrowingProgram, demands: list[Demand], ways: list[list[_Way]]) -> list[Range]:
    """What must happen within a range of segments is not longer than they are."""
    begins = _spread(sorted({demand[1] for demand in demands}))
    ends = _spread(sorted({demand[2] for demand in demands}))
    found: list[Range] = []
    for resource in sorted({demand[0] for demand in demands}):
        mine = [demand for demand in demands if demand[0] == resource]
        for begin in begins:
            for end in ends:
                inside = [term for _, a, z, terms in mine if a >= begin and z <= end for term in terms]
                if not inside:
                    continue
                for way in (way for b in range(begin, end + 1) for way in ways[b]):
                    inside.append((way.long, -1.0))
                    if resource in way.work:
                        inside.append((way.work[resource], 1.0))
                found.append((rows.height, resource, begin, end))
                rows.row(inside, -np.inf, 0.0)
    return found


def _spread(values: list[int]) -> list[int]:
    if len(values) <= MOST_RANGES:
        return values
    return [values[i * (len(values) - 1) // (MOST_RANGES - 1)] for i in range(MOST_RANGES)]
