"""The largest flow through a small network, by Dinic's algorithm, for solvers that ask for it thousands of times.

Arcs come in pairs: arc e ^ 1 goes back. `head[node]` is the first arc of a node, `after[arc]` the next one, -1 ends.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.simulate.kernels.jit import kernel, part

__all__ = ["add_arc", "largest_flow", "push_flow"]

Whole = NDArray[np.int64]


@part
def add_arc(net: tuple[Whole, Whole, Whole, Whole], count: int, ends: tuple[int, int], room: int) -> int:
    """Write arc `count` and its way back; the number of the next one."""
    head, to, after, left = net
    source, target = ends
    to[count], left[count], after[count] = target, room, head[source]
    head[source] = count
    to[count + 1], left[count + 1], after[count + 1] = source, 0, head[target]
    head[target] = count + 1
    return count + 2


@part
def push_flow(net: tuple[Whole, Whole, Whole, Whole], source: int, sink: int, work: tuple[Whole, Whole, Whole]) -> int:
    """Push as much as goes; `left` holds afterwards what every arc could still carry."""
    head, to, after, left = net
    level, current, path = work  # path: arcs of the way so far; level also serves as the queue's order
    nodes, total = len(head), 0
    while True:
        level[:] = -1  # breadth first: how far is every node from the source?
        level[source] = 0
        first, last = 0, 1
        path[0] = source
        while first < last:
            node = path[first]
            first += 1
            arc = head[node]
            while arc >= 0:
                if left[arc] > 0 and level[to[arc]] < 0:
                    level[to[arc]] = level[node] + 1
                    path[last] = to[arc]
                    last += 1
                arc = after[arc]
        if level[sink] < 0:
            return total
        for node in range(nodes):
            current[node] = head[node]
        node, depth = source, 0
        while True:  # depth first along arcs that lead away from the source
            if node == sink:
                most = left[path[0]]
                for i in range(1, depth):
                    most = min(most, left[path[i]])
                total += most
                back = 0
                for i in range(depth - 1, -1, -1):
                    left[path[i]] -= most
                    left[path[i] ^ 1] += most
                    if left[path[i]] == 0:
                        back = i
                depth = back
                node = to[path[depth] ^ 1]
                continue
            arc = current[node]
            while arc >= 0 and not (left[arc] > 0 and level[to[arc]] == level[node] + 1):
                arc = after[arc]
            current[node] = arc
            if arc >= 0:
                path[depth] = arc
                depth += 1
                node = to[arc]
            elif depth == 0:
                break
            else:
                level[node] = -1
                depth -= 1
                node = to[path[depth] ^ 1]


@kernel
def largest_flow(nodes: int, arcs: Whole, source: int, sink: int) -> Whole:
    """Arcs (E, 3): from, to, room -> the flow on each of them."""
    count = len(arcs)
    head = np.full(nodes, -1, np.int64)
    to, after, left = np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64), np.zeros(2 * count, np.int64)
    net, number = (head, to, after, left), 0
    for e in range(count):
        number = add_arc(net, number, (arcs[e, 0], arcs[e, 1]), arcs[e, 2])
    work = (np.zeros(nodes, np.int64), np.zeros(nodes, np.int64), np.zeros(nodes + 1, np.int64))
    push_flow(net, source, sink, work)
    flow = np.zeros(count, np.int64)
    for e in range(count):
        flow[e] = left[2 * e + 1]
    return flow
