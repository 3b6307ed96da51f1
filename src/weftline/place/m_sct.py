"""m-SCT (Jeon et al., Baechi, 2020): small communication times first, within memory, on Baechi's virtual devices.

Like m-ETF, but a device that has just run an op keeps itself for the favourite child of that op: see `favourites`.
"""

from __future__ import annotations

from weftline.place.favourites import favourite_children
from weftline.place.leave_room import offer_leaving_room
from weftline.place.virtual_devices import VirtualDevices
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    devices = VirtualDevices(search.problem, "m-SCT", favourite_children(search))
    offer_leaving_room(search, lambda capacity: devices.schedule(search, capacity))


SOLVER = Solver("m-sct", "Baechi's m-SCT: m-ETF with favourite children from a linear program", _solve)
