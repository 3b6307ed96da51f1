"""Every op on the device that runs it fastest, whatever the transfers cost."""

from __future__ import annotations

import numpy as np

from weftline.errors import InfeasibleError
from weftline.place.room_left import RoomLeft
from weftline.search import Search, Solver
from weftline.simulate import simulate_latency

__all__ = ["SOLVER"]

ATTEMPTS = 8


def _solve(search: Search) -> None:
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


SOLVER = Solver("greedy", "every op on the device that runs it fastest", _solve, baseline=True)
