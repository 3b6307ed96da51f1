"""cPEFT: PEFT's look ahead (Arabnejad, Barbosa 2014) on a decoder that books transfers on ports and buses.

Ops by descending upward rank, each where its end plus the optimistic cost of what follows is least.
"""

from __future__ import annotations

from weftline.graph.arrays import Ints
from weftline.place.decoder import Decoder
from weftline.place.leave_room import Plan, offer_leaving_room
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    decoder = Decoder(search.problem, "cPEFT")

    def plan(capacity: Ints) -> Plan:
        timeline = decoder.decode(capacity=capacity)
        return Plan(timeline.placement, timeline=timeline)

    offer_leaving_room(search, plan)


SOLVER = Solver("cpeft", "like HEFT, with the optimistic cost of what follows each op", _solve)
