"""The lower bounds that all questions share, each with a witness that can be checked without a solver.

In: a Problem. Out: `Bound`s; `certify/check.py` re-computes each from its witness alone. Simplified: they ignore
contention and nearly all of memory. A question's own bounds are in its room.
"""

from weftline.bounds.load import group_bound, load_bound
from weftline.search.bound import Bound

__all__ = ["Bound", "group_bound", "load_bound"]
