"""Search on a coarser graph first: the answer, lifted to the ops, is where the search on the whole graph begins.

In: a search and the group of every op. The contracted problem gets part of the time (or of the work) with the same
solver; its best plan is offered with the members of a group one after another, and then polished by whatever follows.
Bounds of the contracted problem do not hold for the whole one and are not used.
"""

from __future__ import annotations

from weftline.coarsen.contract import acyclic, contract
from weftline.errors import InfeasibleError
from weftline.graph.arrays import Indices
from weftline.search import Search, Solver
from weftline.simulate import Timeline

__all__ = ["search_coarse"]

SHARE = 0.3
"""Of the time, or of the work."""


def search_coarse(search: Search, solver: Solver, group: Indices) -> None:
    """Offer what the solver finds on the contracted problem; nothing if it finds nothing."""
    contracted = contract(search.problem, acyclic(search.problem, group))
    left = search.seconds_left
    coarse = Search(
        contracted.problem,
        time_limit=None if left is None else SHARE * left,
        work_limit=None if search.work_limit is None else max(1, int(SHARE * search.work_limit)),
        seed=search.seed,
        solver=f"{search.solver} (coarse)",
    )
    try:
        solver.solve(coarse)
    except InfeasibleError:
        return
    if isinstance(coarse.best, Timeline):
        order = contracted.lift_order(coarse.best.order)
        search.offer(contracted.lift(coarse.best.placement), order=order)
