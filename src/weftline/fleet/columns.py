"""`auto`: column generation. A linear program gives the lanes that are known their rates, and prices to the devices;
at these prices the cheapest way of an input (`prices.py`) is a lane that may be missing, and proves a bound.

In: a FleetSearch. Out: deployments and bounds, until they meet. Equal devices have equal prices, and a new lane comes
with its copies on their equals. At last a second program takes needless transfers out. Where not every device can hold
the whole model, first which device holds what is searched (`holdings.py`), then lanes are made for that.

`replicas`: whole copies alone, one on each device that can hold one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.errors import InfeasibleError
from weftline.fleet.prices import Shares, adapted_shares, cheapest_lane, whole_prices
from weftline.fleet.rates import MOST_RATE, NS_PER_SECOND, best_rates, tidy_rates
from weftline.fleet.search import FleetSearch, FleetSolver
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem
from weftline.simulate.fleet import RATE_UNITS, Deployment, LaneLoads

__all__ = [
    "SOLVERS",
    "LanesParameters",
    "copies_on_equals",
    "equal_devices",
    "generate_lanes",
    "price_seconds",
    "shared_prices",
    "simplest",
    "whole_copies",
]


@dataclass(frozen=True)
class LanesParameters:
    """Numbers of `auto`."""

    most_rounds: int = 200
    """Prices that are tried for one choice of who holds what."""
    seconds_per_price: float = 5.0
    """For the cheapest way at some prices."""
    most_shares: int = 12
    """Ways to share the costs of sending that are tried at some prices."""
    tidy_loss: float = 1e-6
    """Share of the rate that may be lost where needless transfers are taken out."""
    most_moves: int = 400
    """Choices of who holds what that are judged, where not every device can hold everything."""
    most_begins: int = 12
    """Places from which windows are moved."""
    choice_seconds: float = 5.0
    """For judging."""
    most_choices: int = 6
    """Choices for which lanes are made."""
    most_shrinks: int = 6
    """Times that windows are made smaller, because activations overflowed."""
    bound_rounds: int = 120
    """Prices of time and memory that are tried for a bound."""
    bound_seconds: float = 6.0
    """For all of them."""


def equal_devices(problem: Problem) -> Ints:
    """(K,): the first device that is equal to each: swapping the two changes nothing."""
    k = len(problem.devices)
    first = np.arange(k)
    for b in range(k):
        for a in np.unique(first[:b]).tolist():
            swapped = np.arange(k)
            swapped[a], swapped[b] = b, a
            if (
                np.array_equal(problem.cost.time[:, a], problem.cost.time[:, b])
                and problem.capacity[a] == problem.capacity[b]
                and problem.host[a] == problem.host[b]
                and np.array_equal(problem.cost.transfer, problem.cost.transfer[:, swapped][:, :, swapped])
            ):
                first[b] = a
                break
    return first.astype(np.int64)


def whole_copies(search: FleetSearch) -> list[LaneLoads]:
    """The whole model on each device that can hold it."""
    count = len(search.problem.graph.ops)
    found = (search.add(np.full(count, d, np.int32)) for d in range(len(search.problem.devices)))
    return [lane for lane in found if lane is not None]


def generate_lanes(search: FleetSearch, first: Sequence[LaneLoads], *, held: NDArray[np.bool_] | None = None) -> None:
    """Better and better rates from some lanes on; with `held` only lanes over devices that hold what they run.

    Without `held` every device can hold everything, and the prices prove bounds.
    """
    numbers, problem = search.parameters(LanesParameters), search.problem
    equal, lanes, shares = equal_devices(problem), list(first), Shares()
    known, rates, same = {id(lane) for lane in lanes}, None, 0
    for _ in range(numbers.most_rounds if lanes else 0):
        rates = best_rates(lanes)
        search.offer(lanes, rates.rates.tolist())
        if search.stopped_by and (search.bound is not None or held is not None):  # the first prices are always asked
            break
        prices = whole_prices(problem, shared_prices(rates.prices, equal))
        found = cheapest_lane(
            problem, prices, shares, held=held, seconds=price_seconds(search, numbers.seconds_per_price)
        )
        if found is None:
            break
        if held is None:
            search.offer_bound(found.bound)
        new = [lane for lane in _copies(search, found.placement, equal) if id(lane) not in known]
        known.update(map(id, new))
        lanes += new
        if not new:
            before, shares = shares, adapted_shares(problem, shares, found.placement)
            same += 1
            if shares == before or same > numbers.most_shares:
                break
    if rates is not None and not search.stopped_by:
        tidy = tidy_rates(lanes, rates.total, numbers.tidy_loss)
        if len(tidy):
            search.offer(lanes, tidy.tolist())


def price_seconds(search: FleetSearch, most: float) -> float | None:
    """For the cheapest way at some prices: so much, or what is left; no limit where work is, so that bytes repeat."""
    left = search.seconds_left
    if left is None and search.work_limit is not None:
        return None
    return most if left is None else min(most, max(left, 0.1))


def shared_prices(prices: NDArray[np.float64], equal: Ints) -> NDArray[np.float64]:
    """Equal devices at their mean price: any prices prove a bound, and these leave all but one of them out."""
    mean = np.zeros_like(prices)
    count = np.bincount(equal, minlength=len(equal))
    for row, out in zip(prices, mean, strict=True):
        out[:] = (np.bincount(equal, row, minlength=len(equal)) / np.maximum(count, 1))[equal]
    return mean


def copies_on_equals(placement: Indices, equal: Ints) -> list[Indices]:
    """The lane, and the same on other devices that are equal: every device has its turn."""
    found = dict[bytes, Indices]()
    most = max((int((equal == first).sum()) for first in np.unique(equal[placement])), default=1)
    for shift in range(most):
        moved = np.arange(len(equal), dtype=np.int32)
        for first in np.unique(equal).tolist():
            members = np.flatnonzero(equal == first)
            moved[members] = np.roll(members, -shift)
        lane: Indices = moved[placement]
        found.setdefault(lane.tobytes(), lane)
    return list(found.values())


def _copies(search: FleetSearch, placement: Indices, equal: Ints) -> list[LaneLoads]:
    """Those of them that break no limit."""
    lanes = (search.add(copy) for copy in copies_on_equals(placement, equal))
    return [lane for lane in lanes if lane is not None]


def simplest(search: FleetSearch, least: int) -> Deployment:
    """The simplest deployment that was found with at least this rate (per million seconds).

    That is one device alone, else whole copies on the fewest devices, else one lane, else the fewest lanes.
    """
    assert search.best is not None
    copies = sorted(whole_copies(search), key=_rate_alone, reverse=True)
    alone = sorted(search.lanes.values(), key=lambda lane: (lane.depth, -_rate_alone(lane)))
    for lanes in (*(copies[:count] for count in range(1, len(copies) + 1)), *([lane] for lane in alone)):
        rates = [_rate_alone(lane) for lane in lanes]
        if sum(rates) * RATE_UNITS >= least:
            found = search.deployed(lanes, rates)
            if found is not None and found.rate >= least:
                return found
    return _fewest_lanes(search, copies, least)


def _rate_alone(lane: LaneLoads) -> float:
    """Inputs per second of a lane that shares no device."""
    return NS_PER_SECOND / max(float(lane.limited.max(initial=0)), 1 / MOST_RATE)


def _fewest_lanes(search: FleetSearch, copies: Sequence[LaneLoads], least: int) -> Deployment:
    """Leave lanes out, those with the fewest inputs first, while the rest gives enough; copies may take their place."""
    best = search.best
    assert best is not None
    kept = list(best.lanes)
    pool = list({id(lane): lane for lane in (*kept, *copies)}.values())
    rates = tidy_rates(pool, best.rate / RATE_UNITS, 1 - least / best.rate)
    if len(rates) and (tidy := search.deployed(pool, rates.tolist())) is not None:
        given = dict(zip(map(id, tidy.lanes), tidy.rates, strict=True))
        kept = sorted(tidy.lanes, key=lambda lane: given[id(lane)])
    chosen = best
    for lane in tuple(kept):
        rest = [other for other in kept if other is not lane]
        found = search.deployed(rest, best_rates(rest).rates.tolist()) if rest else None
        if found is not None and found.rate >= least:
            kept = rest
            chosen = found if len(found.lanes) < len(chosen.lanes) else chosen
    return chosen


def _solve(search: FleetSearch) -> None:
    from weftline.fleet.holdings import solve_holdings

    copies = whole_copies(search)
    first, equal = list(copies), equal_devices(search.problem)
    for placement in search.starts:
        lane = search.add(placement)
        if lane is not None:
            search.offer([lane], best_rates([lane]).rates.tolist())
            first += _copies(search, placement, equal)
    first = list({id(lane): lane for lane in first}.values())
    if len(copies) == len(search.problem.devices):
        generate_lanes(search, first)
    else:
        solve_holdings(search, first)
    if search.best is None and not search.stopped_by:
        raise InfeasibleError("no lane was found whose devices hold what they run", conflicts=search.refused)


def _solve_replicas(search: FleetSearch) -> None:
    lanes = whole_copies(search)
    if not lanes:
        raise InfeasibleError("no device can hold the whole model", conflicts=search.refused)
    search.offer(lanes, best_rates(lanes).rates.tolist())


SOLVERS = (
    FleetSolver(
        "auto",
        "all ways of an input through the cluster, by prices of device time",
        _solve,
        parameters=LanesParameters,
    ),
    FleetSolver(
        "replicas", "a whole copy of the model on every device that can hold one", _solve_replicas, baseline=True
    ),
)
