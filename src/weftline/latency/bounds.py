"""The path bound: no inference is faster than its longest chain of ops, each on the device that suits the chain best.

earliest(i, k) = time(i, k) + max over inputs j of min over devices a of (earliest(j, a) + transfer(j, a, k)).
The bound is the largest over ops of the smallest over devices; contention is ignored. Witness: the ops it rests on.
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from weftline.bounds import Bound, group_bound, load_bound
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Ints
from weftline.problem import Problem
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.tables import Tables, tables

__all__ = ["lower_bounds", "path_bound"]

NEVER = 2**61


def path_bound(problem: Problem) -> Bound:
    """O(edges x devices^2)."""
    begun = perf_counter()
    earliest, critical = _earliest(tables(problem))
    per_op = earliest.min(axis=1)
    sink = int(per_op.argmax())
    ops = _depends_on(critical, sink)
    if per_op[sink] >= NEVER:
        name = problem.graph.ops[sink].name
        raise InfeasibleError(f"missing links leave no way to bring its inputs to op {name!r}", proved=True)
    return Bound(int(per_op[sink]), "path", {"kind": "path", "ops": ops}, perf_counter() - begun)


@kernel
def _earliest(table: Tables) -> tuple[Ints, Ints]:
    """(n, K) earliest ends, and for each the input op that decides it (-1 = none)."""
    n, devices = table.time.shape
    earliest = np.full((n, devices), NEVER, np.int64)
    critical = np.full((n, devices), -1, np.int64)
    for op in range(n):
        for k in range(devices):
            if table.time[op, k] < 0:
                continue
            ready = 0
            for e in range(np.int64(table.edge_ptr[op]), np.int64(table.edge_ptr[op + 1])):
                maker, row = table.edge_maker[e], table.transfer_row[table.edge_tensor[e]]
                came = NEVER
                for a in range(devices):
                    length = table.transfer[row, a, k]
                    if length >= 0 and earliest[maker, a] < NEVER:
                        came = min(came, earliest[maker, a] + length)
                if came > ready:
                    ready = came
                    critical[op, k] = maker
            earliest[op, k] = min(ready + table.time[op, k], NEVER)
    return earliest, critical


def _depends_on(critical: Ints, sink: int) -> list[int]:
    """The sink and everything its value rests on, ascending."""
    found, stack = {sink}, [sink]
    while stack:
        for op in set(critical[stack.pop()].tolist()) - {-1}:
            if op not in found:
                found.add(op)
                stack.append(op)
    return sorted(found)


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies, the largest first."""
    found = [group_bound(problem), load_bound(problem), path_bound(problem)]
    return tuple(sorted(found, key=lambda bound: -bound.value))
