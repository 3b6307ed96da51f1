"""A language model on a few cards: which rows (and which parts of them) go where, for the least time of a step.

In: a FitProblem. Out: a FitAnswer with value, bound and a witness that `certify/check_fit.py` re-computes, and what
simple splits and engines' own defaults give on the same costs. Simplified: each unit holds one run of rows. Nothing
here compiles anything or imports a solver: a first answer comes in seconds.
"""

from weftline.fleet.fit.evaluate import FitCost, cost_segments, fit_violations, rows_split, split_segments
from weftline.fleet.fit.solve import solve_fit

__all__ = ["FitCost", "cost_segments", "fit_violations", "rows_split", "solve_fit", "split_segments"]
