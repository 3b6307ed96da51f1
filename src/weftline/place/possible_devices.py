"""Where a `together` set (or a single op) can stand at all: devices that run it and that links join to its neighbours.

In: a Problem. Out: a (groups, K) table. Only what no plan at all can use is crossed out: a device from which some
neighbour cannot be reached wherever that neighbour stands, and so on until nothing changes.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weftline.graph.arrays import Indices
from weftline.problem import Problem
from weftline.problem.feasible import allowed_devices
from weftline.simulate.jit import kernel, part
from weftline.simulate.tables import Tables, tables

__all__ = ["Bools", "possible_devices"]

Bools = NDArray[np.bool_]


def possible_devices(problem: Problem) -> Bools:
    """(groups, K), cached on the problem: do not change it."""
    found: Bools | None = problem.__dict__.get("_possible_devices")
    if found is None:
        found = np.ascontiguousarray(allowed_devices(problem))
        if problem.cost.transfer.min(initial=0) < 0:
            _cross_out(tables(problem), problem.group, found)
        problem.__dict__["_possible_devices"] = found
    return found


@kernel
def _cross_out(table: Tables, group: Indices, possible: Bools) -> None:
    """Until nothing changes; backwards through the ops, so that one round is mostly enough."""
    changed = True
    while changed:
        changed = False
        for op in range(len(group) - 1, -1, -1):
            for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
                source, target = group[table.edge_maker[e]], group[op]
                if source != target:
                    row = table.transfer_row[table.edge_tensor[e]]
                    changed |= _cross_out_edge(table, possible, source, target, row)


@part
def _cross_out_edge(table: Tables, possible: Bools, source: int, target: int, row: int) -> bool:
    """Devices at either end of one edge that have no partner at the other -> whether there were any."""
    devices = possible.shape[1]
    changed = False
    for a in range(devices):
        forward, backward = False, False
        for b in range(devices):
            forward |= possible[target, b] and table.transfer[row, a, b] >= 0
            backward |= possible[source, b] and table.transfer[row, b, a] >= 0
        if possible[source, a] and not forward:
            possible[source, a] = False
            changed = True
        if possible[target, a] and not backward:
            possible[target, a] = False
            changed = True
    return changed
