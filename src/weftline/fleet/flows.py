"""Instances that hold layers -> the lanes with the highest rate that they allow.

In: a LayerProblem and instances. Out: lanes with whole rates, instances that get nothing left out. Where links limit
nothing, instances that hold the same layers are one arc of a small network, whose flow is shared in proportion to what
each can serve, so that equal devices are equally busy. With links or ports: one node for each instance. Where requests
may use a part of what an instance holds, or where a limit of depth binds, a linear program, rounded down.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from weftline.problem.layers import SINK_NODE, SOURCE_NODE, LayerInstance, LayerLane, LayerProblem
from weftline.search.lp import Program, minimise
from weftline.simulate.kernels.max_flow import largest_flow
from weftline.simulate.layers import LayerDeployment, simulate_layers

__all__ = ["best_deployment", "unlinked"]

Span = tuple[int, int]
Edges = dict[tuple[Hashable, Hashable], int]
"""(from, to) -> flow."""
Way = tuple[int, list[tuple[int, int, int]]]
"""Rate, hops."""
MOST_HOPS = 400_000
"""Columns of a linear program of lanes; larger ones are not built."""
ROUNDED_DOWN = 1 - 1e-9


def unlinked(problem: LayerProblem, most: int) -> bool:
    """True if neither links nor ports can limit a deployment of at most this rate."""
    if problem.ports is not None and min(min(both) for both in problem.ports) < most:
        return False
    if problem.links is None:
        return True
    count = problem.offsets[-1]
    wide = sum(rate >= most for _, _, rate in problem.links)
    through = sum(a == SOURCE_NODE and b == SINK_NODE for a, b, _ in problem.links)
    return wide - through >= count * (count - 1) + 2 * count


def best_deployment(
    problem: LayerProblem, instances: Sequence[LayerInstance], *, free: bool = False
) -> LayerDeployment:
    """The most that these instances can serve. `free`: links and ports are known not to matter."""
    linked = not free and (problem.links is not None or problem.ports is not None)
    limit = problem.max_depth
    if problem.partial or (limit is not None and _longest(instances) > limit):
        ways = _program_ways(problem, instances, linked)
    elif linked:
        ways = _linked_ways(problem, instances)
    else:
        ways = _free_ways(problem, instances)
    used = sorted({hop[0] for _, hops in ways for hop in hops})
    number = {old: new for new, old in enumerate(used)}
    lanes = [LayerLane(rate, tuple((number[i], p, q) for i, p, q in hops)) for rate, hops in ways]
    return simulate_layers(problem, [instances[i] for i in used], lanes)


def _longest(instances: Sequence[LayerInstance]) -> int:
    """Instances in a row on the longest way."""
    steps: dict[int, int] = {0: 0}
    for first, last in sorted({(one.first, one.last) for one in instances}):
        if first in steps:
            steps[last] = max(steps.get(last, 0), steps[first] + 1)
    return max(steps.values())


def _free_ways(problem: LayerProblem, instances: Sequence[LayerInstance]) -> list[Way]:
    groups: dict[Span, list[int]] = defaultdict(list)
    for number, one in enumerate(instances):
        groups[one.first, one.last].append(number)
    spans = sorted(groups)
    most = [[problem.rate(instances[i].unit, last - first) for i in groups[first, last]] for first, last in spans]
    arcs = np.array(
        [(first, last, sum(rates)) for (first, last), rates in zip(spans, most, strict=True)], np.int64
    ).reshape(-1, 3)
    flow = largest_flow(problem.layers + 1, arcs, 0, problem.layers).tolist()
    left = {
        span: _shared(amount, rates) for span, amount, rates in zip(spans, flow, most, strict=True)
    }  # what each instance still has to serve
    edges: Edges = {(span[0], span[1]): amount for span, amount in zip(spans, flow, strict=True)}
    ways: list[Way] = []
    for amount, nodes in _decompose(edges, 0, problem.layers):
        path, rest = list(pairwise(nodes)), amount
        while rest > 0:
            chosen = [next(i for i, share in enumerate(left[span]) if share > 0) for span in path]
            part = min(rest, *(left[span][i] for span, i in zip(path, chosen, strict=True)))
            for span, i in zip(path, chosen, strict=True):
                left[span][i] -= part
            ways.append((part, [(groups[span][i], *span) for span, i in zip(path, chosen, strict=True)]))
            rest -= part
    return _merged(ways)


def _shared(amount: int, most: Sequence[int]) -> list[int]:
    """A rate among instances, in proportion to what each can serve, whole numbers."""
    total = sum(most)
    shares = [amount * rate // total if total else 0 for rate in most]
    for i, rate in enumerate(most):
        more = min(rate - shares[i], amount - sum(shares))
        shares[i] += max(more, 0)
    return shares


def _merged(ways: list[Way]) -> list[Way]:
    together: dict[tuple[tuple[int, int, int], ...], int] = {}
    for rate, hops in ways:
        together[tuple(hops)] = together.get(tuple(hops), 0) + rate
    return [(rate, list(hops)) for hops, rate in together.items()]


def _decompose(edges: Edges, source: Hashable, sink: Hashable) -> list[tuple[int, list[Any]]]:
    """A flow without cycles -> ways with amounts, the widest first."""
    leaving: dict[Hashable, dict[Hashable, int]] = defaultdict(dict)
    for (a, b), amount in edges.items():
        if amount > 0:
            leaving[a][b] = amount
    found = []
    while leaving[source]:
        path: list[Any] = [source]
        while path[-1] != sink:
            onward = leaving[path[-1]]
            if not onward:
                break
            path.append(max(onward, key=onward.__getitem__))
        pairs = list(pairwise(path))
        amount = min(leaving[a][b] for a, b in pairs)
        for a, b in pairs:
            leaving[a][b] -= amount
            if leaving[a][b] <= 0:
                del leaving[a][b]
        if path[-1] == sink:  # else rounding has cut it
            found.append((amount, path))
    return found


def _linked_ways(problem: LayerProblem, instances: Sequence[LayerInstance]) -> list[Way]:
    """Nodes 2i and 2i + 1 are where instance i is entered and left."""
    count, ends = len(instances), {one.devices[0]: number for number, one in enumerate(instances)}
    source, sink = 2 * count, 2 * count + 1
    arcs = []
    for i, one in enumerate(instances):
        room = problem.rate(one.unit, one.held)
        if problem.ports is not None:
            room = min(room, *problem.ports[one.devices[0]])
        arcs.append((2 * i, 2 * i + 1, room))
    for a, b, room in _pairs(problem, ends):
        first = 0 if a == SOURCE_NODE else instances[ends[a]].last
        last = problem.layers if b == SINK_NODE else instances[ends[b]].first
        if first == last:
            arcs.append(
                (source if a == SOURCE_NODE else 2 * ends[a] + 1, sink if b == SINK_NODE else 2 * ends[b], room)
            )
    table = np.array(arcs, np.int64).reshape(-1, 3)
    flow = largest_flow(2 * count + 2, table, source, sink).tolist()
    edges: Edges = {(a, b): amount for (a, b, _), amount in zip(arcs, flow, strict=True)}
    return [
        (amount, [(node // 2, instances[node // 2].first, instances[node // 2].last) for node in path[1:-1:2]])
        for amount, path in _decompose(edges, source, sink)
    ]


def _pairs(problem: LayerProblem, ends: dict[int, int]) -> list[tuple[int, int, int]]:
    """Links between devices that hold something, and the two ends."""
    if problem.links is None:
        most = max(max(unit.rates) for unit in problem.units) * max(len(ends), 1)
        nodes = list(ends)
        return [
            *((SOURCE_NODE, d, most) for d in nodes),
            *((a, b, most) for a in nodes for b in nodes if a != b),
            *((d, SINK_NODE, most) for d in nodes),
        ]
    here = ends.keys() | {SOURCE_NODE, SINK_NODE}
    return [link for link in problem.links if link[0] in here and link[1] in here]


def _program_ways(problem: LayerProblem, instances: Sequence[LayerInstance], linked: bool) -> list[Way]:
    """By a linear program, rounded down."""
    deep, levels = problem.max_depth is not None, 1
    if problem.max_depth is not None:
        levels = max(1, min(problem.max_depth, problem.layers, len(instances)))
    count = sum(one.held * (one.held + 1) // 2 if problem.partial else 1 for one in instances) * levels
    if count > MOST_HOPS:
        return []
    hops = [
        (i, p, q, h)
        for i, one in enumerate(instances)
        for p in (range(one.first, one.last) if problem.partial else (one.first,))
        for q in (range(p + 1, one.last + 1) if problem.partial else (one.last,))
        for h in range(levels)
    ]
    if not hops:
        return []
    program = _LaneProgram(problem, instances, hops, deep)
    if linked:
        program.join_by_links()
    else:
        program.join_at_positions()
    return _merged(program.ways())


def _joined(hops: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Two stays on one instance, one behind the other, are one."""
    found: list[tuple[int, int, int]] = []
    for i, p, q in hops:
        if found and found[-1][0] == i:
            found[-1] = (i, found[-1][1], q)
        else:
            found.append((i, p, q))
    return found


class _LaneProgram:
    """Columns: hops (instance, p, q, how many before it; always 0 where depth has no limit), and with links what is
    handed from instance to instance at a position. Rows by name; those without a limit are equal to 0.
    """

    def __init__(
        self,
        problem: LayerProblem,
        instances: Sequence[LayerInstance],
        hops: list[tuple[int, int, int, int]],
        deep: bool,
    ) -> None:
        self.problem, self.instances, self.hops, self.deep = problem, instances, hops, deep
        self.rows: dict[Hashable, list[tuple[int, float]]] = defaultdict(list)
        self.limits: dict[Hashable, int] = {}
        self.cost: list[float] = []
        self.handed: dict[int, tuple[int, int, int, int]] = {}
        """Column -> (from instance, to instance, position, hops before); -1 is an end."""
        rates = [problem.rate(one.unit, one.held) for one in instances]
        most = min(
            sum(rate for one, rate in zip(instances, rates, strict=True) if one.first <= layer < one.last)
            for layer in range(problem.layers)
        )  # no more comes through, so that faster instances need no larger numbers
        for column, (i, p, _, h) in enumerate(hops):
            self.cost.append(-1.0 if p == 0 and h == 0 else 0.0)
            self.rows["serve", i].append((column, 1.0))
            self.limits["serve", i] = min(rates[i], most)
            if p == 0 and h > 0:
                self.rows["never"].append((column, 1.0))

    def join_at_positions(self) -> None:
        """What leaves a position at a depth enters there."""
        for column, (_, p, q, h) in enumerate(self.hops):
            if p > 0:
                self.rows["join", p, h].append((column, 1.0))
            if q < self.problem.layers:
                self.rows["join", q, h + self.deep].append((column, -1.0))

    def join_by_links(self) -> None:
        """What leaves an instance crosses a link."""
        for column, (i, p, q, h) in enumerate(self.hops):
            self.rows["enter", i, p, h].append((column, 1.0))
            self.rows["leave", i, q, h + self.deep].append((column, -1.0))
        number = {one.devices[0]: i for i, one in enumerate(self.instances)}
        number |= {SOURCE_NODE: -1, SINK_NODE: -1}
        leaving: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for i, _, q, h in self.hops:
            leaving[i].add((q, h + self.deep))
        leaving[-1] = {(0, 0)}
        entering = {(i, p, h) for i, p, _, h in self.hops}
        for a, b, room in _pairs(self.problem, number):
            for q, h in leaving[number[a]]:
                end = b == SINK_NODE
                if end == (q == self.problem.layers) and (end or (number[b], q, h) in entering):
                    self._hand((a, b), (number[a], number[b], q, h), room)

    def _hand(self, link: tuple[int, int], handed: tuple[int, int, int, int], room: int) -> None:
        """A column for what crosses a link at a position."""
        column, (i, j, q, h) = len(self.cost), handed
        self.cost.append(0.0)
        self.handed[column] = handed
        served = {one: self.limits["serve", one] for one in (i, j) if one >= 0}
        self.rows["link", *link].append((column, 1.0))
        self.limits["link", *link] = min([room, *served.values()])  # wider ones would make all others look like nothing
        if i >= 0:
            self.rows["leave", i, q, h].append((column, 1.0))
        if j >= 0:
            self.rows["enter", j, q, h].append((column, -1.0))
        for device, way, one in ((link[1], 0, j), (link[0], 1, i)):
            if self.problem.ports is not None and device >= 0:
                self.rows["port", device, way].append((column, 1.0))
                self.limits["port", device, way] = min(self.problem.ports[device][way], served[one])

    def ways(self) -> list[Way]:
        """The flow of the best solution as ways."""
        amount, edges, deep = self._solve(), Edges(), self.deep
        for column, (i, p, q, h) in enumerate(self.hops):
            if not len(amount) or amount[column] <= 0:
                continue
            hop = ("hop", i, p, q, h)
            edges[("in", i, p, h), hop] = edges[hop, ("out", i, q, h + deep)] = amount[column]
            if not self.handed:
                before: Hashable = "source" if p == 0 else ("at", p, h)
                behind: Hashable = "sink" if q == self.problem.layers else ("at", q, h + deep)
                for edge in ((before, ("in", i, p, h)), (("out", i, q, h + deep), behind)):
                    edges[edge] = edges.get(edge, 0) + amount[column]
        for column, (i, j, q, h) in self.handed.items():
            if len(amount) and amount[column] > 0:
                edges["source" if i < 0 else ("out", i, q, h), "sink" if j < 0 else ("in", j, q, h)] = amount[column]
        return [
            (width, _joined([node[1:4] for node in path if node[0] == "hop"]))
            for width, path in _decompose(edges, "source", "sink")
        ]

    def _solve(self) -> list[int]:
        names, limits = list(self.rows), self.limits
        scale = float(max([*limits.values(), 1]))
        entries = [(r, column, value) for r, name in enumerate(names) for column, value in self.rows[name]]
        row, column, value = (np.array(part) for part in zip(*entries, strict=True))
        high = np.array([limits.get(name, 0) / scale for name in names])
        low = np.array([-np.inf if name in limits else 0.0 for name in names])
        count = len(self.cost)
        top = np.full(count, max(sum(limits.values()) / scale, 1.0))
        places = row.astype(np.int64), column.astype(np.int64)
        answer = minimise(Program(np.array(self.cost), np.zeros(count), top, low, high, *places, value))
        if not np.isfinite(answer.value):
            return []
        return [int(number) for number in (answer.solution * scale * ROUNDED_DOWN).tolist()]
