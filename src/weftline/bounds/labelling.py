"""The labelling bound: no plan of the sequential runtime is below the cheapest labelling of groups with devices.

With two devices it is a minimum cut, and its flow gives the messages that prove it. With more, a narrow graph is
minimised exactly: one variable after another is minimised away (`eliminate`). Variables are the groups, and for every
star one more that says where its tensor is: (home, set of devices). Each step makes a table over the neighbours of a
variable; where these grow too large there is no answer. The order of elimination is for `certify/check.py` to repeat
it. A wide graph gets messages by dual ascent, which prove a bound that is often the optimum.

Where the cheapest labelling does not fit memory: prices per byte and device, for the bound and for other labellings.
What a device holds fits its memory, so price * (held - capacity) <= 0 may be added to the cost of every plan: the
cheapest labelling of the priced costs stays a lower bound. The best prices come from cutting planes: each labelling
found is a line, and a small linear program says where the highest of the lowest lines is.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heapify, heappop, heappush
from math import prod
from time import perf_counter
from typing import NamedTuple

import numpy as np

from weftline.bounds import load_bound
from weftline.bounds.dual import ascend, minimum_cut
from weftline.bounds.label_costs import (
    IMPOSSIBLE_COST,
    LabelCosts,
    label_costs,
    message_witness,
    no_messages,
    price_witness,
    worst_cost,
)
from weftline.graph.arrays import Ints
from weftline.problem import Problem
from weftline.problem.model import NO_LIMIT
from weftline.search.bound import Bound

__all__ = [
    "LARGEST_WORK",
    "QUICK_WORK",
    "Eliminated",
    "Labelled",
    "best_labelling",
    "eliminate",
    "labelling_bound",
    "priced_labellings",
]

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
    """IMPOSSIBLE_COST or more: nothing is possible."""
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
    """The sum of tables over the variables of all, cut off at IMPOSSIBLE_COST."""
    place = {v: i for i, v in enumerate(scope)}
    total: Ints = np.zeros((1,) * len(scope), np.int64)
    for own, table in zip(scopes, tables, strict=True):
        axes = [place[v] for v in own]
        shape = [1] * len(scope)
        for axis, size in zip(axes, table.shape, strict=True):
            shape[axis] = size
        total = np.minimum(total + table.transpose(np.argsort(axes)).reshape(shape), IMPOSSIBLE_COST)
    return total


def _model(costs: LabelCosts) -> Model | None:
    """A label of a group is a device it can use; of a star, a home and the devices that hold its tensor."""
    k = costs.unary.shape[1]
    devices = [[d for d in range(k) if row[d] < IMPOSSIBLE_COST] for row in costs.unary.tolist()]
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
        add((home, v), np.where(at == np.array(devices[home])[:, None], 0, IMPOSSIBLE_COST))
        for reader in mine:
            add((reader, v), np.where(held >> np.array(devices[reader])[:, None] & 1, 0, IMPOSSIBLE_COST))
    return Model(devices, sizes, constant, scopes, tables)


def star_labels(lengths: list[list[int]], homes: list[int], readers: list[list[int]]) -> list[tuple[int, int, int]]:
    """Home, devices that hold the tensor (as bits), and the cost; nobody pays for a device that no reader can use."""
    useful = sorted({d for able in readers for d in able})
    labels = []
    for home in homes:
        row = lengths[home]
        free = sum(1 << d for d in useful if row[d] == 0) | 1 << home
        costly = [d for d in useful if 0 < row[d] < IMPOSSIBLE_COST]
        if len(costly) > MOST_DEVICES:
            return []
        for pick in range(1 << len(costly)):
            chosen = [d for i, d in enumerate(costly) if pick >> i & 1]
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


class Labelled(NamedTuple):
    """A good labelling, and what is proved about all of them."""

    labels: Ints
    bound: int
    """ns: no plan takes less."""
    exact: bool
    """The labels are a cheapest labelling."""
    witness: dict[str, object]


def labelling_bound(problem: Problem) -> Bound:
    """For the sequential runtime; where it has nothing to say, the sum of least times."""
    begun = perf_counter()
    costs = label_costs(problem)
    found = None if costs is None else best_labelling(costs)
    if costs is None or found is None:
        return load_bound(problem)
    return Bound(found.bound, "labelling", found.witness, perf_counter() - begun)


def best_labelling(costs: LabelCosts, *, rounds: int = 300, seconds: float | None = None) -> Labelled | None:
    """Exact where that is quick, else by `rounds` of dual ascent; None where nothing is possible or provable."""
    if np.any(costs.unary.min(axis=1) >= IMPOSSIBLE_COST):
        return None
    fewer = costs.without_dominated()
    found = _labelled(fewer, rounds, seconds)
    return None if found is None else found._replace(labels=fewer.kept[found.labels])


def _labelled(costs: LabelCosts, rounds: int, seconds: float | None) -> Labelled | None:
    simple = _by_themselves(costs)
    if simple is not None:
        return simple
    if costs.unary.shape[1] == 2:
        cut = minimum_cut(costs)
        if cut is not None:
            return Labelled(cut.labels, costs.bound(cut.value), True, message_witness(costs, cut.messages))
    least = eliminate(costs, work=QUICK_WORK)
    found = ascend(costs, rounds=rounds, seconds=seconds) if least is None else None
    exact = found is not None and costs.bound(costs.cost(found.labels)) <= found.bound
    if least is None and not exact:
        least = eliminate(costs, work=LARGEST_WORK)
    if least is not None:
        witness: dict[str, object] = {"kind": "elimination", "order": least.order} | price_witness(costs)
        return (
            None if least.value >= IMPOSSIBLE_COST else Labelled(least.labels, costs.bound(least.value), True, witness)
        )
    if found is None:
        return None
    return Labelled(found.labels, found.bound, exact, message_witness(found.costs, found.messages))


def _by_themselves(costs: LabelCosts) -> Labelled | None:
    """Every group where it is fastest, or all on one device: optimal if no labelling can do with less work."""
    least, labels = costs.unary.min(axis=1), costs.unary.argmin(axis=1)
    work = sum(least.tolist())
    for tried in (labels, *(np.full(len(labels), d) for d in range(costs.unary.shape[1]))):
        if costs.cost(tried) <= work:
            return Labelled(tried.astype(np.int64), costs.bound(work), True, message_witness(costs, no_messages(costs)))
    return None


FINEST_SCALE = 2**20
"""Largest scale of costs beside prices, which are small numbers per byte."""
PRICE_ROUNDS, MANY_GROUPS, FEW_ROUNDS = 40, 3000, 8
LARGEST_PRICE = 8.0
"""Largest price of all bytes together, in units of the largest cost."""


class _Line(NamedTuple):
    """What one labelling costs at any prices: cost + prices . over."""

    cost: float
    over: np.ndarray[tuple[int], np.dtype[np.float64]]


def priced_labellings(
    costs: LabelCosts, need: Ints, capacity: Ints, *, rounds: int = PRICE_ROUNDS, seconds: float | None = None
) -> Iterator[Labelled]:
    """Labellings at better and better prices, each with its bound; ends where the prices are as good as they get.

    `need` is what each group holds, `capacity` what each device can hold; `seconds` is about what all may take.
    """
    rounds = rounds if len(need) <= MANY_GROUPS else min(rounds, FEW_ROUNDS)
    k, everything = len(capacity), max(int(need.sum()), 1)
    limited = (capacity < NO_LIMIT) & (capacity < everything)
    worst = worst_cost(costs) + 1.0
    scale = int(min(FINEST_SCALE, 2.0**56 / (1 + LARGEST_PRICE) / worst))
    if scale < 1 or not limited.any():
        return
    kind = _kinds(costs, capacity)
    lines: list[_Line] = []
    price = np.zeros(k)
    seen: set[tuple[int, ...]] = set()
    for _ in range(rounds):
        whole = tuple(int(p * scale) if yes else 0 for p, yes in zip(price, limited, strict=True))
        priced = None if whole in seen else costs.priced(scale, whole, need, capacity)
        seen.add(whole)
        found = None if priced is None else best_labelling(priced, seconds=None if seconds is None else seconds / 4)
        if found is None:
            return
        yield found
        held = np.bincount(found.labels, need, minlength=k)
        over = np.where(limited, (held - np.where(limited, capacity, 0)) / everything, 0.0)
        lines.append(_Line(costs.cost(found.labels) / worst, np.bincount(kind, over, minlength=k).astype(np.float64)))
        price = _best_prices(lines, limited)[kind] * (worst / everything)


def _kinds(costs: LabelCosts, capacity: Ints) -> Ints:
    """Device -> the first that is its equal in everything; equals have equal prices, so that all but one can go."""
    k = len(capacity)
    kind = np.arange(k)
    tables = np.concatenate([costs.pair_cost, costs.star_cost])
    for b in range(k):
        for a in range(b):
            others = [d for d in range(k) if d not in (a, b)]
            if (
                kind[a] == a
                and capacity[a] == capacity[b]
                and np.array_equal(costs.unary[:, a], costs.unary[:, b])
                and np.array_equal(tables[:, a, others], tables[:, b, others])
                and np.array_equal(tables[:, others, a], tables[:, others, b])
            ):
                kind[b] = a
                break
    return kind


def _best_prices(
    lines: list[_Line], limited: np.ndarray[tuple[int], np.dtype[np.bool_]]
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    """max t with t <= every line, prices between 0 and MOST."""
    from ortools.math_opt.python import mathopt

    model = mathopt.Model()
    top = model.add_variable(lb=0.0, ub=1.0 + LARGEST_PRICE)
    prices = [model.add_variable(lb=0.0, ub=LARGEST_PRICE if yes else 0.0) for yes in limited]
    for line in lines:
        model.add_linear_constraint(
            top <= line.cost + sum(float(o) * p for o, p in zip(line.over, prices, strict=True))
        )
    model.maximize(top)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if not result.has_primal_feasible_solution():
        return np.zeros(len(prices))
    return np.array([max(0.0, result.variable_values(price)) for price in prices])
