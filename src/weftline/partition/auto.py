"""The default: every cheap heuristic in turn, the best one wins; exact packing where memory defeats them all."""

from __future__ import annotations

from weftline.errors import InfeasibleError
from weftline.search import Search, Solver, best_of

__all__ = ["SOLVER"]

HEURISTICS = ("single-device", "greedy", "even-split")


def _solve(search: Search) -> None:
    from weftline.partition import solvers

    reasons = best_of(search, solvers(), HEURISTICS)
    if search.best is None:
        solvers()["pack"].solve(search)
    if search.best is None:
        raise InfeasibleError("no heuristic found a plan within the limits", conflicts=(*reasons, *search.refused))


SOLVER = Solver("auto", "the best of all heuristics (default)", _solve)
