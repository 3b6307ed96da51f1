"""A schedule that cannot end earlier may still keep its devices for a shorter time: orders -> such orders.

A search is over with the first order that meets its bound, so the second objective must be looked at before.
"""

from __future__ import annotations

from time import monotonic

import numpy as np

from weftline.schedule.bounds.makespan import device_span_bound
from weftline.schedule.search import ScheduleSearch
from weftline.schedule.sequence.sequences import Sequences
from weftline.simulate import Orders, schedule_violations, simulate_schedule

__all__ = ["shorten_device_span"]

TRIALS, PER_OPERATION, ROUNDS = 8_000_000, 300, 16
"""Without a time limit: so many trials times operations, and trials per operation, at most; in rounds."""
SHARE, MOST_SECONDS = 0.1, 6.0
"""Of the time that is left, and at most."""
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
    operations, left = search.blocks.n * search.micro_batches, search.seconds_left
    seconds = None if left is None else min(MOST_SECONDS, SHARE * left)
    portion = 64 + min(TRIALS // operations, PER_OPERATION * operations) // ROUNDS
    begun, done, stop = monotonic(), 0, np.zeros(1, np.int64)
    while sequences.best_rank[0] > goal:
        part = done / ROUNDS if seconds is None else (monotonic() - begun) / max(1e-9, seconds)
        if part >= 1:
            break
        temperature = max(0.01, found.device_span * HOT * (COLD / HOT) ** part)
        sequences.run(portion, temperature, temperature, goal, stop, within=found.makespan)
        done += 1
    return sequences.orders()
