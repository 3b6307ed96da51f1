"""m-ETF (Jeon et al., Baechi, 2020): earliest task first within memory, on Baechi's virtual devices.

m-SCT (Jeon et al., Baechi, 2020): small communication times first, within memory, on Baechi's virtual devices.

Like m-ETF, but a device that has just run an op keeps itself for the favourite child of that op: see `favourites`.
"""

from __future__ import annotations

from weftline.latency.list.favourites import favourite_children
from weftline.latency.list.memory_left import offer_leaving_room
from weftline.papers.baechi.virtual_devices import VirtualDevices
from weftline.search import Search, Solver

__all__ = ["SOLVER_M_ETF", "SOLVER_M_SCT"]


def _solve(search: Search) -> None:
    devices = VirtualDevices(search.problem, "m-ETF")
    offer_leaving_room(search, lambda capacity: devices.schedule(search, capacity))


SOLVER_M_ETF = Solver("m-etf", "Baechi's m-ETF: earliest task first within memory", _solve)


def _m_sct_solve(search: Search) -> None:
    devices = VirtualDevices(search.problem, "m-SCT", favourite_children(search))
    offer_leaving_room(search, lambda capacity: devices.schedule(search, capacity))


SOLVER_M_SCT = Solver("m-sct", "Baechi's m-SCT: m-ETF with favourite children from a linear program", _m_sct_solve)


SOLVERS = (
    SOLVER_M_ETF,
    SOLVER_M_SCT,
)
