"""The labelling bound: no plan of the sequential runtime is below the cheapest labelling of groups with devices.

With two devices it is a minimum cut, and its flow gives the messages that prove it. With more, a narrow graph is
minimised exactly (`eliminate`); a wide one gets messages by dual ascent, which prove a bound that is often the optimum.
Where the best labelling does not fit memory, prices per byte strengthen the bound: see `priced`.

Where the cheapest labelling does not fit memory: prices per byte and device, for the bound and for other labellings.

What a device holds fits its memory, so price * (held - capacity) <= 0 may be added to the cost of every plan: the
cheapest labelling of the priced costs stays a lower bound. The best prices come from cutting planes: each labelling
found is a line, and a small linear program says where the highest of the lowest lines is.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

import numpy as np

from weftline.bounds.load import load_bound
from weftline.graph.arrays import Ints
from weftline.latency.sequential.ascent import ascend
from weftline.latency.sequential.eliminate import LARGEST_WORK, QUICK_WORK, eliminate, minimum_cut
from weftline.latency.sequential.label_costs import FAR, LabelCosts, label_costs, worst_cost
from weftline.latency.sequential.messages import message_witness, no_messages, price_witness
from weftline.problem import Problem
from weftline.problem.model import NO_LIMIT
from weftline.search.bound import Bound

__all__ = ["Labelled", "best_labelling", "labelling_bound", "priced_labellings"]


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
    if np.any(costs.unary.min(axis=1) >= FAR):
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
        return None if least.value >= FAR else Labelled(least.labels, costs.bound(least.value), True, witness)
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


FINE = 2**20
"""Largest scale of costs beside prices, which are small numbers per byte."""
ROUNDS, MANY_GROUPS, FEW_ROUNDS = 40, 3000, 8
MOST = 8.0
"""Largest price of all bytes together, in units of the largest cost."""


class _Line(NamedTuple):
    """What one labelling costs at any prices: cost + prices . over."""

    cost: float
    over: np.ndarray[tuple[int], np.dtype[np.float64]]


def priced_labellings(
    costs: LabelCosts, need: Ints, capacity: Ints, *, rounds: int = ROUNDS, seconds: float | None = None
) -> Iterator[Labelled]:
    """Labellings at better and better prices, each with its bound; ends where the prices are as good as they get.

    `need` is what each group holds, `capacity` what each device can hold; `seconds` is about what all may take.
    """
    rounds = rounds if len(need) <= MANY_GROUPS else min(rounds, FEW_ROUNDS)
    k, everything = len(capacity), max(int(need.sum()), 1)
    limited = (capacity < NO_LIMIT) & (capacity < everything)
    worst = worst_cost(costs) + 1.0
    scale = int(min(FINE, 2.0**56 / (1 + MOST) / worst))
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
    top = model.add_variable(lb=0.0, ub=1.0 + MOST)
    prices = [model.add_variable(lb=0.0, ub=MOST if yes else 0.0) for yes in limited]
    for line in lines:
        model.add_linear_constraint(
            top <= line.cost + sum(float(o) * p for o, p in zip(line.over, prices, strict=True))
        )
    model.maximize(top)
    result = mathopt.solve(model, mathopt.SolverType.GLOP)
    if not result.has_primal_feasible_solution():
        return np.zeros(len(prices))
    return np.array([max(0.0, result.variable_values(price)) for price in prices])
