"""Offer what a list scheduler planned; where activations overflow a device, leave that much room there and plan again.

In: a Search and a function from memory for weights (K,) to a Plan. Out: offers. Every plan is offered as it was planned
(its order or its actions) and as its bare placement, which the simulator books anew; the search keeps the better.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.search import Search
from weftline.simulate import Timeline, simulate_latency

__all__ = ["ATTEMPTS", "Plan", "may_stop", "offer_leaving_room", "offer_plan", "overflow"]

ATTEMPTS = 8


@dataclass(frozen=True, eq=False)
class Plan:
    """A placement, and how the scheduler meant it to run."""

    placement: Indices
    order: Indices | None = None
    timeline: Timeline | None = None


def may_stop(search: Search) -> bool:
    """Nothing more is to be offered."""
    return search.best is not None and search.stopped_by != ""


def offer_plan(search: Search, plan: Plan) -> int | None:
    """Both forms -> the better value, None if neither keeps the limits. Nothing is offered after a stop."""
    values = []
    if plan.timeline is not None:
        actions = plan.timeline.actions(search.problem.graph.arrays.producer)
        values.append(search.offer(plan.placement, actions=actions))
    elif plan.order is not None:
        values.append(search.offer(plan.placement, order=plan.order))
    if not values or not may_stop(search):
        values.append(search.offer(plan.placement))
    return min((value for value in values if value is not None), default=None)


def overflow(search: Search, placement: Indices) -> Ints:
    """(K,): bytes above capacity. Raises `InfeasibleError` where a link is missing, which more room does not mend."""
    above: Ints = np.maximum(simulate_latency(search.problem, placement).peak - search.problem.capacity, 0)
    return above


def offer_leaving_room(search: Search, make: Callable[[Ints], Plan | None]) -> None:
    """Raises `InfeasibleError` if nothing was found; `make` raises it if no device is left for some op.

    `make` may return None once a stop rule has fired and the search has an answer.
    """
    capacity = search.problem.capacity.copy()
    for _ in range(ATTEMPTS):
        if may_stop(search):
            return
        plan = make(capacity)
        if plan is None or offer_plan(search, plan) is not None:
            return
        if search.stopped_by:
            break
        capacity -= overflow(search, plan.placement)
    raise InfeasibleError("its plans break limits", conflicts=search.refused)
