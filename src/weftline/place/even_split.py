"""The graph's own order cut into as many equal pieces as there are devices, by number of ops."""

from __future__ import annotations

from weftline.place.room_left import RoomLeft
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    room, count, devices = RoomLeft(search.problem), len(search.problem.graph.ops), len(search.problem.devices)
    for op in range(count):
        wanted = op * devices // count
        room.put(op, min(room.choices(op), key=lambda device: (abs(device - wanted), device)))
    search.offer(room.placement())


SOLVER = Solver("even-split", "the graph's order cut into equal pieces by op count", _solve, baseline=True)
