"""HEFT (Topcuoglu, Hariri, Wu 2002), aware of contention: ops by descending upward rank, each where it ends first.

An op may be inserted into a gap of its device; its transfers are booked on ports and buses, in the order of its inputs.
Memory counts weights (and tied weights); the first op of a `together` set fixes the device of the set.
"""

from __future__ import annotations

from weftline.place.decoder import Decoder
from weftline.search import Search, Solver
from weftline.simulate import Timeline

__all__ = ["SOLVER", "heft"]


def _solve(search: Search) -> None:
    timeline = heft(search)
    # The order as it was found, transfers included; and the same placement booked anew, which is sometimes better.
    search.offer(timeline.placement, actions=timeline.actions(search.problem.graph.arrays.producer))
    if not search.stopped_by or search.best is None:
        search.offer(timeline.placement)


def heft(search: Search) -> Timeline:
    """Schedule every op; raises `InfeasibleError` where memory or missing links leave no device for one."""
    return Decoder(search.problem, "HEFT").decode(lam=0.0)


SOLVER = Solver("heft", "HEFT with insertion: by upward rank, each op where it ends first", _solve, baseline=True)
