"""Rates of lanes that are known, by a linear program, and prices of devices.

In: lanes with their loads. Out: the largest sum of rates, the same sum with the least work, or what is left where no op
may be on many devices. Rates are inputs per second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weftline.search.lp import Program, minimise
from weftline.simulate.fleet import LaneLoads

__all__ = ["MOST_RATE", "NS_PER_SECOND", "Rates", "best_rates", "few_copies", "tidy_rates"]

NS_PER_SECOND = 1e9
MOST_RATE = 1e6
"""Of one lane, in units of 1 / the largest load: a lane that takes no time at all has a rate, too."""


@dataclass(frozen=True, eq=False)
class Rates:
    """What the linear program says."""

    total: float
    """Inputs per second."""
    rates: NDArray[np.float64]
    prices: NDArray[np.float64]
    """(1 or 3, K): of what is limited."""


def best_rates(lanes: Sequence[LaneLoads]) -> Rates:
    """The largest sum of rates with which no device is busier than always."""
    loads = np.array([lane.limited.ravel() for lane in lanes], np.float64)
    scale = max(float(loads.max(initial=0.0)), 1.0)
    shape = lanes[0].limited.shape
    answer, unit = minimise(_program(loads / scale, -np.ones(len(lanes)), None)), NS_PER_SECOND / scale
    if not np.isfinite(answer.value):  # the solver has lost itself in rounding: the best lane alone
        alone = _most_alone(loads / scale)
        best, busy = int(alone.argmax()), np.unravel_index(int(loads[alone.argmax()].argmax()), shape)
        rates, prices = np.zeros(len(lanes)), np.zeros(shape)
        rates[best], prices[busy] = alone[best] * unit, alone[best]
        return Rates(float(rates[best]), rates, prices)
    prices = -answer.prices[: loads.shape[1]].reshape(shape)
    return Rates(-answer.value * unit, answer.solution * unit, prices)


def tidy_rates(lanes: Sequence[LaneLoads], total: float, loss: float) -> NDArray[np.float64]:
    """Nearly the same sum with the least time of all devices, and among equals with the fewest lanes that cross."""
    loads = np.array([lane.limited.ravel() for lane in lanes], np.float64)
    scale = max(float(loads.max(initial=0.0)), 1.0)
    depth = np.array([lane.depth for lane in lanes], np.float64)
    cost = loads.sum(axis=1) / scale + depth * 1e-3 * loads.sum(axis=1).max(initial=0.0) / scale
    answer = minimise(_program(loads / scale, cost, total * (1 - loss) * scale / NS_PER_SECOND))
    return answer.solution * NS_PER_SECOND / scale if np.isfinite(answer.value) else np.zeros(0)


def _most_alone(loads: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of each lane that has all devices for itself."""
    found: NDArray[np.float64] = 1 / np.maximum(loads.max(axis=1, initial=0.0), 1 / MOST_RATE)
    return found


def _program(loads: NDArray[np.float64], cost: NDArray[np.float64], least: float | None) -> Program:
    lanes, limits = loads.shape
    column, row = np.nonzero(loads)
    values = loads[column, row]
    row_high, row_low = np.ones(limits), np.full(limits, -np.inf)
    if least is not None:
        row = np.concatenate([row, np.full(lanes, limits)])
        column = np.concatenate([column, np.arange(lanes)])
        values = np.concatenate([values, np.ones(lanes)])
        row_high, row_low = np.append(row_high, np.inf), np.append(row_low, least)
    return Program(
        cost,
        np.zeros(lanes),
        2 * _most_alone(loads),  # near what can be: the solver loses itself in rounding where limits are far away
        row_low,
        row_high,
        row.astype(np.int64),
        column.astype(np.int64),
        values,
    )


def few_copies(
    lanes: Sequence[LaneLoads], rates: Sequence[float], most: int
) -> tuple[Sequence[LaneLoads], Sequence[float]]:
    """No op on more than so many devices: lanes that would break that are left out, those with the least rate first."""
    order = [number for number in sorted(range(len(lanes)), key=lambda i: -rates[i]) if rates[number] > 0]
    kept: list[LaneLoads] = []
    held: list[set[int]] = []
    for number in order:
        devices = lanes[number].placement.tolist()
        joined = [own | {device} for own, device in zip(held or [set()] * len(devices), devices, strict=True)]
        if max(map(len, joined), default=0) <= most:
            kept.append(lanes[number])
            held = joined
    return (lanes, rates) if len(kept) == len(order) else (kept, best_rates(kept).rates.tolist())
