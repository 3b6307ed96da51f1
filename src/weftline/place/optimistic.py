"""The Optimistic Cost Table of PEFT (Arabnejad, Barbosa 2014), with the real transfer times between each two devices.

cost(op, d) = how long it takes at least from the end of the op on d to the end of everything that needs it, if every
later op takes the best device for itself: the largest over consumers of the least over their devices of transfer +
time + cost. Contention is ignored; an op of the same `together` set stays on d.
"""

from __future__ import annotations

import numpy as np

from weftline.graph.arrays import Indices, Ints
from weftline.place.possible_devices import Bools, possible_devices
from weftline.problem import Problem
from weftline.simulate.jit import kernel
from weftline.simulate.tables import Tables, tables

__all__ = ["DEAD_END", "optimistic_costs"]

DEAD_END = 2**60
"""Cost where some consumer cannot be reached; no sum of times is larger."""


def optimistic_costs(problem: Problem) -> Ints:
    """(n, K), ns; O(edges x devices^2), cached on the problem: do not change it."""
    found: Ints | None = problem.__dict__.get("_optimistic_costs")
    if found is None:
        found = _costs(tables(problem), problem.group, possible_devices(problem))
        problem.__dict__["_optimistic_costs"] = found
    return found


@kernel
def _costs(table: Tables, group: Indices, possible: Bools) -> Ints:
    n, devices = table.time.shape
    cost = np.zeros((n, devices), np.int64)
    for op in range(n - 1, -1, -1):
        for k in range(table.output_ptr[op], table.output_ptr[op + 1]):
            tensor = table.output_of[k]
            row = table.transfer_row[tensor]
            for c in range(table.consumer_ptr[tensor], table.consumer_ptr[tensor + 1]):
                reader = table.consumer_of[c]
                for d in range(devices):
                    least = DEAD_END
                    for e in range(devices):
                        length = table.transfer[row, d, e]
                        apart = d != e and group[reader] == group[op]
                        if length >= 0 and not apart and possible[group[reader], e]:
                            least = min(least, length + table.time[reader, e] + cost[reader, e])
                    cost[op, d] = max(cost[op, d], least)
    return cost
