"""The cut bound: whatever stage holds an op, it pays for the op, for what it holds beside it, and for what crosses.

The cheapest stage around an op is a minimum cut: every op inside pays its least time, every tensor across the border
its least transfer. The bound is the largest over ops. Stages need not be contiguous here, so that one flow is the
proof: `certify/check.py` repeats it. For throughput with added communication. Ops of a `together` set are one node
unless host devices exist, where they are left apart (which is weaker, and valid).
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from weftline.bounds import Bound, group_bound, load_bound
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel

__all__ = ["cut_bound", "lower_bounds"]

MOST_OPS = 20_000
MOST_CUTS = 400
"""Ops that are looked at, the dearest by themselves first."""
ENDLESS = 2**60


def cut_bound(problem: Problem) -> Bound | None:
    """The op whose cheapest stage is dearest; None where this says nothing."""
    begun = perf_counter()
    stages = np.flatnonzero(~problem.host)
    if problem.rules.objective != "throughput" or problem.rules.communication != "added" or not len(stages):
        return None
    if len(problem.devices) < 2 or len(problem.graph.ops) > MOST_OPS:
        return None
    node = problem.group if not problem.host.any() else np.arange(len(problem.graph.ops), dtype=np.int32)
    count = int(node.max()) + 1
    least, on_host = _least_times(problem, node, count)
    arcs = _arcs(problem, node, count, least)
    upper = np.minimum(arcs.alone, on_host)
    upper[least >= ENDLESS] = 0
    best, where = 0, -1
    for v in np.argsort(-upper, kind="stable")[:MOST_CUTS].tolist():
        if upper[v] <= best:
            break
        value = min(_flow(arcs.pointer, arcs.order, arcs.tail, arcs.head, arcs.room.copy(), v), int(on_host[v]))
        if value > best:
            best, where = value, v
    if where < 0:
        return None
    op = int(np.flatnonzero(node == where)[0])
    return Bound(best, "cut", {"kind": "cut", "op": op}, perf_counter() - begun)


def _least_times(problem: Problem, node: Indices, count: int) -> tuple[Ints, Ints]:
    """Least time of each node on a stage device, and on a host device (ENDLESS where there is none)."""
    total = np.zeros((count, len(problem.devices)), np.int64)
    np.add.at(total, node, np.maximum(problem.cost.time, 0))
    able = np.ones(total.shape, np.bool_)
    np.logical_and.at(able, node, problem.cost.time >= 0)
    total = np.where(able, total, ENDLESS)
    on_host = total[:, problem.host].min(axis=1, initial=ENDLESS)
    return total[:, ~problem.host].min(axis=1), on_host


class _Network:
    """Arcs in pairs (arc ^ 1 is the reverse of arc); `alone` is what a stage of one node alone costs."""

    def __init__(self, tail: Ints, head: Ints, room: Ints, alone: Ints) -> None:
        nodes = int(max(tail.max(initial=0), head.max(initial=0))) + 1
        self.tail, self.head, self.room, self.alone = tail, head, room, alone
        self.order = np.argsort(tail, kind="stable")
        self.pointer = np.zeros(nodes + 1, np.int64)
        np.cumsum(np.bincount(tail, minlength=nodes), out=self.pointer[1:])


def _arcs(problem: Problem, node: Indices, count: int, least: Ints) -> _Network:
    """Node -> sink: its time. Maker -> gate -> readers: leaves the stage. Readers -> gate -> maker: enters it."""
    arrays = problem.graph.arrays
    off = ~np.eye(len(problem.devices), dtype=np.bool_)
    lengths = problem.cost.transfer[:, off]
    cheapest = np.where(lengths >= 0, lengths, ENDLESS).min(axis=1)
    alone = least.copy()
    rows: list[tuple[int, int, int, int]] = [(v, count, min(int(t), ENDLESS), 0) for v, t in enumerate(least.tolist())]
    free = count + 1
    for t in np.flatnonzero(arrays.producer >= 0).tolist():
        maker = int(node[arrays.producer[t]])
        readers = sorted(
            {int(node[op]) for op in arrays.consumer_of[arrays.consumer_ptr[t] : arrays.consumer_ptr[t + 1]]}
        )
        readers = [q for q in readers if q != maker]
        cost = int(cheapest[problem.cost.transfer_row[t]])
        if not readers or cost == 0:
            continue
        alone[[maker, *readers]] += cost
        if len(readers) == 1:
            rows.append((maker, readers[0], cost, cost))
            continue
        rows.append((maker, free, cost, 0))
        rows += [(free, q, ENDLESS, 0) for q in readers]
        rows += [(q, free + 1, ENDLESS, 0) for q in readers]
        rows.append((free + 1, maker, cost, 0))
        free += 2
    table = np.array(rows, np.int64).reshape(-1, 4)
    tail, head = np.empty(2 * len(table), np.int64), np.empty(2 * len(table), np.int64)
    room = np.empty(2 * len(table), np.int64)
    tail[0::2], head[0::2], room[0::2] = table[:, 0], table[:, 1], table[:, 2]
    tail[1::2], head[1::2], room[1::2] = table[:, 1], table[:, 0], table[:, 3]
    return _Network(tail, head, room, alone)


@kernel
def _flow(pointer: Ints, order: Ints, tail: Ints, head: Ints, room: Ints, source: int) -> int:
    """The largest flow from a node to the sink, by shortest augmenting paths. The sink is the head of arc 0."""
    nodes, sink = len(pointer) - 1, head[0]
    came = np.full(nodes, -1, np.int64)
    seen = np.full(nodes, -1, np.int64)
    queue = np.empty(nodes, np.int64)
    total, turn = 0, 0
    while True:
        turn += 1
        first, last = 0, 1
        queue[0] = source
        seen[source] = turn
        while first < last and seen[sink] != turn:
            v = queue[first]
            first += 1
            for i in range(pointer[v], pointer[v + 1]):
                arc = order[i]
                if room[arc] > 0 and seen[head[arc]] != turn:
                    seen[head[arc]] = turn
                    came[head[arc]] = arc
                    queue[last] = head[arc]
                    last += 1
        if seen[sink] != turn:
            return total
        most, v = ENDLESS, sink
        while v != source:
            most = min(most, room[came[v]])
            v = tail[came[v]]
        v = sink
        while v != source:
            room[came[v]] -= most
            room[came[v] ^ 1] += most
            v = tail[came[v]]
        total += most
        if total >= ENDLESS:
            return total


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies, the largest first."""
    found = [group_bound(problem), load_bound(problem)]
    if (cut := cut_bound(problem)) is not None:
        found.append(cut)
    return tuple(sorted(found, key=lambda bound: -bound.value))
