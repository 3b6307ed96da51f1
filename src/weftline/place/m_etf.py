"""m-ETF (Jeon et al., Baechi, 2020): earliest task first within memory, on Baechi's virtual devices."""

from __future__ import annotations

from weftline.place.leave_room import offer_leaving_room
from weftline.place.virtual_devices import VirtualDevices
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    devices = VirtualDevices(search.problem, "m-ETF")
    offer_leaving_room(search, lambda capacity: devices.schedule(search, capacity))


SOLVER = Solver("m-etf", "Baechi's m-ETF: earliest task first within memory", _solve)
