"""Prices of device time: the cheapest way of an input through the cluster, and what it proves about every deployment.

In: a Problem and whole prices of a second of each device. Out: the cheapest lane at these prices, and a `Bound`.
*Theorem.* Let every input pay, on its way, the price of the time it takes from each device, and let c be the least that
any way can cost. A deployment of F inputs per second pays at least F c, and no device sells more than a second in every
second, so F c <= the sum of the prices: no period is shorter than c / that sum. (It is the dual of the linear program
of rates.) A way must fit the memory by itself, so a price on every byte beyond a device's capacity never adds to it.

What a way costs is a sum over ops and tensors, so the cheapest one is a labelling (`bounds/labelling.py`): the priced
problem is one of the sequential runtime. A sender pays once, at the costliest of the devices that receive. This is at
least any mean over the readers: a tensor with several readers is received by all of them, and its sending is split
among them in sixteenths. The shares are adapted, a reader that is elsewhere gets more. Simplified: that all ways
together share the memory is not in the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter

import msgspec
import numpy as np
from numpy.typing import NDArray

from weftline.bounds.label_costs import label_costs, placement_of, worst_cost
from weftline.bounds.labelling import best_labelling
from weftline.cost import CostTable
from weftline.cost.table import NO_TIME
from weftline.graph.arrays import Indices, Ints
from weftline.problem import Problem, Rules
from weftline.problem.feasible import least_memory
from weftline.problem.model import NO_LIMIT
from weftline.search import Bound
from weftline.units import MAX_QUANTITY

__all__ = [
    "PricedLane",
    "Prices",
    "Shares",
    "adapted_shares",
    "cheapest_lane",
    "priced_problem",
    "shared_tensors",
    "whole_prices",
]

PRICE_SCALE = 2**13
"""The largest price; prices are whole numbers."""
SHARE_PARTS = 16
"""Of what the sender of a tensor pays, divided among its readers."""
FINEST_BYTE_SCALE = 2**20
LARGEST_SUM = 2.0**56
"""Costs are multiplied by a scale, so that prices of a byte are whole numbers; sums stay below this."""

Shares = dict[int, tuple[int, ...]]
"""Tensor with several readers -> parts of its sending for each of them; the last one bears all where none are given."""


@dataclass(frozen=True)
class Prices:
    """Of a second of each device: for compute, for what enters, for what leaves. Equal where they are added."""

    compute: tuple[int, ...]
    entering: tuple[int, ...]
    leaving: tuple[int, ...]
    overlapped: bool

    @property
    def supply(self) -> int:
        """What all devices can sell in a second."""
        rows = (self.compute, self.entering, self.leaving) if self.overlapped else (self.compute,)
        return sum(map(sum, rows))


@dataclass(frozen=True, eq=False)
class PricedLane:
    """The answer at some prices."""

    placement: Indices
    bound: Bound
    exact: bool
    """The lane is a cheapest one."""


def whole_prices(problem: Problem, prices: NDArray[np.float64]) -> Prices:
    """Prices (1 or 3, K) as whole numbers; the largest is PRICE_SCALE."""
    top = max(float(prices.max(initial=0.0)), 1e-300)
    whole = np.rint(np.maximum(prices, 0.0) / top * PRICE_SCALE).astype(np.int64)
    overlapped = problem.rules.communication == "overlapped"
    compute, entering, leaving = (tuple(map(int, row)) for row in (whole if overlapped else [whole[0]] * 3))
    return Prices(compute, entering, leaving, overlapped)


def priced_problem(problem: Problem, prices: Prices, shares: Shares) -> Problem | None:
    """A problem of the sequential runtime whose value is what a way costs; None where its numbers are too large."""
    w, into, out = (np.array(row, np.int64) for row in (prices.compute, prices.entering, prices.leaving))
    into, out = np.where(problem.host, 0, into), np.where(problem.host, 0, out)
    cost, count = problem.cost, len(problem.cost.transfer)
    largest = max(int(cost.time.max(initial=0)), int(cost.transfer.max(initial=0))) * 2 * PRICE_SCALE
    if largest * max(len(problem.graph.ops), len(problem.graph.tensors)) > MAX_QUANTITY:
        return None
    received = _times(cost.transfer, into[None, None, :])
    sent = [_times(cost.transfer, out[None, :, None] * part // SHARE_PARTS) for part in range(SHARE_PARTS + 1)]
    both = np.where(received == NO_TIME, NO_TIME, received + sent[-1])
    tensors, row, extra = list(problem.graph.tensors), cost.transfer_row.astype(np.int64), list[int]()
    for number in shared_tensors(problem):
        tensor = problem.graph.tensors[number]
        parts = shares.get(number) or (*(0,) * (len(tensor.consumers) - 1), SHARE_PARTS)
        for reader, part in zip(tensor.consumers, parts, strict=True):
            if part:
                name = f"{tensor.name} (sent to {reader})"
                tensors.append(msgspec.structs.replace(tensor, name=name, consumers=(reader,), output=False))
                extra.append(int(cost.transfer_row[number]) + (2 + part) * count)
        row[number] += count
    table = CostTable(
        _times(cost.time, w[None, :]),
        np.concatenate([both, received, *sent]),
        np.concatenate([row, np.array(extra, np.int64)]).astype(np.int32),
        cost.source,
    )
    rules = Rules(objective="latency", runtime="sequential", memory=problem.rules.memory)
    graph = msgspec.structs.replace(problem.graph, tensors=tuple(tensors))
    return replace(problem, graph=graph, cost=table, rules=rules, buses=())


def shared_tensors(problem: Problem) -> list[int]:
    """Tensors that ops make and several read."""
    tensors = enumerate(problem.graph.tensors)
    return [number for number, tensor in tensors if tensor.producer >= 0 and len(tensor.consumers) > 1]


def _times(table: Ints, price: Ints) -> Ints:
    return np.where(table == NO_TIME, NO_TIME, table * price)


def cheapest_lane(
    problem: Problem,
    prices: Prices,
    shares: Shares,
    *,
    memory: NDArray[np.float64] | None = None,
    held: NDArray[np.bool_] | None = None,
    seconds: float | None = None,
) -> PricedLane | None:
    """The cheapest way at these prices; with `held` (groups, K) only over devices that hold what they run.

    `memory` (K,) are prices of a byte, in the units of time prices x ns.
    """
    begun = perf_counter()
    priced = priced_problem(problem, prices, shares)
    costs = None if priced is None else label_costs(priced)
    if costs is None or not prices.supply:
        return None
    if memory is not None and memory.any():
        need, limited = least_memory(problem), problem.capacity < NO_LIMIT
        most = worst_cost(costs) + float((need.sum() * memory).max()) + 1.0
        scale = int(min(FINEST_BYTE_SCALE, LARGEST_SUM / most))
        whole = tuple(int(price * scale) if yes else 0 for price, yes in zip(memory, limited, strict=True))
        costs = None if scale < 1 else costs.priced(scale, whole, need, problem.capacity)
    if costs is None:
        return None
    found = best_labelling(costs if held is None else costs.restricted(held), seconds=seconds)
    if found is None:
        return None
    witness: dict[str, object] = {"kind": "prices", "compute": list(prices.compute), "cheapest": found.witness}
    if prices.overlapped:
        witness |= {"entering": list(prices.entering), "leaving": list(prices.leaving)}
    if shares:
        witness["sent"] = [[number, *parts] for number, parts in sorted(shares.items())]
    bound = Bound(-(-found.bound // prices.supply), "prices", witness, perf_counter() - begun)
    return PricedLane(placement_of(problem, found.labels), bound, exact=found.exact)


def adapted_shares(problem: Problem, shares: Shares, placement: Indices) -> Shares:
    """Where a tensor goes away although the readers that bear its sending are at home: others bear more of it."""
    changed = dict(shares)
    for number in shared_tensors(problem):
        tensor = problem.graph.tensors[number]
        home, lengths = int(placement[tensor.producer]), problem.cost.transfer[problem.cost.transfer_row[number]]
        away = [int(lengths[home, placement[reader]]) for reader in tensor.consumers]
        if max(away) <= 0:
            continue
        parts = list(shares.get(number) or (*(0,) * (len(away) - 1), SHARE_PARTS))
        target, least = away.index(max(away)), min(away)
        giver = max((i for i in range(len(away)) if away[i] == least), key=lambda i: parts[i])
        step = min(parts[giver], max(1, SHARE_PARTS // 4)) if away[giver] < max(away) else 0
        if step:
            parts[giver] -= step
            parts[target] += step
            changed[number] = tuple(parts)
    return changed
