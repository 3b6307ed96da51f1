"""Everything on one device: the best of all devices.

The graph's own order cut into as many equal pieces as there are devices, by number of ops.

Every op on the device that runs it fastest, whatever the transfers cost.
"""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.latency.list.memory_left import RoomLeft
from weftline.search import SINGLE_DEVICE, Search, Solver
from weftline.simulate import simulate_latency

__all__ = ["SOLVERS"]


def _even_split_solve(search: Search) -> None:
    room, count, devices = RoomLeft(search.problem), len(search.problem.graph.ops), len(search.problem.devices)
    for op in range(count):
        wanted = op * devices // count
        room.put(op, min(room.choices(op), key=lambda device: (abs(device - wanted), device)))
    search.offer(room.placement())


SOLVER_EVEN_SPLIT = Solver(
    "even-split", "the graph's order cut into equal pieces by op count", _even_split_solve, baseline=True
)


ATTEMPTS = 8


def _greedy_solve(search: Search) -> None:
    """Where activations overflow a device, leave that much room there and try again."""
    problem, time = search.problem, search.problem.cost.time.tolist()
    capacity = problem.capacity.copy()
    for _ in range(ATTEMPTS):
        room = RoomLeft(problem, capacity)
        for op in range(len(problem.graph.ops)):
            room.put(op, min(room.choices(op), key=time[op].__getitem__))  # the first of equals
        if search.offer(room.placement()) is not None or search.stopped_by:
            return
        try:
            overflow = simulate_latency(problem, room.placement()).peak - problem.capacity
        except InfeasibleError:  # a missing link, which more room does not mend
            return
        capacity -= np.maximum(overflow, 0)


SOLVER_GREEDY = Solver("greedy", "every op on the device that runs it fastest", _greedy_solve, baseline=True)


SOLVERS = (
    SINGLE_DEVICE,
    SOLVER_EVEN_SPLIT,
    SOLVER_GREEDY,
)
