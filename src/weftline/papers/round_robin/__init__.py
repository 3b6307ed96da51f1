"""Round-robin: op after op to the next device, the worst that a careless runtime does.

In: a Search. Out: one candidate. Simplified: see README.md.
"""

from __future__ import annotations

from weftline.latency.list.memory_left import RoomLeft
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    room = RoomLeft(search.problem)
    for op in range(len(search.problem.graph.ops)):
        choices = room.choices(op)
        room.put(op, choices[op % len(choices)])
    search.offer(room.placement())


SOLVER = Solver("round-robin", "op after op to the next device", _solve, baseline=True)
