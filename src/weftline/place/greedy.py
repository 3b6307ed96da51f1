"""Every op on the device that runs it fastest, whatever the transfers cost."""

from __future__ import annotations

from weftline.place.room_left import RoomLeft
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    room, time = RoomLeft(search.problem), search.problem.cost.time.tolist()
    for op in range(len(search.problem.graph.ops)):
        room.put(op, min(room.choices(op), key=lambda device: (time[op][device], device)))
    search.offer(room.placement())


SOLVER = Solver("greedy", "every op on the device that runs it fastest", _solve, baseline=True)
