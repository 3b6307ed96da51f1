"""ETF (Hwang, Chow, Anger, Lee 1989), aware of contention: of all ready ops and devices, the pair that starts first.

It looks at starts, not at ends, and so may choose a slow device that is free.
"""

from __future__ import annotations

from weftline.place.earliest_first import EarliestFirst
from weftline.place.leave_room import offer_leaving_room
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    scheduler = EarliestFirst(search.problem, "ETF")
    offer_leaving_room(search, lambda capacity: scheduler.schedule(search, capacity))


SOLVER = Solver("etf", "ETF: of all ready ops and devices, the pair that starts first", _solve)
