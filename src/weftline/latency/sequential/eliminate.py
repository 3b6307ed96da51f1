"""The best labelling of a narrow graph, exactly: one variable after another is minimised away.

In: LabelCosts. Out: their least sum, the labels, and the order of elimination, for `certify/check.py` to repeat it.
Variables are the groups, and for every star one more that says where its tensor is: (home, set of devices). Each step
makes a table over the neighbours of a variable; where these tables grow too large there is no answer (None).

Two devices: the cheapest labelling is a minimum cut, and its flow is the proof.

In: LabelCosts of two devices. Out: labels and messages (see `messages.py`). Device 0 is the side of the source. A pair
of groups is two arcs; a star is two gates, one for each direction in which its tensor may be sent. What cannot be has
a capacity above every possible cost.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from math import prod
from typing import NamedTuple

import numpy as np

from weftline.graph.arrays import Ints
from weftline.latency.sequential.label_costs import FAR, LabelCosts, worst_cost
from weftline.latency.sequential.messages import Messages, no_messages

__all__ = ["LARGEST_WORK", "QUICK_WORK", "Cut", "Eliminated", "eliminate", "minimum_cut"]

LARGEST_TABLE = 2**18
"""Entries of one table, with the variable that is minimised away."""
QUICK_WORK = 2**20
"""Entries of all tables: what the checker does in half a second."""
LARGEST_WORK = 2**22
"""What it does in a few seconds."""
MOST_DEVICES = 10
"""That a tensor with several readers may be sent to: it has a label per set of them."""


class Eliminated(NamedTuple):
    """The optimum of an costs."""

    value: int
    """FAR or more: nothing is possible."""
    labels: Ints
    order: list[int]


class Model(NamedTuple):
    """The costs as variables with labels and tables over them; a variable with one label stands in no table."""

    devices: list[list[int]]
    """Labels of each group."""
    sizes: list[int]
    constant: int
    scopes: list[tuple[int, ...]]
    """Ascending."""
    tables: list[Ints]


def eliminate(costs: LabelCosts, *, work: int = LARGEST_WORK) -> Eliminated | None:
    """Exact, or None where all tables would have more than `work` entries."""
    model = _model(costs)
    order = None if model is None else elimination_order(model.sizes, model.scopes, work)
    if model is None or order is None:
        return None
    waiting: dict[int, list[int]] = {v: [] for v in order}
    for number, scope in enumerate(model.scopes):
        for v in scope:
            waiting[v].append(number)
    scopes, tables, gone = list(model.scopes), list(model.tables), [False] * len(model.scopes)
    value, steps = model.constant, list[tuple[int, tuple[int, ...], Ints]]()
    for v in order:
        mine = [number for number in waiting[v] if not gone[number]]
        scope = tuple(sorted({u for number in mine for u in scopes[number]} - {v}))
        joined = _join([scopes[number] for number in mine], [tables[number] for number in mine], (*scope, v))
        steps.append((v, scope, joined.argmin(axis=-1)))
        least = joined.min(axis=-1)
        for number in mine:
            gone[number] = True
        if scope:
            for u in scope:
                waiting[u].append(len(scopes))
            scopes.append(scope)
            tables.append(least)
            gone.append(False)
        else:
            value += int(least)
    label = [0] * len(model.sizes)
    for v, scope, choice in reversed(steps):
        label[v] = int(choice[tuple(label[u] for u in scope)])
    devices = [able[label[v]] for v, able in enumerate(model.devices)]
    return Eliminated(value, np.array(devices, np.int64), order)


def _join(scopes: list[tuple[int, ...]], tables: list[Ints], scope: tuple[int, ...]) -> Ints:
    """The sum of tables over the variables of all, cut off at FAR."""
    place = {v: i for i, v in enumerate(scope)}
    total: Ints = np.zeros((1,) * len(scope), np.int64)
    for own, table in zip(scopes, tables, strict=True):
        axes = [place[v] for v in own]
        shape = [1] * len(scope)
        for axis, size in zip(axes, table.shape, strict=True):
            shape[axis] = size
        total = np.minimum(total + table.transpose(np.argsort(axes)).reshape(shape), FAR)
    return total


def _model(costs: LabelCosts) -> Model | None:
    """A label of a group is a device it can use; of a star, a home and the devices that hold its tensor."""
    k = costs.unary.shape[1]
    devices = [[d for d in range(k) if row[d] < FAR] for row in costs.unary.tolist()]
    if not all(devices):
        return None
    sizes = [len(able) for able in devices]
    constant, scopes, tables = 0, list[tuple[int, ...]](), list[Ints]()

    def add(scope: tuple[int, ...], table: Ints) -> None:
        nonlocal constant
        own = tuple(v for v in scope if sizes[v] > 1)
        if own:
            scopes.append(own)
            tables.append(table.reshape([sizes[v] for v in own]))
        else:
            constant += int(table.reshape(()))

    for v, row in enumerate(costs.unary):
        add((v,), row[devices[v]])
    for (a, b), table in zip(costs.pair.tolist(), costs.pair_cost, strict=True):
        add((a, b), table[np.ix_(devices[a], devices[b])])
    pointer, readers = costs.star_ptr.tolist(), costs.star_of.tolist()
    for star, home in enumerate(costs.star_home.tolist()):
        mine = readers[pointer[star] : pointer[star + 1]]
        labels = star_labels(costs.star_cost[star].tolist(), devices[home], [devices[reader] for reader in mine])
        if not labels:
            return None
        v = len(sizes)
        sizes.append(len(labels))
        at, held, cost = np.array(labels, np.int64).T
        add((v,), cost)
        add((home, v), np.where(at == np.array(devices[home])[:, None], 0, FAR))
        for reader in mine:
            add((reader, v), np.where(held >> np.array(devices[reader])[:, None] & 1, 0, FAR))
    return Model(devices, sizes, constant, scopes, tables)


def star_labels(lengths: list[list[int]], homes: list[int], readers: list[list[int]]) -> list[tuple[int, int, int]]:
    """Home, devices that hold the tensor (as bits), and the cost; nobody pays for a device that no reader can use."""
    useful = sorted({d for able in readers for d in able})
    labels = []
    for home in homes:
        row = lengths[home]
        free = sum(1 << d for d in useful if row[d] == 0) | 1 << home
        dear = [d for d in useful if 0 < row[d] < FAR]
        if len(dear) > MOST_DEVICES:
            return []
        for pick in range(1 << len(dear)):
            chosen = [d for i, d in enumerate(dear) if pick >> i & 1]
            if len(chosen) <= len(readers):
                labels.append((home, free | sum(1 << d for d in chosen), sum(row[d] for d in chosen)))
    return labels


def elimination_order(sizes: list[int], scopes: list[tuple[int, ...]], work: int) -> list[int] | None:
    """The variable with the smallest table next; None where tables grow too large."""
    near: list[set[int]] = [set() for _ in sizes]
    for scope in scopes:
        for v in scope:
            near[v].update(scope)
    for v, others in enumerate(near):
        others.discard(v)

    def entries(v: int) -> int:
        return sizes[v] * prod(sizes[u] for u in near[v])

    waiting = [(entries(v), v) for v in range(len(sizes)) if sizes[v] > 1]
    heapify(waiting)
    done = [False] * len(sizes)
    order: list[int] = []
    while waiting:
        size, v = heappop(waiting)
        if done[v] or size != entries(v):
            continue  # its neighbours have changed since
        work -= size
        if size > LARGEST_TABLE or work < 0:
            return None
        done[v] = True
        order.append(v)
        for u in near[v]:
            near[u] |= near[v]
            near[u] -= {u, v}
        for u in near[v]:
            heappush(waiting, (entries(u), u))
    return order


LARGEST = 2.0**62


class Cut(NamedTuple):
    """The best labelling, and the messages that its flow stands for."""

    value: int
    labels: Ints
    messages: Messages


def minimum_cut(costs: LabelCosts) -> Cut | None:
    """None where nothing is possible, or where the numbers are too large for the flow."""
    from ortools.graph.python.max_flow import SimpleMaxFlow

    groups, stars = len(costs.unary), len(costs.star_home)
    star = np.repeat(np.arange(stars), np.diff(costs.star_ptr))
    source, sink = groups + 2 * stars, groups + 2 * stars + 1
    leaves, enters = groups + np.arange(stars), groups + stars + np.arange(stars)
    never = int(worst_cost(costs)) + 1
    least = costs.unary.min(axis=1)
    above = np.where(costs.unary < FAR, costs.unary - least[:, None], never)
    same = costs.pair_cost[:, [0, 1], [0, 1]]
    if np.any(least >= FAR) or np.any(same != 0):
        return None
    there, back = _length(costs.pair_cost[:, 0, 1], never), _length(costs.pair_cost[:, 1, 0], never)
    out, into = _length(costs.star_cost[:, 0, 1], never), _length(costs.star_cost[:, 1, 0], never)
    first, second = costs.pair.T
    every = np.arange(groups)
    parts = [
        (np.full(groups, source), every, above[:, 1]),
        (every, np.full(groups, sink), above[:, 0]),
        (first, second, there),
        (second, first, back),
        (costs.star_home, leaves, out),
        (leaves[star], costs.star_of, out[star]),
        (costs.star_of, enters[star], into[star]),
        (enters, costs.star_home, into),
    ]
    tail, head, room = (np.concatenate(column).astype(np.int64) for column in zip(*parts, strict=True))
    if never * float(len(room)) > LARGEST:
        return None
    network = SimpleMaxFlow()
    arcs = network.add_arcs_with_capacity(tail, head, room)
    if network.solve(source, sink) != network.OPTIMAL or network.optimal_flow() >= never:
        return None
    ends = np.cumsum([len(part[0]) for part in parts])
    flow = np.split(np.asarray(network.flows(arcs), np.int64), ends[:-1])
    labels = np.ones(groups + 2 * stars + 2, np.int64)
    labels[network.get_source_side_min_cut()] = 0
    return Cut(int(least.sum()) + network.optimal_flow(), labels[:groups], _messages(costs, flow))


def _length(table: Ints, never: int) -> Ints:
    return np.where(table < FAR, table, never)


def _messages(costs: LabelCosts, flow: list[Ints]) -> Messages:
    """What flows from one group to another is cost that moves between them, on device 1."""
    messages = no_messages(costs)
    messages.pair[:, 0, 1] = flow[3] - flow[2]
    messages.pair[:, 1, 1] = flow[2] - flow[3]
    place = costs.star_ptr[:-1] + np.arange(len(costs.star_home))
    messages.star[place, 1] = flow[7] - flow[4]
    readers = np.ones(len(messages.star), np.bool_)
    readers[place] = False
    messages.star[readers, 1] = flow[5] - flow[6]
    return messages
