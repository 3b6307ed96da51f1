"""The default: every cheap heuristic in turn, the best one wins; exact packing where memory defeats them all."""

from __future__ import annotations

from weftline.errors import InfeasibleError
from weftline.search import Search, Solver

__all__ = ["SOLVER"]


def _solve(search: Search) -> None:
    from weftline.place import solvers

    reasons = []
    for name in ("single-device", "greedy", "heft", "even-split", "round-robin"):
        if search.stopped_by and search.best is not None:
            return
        try:
            search.run(solvers()[name])
        except InfeasibleError as error:
            reasons.append(f"{name}: {error}")
    if search.best is None:
        solvers()["pack"].solve(search)
    if search.best is None:
        raise InfeasibleError("no heuristic found a plan within the limits", conflicts=(*reasons, *search.refused))


SOLVER = Solver("auto", "the best of all heuristics (default)", _solve)
