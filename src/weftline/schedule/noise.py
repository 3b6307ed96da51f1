"""How a schedule holds when times are not what they should be: log-normal spans, and a device that is slower.

In: blocks and orders. Out: makespans under drawn times. Only the order is kept, as a runtime keeps it; every operation
starts when it can.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weftline.graph.arrays import Ints
from weftline.problem.blocks import Blocks
from weftline.simulate import Orders, simulate_schedule

__all__ = ["Noise", "makespans", "percentile"]


@dataclass(frozen=True)
class Noise:
    """What may happen to times."""

    sigma: float = 0.1
    """Of the logarithm of every span; the mean of spans stays."""
    straggler: float = 1.2
    """In half of the draws one device, another in each draw, is slower by this factor."""
    draws: int = 100
    seed: int = 0


def makespans(blocks: Blocks, micro_batches: int, orders: Orders, noise: Noise) -> Ints:
    """Makespan in every draw; the draws of a seed are the same for every order."""
    table = blocks.table
    count = micro_batches * blocks.n
    span = np.tile(table.span, micro_batches).astype(np.float64)
    holds = np.zeros((len(blocks.devices), blocks.n), np.bool_)
    holds[table.device_of, np.repeat(np.arange(blocks.n), np.diff(table.device_ptr))] = True
    random = np.random.default_rng(noise.seed)
    found = []
    for draw in range(noise.draws):
        factor = random.lognormal(-(noise.sigma**2) / 2, noise.sigma, count)
        if draw % 2:
            factor *= np.where(np.tile(holds[random.integers(len(blocks.devices))], micro_batches), noise.straggler, 1)
        drawn = np.maximum(1, np.rint(span * factor)).astype(np.int64)
        found.append(simulate_schedule(blocks, micro_batches, orders, span=drawn).makespan)
    return np.array(found, np.int64)


def percentile(blocks: Blocks, micro_batches: int, orders: Orders, noise: Noise, share: float = 0.95) -> int:
    """The makespan that so large a share of the draws does not exceed."""
    drawn = np.sort(makespans(blocks, micro_batches, orders, noise))
    return int(drawn[min(len(drawn) - 1, int(np.ceil(share * len(drawn))) - 1)])
