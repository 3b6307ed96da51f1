"""The labelling bound: no plan of the sequential runtime is below the cheapest labelling of groups with devices.

With two devices it is a minimum cut, and its flow gives the messages that prove it. With more, a narrow graph is
minimised exactly (`eliminate`); a wide one gets messages by dual ascent, which prove a bound that is often the optimum.
Where the best labelling does not fit memory, prices per byte strengthen the bound: see `priced`.
"""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import numpy as np

from weftline.bounds.ascent import ascend
from weftline.bounds.bound import Bound
from weftline.bounds.eliminate import LARGEST_WORK, QUICK_WORK, eliminate
from weftline.bounds.label_costs import FAR, LabelCosts, label_costs
from weftline.bounds.load import load_bound
from weftline.bounds.messages import message_witness, no_messages, price_witness
from weftline.bounds.two_devices import minimum_cut
from weftline.graph.arrays import Ints
from weftline.problem import Problem

__all__ = ["Labelled", "best_labelling", "labelling_bound"]


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
