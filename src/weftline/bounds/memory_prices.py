"""Where the cheapest labelling does not fit memory: prices per byte and device, for the bound and for other labellings.

What a device holds fits its memory, so price * (held - capacity) <= 0 may be added to the cost of every plan: the
cheapest labelling of the priced costs stays a lower bound. The best prices come from cutting planes: each labelling
found is a line, and a small linear program says where the highest of the lowest lines is.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from weftline.bounds.label_costs import LabelCosts, worst_cost
from weftline.bounds.labelling import Labelled, best_labelling
from weftline.graph.arrays import Ints
from weftline.problem.model import UNLIMITED

__all__ = ["priced_labellings"]

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
    limited = (capacity < UNLIMITED) & (capacity < everything)
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
