"""Placeto's episode (Addanki et al. 2019) with a greedy policy instead of a learned one.

A full placement is in hand, at first the best single device (or HEFT's, where none fits). Every op (or `together` set)
is visited once, in topological order; every device is tried for it in the simulator, and the best one is kept. A device
that is no better than the current one is not taken; memory is checked before it is.
Simplified: an episode costs n * (K - 1) simulations; it ends early with the search's time, or after MAX_BOOKINGS.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices, Ints
from weftline.latency.list.decoder import Decoder
from weftline.latency.list.memory_left import Bools, Candidate, offer_leaving_room, possible_devices
from weftline.papers.baechi.m_topo import kahn_order
from weftline.search import Search, Solver
from weftline.simulate.kernels.jit import kernel
from weftline.simulate.kernels.latency import INFEASIBLE, Workspace, run_order, workspace
from weftline.simulate.memory import latency_peaks
from weftline.simulate.tables import Tables, default_order, tables

__all__ = ["SOLVER"]

BOOKINGS_AT_ONCE = 2_000_000
"""Ops booked by the simulator between two looks at the clock."""
MAX_BOOKINGS = 4_000_000_000


def _solve(search: Search) -> None:
    placement = _start(search)
    problem, table = search.problem, tables(search.problem)
    order, number = kahn_order(problem), problem.group
    groups = number[order][np.sort(np.unique(number[order], return_index=True)[1])]
    visits = len(groups) * max(1, len(problem.devices) - 1)
    at_once = max(1, BOOKINGS_AT_ONCE * len(groups) // (visits * len(number)))
    space, best = workspace(table), _value(search)
    for first in range(0, min(len(groups), MAX_BOOKINGS // BOOKINGS_AT_ONCE * at_once), at_once):
        if search.stopped_by:
            return
        chunk = groups[first : first + at_once]
        value = _visit(
            table, default_order(problem), chunk, number, possible_devices(problem), problem.capacity, placement, space
        )
        if value < best:
            best = value
            search.offer(placement)


def _value(search: Search) -> int:
    return search.best.value if search.best is not None else INFEASIBLE


def _start(search: Search) -> Indices:
    """The best single device; where none fits, what HEFT's decoder finds. It is offered."""
    problem, found = search.problem, None
    least = INFEASIBLE
    for device in range(len(problem.devices)):
        if search.stopped_by and search.best is not None:
            break
        placement = np.full(len(problem.group), device, np.int32)
        value = search.offer(placement)
        if value is not None and value < least:
            least, found = value, placement
    if found is None:
        decoder = Decoder(problem, "Placeto's start")

        def plan(capacity: Ints) -> Candidate:
            nonlocal found
            found = decoder.decode(lam=0.0, capacity=capacity).placement
            return Candidate(found)

        offer_leaving_room(search, plan)
    if found is None:
        raise InfeasibleError("Placeto finds no placement to start from", conflicts=search.refused)
    return found


@kernel
def _visit(
    table: Tables,
    order: Indices,
    groups: Indices,
    number: Indices,
    possible: Bools,
    capacity: Ints,
    placement: Indices,
    space: Workspace,
) -> int:
    """Improve the placement in place, group by group -> its latency. `number`: op -> group."""
    n, devices = table.time.shape
    start, end, sent = np.zeros(n, np.int64), np.zeros(n, np.int64), np.zeros((len(table.consumer_of), 6), np.int64)
    best, _ = run_order(table, order, placement, start, end, sent, False, space)
    members = np.argsort(number, kind="mergesort")
    first = np.searchsorted(number[members], np.arange(len(possible) + 1))
    for g in groups:
        mine = members[first[g] : first[g + 1]]
        home = placement[mine[0]]
        chosen = home
        for device in range(devices):
            if device == home or not possible[g, device]:
                continue
            for op in mine:
                placement[op] = device
            value, _ = run_order(table, order, placement, start, end, sent, False, space)
            if value < best:
                value, count = run_order(table, order, placement, start, end, sent, True, space)
                if np.all(latency_peaks(table, placement, start, end, sent[:count]) <= capacity):
                    best, chosen = value, device
        for op in mine:
            placement[op] = chosen
    return best


SOLVER = Solver("placeto-greedy", "every op once, on the device where the simulator is fastest", _solve)
