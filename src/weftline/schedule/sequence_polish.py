"""A schedule that cannot end earlier may still keep its devices for a shorter time: orders -> such orders.

A search is over with the first order that meets its bound, so the second objective must be looked at before.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from weftline.bounds.makespan import device_span_bound
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.sequences import Sequences
from weftline.simulate import Orders, schedule_violations, simulate_schedule

__all__ = ["shorten_device_span"]

TRIALS, PER_OPERATION, ROUNDS = 4_000_000, 100, 4
"""A round has so many trials times operations, and trials per operation, at most."""
HOT, COLD = 2e-3, 2e-5


def shorten_device_span(search: ScheduleSearch, orders: Orders) -> Orders:
    """Orders with the same makespan and a device span that is no longer; the same ones unless they meet the bound."""
    if search.device_span or search.from_arrival or search.bound is None:
        return orders
    found = simulate_schedule(search.blocks, search.micro_batches, orders)
    if found.makespan > search.bound or schedule_violations(found):
        return orders
    goal = device_span_bound(search.blocks, search.micro_batches)[0]
    sequences = Sequences(search.blocks, search.micro_batches, search.seed, by_span=True)
    sequences.load(orders)
    operations, stop = search.blocks.n * search.micro_batches, np.zeros(1, np.int64)
    trials = 500 + min(TRIALS // operations, PER_OPERATION * operations)
    heats = np.geomspace(HOT, COLD, ROUNDS + 1) * found.device_span
    for hot, cold in pairwise(heats.tolist()):
        left = search.seconds_left
        if sequences.best_rank[0] <= goal or (left is not None and left < 0.5):
            break
        sequences.run(trials, max(0.01, hot), max(0.01, cold), goal, stop, within=found.makespan)
    return sequences.orders()
