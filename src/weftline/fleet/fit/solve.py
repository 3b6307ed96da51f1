"""The best plan of a FitProblem, with a bound that can be checked.

In: a FitProblem. Out: a FitAnswer. Simplified: see the room.
"""

from __future__ import annotations

from weftline.problem.fit import FitAnswer, FitProblem

__all__ = ["solve_fit"]


def solve_fit(problem: FitProblem, *, seconds: float = 2.0) -> FitAnswer:
    """The plan of least time per step; `InfeasibleError` if nothing fits."""
    raise NotImplementedError(problem.name, seconds)
