"""Lower bounds on the value of every possible plan, each with a witness that can be checked without a solver.

In: a Problem. Out: `Bound`s, the best first; `certify/check.py` re-computes each from its witness alone.
Simplified: `lower_bounds` has the combinatorial ones (path, load, group, cut), which ignore contention and nearly all
of memory; `convex_set` is a search that the partition solvers run beside theirs, and its bounds are claimed.
"""

from weftline.bounds.bound import Bound
from weftline.bounds.cut import cut_bound
from weftline.bounds.group import group_bound
from weftline.bounds.load import load_bound
from weftline.bounds.path import path_bound
from weftline.problem import Problem

__all__ = ["Bound", "cut_bound", "group_bound", "load_bound", "lower_bounds", "path_bound"]


def lower_bounds(problem: Problem) -> tuple[Bound, ...]:
    """Every bound that applies to the problem's objective, the largest first."""
    found = [group_bound(problem), load_bound(problem)]
    if problem.rules.objective == "latency":
        found.append(path_bound(problem))
    elif (cut := cut_bound(problem)) is not None:
        found.append(cut)
    return tuple(sorted(found, key=lambda bound: -bound.value))
